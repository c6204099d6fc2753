"""All replicas of an SPU: assignment, deletion, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from pathlib import Path

import pytest

from schemas.control.messages import (
    AssignPartitions,
    DeleteReplicas,
    Lead,
    LeadPartitions,
    Peer,
    ReplicaRole,
    Stamp,
    Tombstone,
)
from schemas.errors import (
    NotFoundError,
    NotLeaderError,
    RetryableError,
    StorageFailedError,
    StorageFullError,
)
from schemas.ids import PartitionUid, StorageId, make_term
from schemas.objects.partition import LiveReplica
from schemas.objects.topic import Retention
from spu.host.links import SLICE
from spu.replica.replica import Replica
from spu.storage.disk_space import Room
from spu.storage.journal import Journal
from tests.unit.spu.builders import (
    CLUSTER,
    STAMP,
    TERM,
    UID,
    assign,
    assignment_of,
    batch_of,
    fetch_request,
    headers,
    new_uid,
    open_spu,
    produce,
    settings_of,
    until,
)


async def test_given_an_assignment_then_it_is_held_and_survives_a_restart(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    (report,) = spu.host.reports()
    assert (report.role, report.term, report.revision, report.leo) == (ReplicaRole.IDLE, 0, 5, 0)
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.host.reports() == [report]
    assert again.host.cluster_uid is not None
    assert again.host.seen is not None
    assert again.host.seen.revision == 5
    await again.host.close()


async def test_given_an_assignment_then_the_sc_hears_that_the_replica_is_there(
    tmp_path: Path,
) -> None:
    """Nothing else would tell it: it waits for that before it has anybody lead."""
    spu = await open_spu(tmp_path, assignment_of())
    assert [report.uid for report in spu.reports] == [UID]
    assert spu.reports[-1] == spu.replica.report()
    await spu.host.close()


async def test_given_a_thousand_assignments_then_the_journal_is_written_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path)
    writes = 0
    original = Journal.append

    def append(journal: Journal, changes: list[object]) -> None:
        nonlocal writes
        writes += 1
        original(journal, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "append", append)
    uids = [new_uid() for _ in range(200)]
    await spu.host.assign(assign(*(assignment_of(uid) for uid in uids)))
    leads = tuple(
        Lead(
            uid=uid,
            term=TERM,
            lrs=(LiveReplica(spu_id=1, storage_id=spu.storage_id(uid)),),
            revision=6,
        )
        for uid in uids
    )
    await spu.host.lead(LeadPartitions(leads=leads, stamp=STAMP))
    # Each bounded number of changes shares one.
    assert writes <= 10
    await until(lambda: all(replica.is_serving for replica in spu.host.replicas()))
    await spu.host.close()


async def test_given_an_older_revision_then_it_is_ignored(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path, assignment_of(revision=5))
    await spu.host.assign(assign(assignment_of(revision=4, log=settings_of(segment=2_048))))
    assert spu.replica.settings.segment.size == 1 << 20
    await spu.host.assign(assign(assignment_of(revision=6, log=settings_of(segment=2_048))))
    assert spu.replica.settings.segment.size == 2_048
    assert spu.replica._log.settings.segment.size == 2_048
    await spu.host.close()


async def test_given_unlimited_retention_then_it_survives_a_restart(tmp_path: Path) -> None:
    log = settings_of(retention=Retention(time=None))
    spu = await open_spu(tmp_path, assignment_of(log=log))
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.replica.settings == log
    await again.host.close()


@pytest.mark.parametrize("how", ["complete", "removed"])
async def test_given_a_list_without_it_then_it_is_stopped_kept_and_can_return(
    tmp_path: Path, how: str
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    await produce(spu.replica, batch_of())
    if how == "complete":
        await spu.host.assign(assign(complete=True))
    else:
        await spu.host.assign(AssignPartitions(removed=(UID,), stamp=STAMP))
    report = spu.host.reports()[0]
    assert (report.role, report.assigned, report.fit, report.leo) == (
        ReplicaRole.STOPPED,
        False,
        True,
        2,
    )
    with pytest.raises(NotLeaderError, match="no longer assigned"):
        spu.replica.fetch(fetch_request(0))
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.host.reports()[0].assigned is False
    assert again.host.reports()[0].role is ReplicaRole.STOPPED
    await again.host.assign(assign(assignment_of(revision=9)))
    assert again.host.reports()[0].role is ReplicaRole.IDLE
    await again.lead(revision=9)
    await until(lambda: again.replica.is_serving)
    await again.host.close()


async def test_given_a_restart_then_it_leads_again_by_itself_in_a_term_of_its_own(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    await produce(spu.replica, batch_of())
    for restart in (1, 2):
        await spu.host.close()
        spu = await open_spu(tmp_path)
        await until(lambda spu=spu: spu.replica.is_serving)  # type: ignore[misc]
        assert spu.replica.report().term == TERM + restart
    found = headers(spu.replica.fetch(fetch_request(1), wait=True).data)
    assert found[0].term == TERM
    assert (await produce(spu.replica, batch_of())).base_offset == 2, "no restart takes an offset"
    await spu.host.close()


async def test_given_others_in_the_set_then_it_leads_again_and_finds_them_where_they_were(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of(replicas=(1, 0)))
    await spu.lead(UID, TERM, 6, LiveReplica(spu_id=0, storage_id=str(uuid.uuid4())))
    assert spu.link.sought == {0}
    await spu.host.peers_found((Peer(spu_id=0, host="127.0.0.1", port=1),))
    await spu.host.close()
    again = await open_spu(tmp_path)
    # It must compare its log with theirs before it leads.
    assert again.replica.role is ReplicaRole.IDLE
    assert again.replica.report().term == TERM + 1
    assert not again.replica.is_serving
    # It was looked for at the address that is known, and is asked for only when that fails.
    await until(lambda: again.link.sought == {0})
    await again.host.close()


@pytest.mark.parametrize("case", ["idle", "other-storage"])
async def test_given_reason_to_ask_then_it_does_not_lead_by_itself(
    tmp_path: Path, case: str
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    if case == "other-storage":
        await spu.serve()
    await spu.host.close()
    if case == "other-storage":
        meta = tmp_path / "partitions" / UID / "meta.json"
        meta.write_text(meta.read_text().replace(spu.storage_id(), str(new_uid())))
    again = await open_spu(tmp_path)
    assert again.replica.role is ReplicaRole.IDLE
    assert again.replica.report().storage_id == again.storage_id()
    await again.host.close()


@pytest.mark.parametrize(
    ("spu_id", "storage", "done", "kept"),
    [
        pytest.param(1, None, True, False, id="given-any-storage-then-deleted"),
        pytest.param(1, "mine", True, False, id="given-this-storage-then-deleted"),
        pytest.param(1, "other", True, True, id="given-another-storage-then-done-and-kept"),
        pytest.param(2, None, False, True, id="given-another-spu-then-neither"),
    ],
)
async def test_tombstones(
    tmp_path: Path, spu_id: int, storage: str | None, done: bool, kept: bool
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    named = spu.storage_id() if storage == "mine" else storage
    tombstone = Tombstone(uid=UID, spu_id=spu_id, storage_id=StorageId(named) if named else None)
    message = DeleteReplicas(tombstones=(tombstone,), stamp=STAMP)
    spu.reports.clear()
    assert await spu.host.delete(message) == ([tombstone] if done else [])
    if kept:
        # What is still there has another storage: the SC hears that with the answer.
        told = [report.storage_id for report in spu.reports]
        assert told == ([spu.storage_id()] if done else [])
    assert (tmp_path / "partitions" / UID).exists() is kept
    assert bool(spu.host.reports()) is kept
    if not kept:
        with pytest.raises(NotFoundError, match="no replica of partition"):
            spu.host.replica(UID)
        assert await spu.host.delete(message) == [tombstone]
        await spu.host.close()
        spu = await open_spu(tmp_path)
        assert spu.host.reports() == []
    await spu.host.close()


async def test_given_an_unknown_uid_to_lead_then_the_others_lead(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    me = LiveReplica(spu_id=1, storage_id=spu.storage_id())
    leads = tuple(Lead(uid=uid, term=TERM, lrs=(me,), revision=6) for uid in (new_uid(), UID))
    with pytest.raises(NotFoundError, match="not assigned"):
        await spu.host.lead(LeadPartitions(leads=leads, stamp=Stamp(revision=30, office="o")))
    assert spu.replica.role is ReplicaRole.LEADER
    assert spu.host.seen is not None
    assert spu.host.seen.revision == 30
    await spu.host.close()


async def test_given_a_refused_lead_then_it_is_reported(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.lead(term=make_term(1, 5), revision=6)
    await until(lambda: spu.replica.is_serving)
    reported = len(spu.reports)
    await spu.lead(term=make_term(1, 4), revision=7)
    assert [report.term for report in spu.reports[reported:]] == [make_term(1, 5)]
    await spu.host.close()


async def test_given_a_damaged_replica_then_the_others_open(tmp_path: Path) -> None:
    other = new_uid()
    spu = await open_spu(tmp_path, assignment_of(), assignment_of(other))
    await spu.serve()
    await spu.serve(other)
    await spu.host.close()
    file = tmp_path / "partitions" / UID / f"{0:020d}.log"
    file.write_bytes(file.read_bytes()[:-1])
    unreadable = new_uid()
    (tmp_path / "partitions" / unreadable).mkdir()
    again = await open_spu(tmp_path)
    reports = {report.uid: report for report in again.host.reports()}
    assert not reports[UID].fit
    assert reports[UID].reason is not None
    assert str(file) in str(reports[UID].reason)
    assert not reports[unreadable].fit
    await until(lambda: again.host.replica(other).is_serving)
    with pytest.raises(StorageFailedError):
        again.replica.fetch(fetch_request(0))
    await again.host.close()
    assert file.exists()


async def test_given_a_held_directory_then_a_second_host_is_refused(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path)
    with pytest.raises(StorageFailedError, match="in use by process"):
        await open_spu(tmp_path)
    await spu.host.close()


# Room


async def test_given_no_room_then_records_are_refused_until_there_is_some(tmp_path: Path) -> None:
    log = settings_of(segment=1 << 10, retention=Retention(grace="1h"))
    spu = await open_spu(tmp_path, assignment_of(log=log))
    replica = await spu.serve()
    spu.host.space.limit_bytes = 5_000
    spu.host.space.tick()
    with contextlib.suppress(StorageFullError):
        while True:
            await produce(replica, batch_of(1, bytes(9), producer_id=7, sequence=replica.leo))
    # However fast the records come, they stay below the bound.
    assert 4_800 < replica.size_bytes <= 5_000
    kept = batch_of(1, bytes(9), producer_id=7, sequence=replica.leo - 1)
    assert spu.host.space.room is Room.NONE
    spu.host.tick(spu.now_us)
    assert spu.host.space.room is Room.NONE
    assert "it refuses records" in (replica.report().reason or "")
    assert spu.reports[-1].reason == replica.report().reason
    assert (replica.report().role, replica.report().fit) == (ReplicaRole.LEADER, True)
    with pytest.raises(StorageFullError, match=r"of storage\.size") as refused:
        await produce(replica, batch_of())
    assert isinstance(refused.value, RetryableError)
    # What stands already is known to, and leaders go on.
    assert (await produce(replica, kept)).base_offset == replica.leo - 1
    await spu.lead(term=make_term(1, 9), revision=9)
    await until(lambda: replica.is_serving)
    # Truncated files go at once, whatever their grace, and clients are let in again.
    end = replica.leo
    newer = assignment_of(log=log, term=make_term(1, 9), revision=10, truncate_before=end)
    await spu.host.assign(assign(newer))
    await until(lambda: replica._log.log_start == end)

    def has_room() -> bool:
        spu.host.tick(spu.now_us)
        return spu.host.space.room is Room.PLENTY and len(replica._log.segments) == 1

    await until(has_room)
    assert spu.reports[-1].reason is replica.report().reason is None
    await produce(replica, batch_of())
    await spu.host.close()


def open_logs(path: Path) -> int:
    """How many segment files below ``path`` this process has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{fd}")
            found += name.startswith(str(path)) and name.endswith(".log")
    return found


