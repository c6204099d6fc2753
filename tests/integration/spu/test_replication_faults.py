"""Faults of one replica among several SPUs with real connections: the others must not pay for it.

The test is the SC, as in `tests.integration.spu.test_replication`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from schemas.control.messages import ReplicaRole
from schemas.errors import StorageFailedError
from schemas.ids import PartitionUid
from spu.host.host import ReplicaHost
from spu.replica.replica import Replica
from spu.replication.events import RequestLrsChange
from spu.replication.state import REPLICA_LAG_TIME_MS
from spu.storage.log import PartitionLog
from spu.storage.segment import Damage
from tests.integration.spu.cluster import Cluster
from tests.unit.spu.builders import (
    Spu,
    assign,
    assignment_of,
    batch_of,
    new_uid,
    produce,
    produce_request,
    settings_of,
    until,
)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Two SPUs, of which one is enough to commit."""
    log = settings_of(segment=1 << 14).model_copy(update={"min_in_sync_replicas": 1})
    two = Cluster(tmp_path, 2, log)
    yield two
    await two.close()


def hold(cluster: Cluster, spu: Spu, uid: PartitionUid) -> Any:
    """Let an SPU hold another partition of the two, which SPU 0 leads."""
    assignment = assignment_of(uid, replicas=(0, 1), leader=0, log=cluster.log)
    return spu.host.assign(assign(assignment))


