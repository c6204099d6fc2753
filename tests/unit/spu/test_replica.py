"""One replica: leading, producing, fetching, failing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.batch import CONTROL_FLAG
from schemas.errors import (
    ConflictError,
    CorruptBatchError,
    DeadlineExceededError,
    FencedError,
    InvalidRequestError,
    NotEnoughReplicasError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RunnelError,
    StorageFailedError,
    TransactionIdTooLowError,
)
from schemas.ids import MAX_RESTARTS, Term, make_term
from schemas.log_requests import SegmentState
from schemas.messages import AssignPartitions, Lead, ReplicaRole, Stamp
from schemas.partition import LiveReplica
from schemas.record_requests import EARLIEST, LATEST, Acks, PositionBy, ProduceResponse
from schemas.topic import Durability, LogSettings
from spu.replication.events import AskElection
from spu.storage import durable, sync_plan
from spu.storage import file_pool as file_pool_module
from spu.storage.journal import Journal, JournalChange
from spu.storage.segment import Damage
from tests.unit.spu.builders import (
    TERM,
    UID,
    Spu,
    assign,
    assignment_of,
    batch_of,
    fetch_request,
    headers,
    open_spu,
    produce,
    produce_request,
    settings_of,
    until,
)


@pytest.fixture
async def spu(tmp_path: Path) -> AsyncIterator[Spu]:
    opened = await open_spu(tmp_path / "spu", assignment_of())
    yield opened
    await opened.host.close()


class StuckSync:
    """An fsync that lasts until it is released, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        self.error: OSError | None = None
        self._go = threading.Event()
        original = durable.sync_file

        def sync_file(fd: int) -> None:
            self.runs += 1
            assert self._go.wait(20)
            if self.error is not None:
                raise self.error
            original(fd)

        monkeypatch.setattr(sync_plan, "sync_file", sync_file)

    def release(self, error: OSError | None = None) -> None:
        self.error = error
        self._go.set()

    def hold(self) -> None:
        self._go.clear()


# Leading


async def test_given_a_lead_then_the_term_is_durable_and_a_control_record_begins_it(
    spu: Spu,
) -> None:
    replica = await spu.serve()
    report = replica.report()
    assert (report.role, report.term, report.leo, report.fit) == (
        ReplicaRole.LEADER,
        TERM,
        1,
        True,
    )
    (control,) = headers(replica.fetch(fetch_request(0)).data)
    assert control.is_control
    assert control.term == TERM
    assert spu.reports[-1] == report


async def test_given_the_same_term_again_then_a_leader_goes_on(spu: Spu) -> None:
    replica = await spu.serve()
    await spu.lead(revision=6)
    assert replica.report().term == TERM
    assert replica.leo == 1


async def test_given_the_same_term_at_a_newer_revision_then_a_leader_goes_on(spu: Spu) -> None:
    replica = await spu.serve()
    await spu.lead(revision=7)
    assert (replica.report().term, replica.leo) == (TERM, 1)


@pytest.mark.parametrize(
    ("term", "revision", "ends_at"),
    [
        pytest.param(make_term(1, 2), 7, make_term(1, 2), id="given-a-newer-term-then-it"),
        pytest.param(make_term(1, 0), 7, TERM, id="given-an-older-term-then-refused"),
        pytest.param(make_term(1, 2), 3, TERM, id="given-an-older-revision-then-refused"),
        pytest.param(make_term(2, 0), 7, make_term(2, 0), id="given-an-incarnation-then-it"),
    ],
)
async def test_second_lead(spu: Spu, term: Term, revision: int, ends_at: Term) -> None:
    replica = await spu.serve()
    await spu.lead(term=term, revision=revision)
    assert replica.report().term == ends_at


def lead_of(spu: Spu, term: Term, revision: int, storage: str | None = None) -> Lead:
    me = LiveReplica(spu_id=1, storage_id=storage or spu.storage_id())
    return Lead(uid=UID, term=term, lrs=(me,), revision=revision)


async def test_given_a_refusal_then_the_error_says_which_terms(spu: Spu) -> None:
    replica = await spu.serve()
    with pytest.raises(
        FencedError, match=r"term 1\.0\.0 of orders-0 is over: the disk holds 1\.1\.0"
    ):
        await replica.lead(lead_of(spu, make_term(1, 0), 9), 0)
    with pytest.raises(ConflictError, match="not in the live replica set"):
        await replica.lead(lead_of(spu, make_term(1, 2), 9, "x"), 0)


