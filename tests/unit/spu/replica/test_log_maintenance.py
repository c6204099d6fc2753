"""What time does to the log of a replica: it expires, rolls, and gets a checkpoint."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from schemas.objects.topic import Retention
from spu.storage.disk_space import Room
from spu.storage.file_pool import FilePool
from spu.storage.log import PartitionLog
from tests.unit.spu.builders import (
    DEADLINE_S,
    UID,
    assign,
    assignment_of,
    batch_of,
    open_spu,
    produce,
    settings_of,
    until,
)


async def test_given_a_tick_then_retention_deletes_and_segments_roll(tmp_path: Path) -> None:
    log = settings_of(segment=1 << 10, retention=Retention(time="10s"))
    spu = await open_spu(tmp_path, assignment_of(log=log))
    replica = await spu.serve()
    for _ in range(20):
        await produce(replica, batch_of())
    spu.now_us += 11_000_000
    spu.host.tick(spu.now_us)
    await until(lambda: replica.log_start == 21)
    # The segment of the own term's records was rolled, then deleted on the next tick at most.
    assert (await produce(replica, batch_of())).base_offset == 21
    spu.host.tick(spu.now_us)
    await until(lambda: len(list((tmp_path / "partitions" / UID).glob("*.log"))) == 1)
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.replica.log_start == 21
    await again.host.close()


async def test_given_no_room_for_another_segment_then_it_leads_on_and_retention_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    log = settings_of(segment=1 << 10, retention=Retention(time="10s"))
    spu = await open_spu(tmp_path, assignment_of(log=log))
    replica = await spu.serve()
    for _ in range(20):
        await produce(replica, batch_of())
    spu.now_us += 11_000_000
    full = OSError(errno.ENOSPC, "No space left on device")

    async def start_after_a_tick() -> int:
        for _ in range(3):
            replica.tick(spu.now_us)
            await replica._runner.commit.quiet()
        return replica.log_start

    with monkeypatch.context() as patch:
        patch.setattr(FilePool, "create", Mock(side_effect=full))
        assert await start_after_a_tick() == 16
        assert replica.is_serving
    # There is room again: nothing has changed about the last segment.
    assert await start_after_a_tick() == 21
    await spu.host.close()


@pytest.mark.parametrize(
    ("archived", "start"),
    [
        pytest.param(None, 21, id="given-no-archive-then-retention-takes-all"),
        pytest.param(0, 0, id="given-nothing-archived-then-all-is-kept"),
        pytest.param(12, 8, id="given-a-part-archived-then-whole-segments-of-it-go"),
        pytest.param(99, 21, id="given-more-archived-than-committed-then-committed-records-go"),
    ],
)
async def test_retention_keeps_what_is_not_archived(
    tmp_path: Path, archived: int | None, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    log = settings_of(segment=1 << 10, retention=Retention(time="10s"))
    spu = await open_spu(tmp_path, assignment_of(log=log, archived_before=archived))
    replica = await spu.serve()
    for _ in range(20):
        await produce(replica, batch_of())
    spu.now_us += 11_000_000
    for _ in range(3):
        # Rolls; asks for another start; and it takes effect.
        replica.tick(spu.now_us)
        await replica._runner.commit.quiet()
    assert replica.log_start == start
    await spu.host.close()


async def test_given_an_idle_log_then_it_gets_a_checkpoint_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    spu = await open_spu(tmp_path, assignment_of())
    log = (await spu.serve())._log

    async def checkpointed(after_s: int, room: Room = Room.PLENTY) -> bool:
        """Whether a record is in a checkpoint once the log is idle, so much later."""
        await produce(spu.replica, batch_of())
        assert not log.is_checkpointed
        spu.host.space.room = room
        spu.now_us += after_s * 1_000_000
        for _ in range(2):
            # The first finds that nothing is to be done, and the second that it is so still.
            spu.replica.tick(spu.now_us)
            await spu.replica._runner.commit.quiet()
        await until(lambda: spu.host._checkpoints._writing is None)
        return log.is_checkpointed

    assert await checkpointed(0)
    assert not await checkpointed(59)
    assert not await checkpointed(1, Room.NONE)
    assert await checkpointed(0)
    await spu.host.close()


async def test_given_a_cut_while_a_truncation_is_looked_up_then_a_later_tick_truncates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    runner, log = replica._runner, replica._log
    for _ in range(5):
        await produce(replica, batch_of())
    look_up, may_look = PartitionLog.batch_start, threading.Event()

    def looked_up(self: PartitionLog, offset: int) -> int:
        assert may_look.wait(DEADLINE_S)
        return look_up(self, offset)

    monkeypatch.setattr(PartitionLog, "batch_start", looked_up)
    await spu.host.assign(assign(assignment_of(truncate_before=3, revision=10)))
    assert runner.maintenance._looking_up
    with monkeypatch.context() as cut:
        cut.setattr(type(runner), "may_write", property(lambda _self: False))
        may_look.set()
        await until(lambda: not runner.maintenance._looking_up)
    assert log.log_start == 0
    replica.tick(spu.now_us)
    await until(lambda: log.log_start == 3)
    await spu.host.close()