async def test_given_many_more_partitions_than_open_files_then_all_are_written_and_read_back(
    tmp_path: Path,
) -> None:
    uids = [new_uid() for _ in range(100)]
    spu = await open_spu(tmp_path, *(assignment_of(uid) for uid in uids), open_files=8)
    await asyncio.gather(*(spu.serve(uid) for uid in uids))
    replicas = [spu.host.replica(uid) for uid in uids]
    written = asyncio.gather(*(produce(replica, batch_of()) for replica in replicas))
    most = 0
    while not written.done():
        most = max(most, open_logs(tmp_path))
        await asyncio.sleep(0)
    written.result()
    # Of each thread one may be in use beyond the bound.
    assert most <= 8 + 24
    assert all(replica.fit for replica in replicas)
    await spu.host.close()
    again = await open_spu(tmp_path, open_files=8)
    await until(lambda: all(replica.is_serving for replica in again.host.replicas()))
    for uid in uids:
        found = again.host.replica(uid).fetch(fetch_request(1), wait=True)
        assert headers(found.data)[0].base_offset == 1
    await again.host.close()


async def test_given_a_directory_that_cannot_be_removed_then_the_others_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = [new_uid() for _ in range(3)]
    spu = await open_spu(tmp_path, *(assignment_of(uid) for uid in uids))
    tombstones = tuple(Tombstone(uid=uid, spu_id=1, storage_id=spu.storage_id(uid)) for uid in uids)
    rename = os.rename

    def failing(source: Path, target: Path) -> None:
        if Path(source).name == uids[1]:
            raise OSError(5, "Input/output error", str(source))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing)
        done = await spu.host.delete(DeleteReplicas(tombstones=tombstones, stamp=STAMP))
    assert {one.uid for one in done} == {uids[0], uids[2]}
    assert [replica.meta.uid for replica in spu.host.replicas()] == [uids[1]]
    assert await spu.host.delete(DeleteReplicas(tombstones=tombstones, stamp=STAMP)) == list(
        tombstones
    )
    assert spu.host.replicas() == []
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.host.reports() == []
    await again.host.close()


