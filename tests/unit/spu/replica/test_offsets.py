"""Where something is in the log of a replica: its ends, times, transaction ids, segments."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schemas.errors import (
    DivergedError,
    InvalidRequestError,
    NotReadyError,
    RunnelError,
    StorageFailedError,
)
from schemas.objects.topic import Retention
from schemas.wire.log_requests import SegmentState
from schemas.wire.record_requests import EARLIEST, LATEST, PositionBy
from spu.storage.reader import LogReader
from tests.unit.spu.builders import (
    TERM,
    UID,
    Spu,
    assignment_of,
    batch_of,
    open_spu,
    produce,
    settings_of,
    until,
)
from tests.unit.spu.gate import gate


async def test_given_a_watcher_of_segments_then_it_is_told_of_every_change(spu: Spu) -> None:
    replica = await spu.serve()
    await produce(replica, batch_of(4))
    known, (first,) = replica.offsets.list_segments()
    assert (first.base_offset, first.end_offset, first.state) == (0, 5, SegmentState.IN_PROGRESS)
    told: list[RunnelError | None] = []
    replica.when_segments_change(60_000, told.append)
    await produce(replica, batch_of())
    assert told == []
    replica._log.roll(spu.now_us)
    replica.tick(spu.now_us)
    assert told == [None]
    then, (first,) = replica.offsets.list_segments()
    assert then.version != known.version
    assert (first.end_offset, first.state) == (6, SegmentState.COMPLETED)
    assert (first.completed_us, first.size_bytes) == (spu.now_us, replica.size_bytes)


async def test_given_a_halted_replica_then_watchers_of_segments_are_told(spu: Spu) -> None:
    replica = await spu.serve()
    told: list[RunnelError | None] = []
    replica.when_segments_change(60_000, told.append)
    replica.damaged(OSError("the disk is broken"))
    assert [type(error) for error in told] == [StorageFailedError]
    with pytest.raises(StorageFailedError):
        replica.offsets.list_segments()


async def test_given_positions_then_list_offsets_knows_them(spu: Spu) -> None:
    replica = await spu.serve()
    for time_us in (spu.now_us + 10, spu.now_us + 20):
        await produce(replica, batch_of(2, time_us=time_us))
    assert replica.offsets.list_offsets(LATEST).offset == 5
    assert replica.offsets.find_offset(spu.now_us + 11, PositionBy.TIMESTAMP).offset == 3
    assert replica.offsets.find_offset(spu.now_us + 99, PositionBy.TIMESTAMP).offset == 5
    with pytest.raises(InvalidRequestError, match="means nothing"):
        replica.offsets.list_offsets(-7)


async def test_given_offsets_then_the_terms_below_them(spu: Spu) -> None:
    replica = await spu.serve()
    await produce(replica, batch_of(4))
    latest = replica.offsets.list_offsets(LATEST)
    assert (latest.offset, latest.term) == (5, TERM)
    for offset, term in ((0, 0), (1, TERM), (5, TERM), (6, 0)):
        found = replica.offsets.list_offsets(offset, PositionBy.OFFSET)
        assert (found.offset, found.by, found.term) == (offset, PositionBy.OFFSET, term)
    assert replica.offsets.list_offsets(EARLIEST).term == 0
    replica.offsets.require_held(5, TERM)
    with pytest.raises(DivergedError) as got:
        replica.offsets.require_held(5, TERM + 1)
    assert got.value.diverged_at == 4


async def test_given_ids_then_they_are_positions(spu: Spu) -> None:
    replica = await spu.serve()
    for first in (10, 20):
        await produce(replica, batch_of(2, ids=(first, first + 1)))
    found = replica.offsets.find_offset(12, PositionBy.TRANSACTION_ID)
    assert (found.offset, found.by, found.lac) == (3, PositionBy.TRANSACTION_ID, 4)
    assert replica.offsets.find_offset(22, PositionBy.TRANSACTION_ID).offset == 5


@pytest.mark.parametrize(
    ("by", "look_up"),
    [
        pytest.param(PositionBy.TIMESTAMP, "find_time", id="by-time"),
        pytest.param(PositionBy.TRANSACTION_ID, "find_id", id="by-id"),
    ],
)
async def test_given_a_look_up_in_a_segment_that_retention_takes_then_it_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: PositionBy, look_up: str
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    log = settings_of(segment=1 << 10, retention=Retention(time="10s"))
    spu = await open_spu(tmp_path, assignment_of(log=log))
    replica = await spu.serve()
    for _ in range(20):
        await produce(replica, batch_of(ids=(5, 5)))
    directory, first = tmp_path / "partitions" / UID, replica._log.segments[0].path
    with gate(monkeypatch, LogReader, look_up) as (entered, opened):
        found = asyncio.get_running_loop().run_in_executor(
            spu.host.read_threads, replica.offsets.find_offset, 0, by
        )
        await until(entered.is_set)
        spu.now_us += 11_000_000
        for _ in range(3):
            # Rolls; asks for another start; and it takes effect.
            replica.tick(spu.now_us)
            await replica._runner.commit.quiet()
        assert replica.log_start == 21
        assert first not in map(str, directory.glob("*.log"))
        opened.set()
        with pytest.raises(NotReadyError, match="meanwhile"):
            await found
    assert replica.fit
    assert replica.offsets.find_offset(0, by).offset == 21
    await spu.host.close()


async def test_given_a_look_up_in_a_segment_that_is_gone_then_it_says_so(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=1 << 10)))
    replica = await spu.serve()
    for _ in range(20):
        await produce(replica, batch_of())
    first = replica._log.segments[0]
    await until(lambda: first.index is None)
    for path in (tmp_path / "partitions" / UID).glob(f"{first.base_offset:020d}*"):
        path.unlink()
    spu.host._files.forget(first.path)
    with pytest.raises(FileNotFoundError):
        replica.offsets.find_offset(0, PositionBy.TIMESTAMP)
    await replica.abandon()
    await spu.host.close()
