"""The controller loop: writes before the next look, conflicts, failures, and the end of office."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sc.controllers.actions import (
    Action,
    CreatePartitions,
    EndSpu,
    Key,
    KvAction,
    MarkDeleting,
    ProvisionAction,
    ProvisionSpu,
    Read,
    RegisterSpu,
    RemoveSpu,
    SendLead,
    SessionAction,
    WakeAt,
    WriteSpuSpec,
    WriteStatus,
)
from sc.dispatch.loop import REFUSED, ROUNDS, ControllerLoop
from sc.dispatch.work_queue import WorkQueue
from sc.metrics.instruments import ScMetrics
from sc.store.local_store import LocalStore
from sc.store.records import GetRecord, Record, Records, Want
from sc.store.view import View
from schemas.causality import current_cause
from schemas.control.messages import Lead
from schemas.daemon.metrics import exposition
from schemas.errors import (
    CompactedError,
    ConflictError,
    FencedError,
    InvalidRequestError,
    UnreachableError,
)
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition, PartitionStatus
from tests.polling import eventually
from tests.unit.sc.builders import (
    TERM_1,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    topic_of,
    view_of,
)

A, B, C = Key("Topic", "a"), Key("Topic", "b"), Key("Topic", "c")


def write(name: str = "a") -> WriteStatus:
    return WriteStatus(topic_of(name), topic_of(name).status)


@dataclass
class Bench:
    """A loop whose controllers, KV and mirror do what the test says."""

    view: View = field(default_factory=View)
    queue: WorkQueue = field(default_factory=WorkQueue)
    metrics: ScMetrics = field(default_factory=ScMetrics)
    log: list[str] = field(default_factory=list)
    actions: dict[Key, list[tuple[Action, ...] | Exception]] = field(default_factory=dict)
    writes: list[Exception] = field(default_factory=list)
    reads: list[Exception] = field(default_factory=list)
    mirrored: asyncio.Event = field(default_factory=asyncio.Event)

    def reconcile(self, view: View, key: Key, _now_ms: int) -> tuple[Action, ...]:
        found_before = "" if view.records is None else f" with {len(view.records.found)}"
        self.log.append(f"look {key.name} {current_cause()}{found_before}")
        planned = self.actions.get(key)
        found = planned.pop(0) if planned else ()
        if isinstance(found, Exception):
            raise found
        return found

    async def write(self, action: KvAction) -> int:
        what = action.object.name if isinstance(action, WriteStatus) else type(action).__name__
        self.log.append(f"write {what} {current_cause()}")
        if self.writes:
            raise self.writes.pop(0)
        return 7

    async def read(self, before: Records | None, wants: Sequence[Want]) -> Records:
        self.log.append(f"read {len(wants)}")
        if self.reads:
            raise self.reads.pop(0)
        found = {want: (Record("r", b"", 40 + len(self.log)),) for want in wants}
        return (before or Records(9, 0, {})).with_found(found)

    async def applied(self, revision: int) -> None:
        self.log.append(f"wait {revision}")
        await self.mirrored.wait()

    def carry_out(self, action: SessionAction | ProvisionAction) -> None:
        self.log.append(f"send {type(action).__name__}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        loop = ControllerLoop(
            self.view,
            self.queue,
            write=self.write,
            sessions=self,
            applied=self.applied,
            metrics=self.metrics,
            placing=asyncio.Lock(),
            records=self.read,
            now_ms=lambda: 1_000,
        )
        task = asyncio.create_task(loop.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.queue.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        await eventually(condition)

    def looks(self, name: str = "a") -> int:
        return sum(line.startswith(f"look {name} ") for line in self.log)


@pytest.fixture
def real_bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """One with the real controllers; nothing is written before the test says so."""
    monkeypatch.setattr("sc.dispatch.loop.RETRY_BASE_MS", 1.0)
    return Bench()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr("sc.dispatch.loop.reconcile", made.reconcile)
    monkeypatch.setattr("sc.dispatch.loop.RETRY_BASE_MS", 1.0)
    made.mirrored.set()
    return made


async def test_given_write_then_the_key_waits_for_the_mirror_before_its_next_look(
    bench: Bench,
) -> None:
    bench.mirrored.clear()
    bench.actions[A] = [(write(),)]
    async with bench.running():
        bench.queue.add(A, "one")
        await bench.until(lambda: "wait 7" in bench.log)
        bench.queue.add(A, "two")
        bench.queue.add(B, "other")
        await bench.until(lambda: bench.looks("b") == 1)
        assert bench.looks("a") == 1
        bench.mirrored.set()
        await bench.until(lambda: bench.looks("a") == 2)
    assert bench.log == ["look a one", "write a one", "wait 7", "look b other", "look a two"]


async def test_given_several_actions_then_carried_out_in_order(bench: Bench) -> None:
    bench.actions[A] = [(RegisterSpu(spu_of(1)), write(), RegisterSpu(spu_of(2)))]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.queue.idle)
    assert bench.log == ["look a c", "send RegisterSpu", "write a c", "wait 7", "send RegisterSpu"]


async def test_given_lost_compare_and_swap_then_looked_at_anew_after_the_mirror_caught_up(
    bench: Bench,
) -> None:
    bench.actions[A] = [(write(), RegisterSpu(spu_of(1))), ()]
    bench.writes = [ConflictError("changed", revision=9)]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.looks() == 2)
    assert bench.log == ["look a c", "write a c", "wait 9", "look a c"]
    assert b"runnel_sc_conflicts_total 1.0" in exposition(bench.metrics.registry)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(UnreachableError("no KV"), id="given-store-away-then-tried-again"),
        pytest.param(KeyError("bug"), id="given-unforeseen-error-then-tried-again"),
    ],
)
async def test_failure(bench: Bench, failure: Exception) -> None:
    bench.actions[A] = [(write(),), failure, (write(),)]
    bench.writes = [failure]
    async with bench.running() as task:
        bench.queue.add(A, "c")
        bench.queue.add(B, "c")
        await bench.until(lambda: bench.looks() == 3 and bench.queue.idle)
        assert not task.done()
    assert bench.log[-2:] == ["write a c", "wait 7"]


async def test_given_wanted_records_then_looked_at_with_them_once_the_mirror_is_as_new(
    bench: Bench,
) -> None:
    bench.actions[A] = [(Read((GetRecord("x"),)),), (Read((GetRecord("y"),)),), (write(),)]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.queue.idle)
    assert bench.log == [
        "look a c",
        "read 1",
        "wait 42",
        "look a c with 1",
        "read 1",
        "wait 45",
        "look a c with 2",
        "write a c",
        "wait 7",
    ]


async def test_given_a_revision_that_the_kv_forgot_then_the_pass_begins_anew(bench: Bench) -> None:
    bench.actions[A] = [(Read((GetRecord("x"),)),)] * 3
    bench.reads = [CompactedError("gone", first_available=50)]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.queue.idle and bench.looks() == 4)
    assert bench.log[:4] == ["look a c", "read 1", "look a c", "read 1"]


async def test_given_records_wanted_without_end_then_it_is_tried_again_later(bench: Bench) -> None:
    bench.actions[A] = [(Read((GetRecord(str(i)),)),) for i in range(2 * ROUNDS)]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.looks() > ROUNDS)
        assert not any("write" in line for line in bench.log)


REMOVE, PLACE = RemoveSpu(spu_of(1)), CreatePartitions(topic_of(), (partition_of(),))
RESTART = WriteSpuSpec(spu_of(1), spu_of(1).spec.model_copy(update={"catch_up_rate": 1 << 20}))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(REMOVE, PLACE, id="given-spu-is-being-removed-then-nothing-is-placed"),
        pytest.param(PLACE, REMOVE, id="given-placement-then-no-spu-is-removed"),
        pytest.param(PLACE, PLACE, id="given-placement-then-no-other-placement"),
        pytest.param(RESTART, RESTART, id="given-spu-may-restart-then-no-other-restart"),
    ],
)
async def test_one_at_a_time(bench: Bench, first: KvAction, second: KvAction) -> None:
    """The second one waits until the mirror shows the first, and then looks anew."""
    bench.mirrored.clear()
    bench.actions[A] = [(first,), (first,), (first,)]
    bench.actions[B] = [(second,), ()]
    async with bench.running():
        bench.queue.add(A, "1")
        bench.queue.add(B, "2")
        bench.queue.add(C, "3")
        await bench.until(lambda: "wait 7" in bench.log and bench.looks("c") == 1)
        assert (bench.looks("a"), bench.looks("b")) == (2, 1)
        bench.mirrored.set()
        await bench.until(lambda: bench.queue.idle)
    written = [f"write {type(first).__name__} 1"]
    if first is REMOVE:
        written.insert(0, "write RewriteSpu 1")
    assert [line for line in bench.log if line.startswith("write")] == written
    assert bench.log[-1] == "look b 2"


@pytest.mark.parametrize(
    ("session", "sent"),
    [
        pytest.param(1, 1, id="given-it-is-connected-then-no-other-process-ends-before-it-has"),
        pytest.param(None, 2, id="given-it-is-not-connected-then-both-begin"),
    ],
)
async def test_one_process_ends_at_a_time(bench: Bench, session: int | None, sent: int) -> None:
    """The one that waited looks anew, and sees that the other restarts."""
    bench.mirrored.clear()
    first = (write(), ProvisionSpu(spu_of(1), session))
    bench.actions[A] = [first, first] if session else [first]
    bench.actions[B] = [(ProvisionSpu(spu_of(2), session),), ()]
    async with bench.running():
        bench.queue.add(A, "1")
        bench.queue.add(B, "2")
        bench.queue.add(C, "3")
        await bench.until(lambda: "wait 7" in bench.log and bench.looks("c") == 1)
        bench.mirrored.set()
        await bench.until(lambda: bench.queue.idle)
    assert bench.log.count("send ProvisionSpu") == sent


async def test_given_a_placement_that_arrived_late_then_the_spu_is_not_removed(
    bench: Bench,
) -> None:
    """Nobody heard of the placement before the SPU was written again: the look after that sees
    it."""
    bench.actions[A] = [(REMOVE,), (REMOVE,), ()]
    async with bench.running():
        bench.queue.add(A, "1")
        await bench.until(lambda: bench.looks() == 3)
    written = [line for line in bench.log if line.startswith(("write", "wait"))]
    assert written == ["write RewriteSpu 1", "wait 7"]


async def test_given_start_and_end_of_a_process_then_they_do_not_go_to_the_store(
    bench: Bench,
) -> None:
    bench.actions[A] = [(ProvisionSpu(spu_of(1)), EndSpu("spu-2"))]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.queue.idle)
    assert bench.log == ["look a c", "send ProvisionSpu", "send EndSpu"]


async def test_given_deposed_then_the_loop_ends(bench: Bench) -> None:
    bench.actions[A] = [(write(),)]
    bench.writes = [FencedError("another SC has taken over")]
    async with bench.running() as task:
        bench.queue.add(A, "c")
        await bench.until(task.done)
        assert isinstance(task.exception(), BaseExceptionGroup)
        assert "another SC has taken over" in repr(task.exception())


async def test_given_wake_at_then_the_key_comes_back_by_itself(bench: Bench) -> None:
    bench.actions[A] = [(WakeAt(A, 1_001),), ()]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.looks() == 2)


async def test_given_slow_write_then_the_same_key_is_never_at_work_twice(bench: Bench) -> None:
    bench.mirrored.clear()
    bench.actions[A] = [(write(),), (write(),)]
    async with bench.running():
        for cause in ("1", "2", "3"):
            bench.queue.add(A, cause)
            await asyncio.sleep(0)
        await bench.until(lambda: bench.log.count("wait 7") == 1)
        bench.mirrored.set()
        await bench.until(lambda: bench.queue.idle)
    assert bench.log.count("wait 7") == 2
    assert [line for line in bench.log if line.startswith("look")][-1] == "look a 3"


async def test_given_long_queue_then_others_have_their_turn_before_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.dispatch.loop.TURN_S", 0.0)
    for number in range(500):
        bench.queue.add(Key("Topic", str(number)), "cause")
    turns = 0
    async with bench.running():
        while not bench.queue.worked_off.is_set():
            turns += 1
            await asyncio.sleep(0)
    assert len(bench.log) == 500
    assert turns >= 500


async def test_given_a_first_write_that_failed_then_not_worked_off_before_its_retry(
    bench: Bench,
) -> None:
    bench.actions[A] = [(write(),), (write(),)]
    bench.writes.append(UnreachableError("no KV"))
    bench.queue.add(A, "cause")
    async with bench.running():
        await bench.queue.worked_off.wait()
    assert bench.looks() == 2


def led_by_1(number: int) -> Partition:
    members = (live(1), live(2), live(3))
    return partition_of("t", number, (1, 2, 3), leader=1, term=TERM_1, lrs=members)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(None, id="given-all-written-then-none-counts-twice"),
        pytest.param(UnreachableError("no KV"), id="given-a-write-that-failed-then-it-counts-not"),
    ],
)
async def test_given_many_elections_at_once_then_each_counts_those_before_it(
    real_bench: Bench, failure: Exception | None
) -> None:
    """None of the elections is in the mirror when the last of them is decided."""
    bench, elected = real_bench, Counter[int]()
    partitions = [led_by_1(number) for number in range(20)]
    reports = {i: [report_of(p, i) for p in partitions] for i in (2, 3)}
    sessions = [session_of(i, *reports[i]) for i in (2, 3)]
    bench.view = view_of(*partitions, *(spu_of(i) for i in (1, 2, 3)), sessions=sessions)

    async def write(action: KvAction) -> int:
        assert isinstance(action, WriteStatus)
        assert isinstance(action.status, PartitionStatus)
        elected.update([action.status.leader or 0])
        await bench.mirrored.wait()
        if failure is not None:
            raise failure
        return 7

    bench.write = write  # type: ignore[method-assign]
    async with bench.running():
        for partition in partitions:
            bench.queue.add(Key("Partition", partition.name), "c")
        await bench.until(lambda: elected.total() == 20)
        assert elected == {2: 10, 3: 10}
        assert bench.view.elected == elected
        bench.view.store = LocalStore()
        bench.mirrored.set()
        await bench.until(lambda: bench.queue.idle)
    assert not +bench.view.elected


async def test_given_many_elections_then_each_order_to_lead_goes_before_the_next_election(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.dispatch.loop.WORKERS", 1)
    partitions = [led_by_1(number) for number in range(3)]
    keys = [Key("Partition", partition.name) for partition in partitions]
    for key, partition, leader in zip(keys, partitions, (2, 1, 2), strict=True):
        status = partition.status.model_copy(update={"leader": leader})
        order = Lead(uid=PartitionUid(partition.uid), term=TERM_1, lrs=(live(2),), revision=7)
        bench.actions[key] = [(WriteStatus(partition, status),), (SendLead(leader, order),)]

    async def write(action: KvAction) -> int:
        # The mirror shows it.
        assert isinstance(action, WriteStatus)
        bench.queue.add(Key("Partition", action.object.name), "changed")
        return 7

    bench.write = write  # type: ignore[method-assign]
    async with bench.running():
        for key in keys:
            bench.queue.add(key, "c")
        await bench.until(lambda: bench.log.count("send SendLead") == 3)
    looks = [line.split()[1] for line in bench.log if line.startswith("look ")]
    # The second one keeps its leader: that is no election.
    first, second, third = (partition.name for partition in partitions)
    assert looks == [first, first, second, third, third, second]


async def test_given_recovery_that_begins_between_two_actions_then_the_second_is_decided_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = bench.write

    async def write_and_recover(action: KvAction) -> int:
        bench.view.incarnation = 1
        return await written(action)

    monkeypatch.setattr(bench, "write", write_and_recover)
    bench.actions[A] = [(write("a"), write("b")), ()]
    async with bench.running():
        bench.queue.add(A, "x")
        await bench.until(lambda: bench.looks("a") == 2)
    assert [line for line in bench.log if line.startswith("write")] == ["write a x"]


async def test_given_independent_writes_then_they_are_under_way_together(bench: Bench) -> None:
    marked = tuple(MarkDeleting(partition_of(topic_of("a"), index)) for index in range(3))
    bench.actions[A] = [(write("a"), *marked, write("b"))]
    bench.mirrored.clear()
    bench.queue.add(A, "x")
    async with bench.running():
        # The first one stands alone, and is waited for.
        await bench.until(lambda: "wait 7" in bench.log)
        assert bench.log == ["look a x", "write a x", "wait 7"]
        bench.mirrored.set()
        await bench.until(lambda: "write b x" in bench.log)
    marking = ["write MarkDeleting x", "wait 7"] * 3
    assert sorted(bench.log[3:-2]) == sorted(marking)
    assert bench.log[-2:] == ["write b x", "wait 7"]


async def test_given_independent_writes_then_none_waits_for_the_mirror_to_show_another(
    bench: Bench,
) -> None:
    bench.actions[A] = [tuple(MarkDeleting(partition_of(topic_of("a"), i)) for i in range(3))]
    bench.mirrored.clear()
    bench.queue.add(A, "x")
    async with bench.running():
        await bench.until(lambda: bench.log.count("wait 7") == 3)
        bench.mirrored.set()
        await bench.until(lambda: bench.queue.idle)


async def test_given_one_of_several_writes_lost_then_all_have_ended_before_it_looks_again(
    bench: Bench,
) -> None:
    bench.actions[A] = [tuple(MarkDeleting(partition_of(topic_of("a"), i)) for i in range(3))]
    bench.writes = [ConflictError("lost", revision=9)]
    bench.queue.add(A, "x")
    async with bench.running():
        await bench.until(lambda: bench.looks() == 2)
    again = len(bench.log) - 1 - bench.log[::-1].index("look a x")
    assert bench.log[:again].count("write MarkDeleting x") == 3


async def test_given_a_write_that_the_kv_refuses_then_the_status_says_so(bench: Bench) -> None:
    """Once, however often it is tried again."""
    topic = topic_of("a")
    bench.view = view_of(topic)
    refused = InvalidRequestError("a transaction has 2,000,000 bytes")
    reasons: list[str | None] = []

    async def write(action: KvAction) -> int:
        if not isinstance(action, WriteStatus):
            raise refused
        reasons.append(action.status.reason)
        shown = action.object.with_status(action.status).with_metadata(resource_version="9")
        assert bench.view.store.put(shown) is not None
        return 9

    bench.write = write  # type: ignore[method-assign]
    bench.actions[A] = [(MarkDeleting(topic),)] * 3
    async with bench.running():
        bench.queue.add(A, "1")
        await bench.until(lambda: bench.looks() == 4)
    assert reasons == [f"{REFUSED}: a transaction has 2,000,000 bytes"]