async def test_given_nothing_happens_then_a_replica_is_idle_until_something_does(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    idle = [replica.is_idle]
    # The first tick syncs what there is.
    for _ in range(2):
        spu.host.tick(spu.now_us)
    idle.append(replica.is_idle)
    written = asyncio.create_task(produce(replica, batch_of()))
    await asyncio.sleep(0)
    idle.append(replica.is_idle)
    await written
    assert idle == [False, True, False]
    await spu.host.close()


async def test_given_a_replica_whose_tick_fails_then_time_goes_on_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 0.001)
    ticks: list[PartitionUid] = []

    def tick(replica: Replica, now_us: int) -> None:
        ticks.append(replica.meta.uid)
        if replica.meta.uid == UID:
            raise ValueError("a bug")

    monkeypatch.setattr(Replica, "tick", tick)
    other = new_uid()
    spu = await open_spu(tmp_path, assignment_of(), assignment_of(other))
    await until(lambda: ticks.count(other) >= 3)
    assert ticks.count(UID) >= 2
    await spu.host.close()


async def test_given_a_replica_deleted_while_others_tick_then_it_has_no_tick_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [new_uid() for _ in range(2 * SLICE)]
    spu = await open_spu(tmp_path, assignment_of(), *map(assignment_of, others))
    held = spu.host._replicas
    last = list(held)[-1]
    ticked: list[PartitionUid] = []

    def tick(replica: Replica, now_us: int) -> None:
        # Each round has several parts, and the last one is deleted during the first.
        ticked.append(replica.meta.uid)
        if last in held:
            gone.append(held.pop(last))

    gone: list[Replica] = []
    monkeypatch.setattr("spu.host.host.TICK_S", 0.01)
    monkeypatch.setattr(Replica, "tick", tick)
    await until(lambda: ticked.count(ticked[0]) >= 3 if ticked else False)
    assert len(held) == 2 * SLICE
    assert last not in ticked
    held[last] = gone[0]
    await spu.host.close()


async def test_given_more_than_one_part_of_replicas_then_ticks_add_up_what_all_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 0.001)
    spu = await open_spu(
        tmp_path, assignment_of(), *(assignment_of(new_uid()) for _ in range(SLICE))
    )
    replica = await spu.serve()
    for _ in range(20):
        await produce(replica, batch_of())
    stored = sum(one.stored_bytes for one in spu.host.replicas())
    await until(lambda: spu.host.space.seen.used == stored)
    await spu.host.close()


async def test_given_the_cluster_that_it_knows_then_a_welcome_waits_for_nothing(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path)
    async with asyncio.timeout(5), spu.host._lock:
        await spu.host.join_cluster(CLUSTER)
    with pytest.raises(StorageFailedError):
        await spu.host.join_cluster("another")
    await spu.host.close()
