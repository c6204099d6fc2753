"""One replica: leading and failing."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.control.messages import AssignPartitions, Lead, LoadReport, ReplicaRole, Stamp
from schemas.errors import (
    ConflictError,
    FencedError,
    NotFoundError,
    NotLeaderError,
    RunnelError,
    StorageFailedError,
    StorageFullError,
)
from schemas.ids import MAX_RESTARTS, Term, make_term
from schemas.objects.load import LoadLimits, LoadUnit
from schemas.objects.partition import LiveReplica
from schemas.objects.quantities import Millis
from schemas.wire.record_requests import Acks, ProduceResponse
from spu.host.host import ReplicaHost
from spu.replication.events import RequestElection
from spu.replication.history import TermStart
from spu.replication.messages import Attach
from spu.storage import file_pool as file_pool_module
from spu.storage import sync_plan
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
from tests.unit.spu.stuck_sync import StuckSync

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
    with pytest.raises(FencedError, match=r"term 1:0 of orders-0 is over: the disk holds 1:1"):
        await replica.lead(lead_of(spu, make_term(1, 0), 9), 0)
    with pytest.raises(ConflictError, match="not in the live replica set"):
        await replica.lead(lead_of(spu, make_term(1, 2), 9, "x"), 0)


async def test_given_no_restarts_left_then_it_asks_for_an_election(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    await spu.host.close()
    journal = Journal.open(tmp_path / "journal")
    entry = journal.entries[UID]
    last = replace(entry.hard_state, term=TERM + MAX_RESTARTS)
    journal.append([JournalChange((replace(entry, hard_state=last),))])
    journal.close()
    again = await open_spu(tmp_path)
    ((uid, asked),) = again.link.asked
    assert uid == UID
    assert isinstance(asked, RequestElection)
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
        await produce(replica, batch_of(), produce_request(timeout_ms=1))
    with pytest.raises(NotLeaderError):
        await produce(replica, batch_of(), produce_request(Acks.NONE))
    held = asyncio.create_task(produce(replica, batch_of()))
    await asyncio.sleep(0.01)
    assert not held.done()
    written.set()
    await leading
    assert await held == ProduceResponse(1, 1)


async def test_given_a_former_leader_that_is_named_by_an_older_assignment_then_refused(
    spu: Spu,
) -> None:
    replica = await spu.serve()
    later = TERM + (1 << 16)
    replica.said(2, Attach(later, 1, "boot"))
    await until(lambda: replica.role is ReplicaRole.IDLE)
    with pytest.raises(NotLeaderError):
        replica.produce(produce_request(), memoryview(batch_of()), lambda _answer: None)


@pytest.mark.parametrize(
    ("history", "lac", "serves"),
    [
        pytest.param((), -1, False, id="given-nothing-then-not"),
        pytest.param(((TERM, 0),), 4, False, id="given-its-own-term-then-not"),
        pytest.param(((TERM, 0), (TERM + 1, 5)), 4, False, id="given-nothing-committed-then-not"),
        pytest.param(((TERM, 0), (TERM + 1, 5)), 5, True, id="given-a-commit-then-it-does"),
    ],
)
def test_whether_a_later_leadership_serves(
    spu: Spu, history: tuple[tuple[int, int], ...], lac: int, *, serves: bool
) -> None:
    runner = spu.replica._runner
    log = replace(runner.state.log, history=tuple(TermStart(*one) for one in history))
    runner.state = replace(runner.state, log=log, lac=lac)
    assert spu.replica.follows_since(TERM) is serves


async def test_given_records_that_are_not_synced_then_the_sc_does_not_count_them(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this, the SC elects who holds most where it no longer knows who was live. The one that
    leads is then the only live one, and must not lose what it was elected for."""
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    await spu.lead(term=make_term(1, 2), revision=7)
    waiting = asyncio.create_task(produce(replica, batch_of()))
    await until(lambda: stuck.runs == 1 and replica.leo == 3)
    report = replica.report()
    assert (replica.leo, report.leo, report.last_term) == (3, 1, TERM)
    stuck.release()
    await waiting
    report = replica.report()
    assert (replica.leo, report.leo, report.last_term) == (3, 3, make_term(1, 2))


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
    with pytest.raises(FencedError, match="has heard one that leads from revision 2 on"):
        await spu.host.assign(assign(assignment_of(revision=9_000)))
    replica.assign(assignment_of(revision=9_000), 0)
    assert (replica.report().incarnation, replica.report().revision) == (1, 3)


