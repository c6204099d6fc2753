"""Append, read, roll, truncate: one log against a list of batches that knows better."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.daemon.page_cache import CAN_REFUSE_TO_WAIT
from schemas.errors import OffsetOutOfRangeError
from schemas.objects.topic import Durability, Retention
from schemas.wire.batch import HEADER_SIZE, verify
from spu.storage import file_pool, sync_plan
from spu.storage.index import INDEX_INTERVAL_BYTES, read_index
from tests.laws import examples
from tests.unit.spu.builders import (
    NOW_US,
    TERM,
    OpenLog,
    batch_of,
    headers,
    new_log_directory,
    open_log,
    settings_of,
)


def logged(path: Path, segment: int = 1 << 20, **kwargs: object) -> OpenLog:
    return open_log(new_log_directory(path), settings_of(segment=segment, **kwargs))  # type: ignore[arg-type]


def read_all(opened: OpenLog, start: int = 0, max_bytes: int = 1 << 20) -> list[int]:
    """Base offsets of all batches from ``start`` to the end."""
    bases, offset = [], start
    while offset < opened.log.leo:
        result = opened.log.read(offset, max_bytes, opened.log.leo, wait=True)
        found = headers(result.data)
        assert found[0].base_offset <= offset < found[0].next_offset
        bases += [header.base_offset for header in found]
        offset = result.next_offset
        assert offset == found[-1].next_offset
    return bases


def test_given_batches_then_they_read_back_stamped_and_whole(tmp_path: Path) -> None:
    opened = logged(tmp_path)
    assert [opened.append(batch_of(count)) for count in (3, 1, 2)] == [0, 3, 4]
    result = opened.log.read(0, 1 << 20, opened.log.leo, wait=False)
    found = headers(result.data)
    assert [(header.base_offset, header.term) for header in found] == [
        (0, TERM),
        (3, TERM),
        (4, TERM),
    ]
    verify(result.data[: found[0].length])
    opened.crash()


@pytest.mark.parametrize(
    ("offset", "upto", "max_bytes", "bases"),
    [
        pytest.param(0, 6, 1 << 20, [0, 3, 4], id="given-all-then-all"),
        pytest.param(1, 6, 1 << 20, [0, 3, 4], id="given-the-middle-of-a-batch-then-that-batch"),
        pytest.param(3, 6, 1 << 20, [3, 4], id="given-a-boundary-then-from-there"),
        pytest.param(0, 4, 1 << 20, [0, 3], id="given-an-end-then-nothing-above-it"),
        pytest.param(0, 6, 1, [0], id="given-few-bytes-then-the-first-batch-whole"),
        pytest.param(0, 6, 300, [0, 3], id="given-a-cut-inside-a-batch-then-whole-batches"),
        pytest.param(6, 6, 1 << 20, [], id="given-the-end-then-nothing"),
        pytest.param(9, 6, 1 << 20, [], id="given-beyond-the-end-then-nothing"),
        pytest.param(3, 3, 1 << 20, [], id="given-the-commit-limit-then-nothing"),
    ],
)
def test_reads(tmp_path: Path, offset: int, upto: int, max_bytes: int, bases: list[int]) -> None:
    opened = logged(tmp_path)
    for count in (3, 1, 2):
        opened.append(batch_of(count))
    result = opened.log.read(offset, max_bytes, upto, wait=True)
    assert [header.base_offset for header in headers(result.data)] == bases
    opened.crash()


@pytest.mark.parametrize(
    ("sizes_kb", "max_kb", "read_kb"),
    [
        pytest.param((100, 100, 100), 150, 100, id="given-long-batches-then-those-that-fit"),
        pytest.param((100, 100, 100), 250, 200, id="given-two-that-fit-then-those"),
        pytest.param((300, 100), 150, 300, id="given-a-batch-longer-than-the-limit-then-it-alone"),
        pytest.param((100, 100), 500, 200, id="given-room-for-all-then-all"),
        pytest.param((1,) * 200, 150, 150, id="given-small-ones-then-as-many-as-fit"),
        pytest.param((1,) * 160, 150, 150, id="given-the-last-small-ones-then-as-many-as-fit"),
    ],
)
def test_given_long_batches_then_nothing_is_read_in_vain(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes_kb: tuple[int, ...],
    max_kb: int,
    read_kb: int,
) -> None:
    opened = logged(tmp_path)
    for size_kb in sizes_kb:
        opened.append(batch_of(1, bytes((size_kb << 10) - HEADER_SIZE)))
    asked: list[int] = []
    preadv = os.preadv

    def counting(fd: int, buffers: list[memoryview], position: int, *flags: int) -> int:
        asked.append(sum(map(len, buffers)))
        return preadv(fd, buffers, position, *flags)

    monkeypatch.setattr(os, "preadv", counting)
    result = opened.log.read(0, max_kb << 10, opened.log.leo, wait=True)
    assert (sum(asked), len(result.data)) == (read_kb << 10, read_kb << 10)
    opened.crash()


@settings(max_examples=examples(10))
@given(
    sizes=st.lists(st.sampled_from((1, 900, 20_000, 70_000, 150_000)), min_size=1, max_size=24),
    max_bytes=st.integers(1, 400_000),
    data=st.data(),
)
def test_law_a_read_gives_the_first_batch_and_what_fits_behind_it(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_bytes: int, data: st.DataObject
) -> None:
    opened = logged(tmp_path_factory.mktemp("log"), segment=1 << 23)
    lengths = [len(batch) for batch in (batch_of(1, bytes(size)) for size in sizes)]
    for size in sizes:
        opened.append(batch_of(1, bytes(size)))
    start = data.draw(st.integers(0, len(sizes) - 1))
    upto = data.draw(st.integers(start + 1, len(sizes)))
    found = headers(opened.log.read(start, max_bytes, upto, wait=True).data)
    most = max(1, sum(sum(lengths[start:end]) <= max_bytes for end in range(start + 1, upto + 1)))
    got = [header.base_offset for header in found]
    assert got == list(range(start, start + len(got)))
    assert sum(lengths[start : start + len(got)]) <= max(max_bytes, lengths[start])
    # The index may end a read early, by less than lies between two of its entries.
    left_out = sum(lengths[start + len(got) : start + most])
    assert left_out < INDEX_INTERVAL_BYTES
    opened.crash()


def test_given_small_segments_then_they_roll_and_the_old_one_is_synced_first(
    tmp_path: Path,
) -> None:
    opened = logged(tmp_path, segment=1 << 10)
    for _ in range(30):
        opened.append(batch_of(2))
    log = opened.log
    assert len(log.segments) > 3
    assert all(segment.size <= 1 << 10 for segment in log.segments)
    # Nothing behind an unsynced boundary may be acknowledged.
    assert log.syncable_leo == log.segments[0].end_offset
    assert log.durable_leo == 0
    opened.sync()
    assert log.syncable_leo == log.durable_leo == log.leo == 60
    assert read_all(opened) == list(range(0, 60, 2))
    for segment in log.segments[:-1]:
        found = read_index(segment.index_path)
        assert found is not None
        assert found[0].covered == segment.size
        assert found[0].end_offset == segment.end_offset
    opened.crash()


def test_given_a_sync_then_older_segments_and_names_are_durable_before_newer_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        file_pool,
        "sync_log_file",
        lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name),
    )
    monkeypatch.setattr(sync_plan, "sync_log_directory", lambda path: synced.append(path.name))
    opened = logged(tmp_path, segment=1 << 10)
    for _ in range(15):
        opened.append(batch_of())
    opened.sync()
    assert synced == [f"{0:020d}.log", tmp_path.name, f"{8:020d}.log"]
    opened.crash()


def test_given_a_sync_then_it_covers_what_was_written_before_it(tmp_path: Path) -> None:
    opened = logged(tmp_path)
    opened.append(batch_of())
    plan = opened.log.plan_sync(-1)
    opened.append(batch_of())
    plan.run()
    opened.log.synced(plan)
    assert (opened.log.durable_leo, opened.log.leo) == (1, 2)
    assert opened.log.unsynced_bytes == opened.log.size_bytes // 2
    opened.sync()
    assert (opened.log.durable_leo, opened.log.unsynced_bytes) == (2, 0)
    opened.crash()


@pytest.mark.parametrize("damage", ["missing", "stale", "garbage"])
def test_given_a_bad_index_then_reads_rebuild_it(tmp_path: Path, damage: str) -> None:
    opened = logged(tmp_path, segment=200 << 10)
    for _ in range(40):
        opened.append(batch_of(2, b"p" * 9_000))
    opened.sync()
    path = opened.log.segments[0].index_path
    good = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "stale":
            path.write_bytes(opened.log.segments[1].index_path.read_bytes())
        case _:
            path.write_bytes(good[:-9] + bytes(9))
    for offset in range(opened.log.segments[0].end_offset):
        found = headers(opened.log.read(offset, 1, 80, wait=True).data)
        assert found[0].base_offset == offset - offset % 2
    assert path.read_bytes() == good
    opened.crash()


def test_given_the_index_on_disk_then_a_read_that_must_not_wait_says_so(tmp_path: Path) -> None:
    if not CAN_REFUSE_TO_WAIT:
        pytest.skip("this system cannot read without waiting")
    opened = logged(tmp_path, segment=1 << 10)
    for _ in range(20):
        opened.append(batch_of())
    opened.sync()
    with pytest.raises(BlockingIOError):
        opened.log.read(1, 100, 20, wait=False)
    assert headers(opened.log.read(1, 1, 20, wait=True).data)[0].base_offset == 1
    opened.crash()


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        pytest.param(0, 0, id="given-before-all-then-the-first"),
        pytest.param(100, 0, id="given-the-first-time-then-it"),
        pytest.param(101, 2, id="given-between-then-the-next"),
        pytest.param(250, 4, id="given-disorder-then-the-first-at-or-after"),
        pytest.param(301, 10, id="given-after-all-then-the-end"),
    ],
)
def test_offset_for_timestamp(tmp_path: Path, asked: int, offset: int) -> None:
    opened = logged(tmp_path, segment=1 << 10)
    for time_us in (100, 200, 300, 150, 250):
        opened.append(batch_of(2, bytes(500), time_us))
    opened.sync()
    assert opened.log.offset_for_timestamp(asked, 10) == offset
    opened.crash()


def test_given_truncation_then_the_start_is_durable_before_files_go(tmp_path: Path) -> None:
    opened = logged(tmp_path, segment=1 << 10)
    for _ in range(30):
        opened.append(batch_of(2))
    opened.sync()
    log = opened.log
    second = log.segments[1]
    log.truncate_prefix(second.base_offset + 1)
    plan = log.plan_sync(59)
    assert log.log_start == 0
    plan.run()
    doomed = log.synced(plan)
    assert log.log_start == second.base_offset + 1
    assert [segment.base_offset for segment in doomed] == [0]
    # A crash before the files go: recovery finishes the deletion.
    opened.crash()
    again = open_log(tmp_path)
    assert again.log.log_start == second.base_offset + 1
    assert again.log.segments[0].base_offset == second.base_offset
    with pytest.raises(OffsetOutOfRangeError, match=f"first available offset is {log.log_start}"):
        again.log.read(0, 100, 60, wait=True)
    assert read_all(again, log.log_start)[0] == second.base_offset
    again.crash()


@pytest.mark.parametrize(
    ("retention", "now_us", "upto", "kept"),
    [
        pytest.param(Retention(time=None), NOW_US, 60, 6, id="given-no-limit-then-all-stays"),
        pytest.param(Retention(time="10s"), NOW_US + 9_000_000, 60, 6, id="given-young-then-stays"),
        pytest.param(Retention(time="10s"), NOW_US + 11_000_000, 60, 1, id="given-old-then-goes"),
        pytest.param(Retention(size=2_000, time=None), NOW_US, 60, 2, id="given-size-then-enough"),
        pytest.param(
            Retention(time="10s"), NOW_US + 11_000_000, 17, 5, id="given-uncommitted-then-stays"
        ),
    ],
)
def test_retention(tmp_path: Path, retention: Retention, now_us: int, upto: int, kept: int) -> None:
    opened = logged(tmp_path, segment=1 << 10, retention=retention)
    for _ in range(30):
        opened.append(batch_of(2, bytes(100)))
    opened.sync()
    assert len(opened.log.segments) == 6
    opened.log.apply_retention(now_us, upto)
    opened.sync()
    log = opened.log
    assert len(log.segments) == kept
    assert log.log_start == log.segments[0].base_offset
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert len(list(tmp_path.glob("*.log"))) == kept
    opened.crash()


def test_given_time_then_the_active_segment_is_due_to_roll(tmp_path: Path) -> None:
    opened = logged(tmp_path)
    log = opened.log
    assert not log.roll_is_due(NOW_US)
    opened.append(batch_of())
    assert not log.roll_is_due(NOW_US + 1)
    later = NOW_US + log.settings.segment.time * 1_000
    assert log.roll_is_due(later)
    log.begin_next(later)
    assert not log.roll_is_due(later)
    opened.append(batch_of(), now_us=later)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.begin_next(later)
    opened.sync()
    log.apply_retention(later * 2, log.leo)
    opened.sync()
    assert (log.log_start, log.leo, log.size_bytes) == (2, 2, 0)
    opened.crash()
    again = open_log(tmp_path)
    assert (again.log.log_start, again.log.leo, again.found.unfit) == (2, 2, None)
    assert again.append(batch_of(), now_us=later) == 2
    again.crash()


def test_given_many_logs_then_few_files_are_open(tmp_path: Path) -> None:
    opened = logged(tmp_path, segment=1 << 10)
    for _ in range(400):
        opened.append(batch_of(2))
        opened.sync()
    assert len(opened.log.segments) > 40
    assert read_all(opened) == list(range(0, 800, 2))
    assert len(opened.files) <= 16
    opened.crash()


def test_given_replicated_durability_then_a_sync_is_due_only_for_a_reason(tmp_path: Path) -> None:
    opened = logged(tmp_path, durability=Durability.REPLICATED)
    opened.append(batch_of())
    # The new file's name must be made durable.
    due = [opened.log.sync_is_due]
    opened.sync()
    opened.append(batch_of())
    due.append(opened.log.sync_is_due)
    assert due == [True, False]
    assert opened.log.needs_sync
    opened.crash()


@settings(max_examples=examples(10))
@given(
    batches=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3_000)), min_size=1, max_size=60),
    segment=st.integers(1 << 10, 20_000),
    max_bytes=st.integers(1, 30_000),
    syncs=st.integers(1, 7),
    data=st.data(),
)
def test_law_a_log_gives_back_what_was_appended_across_a_crash(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[int, int]],
    segment: int,
    max_bytes: int,
    syncs: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("log")
    opened = logged(path, segment=segment)
    bases = []
    for number, (count, size) in enumerate(batches):
        bases.append(opened.append(batch_of(count, bytes(size), number)))
        if number % syncs == 0:
            opened.sync(checkpoint=number % 3 == 0)
    start = data.draw(st.integers(0, opened.log.leo - 1))
    expected = bases[max(i for i, base in enumerate(bases) if base <= start) :]
    assert read_all(opened, start, max_bytes) == expected
    opened.crash()
    again = open_log(path)
    assert again.found.unfit is None
    assert again.log.leo == again.log.durable_leo == opened.log.leo
    assert again.log.last_term == TERM
    assert again.log.size_bytes == opened.log.size_bytes
    assert read_all(again, start, max_bytes) == expected
    asked = data.draw(st.integers(0, len(batches)))
    wanted = bases[asked] if asked < len(bases) else again.log.leo
    assert again.log.offset_for_timestamp(asked, again.log.leo) == wanted
    again.crash()
