"""A disk without room: leaders refuse records, and replicas that halt come back by themselves."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from schemas.control.messages import ReplicaRole
from schemas.errors import RunnelError, StorageFailedError, StorageFullError
from schemas.ids import PartitionUid
from schemas.objects.topic import Durability
from schemas.wire.batch import Buffer
from schemas.wire.record_requests import ProduceResponse
from spu.host import host, recovery
from spu.storage import file_pool as file_pool_module
from spu.storage import journal as journal_module
from spu.storage import recovery as storage_recovery
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

slow = pytest.mark.slow


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
    tmp_path: Path, disks: Disks, request: pytest.FixtureRequest, short_pauses: None
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


async def test_given_a_leader_without_room_then_it_leads_on_and_refuses_records_until_there_is(
    cluster: Cluster, disks: Disks
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    base = (await produce(leader, batch_of(3, b"kept"))).base_offset
    disks.full.add(0)
    with pytest.raises(StorageFullError, match="No space left"):
        leader.produce(produce_request(), memoryview(batch_of(5)), lambda _answer: None)
    disks.full.clear()
    cluster.spus[0].host.space.tick()
    assert (await produce(leader, batch_of())).base_offset > base
    assert await cluster.whole() is leader
    assert b"kept" in bytes(leader.fetch(fetch_request(base), wait=True).data)


async def test_given_a_term_for_which_the_journal_has_no_room_then_it_leads_once_there_is(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    base = (await produce(leader, batch_of(3, b"kept"))).base_offset

    def full(_fd: int, _data: Buffer, _position: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "write_all", full)
        with pytest.raises(StorageFailedError, match="No space left"):
            await cluster.elect(0)
        await until(lambda: leader.awaits_room)
        halted = cluster.report(0)
        assert (halted.role, halted.fit) == (ReplicaRole.STOPPED, False)
        assert "the journal cannot be written" in (halted.reason or "")
        assert "No space left" in (halted.reason or "")
        await cluster.spus[0].host.reopen_halted()
        assert cluster.replica(0) is leader
    await until(lambda: not cluster.replica(0).awaits_room)
    # The SC repeats what was refused.
    await cluster.elect(0)
    again = await cluster.whole()
    assert b"kept" in bytes(again.fetch(fetch_request(base), wait=True).data)
    await produce(again, batch_of())


async def test_given_a_disk_that_is_full_when_a_replica_is_opened_again_then_it_stays_fit(
    cluster: Cluster, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    disks.full.add(1)
    answers: list[object] = []
    leader.produce(produce_request(timeout_ms=60_000), memoryview(batch_of(5)), answers.append)
    follower = cluster.replica(1)
    await until(lambda: follower.awaits_room)

    def full(_recovery: storage_recovery.Recovery) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tried: list[PartitionUid] = []
    with monkeypatch.context() as patch:
        patch.setattr(storage_recovery.Recovery, "_read", full)
        patch.setattr(recovery._log, "warning", lambda *_text, uid, error: tried.append(uid))
        disks.full.clear()
        await until(lambda: bool(tried))
        assert cluster.replica(1) is follower
        assert cluster.report(1).storage_id == follower.report().storage_id
    await until(lambda: bool(answers))
    await cluster.whole()
    assert cluster.report(1).storage_id == follower.report().storage_id


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

    def short(_log: PartitionLog, _now_us: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "roll_is_due", lambda _log, _now_us: True)
        patch.setattr(PartitionLog, "begin_next", short)
        follower.tick(0)
    assert follower.awaits_room
    await until(lambda: cluster.report(1).role is ReplicaRole.FOLLOWER)


class FullFromNow:
    """A disk below ``path`` that has room for ``left`` more writes and new names."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self._path = f"{path}/"
        self.left = sys.maxsize
        self._pwrite, self._open, self._mkdir = os.pwrite, os.open, os.mkdir
        patch.setattr(os, "pwrite", self._write)
        patch.setattr(os, "open", self._make)
        patch.setattr(os, "mkdir", self._make_directory)

    def _take(self, path: str) -> bool:
        if not path.startswith(self._path):
            return True
        self.left -= 1
        return self.left >= 0

    def _write(self, fd: int, data: Buffer, position: int) -> int:
        if not self._take(os.readlink(f"/proc/self/fd/{fd}")):
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._pwrite(fd, data, position)

    def _make(self, path: str | Path, flags: int, *args: Any, **options: Any) -> int:
        new = flags & os.O_CREAT and not os.path.exists(path)
        if new and not self._take(os.fspath(path)):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return self._open(path, flags, *args, **options)

    def _make_directory(self, path: str | Path, *args: Any, **options: Any) -> None:
        if not self._take(os.fspath(path)):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        self._mkdir(path, *args, **options)


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(left, id=f"given-room-for-{left}-writes", marks=() if left in (1, 8) else slow)
        for left in range(24)
    ],
)
async def test_given_a_disk_that_is_full_from_some_write_on_then_nothing_needs_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(recovery, "_REOPEN_S", 0.0)
    monkeypatch.setattr(host, "TICK_S", 0.02)
    cluster = Cluster(tmp_path, 2, settings_of(segment=1 << 10))
    disk = FullFromNow(tmp_path / "0", monkeypatch)
    await cluster.begin()
    await cluster.whole()
    storages = {spu: cluster.report(spu).storage_id for spu in (0, 1)}
    disk.left = left
    acknowledged: list[bytes] = []
    for number in range(16):
        with suppress(RunnelError):
            if number % 5 == 4:
                await cluster.elect(0)
                await until(lambda: cluster.replica(0).is_serving or cluster.replica(0).is_halted)
            payload = b"record %04d " % number * 20
            await produce(cluster.replica(0), batch_of(1, payload))
            acknowledged.append(payload)
    assert disk.left < 0
    disk.left = sys.maxsize
    await until(lambda: not any(cluster.replica(spu).awaits_room for spu in (0, 1)))
    # The SC repeats what was refused.
    await cluster.elect(0)
    leader = await cluster.whole()
    await produce(leader, batch_of())
    # Nothing was rebuilt: a full disk says nothing about what it holds.
    assert {spu: cluster.report(spu).storage_id for spu in (0, 1)} == storages
    offset, log = 0, b""
    while offset < leader.leo:
        found = leader.fetch(fetch_request(offset), wait=True)
        offset, log = found.next_offset, log + bytes(found.data)
    assert [log.count(payload) for payload in acknowledged] == [1] * len(acknowledged)
    await cluster.close()