async def test_given_an_unclean_election_then_it_is_told_although_the_object_returns_without_it(
    spu: Spu,
) -> None:
    replica = await spu.serve()
    assert replica.report().unclean_term is None
    await spu.host.assign(assign(assignment_of(revision=8, unclean_term=TERM)))
    await spu.host.assign(assign(assignment_of(leader=None, term=make_term(0, 0), revision=9)))
    assert (replica.report().revision, replica.report().unclean_term) == (9, TERM)


async def test_given_other_live_replicas_then_pushes_hear_of_it(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    heard: list[int] = []
    monkeypatch.setattr(replica._runner.pushes, "hurry", lambda: heard.append(1))
    await spu.host.assign(assign(assignment_of(revision=8)))
    assert heard


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


async def test_given_a_failed_write_then_it_stops_and_a_restart_finds_it_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()

    def fail(_fd: int, _data: bytes, _position: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(file_pool_module, "write_all", fail)
        with pytest.raises(StorageFailedError, match="Input/output error"):
            await produce(replica, batch_of())
    with pytest.raises(StorageFailedError):
        await produce(replica, batch_of())
    assert not replica.report().fit
    assert not replica.awaits_room
    await spu.host.close()
    again = await open_spu(tmp_path)
    await until(lambda: again.replica.is_serving)
    await again.host.close()


async def test_given_a_full_disk_then_it_serves_on_and_takes_records_again_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    first = (await produce(replica, batch_of(3))).base_offset
    directory = tmp_path / "partitions" / UID

    def fill(fd: int, data: bytes, position: int) -> None:
        os.pwrite(fd, memoryview(data)[: len(data) // 2], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_pool_module, "write_all", fill)
        with pytest.raises(StorageFullError, match="No space left on device"):
            await produce(replica, batch_of(9, bytes(4_000)))
    # Nothing is left of the half of a batch: a shorter one may follow in its place.
    assert sum(path.stat().st_size for path in directory.glob("*.log")) == replica.size_bytes
    with pytest.raises(StorageFullError, match="No space left on device"):
        await produce(replica, batch_of())
    assert (replica.role, replica.fit) == (ReplicaRole.LEADER, True)
    assert bytes(replica.fetch(fetch_request(first), wait=True).data)
    spu.host.tick(spu.now_us)
    await produce(replica, batch_of(2))
    end = replica.leo
    await spu.host.close()
    again = await open_spu(tmp_path)
    await until(lambda: again.replica.is_serving)
    assert again.replica.leo >= end
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


async def test_given_limits_of_its_load_then_a_leader_reports_what_that_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 0
    monkeypatch.setattr(ReplicaHost, "_clock_ms", staticmethod(lambda: now_ms))
    limits = LoadLimits(unit=LoadUnit.EVENTS, target_rate=2, window=Millis(1_000))
    log = settings_of().model_copy(update={"load": limits})
    spu = await open_spu(tmp_path, assignment_of(log=log))
    replica = await spu.serve()
    for second in range(7):
        now_ms = second * 1_000
        await produce(replica, batch_of(7))
        replica.tick(spu.now_us)
    assert spu.reports[-1].load == LoadReport(parts=3)
    said = len(spu.reports)
    now_ms += 1_000
    await produce(replica, batch_of(7))
    replica.tick(spu.now_us)
    assert len(spu.reports) == said
    # A log that is sealed has no load, whatever came before.
    await spu.host.assign(assign(assignment_of(log=log, sealed=True, revision=7)))
    await until(lambda: replica.report().sealed is not None)
    replica.tick(spu.now_us)
    assert replica.report().load is None
    await spu.host.close()
