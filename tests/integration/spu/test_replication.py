"""Three SPUs with real logs and real connections replicate a partition; the test is the SC."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from schemas.control.messages import ReplicaRole
from schemas.errors import (
    DivergedError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    TransactionIdTooLowError,
)
from schemas.objects.topic import Durability
from schemas.wire.record_requests import EARLIEST, FetchRequest
from spu.replica.catch_up import CatchUpRate
from spu.replica.replica import Replica
from spu.replication.messages import Truncate
from spu.replication.state import Phase
from tests.integration.spu.cluster import Cluster
from tests.unit.spu.builders import (
    UID,
    assign,
    batch_of,
    fetch_request,
    headers,
    new_uid,
    produce,
    produce_request,
    settings_of,
    until,
)


@pytest.fixture(params=[Durability.FSYNC, Durability.REPLICATED], ids=["fsync", "replicated"])
async def cluster(
    tmp_path: Path, request: pytest.FixtureRequest, short_pauses: None
) -> AsyncIterator[Cluster]:
    log = settings_of(segment=1 << 14, durability=request.param)
    three = Cluster(tmp_path, 3, log.model_copy(update={"min_in_sync_replicas": 2}))
    yield three
    await three.close()


def data_of(cluster: Cluster, spu: int) -> bytes:
    """What an SPU's log holds, byte by byte."""
    log = cluster.replica(spu)._log
    data, at = b"", log.log_start
    while at < log.leo:
        found = log.read(at, 1 << 20, log.leo, wait=True)
        data, at = data + bytes(found.data), found.next_offset
    return data


@dataclass
class StoppedClock:
    """Time that passes as somebody waits for it; once it is stopped, until the test lets it go."""

    now_s: float = 0.0
    goes: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        await self.goes.wait()
        self.now_s += seconds


async def test_given_a_rate_then_newcomers_wait_for_turns_and_live_replicas_do_not(
    cluster: Cluster,
) -> None:
    clock = StoppedClock()
    clock.goes.set()
    cluster.catch_up = CatchUpRate(1, now_s=lambda: clock.now_s, sleep=clock.sleep)
    await cluster.begin()
    await cluster.stop(2)
    leader = await cluster.whole()
    await produce(leader, batch_of(3, producer_id=7, sequence=0))
    clock.goes.clear()
    await cluster.start(2)
    await cluster.assign()
    for number in range(1, 40):
        await produce(leader, batch_of(3, producer_id=7, sequence=number))
    assert leader.lac + 1 == leader.leo
    assert cluster.replica(2).leo < leader.leo
    clock.goes.set()
    await cluster.whole()
    assert data_of(cluster, 2) == data_of(cluster, 0)


async def test_given_followers_then_they_join_and_commits_need_them(cluster: Cluster) -> None:
    leader = await cluster.begin()
    assert not leader.is_serving
    with pytest.raises(NotEnoughReplicasError):
        await produce(leader, batch_of())
    await cluster.whole()
    offsets = [
        (await produce(leader, batch_of(3, producer_id=7, sequence=i))).base_offset
        for i in range(40)
    ]
    assert offsets == list(range(1, 121, 3))
    await until(cluster.are_alike)
    assert data_of(cluster, 1) == data_of(cluster, 0)
    assert data_of(cluster, 2) == data_of(cluster, 0)
    assert [cluster.report(i).role for i in range(3)] == [
        ReplicaRole.LEADER,
        ReplicaRole.FOLLOWER,
        ReplicaRole.FOLLOWER,
    ]