async def test_given_a_corrupt_batch_on_a_leader_then_only_its_partition_suffers(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    other = new_uid()
    await hold(cluster, cluster.spus[0], other)
    await cluster.spus[0].serve(other)
    await cluster.stop(1)
    cluster.lrs = cluster.lrs[:1]
    cluster.revision += 1
    await cluster.assign()
    for _ in range(20):
        await produce(leader, batch_of(1, b"y" * 200))
    segments = (cluster.path / "0" / "partitions" / leader.meta.uid).glob("*.log")
    segment = max(segments, key=lambda path: path.stat().st_size)
    # A bit of a record: all headers stay whole, so the leader reads on without noticing.
    with segment.open("r+b") as file:
        file.seek(-40, 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    await cluster.start(1)
    await until(lambda: cluster.spus[0].host.peers.connection(1) is not None)
    connection = cluster.spus[0].host.peers.connection(1)
    await cluster.assign()
    await hold(cluster, cluster.spus[1], other)
    # It is the leader's disk that is damaged, so another has to lead.
    await until(lambda: not cluster.report(0).fit)
    assert cluster.report(0).role is ReplicaRole.STOPPED
    assert cluster.report(1).fit
    sound, copy = (cluster.spus[i].host.replica(other) for i in range(2))
    await produce(sound, batch_of())
    await until(lambda: copy.leo == sound.leo and copy.role is ReplicaRole.FOLLOWER)
    assert cluster.spus[0].host.peers.connection(1) is connection


@pytest.fixture
async def pass_ms(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets time pass on all SPUs."""
    loop = asyncio.get_running_loop()
    ahead_ms = 0

    def passed(time_ms: int) -> None:
        nonlocal ahead_ms
        ahead_ms += time_ms

    clock = staticmethod(lambda: int(loop.time() * 1000) + ahead_ms)
    monkeypatch.setattr(ReplicaHost, "_clock_ms", clock)
    return passed


async def test_given_a_quiet_hour_then_a_short_break_does_not_make_a_follower_late(
    cluster: Cluster, pass_ms: Callable[[int], None]
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await produce(leader, batch_of())
    await until(lambda: leader._runner.is_quiet)
    host, asked = cluster.spus[0].host, cluster.spus[0].link.asked
    before = len(asked)

    async def asked_since() -> list[object]:
        host.tick(cluster.spus[0].now_us)
        # What is asked for is promised first.
        await leader.recorded()
        return [request for _, request in asked[before:] if isinstance(request, RequestLrsChange)]

    pass_ms(3_600_000)
    await asked_since()
    await cluster.stop(1)
    await until(lambda: 1 not in leader._runner.state.links)
    assert await asked_since() == []
    # From the break on it is late when the time for that is over.
    pass_ms(REPLICA_LAG_TIME_MS)
    (drop,) = await asked_since()
    assert isinstance(drop, RequestLrsChange)
    assert [member.spu for member in drop.lrs] == [0]


async def test_given_a_connected_replica_that_is_late_then_its_leader_logs_what_the_line_is_like(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, pass_ms: Callable[[int], None]
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await until(lambda: leader._runner.is_quiet)
    # It stays connected, and hears nothing of what is produced.
    monkeypatch.setattr(cluster.spus[1].host.peers, "received", lambda *_: None)
    leader.produce(produce_request(), memoryview(batch_of()), lambda _: None)
    await until(lambda: leader._runner.log.durable_leo == leader.leo)
    cluster.spus[0].host.tick(cluster.spus[0].now_us)
    pass_ms(REPLICA_LAG_TIME_MS + 1_000)
    with capture_logs() as logs:
        cluster.spus[0].host.tick(cluster.spus[0].now_us)
        await leader.recorded()
    (line,) = (line for line in logs if line["event"] == "a connected replica does not keep up")
    assert (line["peer"], line["waiting_bytes"]) == (1, 0)


@pytest.mark.parametrize(
    "error",
    [Damage("a segment", 0, "a bad sector"), OSError(errno.EIO, "a bad sector")],
    ids=["given-damage", "given-a-bad-disk"],
)
async def test_given_an_append_whose_push_meets_damage_then_the_producer_is_told_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    leader = await cluster.begin()
    await cluster.whole()

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(leader._log, "read", broken)
    # It must not wait for its time: the leadership is over.
    answers: list[object] = []
    leader.produce(produce_request(timeout_ms=600_000), memoryview(batch_of()), answers.append)
    await until(lambda: bool(answers))
    assert isinstance(answers[0], StorageFailedError)
    assert "bad sector" in answers[0].message
    assert leader.role is ReplicaRole.STOPPED


async def test_given_many_partitions_to_read_from_the_disk_then_they_are_read_one_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What was read waits in memory for its turn on the connection, so it must not be everything.
    leader = await cluster.start(0)
    uids = [new_uid() for _ in range(12)]
    leaders: list[Replica] = []
    for uid in uids:
        await hold(cluster, leader, uid)
        leaders.append(await leader.serve(uid))
        await produce(leaders[-1], batch_of(1, b"z" * 2_000))
    logs = {id(replica._log) for replica in leaders}
    loop, read = asyncio.get_running_loop(), PartitionLog.read
    cold: set[int] = set()
    begun = 0

    def pause() -> None:
        connection = leader.host.peers.connection(1)
        assert connection is not None
        connection.pause_writing()

    def not_in_the_page_cache(log: PartitionLog, *args: Any, wait: bool) -> Any:
        nonlocal begun
        if id(log) in logs:
            if not wait:
                cold.add(id(log))
                raise BlockingIOError
            begun += 1
            if begun == 1:
                # The other end takes nothing any more once there is something to send.
                asyncio.run_coroutine_threadsafe(paused(), loop).result()
        return read(log, *args, wait=wait)

    async def paused() -> None:
        # Not before all have been asked for, or they would not be read at all.
        await until(lambda: len(cold) == len(uids))
        pause()

    monkeypatch.setattr(PartitionLog, "read", not_in_the_page_cache)
    follower = await cluster.start(1)
    for uid in uids:
        await hold(cluster, follower, uid)
    connection = leader.host.peers.connection(1)
    assert connection is not None
    await until(lambda: begun > 0 and not connection._writable)
    # Reads that were handed to the threads have begun once the threads have nothing left to do.
    for _ in range(20):
        await loop.run_in_executor(leader.host.read_threads, int)
    assert begun == 1
    connection.resume_writing()
    await until(lambda: all(follower.host.replica(uid).leo == 2 for uid in uids))
    assert begun >= len(uids)