async def test_given_no_restarts_left_then_it_asks_for_an_election(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    await spu.host.close()
    journal = Journal.open(tmp_path / "journal")
    entry = journal.entries[UID]
    last = replace(entry.promise, term=TERM + MAX_RESTARTS)
    journal.append([JournalChange((replace(entry, promise=last),))])
    journal.close()
    again = await open_spu(tmp_path)
    ((uid, asked),) = again.link.asked
    assert uid == UID
    assert isinstance(asked, AskElection)
    assert "used up" in asked.reason
    assert again.replica.role is ReplicaRole.IDLE
    await again.host.close()


async def test_given_the_term_is_not_durable_yet_then_nothing_is_appended(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = spu.replica
    written = threading.Event()
    original = Journal.append

    def append(journal: Journal, changes: Any) -> None:
        assert written.wait(20)
        original(journal, changes)

    monkeypatch.setattr(Journal, "append", append)
    leading = asyncio.create_task(replica.lead(lead_of(spu, TERM, 6), 0))
    await asyncio.sleep(0)
    assert replica.leo == 0
    assert replica.role is ReplicaRole.IDLE
    with pytest.raises(NotLeaderError):
        await produce(replica, batch_of())
    written.set()
    await leading
    assert replica.leo == 1


async def test_given_an_uncommitted_control_record_then_not_ready(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = StuckSync(monkeypatch)
    await spu.lead()
    replica = spu.replica
    with pytest.raises(NotReadyError):
        await produce(replica, batch_of())
    with pytest.raises(NotReadyError):
        replica.list_offsets(LATEST)
    assert replica.list_offsets(EARLIEST).offset == 0
    assert replica.leo == 1
    found = replica.fetch(fetch_request(7))
    assert (len(found.data), found.enough, found.response.lac) == (0, False, -1)
    stuck.release()
    await until(lambda: replica.is_serving)
    assert replica.list_offsets(LATEST).offset == 1


async def test_given_a_newer_leader_then_it_steps_down_and_waiters_are_told(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    waiting = asyncio.create_task(produce(replica, batch_of()))
    await until(lambda: replica.leo == 2)
    await spu.host.assign(assign(assignment_of(leader=2, term=make_term(1, 2), revision=8)))
    with pytest.raises(NotLeaderError):
        await waiting
    assert replica.report().role is ReplicaRole.IDLE
    with pytest.raises(NotLeaderError):
        replica.fetch(fetch_request(0))
    stuck.release()


async def test_given_a_later_incarnation_without_a_leader_then_it_leads_no_more_and_says_so(
    spu: Spu,
) -> None:
    """A cluster recovers from an older backup: what the replica holds must not grow any more once
    it has answered, and the revisions of before say nothing."""
    replica = await spu.serve()
    await produce(replica, batch_of())
    stamp = Stamp(revision=2, office="next", incarnation=1)
    leaderless = assignment_of(leader=None, term=make_term(0, 0), revision=3)
    await spu.host.assign(AssignPartitions(assignments=(leaderless,), stamp=stamp))
    report = spu.reports[-1]
    assert (report.incarnation, report.revision, report.leo) == (1, 3, 2)
    assert report.role is ReplicaRole.IDLE
    with pytest.raises(NotLeaderError):
        await produce(replica, batch_of())
    # An order of before, however high its revision, comes too late.
    await spu.host.assign(assign(assignment_of(revision=9_000)))
    assert (replica.report().incarnation, replica.report().revision) == (1, 3)


# Producing


async def test_given_batches_then_offsets_follow_and_are_visible_once_committed(spu: Spu) -> None:
    replica = await spu.serve()
    assert await produce(replica, batch_of(3)) == ProduceResponse(1, 3)
    assert await produce(replica, batch_of(2)) == ProduceResponse(4, 5)
    found = headers(replica.fetch(fetch_request(1)).data)
    assert [header.base_offset for header in found] == [1, 4]


async def test_given_acks_leader_then_answered_before_the_fsync_and_not_visible(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    assert await produce(replica, batch_of(), produce_request(Acks.LEADER)) == ProduceResponse(1, 0)
    assert len(replica.fetch(fetch_request(1)).data) == 0
    stuck.release()
    await until(lambda: replica.lac == 1)


async def test_given_acks_none_then_appended_and_not_answered(spu: Spu) -> None:
    replica = await spu.serve()
    answers: list[object] = []
    replica.produce(produce_request(Acks.NONE), memoryview(batch_of()), answers.append)
    await until(lambda: replica.lac == 1)
    assert answers == []


async def test_given_many_producers_then_they_share_fsyncs(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    waiting = [asyncio.create_task(produce(replica, batch_of())) for _ in range(50)]
    await until(lambda: stuck.runs == 1)
    waiting += [asyncio.create_task(produce(replica, batch_of())) for _ in range(50)]
    await until(lambda: replica.leo == 101)
    stuck.release()
    assert {(await one).base_offset for one in waiting} == set(range(1, 101))
    assert stuck.runs == 2


async def test_given_replicated_durability_then_committed_without_an_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(durability=Durability.REPLICATED)))
    replica = await spu.serve()
    await until(lambda: replica._log.durable_leo == 1)
    stuck = StuckSync(monkeypatch)
    assert await produce(replica, batch_of()) == ProduceResponse(1, 1)
    assert stuck.runs == 0
    stuck.release()
    await spu.host.close()


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.COMMITTED])
async def test_given_a_roll_then_nothing_behind_it_is_acknowledged_before_the_old_segment_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: Acks
) -> None:
    log = settings_of(durability=Durability.REPLICATED, segment=1 << 10)
    spu = await open_spu(tmp_path, assignment_of(log=log))
    replica = await spu.serve()
    await until(lambda: replica._log.durable_leo == 1)
    stuck = StuckSync(monkeypatch)
    await produce(replica, batch_of(1, bytes(800)), produce_request(acks))
    waiting = asyncio.create_task(produce(replica, batch_of(1, bytes(800)), produce_request(acks)))
    await until(lambda: stuck.runs == 1)
    assert not waiting.done()
    stuck.release()
    assert (await waiting).base_offset == 2
    await spu.host.close()


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        pytest.param(
            batch_of(flags=CONTROL_FLAG), InvalidRequestError, "flags", id="given-control"
        ),
        pytest.param(batch_of()[:-8], CorruptBatchError, "bytes", id="given-a-short-batch"),
        pytest.param(batch_of()[:90], CorruptBatchError, "header", id="given-no-header"),
        pytest.param(
            batch_of(1, bytes(40_000)),
            RecordTooLargeError,
            "maxRecordSize 2048",
            id="given-one-large-record",
        ),
    ],
)
async def test_given_a_bad_batch_then_it_is_refused_and_nothing_appended(
    tmp_path: Path, batch: bytearray, error: type[RunnelError], text: str
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(max_record_size=2_048)))
    replica = await spu.serve()
    with pytest.raises(error, match=text):
        await produce(replica, bytearray(batch))
    flipped = batch_of()
    flipped[100] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC32C"):
        await produce(replica, flipped)
    assert replica.leo == 1
    assert (await produce(replica, batch_of(50, bytes(40_000)))).base_offset == 1
    await spu.host.close()