async def test_given_a_follower_that_was_not_assigned_for_a_moment_then_it_follows_again(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    # Nothing is written afterwards, by which the leader would notice.
    await produce(leader, batch_of())
    await cluster.spus[1].host.assign(assign(complete=True))
    await cluster.assign()
    await until(lambda: cluster.report(1).role is ReplicaRole.FOLLOWER)
    await until(cluster.are_alike)


async def test_given_another_leader_then_all_that_was_acknowledged_is_there(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    for i in range(10):
        await produce(leader, batch_of(producer_id=7, sequence=i))
    await cluster.stop(0)
    await cluster.elect(1, without=0)
    await cluster.whole()
    again = await produce(cluster.replica(1), batch_of(producer_id=7, sequence=9))
    assert again.base_offset == 10
    assert (
        await produce(cluster.replica(1), batch_of(producer_id=7, sequence=10))
    ).base_offset == 12
    with pytest.raises(NotLeaderError):
        await produce(cluster.replica(2), batch_of())
    await cluster.start(0)
    await cluster.assign()
    await cluster.whole()
    assert data_of(cluster, 0) == data_of(cluster, 1) == data_of(cluster, 2)


async def test_given_records_that_only_the_old_leader_had_then_they_are_cut(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await produce(leader, batch_of())
    # The others go; what is appended now nobody else has.
    await cluster.stop(1)
    await cluster.stop(2)
    leader.produce(produce_request(), memoryview(batch_of(5)), lambda _answer: None)
    assert leader.leo == 7
    await cluster.stop(0)
    for spu in (1, 2):
        await cluster.start(spu)
    await cluster.assign()
    await cluster.elect(1, without=0)
    await cluster.whole()
    assert (await produce(cluster.replica(1), batch_of())).base_offset == 3
    await cluster.start(0)
    await cluster.assign()
    await cluster.whole()
    assert data_of(cluster, 0) == data_of(cluster, 1)


async def test_given_a_wiped_disk_then_it_comes_back_under_another_storage_id(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    for _ in range(300):
        await produce(leader, batch_of())
    before = cluster.member(2)
    await cluster.stop(2)
    for path in sorted((cluster.path / "2" / "partitions").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    await cluster.start(2)
    await cluster.assign()
    assert cluster.member(2) != before
    await cluster.whole()
    assert cluster.member(2) in cluster.lrs
    assert data_of(cluster, 2) == data_of(cluster, 0)


def lose(meta: Path) -> None:
    meta.unlink()


def cut_short(meta: Path) -> None:
    meta.write_bytes(meta.read_bytes()[:40])


def be_of_another_partition(meta: Path) -> None:
    meta.write_text(meta.read_text().replace(UID, new_uid()))


@pytest.mark.parametrize("harm", [lose, cut_short, be_of_another_partition])
async def test_given_a_directory_that_does_not_say_whose_it_is_then_the_replica_is_rebuilt(
    cluster: Cluster, harm: Callable[[Path], None]
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    for _ in range(20):
        await produce(leader, batch_of())
    await cluster.whole()
    before = cluster.member(0)
    log = data_of(cluster, 0)
    await cluster.stop(0)
    path = cluster.path / "0"
    harm(path / "partitions" / UID / "meta.json")
    await cluster.start(0)
    # It was the leader: until another one leads, it may hold what nobody else has.
    await cluster.assign()
    (unreadable,) = cluster.spus[0].host.reports()
    assert (unreadable.fit, unreadable.role) == (False, ReplicaRole.STOPPED)
    assert not (path / "aside").exists()
    await cluster.elect(1)
    report = cluster.report(0)
    assert report.storage_id != before.storage_id
    assert (report.leo, report.role) == (0, ReplicaRole.IDLE)
    # The old storage is asked for no more, and the new one counts once it has everything.
    cluster.lrs = tuple(member for member in cluster.lrs if member.spu_id != 0)
    cluster.revision += 1
    await cluster.assign()
    again = await cluster.whole()
    assert cluster.member(0) in cluster.lrs
    await produce(again, batch_of())
    await cluster.whole()
    assert data_of(cluster, 0) == data_of(cluster, 1)
    assert data_of(cluster, 0).startswith(log)
    # Nothing was deleted.
    (aside,) = (path / "aside").iterdir()
    assert aside.name.startswith(UID)
    assert list(aside.glob("*.log"))
    await cluster.stop(0)
    await cluster.start(0)
    assert aside.exists()


async def test_given_damage_then_the_replica_is_repaired_from_its_leader(cluster: Cluster) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    for _ in range(50):
        await produce(leader, batch_of())
    before = cluster.member(2)
    await cluster.stop(2)
    segment = max(
        (cluster.path / "2" / "partitions").rglob("*.log"), key=lambda p: p.stat().st_size
    )
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    await cluster.start(2)
    await cluster.assign()
    await until(
        lambda: not cluster.report(2).fit or cluster.report(2).storage_id != before.storage_id
    )
    await cluster.whole()
    assert cluster.member(2) != before
    assert data_of(cluster, 2) == data_of(cluster, 0)


async def test_given_a_follower_behind_the_logs_start_then_it_is_rebuilt_from_there(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    first = await produce(leader, batch_of(producer_id=7, sequence=0))
    await cluster.stop(2)
    cluster.lrs = cluster.lrs[:2]
    cluster.revision += 1
    await cluster.assign()
    for _ in range(300):
        await produce(leader, batch_of(1, b"x" * 500))
    log = leader._log
    log.truncate_prefix(log.segments[-1].base_offset)
    leader._runner.commit.sync_now()
    await until(lambda: log.log_start == log.segments[-1].base_offset)
    await cluster.start(2)
    await cluster.assign()
    await cluster.whole()
    assert cluster.replica(2).log_start == log.log_start
    assert data_of(cluster, 2) == data_of(cluster, 0)
    assert headers(memoryview(data_of(cluster, 2)))[0].base_offset == log.log_start
    # What it never had it would know again.
    await cluster.elect(2)
    await cluster.whole()
    again = await produce(cluster.replica(2), batch_of(producer_id=7, sequence=0))
    assert again.base_offset == first.base_offset


async def test_given_transaction_ids_then_every_leader_refuses_lower_ones_even_if_all_are_gone(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await produce(leader, batch_of(3, ids=(40, 60)))

    async def require_the_last(replica: Replica) -> None:
        with pytest.raises(TransactionIdTooLowError) as refused:
            await produce(replica, batch_of(ids=(59, 70)))
        assert refused.value.last_transaction_id == 60

    await require_the_last(leader)
    await cluster.elect(1)
    await cluster.whole()
    await require_the_last(cluster.replica(1))
    await cluster.elect(0)
    await cluster.whole()
    # One that is away is rebuilt from a log that has no record with an id any more.
    await cluster.stop(2)
    cluster.lrs = cluster.lrs[:2]
    cluster.revision += 1
    await cluster.assign()
    for _ in range(100):
        await produce(leader, batch_of(1, b"x" * 500))
    await cluster.truncate(leader.leo - 1)
    await until(lambda: leader._log.log_start > 60)
    await cluster.start(2)
    await cluster.assign()
    await cluster.whole()
    rebuilt = cluster.replica(2)
    assert rebuilt._log.segments[0].base_offset == leader._log.log_start
    assert not any(
        header.has_transaction_ids for header in headers(memoryview(data_of(cluster, 2)))
    )
    await cluster.elect(2)
    await cluster.whole()
    await require_the_last(rebuilt)
    await cluster.stop(2)
    cluster.lrs = cluster.lrs[:2]
    await cluster.start(2)
    await cluster.assign()
    await cluster.elect(0)
    await cluster.whole()
    await require_the_last(cluster.replica(0))
    assert (await produce(cluster.replica(0), batch_of(ids=(60, 60)))).lac == cluster.replica(0).lac


async def test_given_a_truncation_then_every_replica_follows_and_one_that_was_away_when_it_returns(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    for _ in range(10):
        await produce(leader, batch_of(4, b"x" * 500))
    await cluster.whole()
    await cluster.stop(2)
    # Inside the batch of offsets 21 to 24.
    await cluster.truncate(23)
    for spu in (0, 1):
        replica = cluster.replica(spu)
        assert replica.log_start == 23
        await until(lambda log=replica._log: log.log_start == 21)  # type: ignore[misc]
    with pytest.raises(OffsetOutOfRangeError, match="first available offset is 23"):
        leader.fetch(fetch_request(22))
    assert headers(leader.fetch(fetch_request(23), wait=True).data)[0].base_offset == 21
    # Who was away leads next, and shows nothing that was truncated.
    await cluster.start(2)
    await cluster.assign()
    await cluster.whole()
    await cluster.elect(2)
    await cluster.whole()
    back = cluster.replica(2)
    assert back.offsets.list_offsets(EARLIEST).offset == 23
    await until(lambda: back._log.log_start == 21)
    # One that begins anew is sent whole batches, and shows as little.
    cluster.replica(0).damaged(OSError("the disk is broken"))
    await cluster.whole()
    assert cluster.replica(0).log_start == 23
    assert headers(memoryview(data_of(cluster, 0)))[0].base_offset == 21


async def test_given_a_truncation_beyond_what_is_committed_then_it_waits_for_commits(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await produce(leader, batch_of(4))
    end = leader.leo
    await cluster.truncate(end + 2)
    assert leader.log_start == leader.lac + 1 == end
    await produce(leader, batch_of(4))
    assert leader.log_start == end + 2
    await cluster.whole()


async def test_given_a_host_that_lost_its_memory_then_what_relied_on_it_is_repaired(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    for _ in range(20):
        await produce(leader, batch_of())
    before = cluster.member(2)
    await cluster.stop(2)
    # As a power cut leaves it: not stopped, and the host boots anew.
    run = cluster.path / "2" / "run.json"
    run.write_text('{"boot": "an earlier one", "stopped": false}')
    relies_on_memory = cluster.log.durability is Durability.REPLICATED
    await cluster.start(2)
    assert cluster.report(2).unclean_boot is relies_on_memory
    await cluster.assign()
    await cluster.whole()
    assert (cluster.member(2) != before) is relies_on_memory
    assert data_of(cluster, 2) == data_of(cluster, 0)


async def test_given_an_unclean_election_then_what_was_taken_away_is_kept_aside(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await cluster.stop(2)
    cluster.lrs = cluster.lrs[:2]
    cluster.revision += 1
    await cluster.assign()
    await produce(leader, batch_of(1, b"known to be committed"))
    log, read_in = data_of(cluster, 0), cluster.report(0).term
    await cluster.stop(0)
    await cluster.stop(1)
    await cluster.start(2)
    cluster.lrs = (cluster.member(2),)
    await cluster.elect(2, unclean=True)
    controls = [h for h in headers(memoryview(data_of(cluster, 2))) if h.is_control]
    assert controls[-1].term == cluster.term
    assert b"unclean term" in data_of(cluster, 2)
    await cluster.start(0)
    await cluster.assign()
    await cluster.whole()
    assert data_of(cluster, 0) == data_of(cluster, 2)
    for offset in (2, 9):
        # Who has read the record in the old leader's term hears that it is gone.
        with pytest.raises(DivergedError) as raised:
            cluster.replica(2).fetch(FetchRequest(UID, offset, 1 << 20, 1, 0, read_in))
        assert raised.value.diverged_at == 1
    (aside,) = (cluster.path / "0" / "partitions").glob("*/aside-*")
    kept = b"".join(path.read_bytes() for path in sorted(aside.iterdir()))
    assert b"known to be committed" in kept
    assert kept.startswith(log)


async def with_an_old_disk(cluster: Cluster, *, halved: bool) -> bytes:
    """All SPUs start again: 0 with a disk that lacks the last records, and it is to lead. Gives
    what was acknowledged."""
    leader = await cluster.begin()
    await cluster.whole()
    for value in (b"early", b"early too"):
        await produce(leader, batch_of(1, value))
    for spu in range(3):
        await cluster.stop(spu)
    disk, copy = cluster.path / "0", cluster.path / "copy"
    shutil.copytree(disk, copy)
    for spu in range(3):
        await cluster.start(spu)
    await cluster.assign()
    await until(lambda: cluster.replica(0).is_serving)
    for value in (b"late", b"later"):
        await produce(cluster.replica(0), batch_of(1, value))
    acknowledged = data_of(cluster, 0)
    for spu in range(3):
        await cluster.stop(spu)
    if halved:
        segment = max((disk / "partitions").glob("*/*.log"))
        os.truncate(segment, segment.stat().st_size // 2)
        for checkpoint in (disk / "partitions").glob("*/checkpoint"):
            shutil.copy(copy / checkpoint.relative_to(disk), checkpoint)
    else:
        shutil.rmtree(disk)
        shutil.copytree(copy, disk)
    for spu in range(3):
        await cluster.start(spu)
    await cluster.elect(0)
    return acknowledged


@pytest.mark.parametrize("halved", [False, True], ids=["put-back", "segment-halved"])
async def test_given_a_leader_with_an_old_disk_then_another_leads_and_nothing_is_lost(
    cluster: Cluster, halved: bool
) -> None:
    acknowledged = await with_an_old_disk(cluster, halved=halved)
    await until(lambda: not cluster.report(0).fit)
    assert cluster.report(0).role is ReplicaRole.STOPPED
    if not halved:
        assert cluster.report(0).old
        assert "its disk is old: SPU" in str(cluster.report(0).reason)
    # The other two hold what they had, and the third is rebuilt from them.
    await cluster.elect(1, without=0)
    await cluster.whole()
    assert data_of(cluster, 1).startswith(acknowledged)
    assert data_of(cluster, 0) == data_of(cluster, 1)


async def test_given_a_cut_of_what_was_committed_then_a_follower_says_once_that_it_keeps_its_log(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.begin()
    await cluster.whole()
    await produce(leader, batch_of(1, b"known to be committed"))
    follower, said = cluster.replica(1), list[str]()
    await until(lambda: follower.lac == leader.lac)
    log = SimpleNamespace(error=lambda event, **more: said.append(f"{event}: {more['reason']}"))
    monkeypatch.setattr("spu.replica.runner._log", log)
    following = follower._runner.state.following
    assert following is not None
    order = Truncate(following.term, following.attach, follower._runner.state.boot, 0, 0)
    for _ in range(3):
        # An SPU of an earlier version, whose disk is old, attaches and orders this each second.
        agreeing = replace(following, phase=Phase.AGREEING)
        follower._runner.state = replace(follower._runner.state, following=agreeing)
        follower.said(0, order)
    (line,) = said
    assert line.startswith("keeps its log: SPU 0 orders a cut to 0")
    report = cluster.report(1)
    assert (report.fit, report.reason) == (True, line.removeprefix("keeps its log: "))
    assert follower.leo == leader.leo
