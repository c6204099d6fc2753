"""A disk without room halts replicas; they come back by themselves when there is room."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from schemas.control.messages import ReplicaRole
from schemas.errors import RunnelError, StorageFailedError
from schemas.objects.topic import Durability
from schemas.wire.batch import Buffer
from schemas.wire.record_requests import ProduceResponse
from spu.host import recovery
from spu.storage import file_pool as file_pool_module
from spu.storage.disk_space import Room
from spu.storage.durable import write_all
from spu.storage.log import PartitionLog
from tests.integration.spu.cluster import Cluster
from tests.unit.spu.builders import (
    batch_of,
    fetch_request,
    produce,
    produce_request,
    settings_of,
    until,
)


@dataclass
class Disks:
    """Log directories of SPUs that have no room: a write puts half of it there, and fails."""

    path: Path
    full: set[int] = field(default_factory=set)

    def write(self, fd: int, data: Buffer, position: int) -> None:
        file = os.readlink(f"/proc/self/fd/{fd}")
        if any(file.startswith(f"{self.path / str(spu)}/") for spu in self.full):
            os.pwrite(fd, memoryview(data)[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, "No space left on device", file)
        write_all(fd, data, position)


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disks:
    found = Disks(tmp_path)
    monkeypatch.setattr(file_pool_module, "write_all", found.write)
    monkeypatch.setattr(recovery, "_REOPEN_S", 0.0)
    return found


@pytest.fixture(
    params=[
        pytest.param(Durability.FSYNC, id="fsync"),
        pytest.param(Durability.REPLICATED, id="replicated", marks=pytest.mark.slow),
    ]
)
async def cluster(
    tmp_path: Path, disks: Disks, request: pytest.FixtureRequest
) -> AsyncIterator[Cluster]:
    found = Cluster(tmp_path, 2, settings_of(durability=request.param))
    yield found
    disks.full.clear()
    await found.close()


async def test_given_a_follower_without_room_then_it_halts_and_comes_back_with_everything(
    cluster: Cluster, disks: Disks
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await produce(leader, batch_of(3))
    disks.full.add(1)
    answers: list[ProduceResponse | RunnelError] = []
    leader.produce(produce_request(timeout_ms=60_000), memoryview(batch_of(5)), answers.append)
    follower = cluster.replica(1)
    await until(lambda: follower.awaits_room)
    assert (follower.role, follower.report().fit) == (ReplicaRole.STOPPED, False)
    # Still no room: it is opened, and halts again once its leader has attached it.
    await until(lambda: cluster.replica(1) is not follower)
    again = cluster.replica(1)
    await until(lambda: again.awaits_room)
    assert answers == []
    disks.full.clear()
    await until(lambda: bool(answers))
    assert isinstance(answers[0], ProduceResponse)
    assert await cluster.whole() is leader
    assert cluster.replica(1).leo == leader.leo


async def test_given_a_leader_without_room_then_it_leads_again_with_what_was_acknowledged(
    cluster: Cluster, disks: Disks
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    base = (await produce(leader, batch_of(3, b"kept"))).base_offset
    disks.full.add(0)
    with pytest.raises(StorageFailedError, match="No space left"):
        leader.produce(produce_request(), memoryview(batch_of(5)), lambda _answer: None)
    assert leader.awaits_room
    disks.full.clear()
    await until(lambda: cluster.replica(0) is not leader)
    again = await cluster.whole()
    assert b"kept" in bytes(again.fetch(fetch_request(base), wait=True).data)
    assert (await produce(again, batch_of())).base_offset > base


async def test_given_a_leader_that_sends_more_than_storage_size_then_the_follower_waits_for_room(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await produce(leader, batch_of(10, b"x" * 1_000))
    host = cluster.spus[1].host
    host.space.limit_bytes = 1_000
    host.space.tick()
    answers: list[object] = []
    leader.produce(produce_request(timeout_ms=60_000), memoryview(batch_of(5)), answers.append)
    follower = cluster.replica(1)
    await until(lambda: follower.awaits_room)
    assert "storage.size 1000" in (follower.report().reason or "")
    assert host.space.room is Room.NONE
    # It is tried once, and not again so soon: there is no room.
    await until(lambda: cluster.replica(1) is not follower)
    again = cluster.replica(1)
    await until(lambda: again.awaits_room)
    await host.reopen_halted()
    assert cluster.replica(1) is again
    host.space.limit_bytes = None
    await until(lambda: bool(answers))
    await cluster.whole()
    assert isinstance(answers[0], ProduceResponse)


async def test_given_a_follower_that_halts_with_nothing_to_store_then_it_follows_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.begin()
    await cluster.whole()
    follower = cluster.replica(1)

    def full(_log: PartitionLog, _now_us: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "roll_is_due", lambda _log, _now_us: True)
        patch.setattr(PartitionLog, "begin_next", full)
        follower.tick(0)
    assert follower.awaits_room
    await until(lambda: cluster.report(1).role is ReplicaRole.FOLLOWER)