async def test_given_too_few_live_replicas_then_committed_is_refused_with_a_way_out(
    tmp_path: Path,
) -> None:
    log = LogSettings(min_in_sync_replicas=2)
    spu = await open_spu(tmp_path, assignment_of(replicas=(1, 2, 3), log=log))
    await spu.lead()
    with pytest.raises(NotEnoughReplicasError, match="1 live replicas of 3, minInSync"):
        await produce(spu.replica, batch_of())
    assert spu.replica.leo == 1
    ack = await produce(spu.replica, batch_of(), produce_request(Acks.LEADER))
    assert ack.base_offset == 1
    await spu.host.close()


async def test_given_a_set_below_the_minimum_then_nothing_commits(tmp_path: Path) -> None:
    log = LogSettings(min_in_sync_replicas=2)
    spu = await open_spu(tmp_path, assignment_of(log=log))
    await spu.lead()
    await until(lambda: spu.replica._log.durable_leo == 1)
    assert not spu.replica.is_serving
    await spu.host.assign(assign(assignment_of(revision=9)))
    await until(lambda: spu.replica.is_serving)
    await spu.host.close()


# Duplicates and conditions


def numbered(sequence: int, epoch: int = 0) -> bytearray:
    return batch_of(2, producer_id=7, producer_epoch=epoch, sequence=sequence)


