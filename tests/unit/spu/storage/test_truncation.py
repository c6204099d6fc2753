"""What a log takes from its leader, and how it loses its end, or all, without ever being both."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.batch import build_control, stamp
from schemas.errors import (
    CorruptBatchError,
    FencedError,
    InvalidRequestError,
    NotReadyError,
    OffsetOutOfRangeError,
    RunnelError,
)
from schemas.topic import MAX_BATCH_BYTES
from spu.replication.history import Epoch, History
from spu.storage import log as log_module
from spu.storage.checkpoint import CHECKPOINT_NAME, read_checkpoint
from spu.storage.durable import read_document, write_document
from tests.unit.spu.builders import (
    NOW_US,
    OpenLog,
    batch_of,
    batches_in,
    headers,
    new_log_directory,
    open_log,
    settings_of,
)
from tests.unit.spu.storage.crashes import every_crash

SIZE = 128
SMALL = settings_of(segment=1 << 10)
PRODUCER = 7


def stamped(base: int, term: int, count: int = 1) -> bytearray:
    batch = batch_of(count)
    stamp(batch, base, term)
    return batch


def state_of(opened: OpenLog) -> tuple[object, ...]:
    """All that a log is: bounds, terms, producers, bytes."""
    log = opened.log
    data = bytearray()
    offset = log.log_start
    while offset < log.leo:
        found = log.read(offset, 1 << 20, log.leo, wait=True)
        data += found.data
        offset = found.next_offset
    return log.log_start, log.leo, log.history, log.producers.dump(), bytes(data)


def reopened(path: Path) -> tuple[object, ...]:
    opened = open_log(path, SMALL)
    assert opened.found.unfit is None, opened.found.unfit
    state = state_of(opened)
    opened.crash()
    return state


def fill(opened: OpenLog, terms: str, *, synced: int = 0, lac: int = -1) -> None:
    """A batch of two records for every digit, its term; ``synced`` of them with a checkpoint."""
    first = opened.log.leo // 2
    for number, term in enumerate(terms, first):
        opened.append(batch_of(2, producer_id=PRODUCER, sequence=number), term=int(term))
        if number - first + 1 == synced:
            opened.sync(lac=lac, checkpoint=True)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut loses is simulated; the disk of the test machine need not take part."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)


# Appending what a leader has stamped


def test_given_a_leaders_batches_then_the_follower_has_the_same_log(tmp_path: Path) -> None:
    leader = open_log(new_log_directory(tmp_path / "leader"), SMALL)
    fill(leader, "1" * 11 + "2" * 3 + "45" + "6" * 9)
    follower = open_log(new_log_directory(tmp_path / "follower"), SMALL)
    while follower.log.leo < leader.log.leo:
        found = leader.log.read(follower.log.leo, 500, leader.log.leo, wait=True)
        follower.log.append_batches(batches_in(found.data), NOW_US)
    assert state_of(follower) == state_of(leader)
    assert leader.log.history == (
        Epoch(1, 0),
        Epoch(2, 22),
        Epoch(4, 28),
        Epoch(5, 30),
        Epoch(6, 32),
    )
    # Segments end where the leader's do: by size, and where a term ends.
    assert [s.base_offset for s in leader.log.segments] == [0, 16, 22, 28, 30, 32, 48]
    for path in (tmp_path / "leader").glob("*.log"):
        assert (tmp_path / "follower" / path.name).read_bytes() == path.read_bytes()
    leader.crash()
    follower.crash()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(stamped(3, 5), OffsetOutOfRangeError, id="given-a-gap-then-out-of-range"),
        pytest.param(stamped(1, 5), OffsetOutOfRangeError, id="given-an-overlap-then-out-of-range"),
        pytest.param(
            stamped(2, 5) + stamped(4, 5),
            OffsetOutOfRangeError,
            id="given-a-gap-inside-then-nothing",
        ),
        pytest.param(stamped(2, 3), FencedError, id="given-an-older-term-then-fenced"),
        pytest.param(
            stamped(2, 6) + stamped(3, 5), FencedError, id="given-a-falling-term-then-fenced"
        ),
    ],
)
def test_given_a_bad_push_then_nothing_of_it_is_written(
    tmp_path: Path, data: bytearray, error: type[RunnelError]
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "4")
    before = state_of(opened)
    with pytest.raises(RunnelError) as raised:
        opened.log.append_batches(batches_in(data), NOW_US)
    assert type(raised.value) is error
    assert state_of(opened) == before
    assert (tmp_path / f"{0:020d}.log").stat().st_size == SIZE
    opened.crash()
    assert reopened(tmp_path) == before


def test_given_a_batch_that_recovery_would_refuse_then_it_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    monkeypatch.setattr(log_module, "MAX_BATCH_BYTES", SIZE - 1)
    assert MAX_BATCH_BYTES >= SIZE
    with pytest.raises(CorruptBatchError, match="the limit is 127"):
        opened.log.append_batches([stamped(0, 1)], NOW_US)
    with pytest.raises(CorruptBatchError, match="says that it has"):
        opened.log.append_batches([stamped(0, 1) + b"x"], NOW_US)
    opened.crash()


def test_given_no_batches_then_nothing_happens(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    opened.log.append_batches([], NOW_US)
    assert opened.log.leo == 0
    control = build_control("term", NOW_US)
    stamp(control, 0, 9)
    opened.log.append_batches([control], NOW_US)
    assert opened.log.history == (Epoch(9, 0),)
    opened.crash()


# The history of terms


@pytest.mark.parametrize("checkpoint", [True, False])
def test_given_a_restart_then_the_history_is_the_same(tmp_path: Path, checkpoint: bool) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, "1123", synced=3 if checkpoint else 0)
    opened.crash()
    for _ in range(2):
        again = open_log(tmp_path, SMALL)
        assert again.log.history == (Epoch(1, 0), Epoch(2, 4), Epoch(3, 6))
        assert again.log.last_term == 3
        again.crash()


@pytest.mark.parametrize(
    ("start", "history"),
    [
        pytest.param(1, (Epoch(1, 0), Epoch(2, 4), Epoch(3, 6)), id="given-its-middle-then-stays"),
        pytest.param(4, (Epoch(1, 0), Epoch(2, 4), Epoch(3, 6)), id="given-its-end-then-stays"),
        pytest.param(5, (Epoch(2, 4), Epoch(3, 6)), id="given-the-next-then-goes"),
        pytest.param(8, (Epoch(3, 6),), id="given-all-then-the-last-term-stays"),
    ],
)
def test_given_a_later_start_then_the_term_before_it_is_known(
    tmp_path: Path, start: int, history: History
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, "1123")
    opened.log.begin_next(NOW_US)
    opened.log.truncate_prefix(start)
    assert opened.log.history[0] == Epoch(1, 0)
    opened.sync()
    assert (opened.log.log_start, opened.log.history) == (start, history)
    opened.crash()
    for _ in range(2):
        again = open_log(tmp_path, SMALL)
        assert (again.log.log_start, again.log.leo, again.log.history) == (start, 8, history)
        again.crash()


@pytest.mark.parametrize(
    ("terms", "start", "history"),
    [
        pytest.param("1" * 9 + "23", 0, (Epoch(1, 0), Epoch(2, 18), Epoch(3, 20)), id="whole"),
        pytest.param("1" * 9 + "23", 17, (Epoch(1, 16), Epoch(2, 18), Epoch(3, 20)), id="begun"),
        pytest.param("12", 4, (Epoch(2, 3),), id="empty"),
        pytest.param("", 0, (), id="new"),
    ],
)
def test_given_a_checkpoint_without_a_history_then_the_log_tells(
    tmp_path: Path, terms: str, start: int, history: History
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, terms)
    if start == opened.log.leo and start:
        opened.log.begin_next(NOW_US)
    opened.log.truncate_prefix(start)
    opened.sync(checkpoint=True)
    before = opened.log.producers.dump()
    opened.crash()
    path = tmp_path / CHECKPOINT_NAME
    document = read_document(path)
    assert document is not None
    kept = {
        name: document[name] for name in document if name not in ("history", "settled", "cutAt")
    }
    write_document(path, kept | {"lastTerm": int(terms[-1]) if terms else 0})
    for _ in range(2):
        again = open_log(tmp_path, SMALL)
        assert again.found.unfit is None
        assert (again.log.log_start, again.log.history) == (start, history)
        assert again.log.producers.dump() == before
        again.crash()
    # It is read once.
    assert "history" in json.loads(path.read_bytes()[12:])


# Cutting the end


#: Three terms, three batches of two records each, 128 bytes a batch.
TERMS = "111222333"


@pytest.mark.parametrize("synced", [0, 2, 5, 9])
@pytest.mark.parametrize("offset", range(0, 19, 2))
def test_given_a_cut_then_the_log_is_as_if_the_rest_had_never_been(
    tmp_path: Path, offset: int, synced: int
) -> None:
    cut = open_log(new_log_directory(tmp_path / "cut"), SMALL)
    fill(cut, TERMS, synced=synced)
    model = open_log(new_log_directory(tmp_path / "model"), SMALL)
    fill(model, TERMS[: offset // 2])
    cut.log.truncate_suffix(offset)
    assert state_of(cut) == state_of(model)
    assert cut.log.durable_leo == cut.log.orderly_leo == cut.log.leo == offset
    assert not cut.log.needs_sync
    assert cut.log.unsynced_bytes == 0
    assert cut.log.size_bytes == offset // 2 * SIZE
    assert reopened(tmp_path / "cut") == state_of(model)
    # Others follow, longer ones, so that offsets and positions differ from what was there.
    for opened in (cut, model):
        for number in range(9):
            opened.append(batch_of(3, b"y" * 40, producer_id=8, sequence=number), term=4)
    assert state_of(cut) == state_of(model)
    cut.crash()
    assert reopened(tmp_path / "cut") == state_of(model)
    model.crash()


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        pytest.param(5, InvalidRequestError, id="given-the-middle-of-a-batch-then-invalid"),
        pytest.param(19, OffsetOutOfRangeError, id="given-beyond-the-end-then-out-of-range"),
        pytest.param(2, OffsetOutOfRangeError, id="given-below-the-start-then-out-of-range"),
    ],
)
def test_given_no_place_to_cut_then_nothing_happens(
    tmp_path: Path, offset: int, error: type[RunnelError]
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, TERMS)
    opened.log.truncate_prefix(4)
    opened.sync()
    before = state_of(opened)
    with pytest.raises(RunnelError) as raised:
        opened.log.truncate_suffix(offset)
    assert type(raised.value) is error
    assert state_of(opened) == before
    opened.crash()
    assert reopened(tmp_path) == before


def test_given_a_log_without_a_segment_then_it_is_cut_to_nothing(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    opened.log.truncate_suffix(0)
    assert opened.append(batch_of()) == 0
    opened.crash()


def test_given_a_cut_below_an_old_end_then_no_index_speaks_of_what_was_there(
    tmp_path: Path,
) -> None:
    big = settings_of(segment=1 << 22)
    opened = open_log(new_log_directory(tmp_path), big)
    for number in range(20):
        opened.append(batch_of(2, bytes(32 << 10), time_us=number), term=1)
    opened.sync(checkpoint=True)
    opened.log.truncate_suffix(14)
    assert opened.log.segments[0].max_timestamp_us == 6
    for number in range(30):
        opened.append(batch_of(3, bytes(10 << 10), time_us=50 + number), term=1)
    opened.sync(checkpoint=True)
    assert opened.log.offset_for_timestamp(7, opened.log.leo) == 14
    for _ in range(2):
        for offset in range(opened.log.leo):
            (found,) = headers(opened.log.read(offset, 1, opened.log.leo, wait=True).data)
            assert found.base_offset <= offset < found.next_offset
        opened.crash()
        opened = open_log(tmp_path, big)
        assert opened.found.unfit is None
        assert opened.log.segments[0].max_timestamp_us == 79
    opened.crash()


def test_given_a_reader_before_the_cut_then_reads_go_on_from_inside_the_log(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "1111")
    # The reader goes on at 4 and at 8: what it remembers of them is over after the cut.
    assert opened.log.read(0, 2 * SIZE, 8, wait=True).next_offset == 4
    assert opened.log.read(4, 2 * SIZE, 8, wait=True).next_offset == 8
    opened.log.truncate_suffix(2)
    more = [stamped(2, 1, 1), stamped(3, 1, 5), stamped(8, 1, 2), stamped(10, 1, 4)]
    opened.log.append_batches(more, NOW_US)
    for offset, base in ((8, 8), (1, 0), (2, 2), (4, 3), (13, 10)):
        found = headers(opened.log.read(offset, SIZE, opened.log.leo, wait=True).data)
        assert [header.base_offset for header in found] == [base]
    # Pushes read beyond what is durable, whole batches up to the end.
    assert opened.log.durable_leo == 2
    found = headers(opened.log.read(3, 1 << 20, opened.log.leo, wait=True).data)
    assert [header.base_offset for header in found] == [3, 8, 10]
    opened.crash()


def test_given_a_deleted_segment_in_use_then_its_name_is_used_for_a_new_file(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "12")
    opened.sync()
    with opened.files.open(opened.log.segments[1].path):
        opened.log.truncate_suffix(0)
        opened.log.append_batches([stamped(0, 1, 2), stamped(2, 3, 5)], NOW_US)
    before = state_of(opened)
    opened.crash()
    assert reopened(tmp_path) == before


def test_given_a_read_that_meets_the_cut_then_not_ready_and_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "1111")
    opened.sync()
    reader = opened.log._reader
    preadv = reader._preadv

    def cut_first(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
        monkeypatch.setattr(reader, "_preadv", preadv)
        opened.log.truncate_suffix(2)
        return preadv(fd, view, position, wait=wait)

    monkeypatch.setattr(reader, "_preadv", cut_first)
    with pytest.raises(NotReadyError, match="cut below"):
        opened.log.read(0, 1 << 20, 8, wait=True)
    assert headers(opened.log.read(0, 1 << 20, 8, wait=True).data)[0].base_offset == 0
    opened.crash()


# Producers


@pytest.mark.parametrize(
    ("lac", "start"),
    [
        pytest.param(13, 0, id="given-committed-then-from-there"),
        pytest.param(13, 8, id="given-a-later-start-then-what-was-before-it-counts"),
        pytest.param(-1, 0, id="given-nothing-committed-then-from-the-start"),
    ],
)
@pytest.mark.parametrize("restart", [True, False])
def test_given_a_cut_then_producers_remember_what_was_pushed_out_since(
    tmp_path: Path, lac: int, start: int, restart: bool
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    opened.append(batch_of(2, producer_id=9, sequence=4), term=1)
    fill(opened, "222222")
    opened.sync(lac=13, checkpoint=True)
    opened.log.truncate_prefix(start)
    fill(opened, "2")
    opened.sync(lac=lac, checkpoint=True)
    expected = opened.log.producers.dump()
    # All that is remembered of the producer belongs to what is cut, and the checkpoint as well.
    fill(opened, "333333")
    opened.sync(lac=lac, checkpoint=True)
    opened.sync(lac=lac, checkpoint=True)
    if restart:
        opened.crash()
        opened = open_log(tmp_path, SMALL)
    opened.log.truncate_suffix(16)
    assert opened.log.producers.dump() == expected
    opened.crash()
    assert reopened(tmp_path)[3] == expected


def test_given_a_cut_below_what_was_committed_then_producers_follow_from_the_log(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, "1" * 20)
    opened.log.truncate_prefix(20)
    opened.sync(lac=39)
    opened.log.truncate_suffix(22)
    # Its segment begins at 16: that much of the log is left, and no more is known.
    assert opened.log.segments[0].base_offset == 16
    assert opened.log.producers.dump() == ((PRODUCER, 0, ((8, 16, 18), (9, 18, 20), (10, 20, 22))),)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.lac, checkpoint.durable_leo) == (21, 22)
    opened.crash()
    fill(again := open_log(tmp_path, SMALL), "1")
    again.log.truncate_suffix(22)
    assert again.log.producers.dump() == opened.log.producers.dump()
    again.crash()


def test_given_other_records_after_a_cut_then_nothing_of_the_old_producers_comes_back(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "1111")
    # A checkpoint at 8, of a producer whose records are cut.
    opened.sync(lac=-1, checkpoint=True)
    opened.log.truncate_suffix(0)
    for number in range(6):
        opened.append(batch_of(2, producer_id=8, sequence=number), term=2)
    opened.log.truncate_suffix(10)
    expected = ((8, 0, tuple((n, 2 * n, 2 * n + 2) for n in range(5))),)
    assert opened.log.producers.dump() == expected
    opened.crash()
    assert reopened(tmp_path)[3] == expected


def test_given_a_rebuild_then_nothing_of_the_old_log_is_rolled_back_to(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "1111")
    opened.sync(lac=7, checkpoint=True)
    opened.log.rebuild(0, 0)
    for number in range(6):
        opened.append(batch_of(2, producer_id=8, sequence=number), term=2)
    opened.log.truncate_suffix(10)
    assert opened.log.producers.dump() == ((8, 0, tuple((n, 2 * n, 2 * n + 2) for n in range(5))),)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    # What was committed in the old log says nothing of the new one.
    assert (checkpoint.lac, checkpoint.settled) == (-1, (0, ()))
    opened.crash()


# Beginning anew


@pytest.mark.parametrize(
    ("start", "term", "history"),
    [
        pytest.param(0, 0, (), id="given-nothing-then-brand-new"),
        pytest.param(4, 1, (Epoch(1, 3),), id="given-a-boundary-then-empty-there"),
        pytest.param(7, 2, (Epoch(2, 6),), id="given-the-middle-of-a-batch-then-empty-there"),
        pytest.param(18, 3, (Epoch(3, 17),), id="given-the-end-then-empty-there"),
        pytest.param(99, 5, (Epoch(5, 98),), id="given-far-beyond-then-empty-there"),
        pytest.param(99, 0, (), id="given-no-term-then-none-is-known"),
    ],
)
@pytest.mark.parametrize("damaged", [True, False])
def test_given_a_rebuild_then_the_log_is_empty_at_its_start(
    tmp_path: Path, start: int, term: int, history: History, damaged: bool
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, TERMS)
    opened.log.truncate_prefix(3)
    opened.sync(checkpoint=True)
    if damaged:
        opened.crash()
        (tmp_path / f"{6:020d}.log").unlink()
        opened = open_log(tmp_path, SMALL)
        assert opened.found.unfit is not None
    opened.log.rebuild(start, term)
    expected = (start, start, history, (), b"")
    assert state_of(opened) == expected
    assert [path.name for path in tmp_path.glob("*.log")] == [f"{start:020d}.log"]
    assert not list(tmp_path.glob("*.index"))
    assert not opened.log.needs_sync
    assert (opened.log.durable_leo, opened.log.size_bytes) == (start, 0)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.lac, checkpoint.durable_leo) == (start - 1, start)
    assert reopened(tmp_path) == expected
    opened.log.append_batches([stamped(start, 6, 2), stamped(start + 2, 7)], NOW_US)
    after = state_of(opened)
    assert after[2] == (*history, Epoch(6, start), Epoch(7, start + 2))
    opened.crash()
    assert reopened(tmp_path) == after


# Crashes


def _cut_to(offset: int) -> Callable[[OpenLog], None]:
    return lambda opened: opened.log.truncate_suffix(offset)


def _rebuild(start: int, term: int) -> Callable[[OpenLog], None]:
    return lambda opened: opened.log.rebuild(start, term)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(_cut_to(18), id="given-the-end"),
        pytest.param(_cut_to(16), id="given-the-last-segment"),
        pytest.param(_cut_to(12), id="given-the-beginning-of-the-last-segment"),
        pytest.param(_cut_to(8), id="given-a-completed-segment"),
        pytest.param(_cut_to(4), id="given-the-first-segment"),
        pytest.param(_rebuild(0, 0), id="given-a-rebuild-at-0"),
        pytest.param(_rebuild(6, 1), id="given-a-rebuild-at-a-segment"),
        pytest.param(_rebuild(9, 2), id="given-a-rebuild-in-a-batch"),
        pytest.param(_rebuild(40, 2), id="given-a-rebuild-beyond-the-end"),
    ],
)
@pytest.mark.parametrize("synced", [1, 9])
def test_given_a_crash_anywhere_then_the_log_is_the_old_one_or_the_new_one(
    tmp_path: Path, job: Callable[[OpenLog], None], synced: int
) -> None:
    path = new_log_directory(tmp_path / "log")
    opened = open_log(path, SMALL)
    fill(opened, TERMS[:synced], synced=synced, lac=min(3, synced * 2 - 1))
    fill(opened, TERMS[synced:])
    before = state_of(opened)
    opened.crash()

    def work(copy: Path) -> Callable[[], None]:
        opened = open_log(copy, SMALL)

        def run() -> None:
            try:
                job(opened)
            finally:
                opened.crash()

        return run

    done = open_log(new_log_directory(tmp_path / "done"), SMALL)
    fill(done, TERMS)
    job(done)
    after = state_of(done)
    done.crash()
    (tmp_path / "scratch").mkdir()
    seen = set()
    for crash in every_crash(path, tmp_path / "scratch", work):
        found = reopened(crash.path)
        assert found == after if crash.done else found in (before, after), crash.what
        assert not list(crash.path.glob("cut-*")), crash.what
        seen.add((found == after, crash.done))
        again = open_log(crash.path, SMALL)
        again.append(batch_of(3, b"z" * 50, producer_id=9), term=5)
        again.sync(checkpoint=True)
        longer = state_of(again)
        again.crash()
        assert reopened(crash.path) == longer, crash.what
    assert seen >= {(True, False), (True, True)}
    assert (False, False) in seen or before == after


def test_given_a_cut_of_what_was_never_synced_then_what_is_left_is_durable_before_it_is_said(
    tmp_path: Path,
) -> None:
    path = new_log_directory(tmp_path / "log")
    opened = open_log(path, SMALL)
    fill(opened, "11", synced=2)
    opened.crash()

    def work(copy: Path) -> Callable[[], None]:
        opened = open_log(copy, SMALL)

        def run() -> None:
            try:
                fill(opened, "123")
                opened.log.truncate_suffix(8)
            finally:
                opened.crash()

        return run

    states = []
    for terms in ("11", "111", "1112", "11123"):
        model = open_log(new_log_directory(tmp_path / terms), SMALL)
        fill(model, terms)
        states.append(state_of(model))
        model.crash()
    (tmp_path / "scratch").mkdir()
    for crash in every_crash(path, tmp_path / "scratch", work):
        found = reopened(crash.path)
        assert found == states[2] if crash.done else found in states, crash.what


def test_given_a_cut_that_was_not_finished_and_less_log_than_it_left_then_unfit(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, TERMS)
    opened.log.truncate_suffix(10)
    opened.crash()
    checkpoint = read_document(tmp_path / CHECKPOINT_NAME)
    assert checkpoint is not None
    write_document(tmp_path / CHECKPOINT_NAME, checkpoint | {"cutAt": 2 * SIZE})
    last = tmp_path / f"{6:020d}.log"
    last.write_bytes(last.read_bytes()[: SIZE + 5])
    again = open_log(tmp_path, SMALL)
    assert (
        again.found.unfit
        == f"{last} at byte {SIZE + 5}: the log was cut at byte 256, the file ends before"
    )
    assert last.stat().st_size == SIZE + 5
    again.crash()
    last.unlink()
    without = open_log(tmp_path, SMALL)
    assert without.found.unfit is not None
    assert not last.exists()
    without.crash()


def test_given_a_log_that_ends_below_what_was_committed_then_unfit(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "11", synced=2, lac=3)
    opened.crash()
    checkpoint = read_document(tmp_path / CHECKPOINT_NAME)
    assert checkpoint is not None
    write_document(tmp_path / CHECKPOINT_NAME, checkpoint | {"lac": 4})
    again = open_log(tmp_path)
    assert again.found.unfit == f"{tmp_path} ends at offset 4, but offset 4 was committed"
    again.crash()


def test_given_an_index_without_a_segment_then_it_is_removed(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, "1" * 12, synced=12)
    opened.crash()
    orphan = tmp_path / f"{24:020d}.index"
    orphan.write_bytes((tmp_path / f"{16:020d}.index").read_bytes())
    reopened(tmp_path)
    assert not orphan.exists()
    assert (tmp_path / f"{16:020d}.index").exists()
