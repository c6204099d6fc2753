"""How a log loses its end, or all, without ever being both."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.daemon import page_cache
from schemas.errors import InvalidRequestError, NotReadyError, OffsetOutOfRangeError, RunnelError
from spu.replication.history import History, TermStart
from spu.storage import reader as reader_module
from spu.storage.checkpoint import read_checkpoint
from tests.unit.spu.builders import (
    NOW_US,
    batch_of,
    headers,
    new_log_directory,
    open_log,
    settings_of,
)
from tests.unit.spu.storage.short_logs import (
    PRODUCER,
    SIZE,
    SMALL,
    TERMS,
    fill,
    reopened,
    stamped,
    state_of,
)

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


# Cutting the end


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
    assert cut.log.durable_leo == cut.log.syncable_leo == cut.log.leo == offset
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
    read_at = page_cache.read_at

    def cut_first(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
        monkeypatch.setattr(reader_module, "read_at", read_at)
        opened.log.truncate_suffix(2)
        return read_at(fd, view, position, wait=wait)

    monkeypatch.setattr(reader_module, "read_at", cut_first)
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
        pytest.param(4, 1, (TermStart(1, 3),), id="given-a-boundary-then-empty-there"),
        pytest.param(7, 2, (TermStart(2, 6),), id="given-the-middle-of-a-batch-then-empty-there"),
        pytest.param(18, 3, (TermStart(3, 17),), id="given-the-end-then-empty-there"),
        pytest.param(99, 5, (TermStart(5, 98),), id="given-far-beyond-then-empty-there"),
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
    assert after[2] == (*history, TermStart(6, start), TermStart(7, start + 2))
    opened.crash()
    assert reopened(tmp_path) == after