async def test_given_a_duplicate_then_it_gets_its_first_offset_after_a_restart_too(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    assert (await produce(replica, numbered(0))).base_offset == 1
    assert (await produce(replica, numbered(1))).base_offset == 3
    assert (await produce(replica, numbered(0))).base_offset == 1
    assert replica.leo == 5
    await spu.host.close()
    again = await open_spu(tmp_path)
    await until(lambda: again.replica.is_serving)
    assert (await produce(again.replica, numbered(1))).base_offset == 3
    with pytest.raises(NotReadyError, match="from 2 on"):
        await produce(again.replica, numbered(3))
    assert (await produce(again.replica, numbered(2))).base_offset == 5
    assert (await produce(again.replica, numbered(0, epoch=1))).base_offset == 7
    with pytest.raises(FencedError):
        await produce(again.replica, numbered(3))
    await again.host.close()


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.COMMITTED])
async def test_given_an_uncommitted_first_then_its_duplicate_waits_for_the_commit(
    spu: Spu, monkeypatch: pytest.MonkeyPatch, acks: Acks
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    await produce(replica, numbered(0), produce_request(Acks.LEADER))
    duplicate = asyncio.create_task(produce(replica, numbered(0), produce_request(acks)))
    await until(lambda: len(replica._commits) == 1)
    stuck.release()
    assert await duplicate == ProduceResponse(1, 2)
    assert replica.leo == 3


async def test_given_a_wrong_expected_offset_then_conflict_once_the_decider_is_committed(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    assert (await produce(replica, batch_of(), produce_request(expected=1))).base_offset == 1
    with pytest.raises(ConflictError, match="not 1, but 2"):
        await produce(replica, batch_of(), produce_request(expected=1))
    with pytest.raises(ConflictError, match="not 9, but 2"):
        await produce(replica, batch_of(), produce_request(expected=9))
    stuck = StuckSync(monkeypatch)
    await produce(replica, batch_of(), produce_request(Acks.LEADER))
    late = asyncio.create_task(produce(replica, batch_of(), produce_request(expected=2)))
    await until(lambda: len(replica._commits) == 1)
    assert not late.done()
    stuck.release()
    with pytest.raises(ConflictError, match="not 2, but 3"):
        await late
    assert replica.leo == 3


# Transaction ids


async def test_given_an_id_below_the_last_one_then_refused_after_a_restart_too(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    assert (await produce(replica, batch_of(2, ids=(5, 9)))).base_offset == 1
    assert (await produce(replica, batch_of(2))).base_offset == 3
    with pytest.raises(TransactionIdTooLowError, match=r"id 8, and orders-0 is at 9") as refused:
        await produce(replica, batch_of(ids=(8, 12)))
    assert refused.value.last_transaction_id == 9
    assert (await produce(replica, batch_of(ids=(9, 9)))).base_offset == 5
    await spu.host.close()
    again = await open_spu(tmp_path)
    await until(lambda: again.replica.is_serving)
    with pytest.raises(TransactionIdTooLowError):
        await produce(again.replica, batch_of(ids=(8, 8)))
    assert (await produce(again.replica, batch_of(ids=(9, 10)))).base_offset == 6
    await again.host.close()


async def test_given_a_duplicate_below_the_last_id_then_it_gets_its_first_offset(
    spu: Spu,
) -> None:
    replica = await spu.serve()
    batches = [batch_of(ids=(n, n), producer_id=7, sequence=n) for n in range(3)]
    offsets = [(await produce(replica, batch)).base_offset for batch in batches]
    again = batch_of(ids=(0, 0), producer_id=7, sequence=0)
    assert (await produce(replica, again)).base_offset == offsets[0]
    # Refused ones take no sequence: the next one follows the last that stands.
    with pytest.raises(TransactionIdTooLowError):
        await produce(replica, batch_of(ids=(1, 1), producer_id=7, sequence=3))
    last = batch_of(ids=(2, 2), producer_id=7, sequence=3)
    assert (await produce(replica, last)).base_offset == offsets[2] + 1


async def test_given_an_uncommitted_larger_id_then_refused_once_that_is_committed(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    await produce(replica, batch_of(ids=(5, 9)), produce_request(Acks.LEADER))
    low = asyncio.create_task(produce(replica, batch_of(ids=(4, 4))))
    await until(lambda: len(replica._commits) == 1)
    assert not low.done()
    stuck.release()
    with pytest.raises(TransactionIdTooLowError):
        await low
    assert replica.leo == 2


async def test_given_ids_then_they_are_positions(spu: Spu) -> None:
    replica = await spu.serve()
    for first in (10, 20):
        await produce(replica, batch_of(2, ids=(first, first + 1)))
    found = replica.find_offset(12, PositionBy.TRANSACTION_ID)
    assert (found.offset, found.by, found.lac) == (3, PositionBy.TRANSACTION_ID, 4)
    assert replica.find_offset(22, PositionBy.TRANSACTION_ID).offset == 5


async def test_given_no_commit_in_time_then_the_outcome_is_unknown(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    with pytest.raises(DeadlineExceededError, match="may still be"):
        await produce(replica, batch_of(), produce_request(timeout_ms=1))
    stuck.release()
    await until(lambda: replica.lac == 1)


# Reading


async def test_given_offsets_then_fetch_says_what_there_is(spu: Spu) -> None:
    replica = await spu.serve()
    await produce(replica, batch_of(4))
    assert replica.fetch(fetch_request(3)).enough
    beyond = replica.fetch(fetch_request(50))
    assert (len(beyond.data), beyond.enough) == (0, False)
    with pytest.raises(InvalidRequestError):
        replica.fetch(fetch_request(-1))
    replica._log.truncate_prefix(1)
    replica.tick(spu.now_us)
    await until(lambda: replica.log_start == 1)
    with pytest.raises(OffsetOutOfRangeError, match="first one available is 1"):
        replica.fetch(fetch_request(0))
    bounds = replica.list_offsets(EARLIEST)
    assert (bounds.offset, bounds.log_start, bounds.lac) == (1, 1, 4)
    assert bounds.size_bytes == replica.size_bytes > 0


async def test_given_a_watcher_of_segments_then_it_is_told_of_every_change(spu: Spu) -> None:
    replica = await spu.serve()
    await produce(replica, batch_of(4))
    known, (first,) = replica.list_segments()
    assert (first.base_offset, first.end_offset, first.state) == (0, 5, SegmentState.IN_PROGRESS)
    told: list[RunnelError | None] = []
    replica.when_segments_change(60_000, told.append)
    await produce(replica, batch_of())
    assert told == []
    replica._log.roll(spu.now_us)
    replica.tick(spu.now_us)
    assert told == [None]
    then, (first,) = replica.list_segments()
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
        replica.list_segments()


async def test_given_positions_then_list_offsets_knows_them(spu: Spu) -> None:
    replica = await spu.serve()
    for time_us in (spu.now_us + 10, spu.now_us + 20):
        await produce(replica, batch_of(2, time_us=time_us))
    assert replica.list_offsets(LATEST).offset == 5
    assert replica.find_offset(spu.now_us + 11, PositionBy.TIMESTAMP).offset == 3
    assert replica.find_offset(spu.now_us + 99, PositionBy.TIMESTAMP).offset == 5
    with pytest.raises(InvalidRequestError, match="means nothing"):
        replica.list_offsets(-7)


# Failing


async def test_given_a_checkpoint_that_cannot_be_written_then_the_next_start_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    await produce(replica, batch_of(3))
    end = replica.leo

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sync_plan, "write_checkpoint", full)
        await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.replica.fit
    assert again.replica.leo == end
    await again.host.close()


async def test_given_a_failed_fsync_then_it_stops_for_good_over_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    with monkeypatch.context() as patch:
        stuck = StuckSync(patch)
        waiting = asyncio.create_task(produce(replica, batch_of()))
        await until(lambda: stuck.runs == 1)
        stuck.release(OSError(5, "Input/output error"))
        with pytest.raises(StorageFailedError, match="Input/output error"):
            await waiting
    runs = stuck.runs
    with pytest.raises(StorageFailedError):
        await produce(replica, batch_of())
    replica.tick(spu.now_us)
    report = spu.reports[-1]
    assert (report.role, report.fit) == (ReplicaRole.STOPPED, False)
    assert report.reason is not None
    assert "fsync failed" in report.reason
    with pytest.raises(StorageFailedError):
        await replica.lead(lead_of(spu, make_term(1, 5), 50), 0)
    await spu.host.close()
    assert stuck.runs == runs
    again = await open_spu(tmp_path)
    assert not again.replica.fit
    assert again.replica.leo == 2
    await again.host.close()


async def test_given_a_full_disk_then_it_stops_and_a_restart_finds_it_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()

    def fail(_fd: int, _data: bytes, _position: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_pool_module, "write_all", fail)
        with pytest.raises(StorageFailedError, match="No space left"):
            await produce(replica, batch_of())
    with pytest.raises(StorageFailedError):
        await produce(replica, batch_of())
    assert not replica.report().fit
    await spu.host.close()
    again = await open_spu(tmp_path)
    await until(lambda: again.replica.is_serving)
    await again.host.close()


async def test_given_damage_met_by_a_read_then_it_becomes_unfit(spu: Spu) -> None:
    replica = await spu.serve()
    error = replica.damaged(Damage("file.log", 7, "no batch header stands here"))
    assert isinstance(error, StorageFailedError)
    assert "file.log at byte 7" in error.message
    assert not spu.reports[-1].fit


async def test_given_deletion_then_waiters_are_told_not_found(spu: Spu) -> None:
    replica = await spu.serve()
    told: list[RunnelError | None] = []
    replica.when_more(fetch_request(1).__class__(replica.meta.uid, 1, 9, 1, 60_000), 0, told.append)
    await replica.abandon()
    assert isinstance(told[0], NotFoundError)
