"""The life of segments: states, names of truncated files, grace, and recovery of all that."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import OffsetOutOfRangeError
from schemas.objects.topic import Retention
from schemas.wire.log_requests import SegmentState
from spu.storage.lifecycle import segment_infos
from spu.storage.segment import Segment
from spu.storage.truncated_segments import TruncatedSegment, find_truncated, retire
from tests.unit.spu.builders import (
    NOW_US,
    OpenLog,
    batch_of,
    new_log_directory,
    open_log,
    settings_of,
)

GRACE_MS = 60_000


def three_segments(path: Path, retention: Retention | None = None) -> OpenLog:
    """Segments from offset 0, 4 and 8 on, of two batches of two records each."""
    settings = settings_of(segment=1 << 10, retention=retention)
    opened = open_log(new_log_directory(path), settings)
    for _ in range(6):
        opened.append(batch_of(2, bytes(400)))
    opened.sync()
    assert [segment.base_offset for segment in opened.log.segments] == [0, 4, 8]
    return opened


@pytest.mark.parametrize(
    ("completed_us", "log_start", "state"),
    [
        pytest.param(0, 0, SegmentState.IN_PROGRESS, id="given-written-then-in-progress"),
        pytest.param(9, 10, SegmentState.COMPLETED, id="given-completed-then-so"),
        pytest.param(
            9, 11, SegmentState.PARTIALLY_TRUNCATED, id="given-a-start-inside-then-partly"
        ),
        pytest.param(0, 15, SegmentState.PARTIALLY_TRUNCATED, id="given-written-then-so-too"),
        pytest.param(9, 20, SegmentState.TRUNCATED, id="given-its-end-then-truncated"),
        pytest.param(0, 20, SegmentState.IN_PROGRESS, id="given-written-then-not-truncated-yet"),
    ],
)
def test_state(completed_us: int, log_start: int, state: SegmentState) -> None:
    segment = Segment("d", 10, 20, size=7, opened_us=3, completed_us=completed_us)
    (found,) = segment_infos([segment], (), log_start)
    assert (found.state, found.size_bytes, found.completed_us) == (state, 7, completed_us)


def test_given_truncated_files_then_their_names_say_all(tmp_path: Path) -> None:
    segment = Segment(str(tmp_path), 10, 20)
    Path(segment.path).write_bytes(b"12345")
    segment.index_path.write_bytes(b"index")
    for other in ("other-1.truncated", "²-3-4.truncated"):
        (tmp_path / other).write_bytes(b"")
    retired = retire(segment, NOW_US)
    assert retired == TruncatedSegment(retired.path if retired else "", 10, 20, NOW_US, 5)
    assert find_truncated(tmp_path) == (retired,)
    assert not Path(segment.path).exists()
    assert not segment.index_path.exists()
    assert retire(segment, NOW_US) is None


def test_given_a_grace_then_truncated_files_go_when_it_has_passed(tmp_path: Path) -> None:
    opened = three_segments(tmp_path)
    log, before = opened.log, opened.log.version
    log.truncate_prefix(6)
    opened.sync()
    assert [info.state for info in log.segment_infos()] == [
        SegmentState.TRUNCATED,
        SegmentState.PARTIALLY_TRUNCATED,
        SegmentState.IN_PROGRESS,
    ]
    assert log.version != before
    kept = log.truncated.size_bytes
    assert kept > 800
    assert log.truncated.take_expired(GRACE_MS, NOW_US + GRACE_MS * 1000 - 1) == ()
    assert log.truncated.size_bytes == kept
    before = log.version
    log.truncated.delete_files(log.truncated.take_expired(GRACE_MS, NOW_US + GRACE_MS * 1000))
    assert log.version != before
    assert (log.truncated.size_bytes, list(tmp_path.glob("*.truncated"))) == (0, [])
    opened.crash()


def test_given_no_time_for_grace_then_truncated_files_go_at_once(tmp_path: Path) -> None:
    opened = three_segments(tmp_path)
    opened.log.truncate_prefix(6)
    opened.sync()
    truncated = opened.log.truncated
    truncated.delete_files(truncated.take_expired(GRACE_MS, NOW_US, all_of_them=True))
    assert list(tmp_path.glob("*.truncated")) == []
    opened.crash()


def test_given_a_topic_without_grace_then_nothing_is_kept(tmp_path: Path) -> None:
    opened = three_segments(tmp_path, Retention(grace="0s"))
    opened.log.truncate_prefix(6)
    opened.sync()
    assert list(tmp_path.glob("*.truncated")) == []
    assert [info.base_offset for info in opened.log.segment_infos()] == [4, 8]
    opened.crash()


def test_given_a_crash_between_start_and_files_then_recovery_retires_them(tmp_path: Path) -> None:
    opened = three_segments(tmp_path)
    opened.log.truncate_prefix(9)
    plan = opened.log.plan_sync(11)
    plan.run()
    opened.crash()
    again = open_log(tmp_path)
    assert again.found.unfit is None
    states = [(info.base_offset, info.state) for info in again.log.segment_infos()]
    assert states == [
        (0, SegmentState.TRUNCATED),
        (4, SegmentState.TRUNCATED),
        (8, SegmentState.PARTIALLY_TRUNCATED),
    ]
    again.crash()


def test_given_all_truncated_then_the_active_segment_is_completed_and_goes(tmp_path: Path) -> None:
    opened = three_segments(tmp_path)
    log = opened.log
    log.truncate_prefix(12)
    opened.sync()
    assert log.roll_is_due(NOW_US)
    log.begin_next(NOW_US)
    opened.sync()
    assert [info.state for info in log.segment_infos()] == [
        *(SegmentState.TRUNCATED,) * 3,
        SegmentState.IN_PROGRESS,
    ]
    assert (log.log_start, log.leo, log.size_bytes) == (12, 12, 0)
    assert not log.roll_is_due(NOW_US)
    opened.crash()


def test_given_a_segment_completed_during_the_run_then_it_stays_until_it_was_synced(
    tmp_path: Path,
) -> None:
    """The next run opens every completed segment that waits for its fsync."""
    opened = three_segments(tmp_path)
    log = opened.log
    log.truncate_prefix(12)
    plan = log.plan_sync(11)
    log.begin_next(NOW_US)
    plan.run()
    assert [segment.base_offset for segment in log.synced(plan)] == [0, 4]
    opened.sync()
    assert [segment.base_offset for segment in log.segments] == [12]
    opened.crash()


@pytest.mark.parametrize(
    ("offset", "start"),
    [
        pytest.param(4, 4, id="given-a-first-record-then-its-batch"),
        pytest.param(7, 6, id="given-a-last-record-then-its-batch"),
        pytest.param(12, 12, id="given-the-end-then-the-end"),
        pytest.param(99, 12, id="given-beyond-the-end-then-the-end"),
    ],
)
def test_batch_start(tmp_path: Path, offset: int, start: int) -> None:
    opened = three_segments(tmp_path)
    assert opened.log.batch_start(offset) == start
    opened.crash()


def test_given_a_truncated_offset_then_there_is_no_batch(tmp_path: Path) -> None:
    opened = three_segments(tmp_path)
    opened.log.truncate_prefix(4)
    opened.sync()
    with pytest.raises(OffsetOutOfRangeError, match="first available offset is 4"):
        opened.log.batch_start(3)
    opened.crash()
