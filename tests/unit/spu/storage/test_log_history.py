"""What a log takes from its leader, and the history of terms that it keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import CorruptBatchError, FencedError, OffsetOutOfRangeError, RunnelError
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import build_control, set_offset_and_term
from spu.replication.history import History, TermStart
from spu.storage import log as log_module
from spu.storage.checkpoint import CHECKPOINT_NAME
from spu.storage.durable import read_document, write_document
from tests.unit.spu.builders import NOW_US, batches_in, new_log_directory, open_log
from tests.unit.spu.storage.short_logs import SIZE, SMALL, fill, reopened, stamped, state_of

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


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
        TermStart(1, 0),
        TermStart(2, 22),
        TermStart(4, 28),
        TermStart(5, 30),
        TermStart(6, 32),
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
    set_offset_and_term(control, 0, 9)
    opened.log.append_batches([control], NOW_US)
    assert opened.log.history == (TermStart(9, 0),)
    opened.crash()


# The history of terms


@pytest.mark.parametrize("checkpoint", [True, False])
def test_given_a_restart_then_the_history_is_the_same(tmp_path: Path, checkpoint: bool) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, "1123", synced=3 if checkpoint else 0)
    opened.crash()
    for _ in range(2):
        again = open_log(tmp_path, SMALL)
        assert again.log.history == (TermStart(1, 0), TermStart(2, 4), TermStart(3, 6))
        assert again.log.last_term == 3
        again.crash()


@pytest.mark.parametrize(
    ("start", "history"),
    [
        pytest.param(
            1, (TermStart(1, 0), TermStart(2, 4), TermStart(3, 6)), id="given-its-middle-then-stays"
        ),
        pytest.param(
            4, (TermStart(1, 0), TermStart(2, 4), TermStart(3, 6)), id="given-its-end-then-stays"
        ),
        pytest.param(5, (TermStart(2, 4), TermStart(3, 6)), id="given-the-next-then-goes"),
        pytest.param(8, (TermStart(3, 6),), id="given-all-then-the-last-term-stays"),
    ],
)
def test_given_a_later_start_then_the_term_before_it_is_known(
    tmp_path: Path, start: int, history: History
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, "1123")
    opened.log.begin_next(NOW_US)
    opened.log.truncate_prefix(start)
    assert opened.log.history[0] == TermStart(1, 0)
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
        pytest.param(
            "1" * 9 + "23", 0, (TermStart(1, 0), TermStart(2, 18), TermStart(3, 20)), id="whole"
        ),
        pytest.param(
            "1" * 9 + "23", 17, (TermStart(1, 16), TermStart(2, 18), TermStart(3, 20)), id="begun"
        ),
        pytest.param("12", 4, (TermStart(2, 3),), id="empty"),
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
