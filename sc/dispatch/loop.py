"""The controller loop: workers take keys, ask the controllers, carry out the actions.

Order per key: one worker has a key until its writes are in the KV *and* in the mirror, so the next
reconcile of that key sees what this one did. After a lost compare-and-swap the worker waits for the
mirror and reconciles again; after an unforeseen error, or if the store does not answer, it backs
off per key. An SC that another one has replaced stops: `run` raises FencedError. Actions that were
decided before a recovery of the cluster began are not carried out after that.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from sc.controllers import reconcile
from sc.controllers.actions import (
    Action,
    BeginMove,
    CreatePartitions,
    CreateSpu,
    EndMove,
    EndSpu,
    Key,
    KvAction,
    LeaveTombstones,
    MarkDeleting,
    ProvisionAction,
    ProvisionSpu,
    Read,
    RegisterSpu,
    RemoveObject,
    RemovePartition,
    RemoveSpu,
    RemoveTombstone,
    ReplaceTombstone,
    RestoreTopic,
    RewriteSpu,
    SendAssignment,
    SendComplete,
    SendDelete,
    SendLead,
    SessionAction,
    Settle,
    Step,
    TellMoves,
    UnregisterSpu,
    WakeAt,
    WritePartitionSpec,
    WriteSpuSpec,
    WriteStatus,
)
from sc.controllers.preferred_leader import AGAIN_MS
from sc.controllers.spu_restarts import runs_by
from sc.dispatch.work_queue import WorkQueue
from sc.metrics.instruments import ScMetrics
from sc.store.records import Records, Want
from sc.store.view import View
from schemas.backoff import backoff_ms
from schemas.causality import caused_by
from schemas.daemon.logs import get_logger
from schemas.errors import (
    CompactedError,
    ConflictError,
    FencedError,
    InvalidRequestError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.kinds import BY_KIND
from schemas.objects.partition import Partition, PartitionStatus

#: Reads one pass of a controller with the records of its earlier rounds.
ReadRecords = Callable[[Records | None, Sequence[Want]], Awaitable[Records]]

WORKERS = 64
#: How often a pass may ask for records. It asks for a few, which name the next: a truncation of a
#: stream that was truncated before asks eight times. Only one that never has enough asks so often.
ROUNDS = 64
#: Writes of one reconcile that are in flight at once, if their order does not matter.
TOGETHER = 64
RETRY_BASE_MS = 50.0
RETRY_CAP_MS = 10_000.0
#: So many attempts count as the first work: what the status of an object was before may be wrong,
#: and the SC serves requests only after it.
_FIRST_RETRIES = 3
CATCH_UP_S = 1.0
#: How the reason of a status begins when the KV refuses what the object asks for.
REFUSED = "the KV store refuses what this needs"
#: How long reconciles may take, one after the other, before other tasks get a turn.
TURN_S = 0.005

log = get_logger(__name__)


class SessionUpdater(Protocol):
    """Carries out what concerns SPU sessions and processes; never waits for an SPU."""

    def carry_out(self, action: SessionAction | ProvisionAction) -> None: ...


class ControllerLoop:
    """Workers over one queue."""

    def __init__(
        self,
        view: View,
        queue: WorkQueue,
        *,
        write: Callable[[KvAction], Awaitable[int]],
        sessions: SessionUpdater,
        applied: Callable[[int], Awaitable[None]],
        metrics: ScMetrics,
        placing: asyncio.Lock,
        records: ReadRecords,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._view = view
        self._queue = queue
        self._write = write
        self._sessions = sessions
        self._applied = applied
        self._metrics = metrics
        self._now_ms = now_ms
        self._failures: dict[Key, int] = {}
        self._placing = placing
        self._records = records
        self._turn_ends_s: float | None = None

    async def run(self) -> None:
        """Run until cancelled. Raises an ExceptionGroup of FencedError when deposed."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._worker(), name=f"reconcile worker {number}")

    async def _worker(self) -> None:
        while True:
            key, cause = await self._queue.take()
            try:
                await self._turn()
                with caused_by(cause):
                    await self._reconcile(key, cause)
            finally:
                self._queue.done(key)

    async def _turn(self) -> None:
        """Wait while the workers have used up their part of this pass of the event loop.

        A reconcile with nothing to do never awaits: without this, a long queue would keep
        heartbeats and requests waiting until its end.
        """
        while self._turn_ends_s is not None:
            if time.perf_counter() < self._turn_ends_s:
                return
            await asyncio.sleep(0)
        self._turn_ends_s = time.perf_counter() + TURN_S
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_ends_s = None

    async def _reconcile(self, key: Key, cause: str) -> None:
        incarnation = self._view.incarnation
        try:
            actions = await self._look(key)
            if any(map(_places, actions)):
                # Placement counts what exists, so each one must see what the one before created;
                # and an SPU goes only while nothing is being placed on it.
                async with self._placing:
                    # To place very many partitions takes long: once is enough for one turn.
                    await asyncio.sleep(0)
                    actions = await self._look(key)
                    if ends := [a for a in actions if isinstance(a, RemoveSpu)]:
                        # A placement without an answer may still be under way. Either the mirror
                        # shows it after this, or it fails.
                        for action in ends:
                            await self._carry_out(RewriteSpu(action.spu), cause, incarnation)
                        actions = await self._look(key)
                    await self._carry_out_all(actions, cause, incarnation)
            else:
                with self._counting(actions) as elected:
                    await self._carry_out_all(actions, cause, incarnation)
                if elected:
                    # Thousands may have lost their leader: the order to lead goes out before the
                    # next of them is elected.
                    self._queue.hasten(key)
        except ConflictError as error:
            self._metrics.conflicts.inc()
            # A moment for the mirror; it never shows revisions of other users of the KV.
            with suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_S):
                    await self._applied(int(error.details.get("revision", 0)))
            self._retry(key, cause)
        except FencedError:
            raise
        except InvalidRequestError as error:
            # The same write will be refused again, until somebody changes the object or the KV.
            log.error("the KV refuses a write", key=str(key), why=error.message)
            await self._show(key, f"{REFUSED}: {error.message}")
            self._retry(key, cause)
        except RunnelError as error:
            log.warning("reconcile failed, trying again", key=str(key), why=error.message)
            self._retry(key, cause)
        except Exception as error:
            log.error("reconcile failed, trying again", key=str(key), exc_info=error)
            self._retry(key, cause)
        else:
            self._failures.pop(key, None)

    async def _look(self, key: Key) -> tuple[Action, ...]:
        """What a controller asks for, once it has the records that it wanted."""
        view, records = self._view, None
        for _ in range(ROUNDS):
            with self._metrics.reconcile(key.kind):
                actions = reconcile(view, key, self._now_ms())
            match actions:
                case (Read(wants),):
                    pass
                case _:
                    return actions
            try:
                records = await self._records(records, wants)
            except CompactedError:
                # The KV has forgotten the revision of this pass: begin another.
                view, records = self._view, None
                continue
            # Who wrote a record rang a bell: then the mirror is no older than the records.
            await self._applied(records.newest)
            view = self._view.with_records(records)
        raise UnreachableError(f"{key} wants records again and again")

    @contextmanager
    def _counting(self, actions: tuple[Action, ...]) -> Iterator[list[int]]:
        """Show other reconciles the elected leaders until the mirror shows them. Gives these.

        When an SPU is lost, many elections are decided before the first of them is written: from
        the mirror alone, all of them would choose the same SPU.
        """
        now_ms = self._now_ms()
        elected = [
            leader
            for action in actions
            if (leader := note_election(self._view, action, now_ms)) is not None
        ]
        self._view.elected.update(elected)
        try:
            yield elected
        finally:
            self._view.elected.subtract(elected)

    async def _carry_out_all(
        self, actions: tuple[Action, ...], cause: str, incarnation: int
    ) -> None:
        """In order, except for writes of independent objects, which run concurrently: a topic may
        have very many partitions. Raises the first error of those, when all have ended."""
        for independent, some in itertools.groupby(actions, _is_independent):
            together = list(some)
            size = TOGETHER if independent else 1
            for start in range(0, len(together), size):
                done = await asyncio.gather(
                    *(
                        self._carry_out(action, cause, incarnation)
                        for action in together[start : start + size]
                    ),
                    return_exceptions=True,
                )
                for outcome in done:
                    if outcome is not None:
                        raise outcome

    async def _carry_out(self, action: Action, cause: str, incarnation: int) -> None:
        if self._view.incarnation != incarnation:
            raise ConflictError("a recovery of the cluster began meanwhile")
        self._metrics.actions.labels(type(action).__name__).inc()
        match action:
            case (
                WriteStatus()
                | TellMoves()
                | WritePartitionSpec()
                | BeginMove()
                | EndMove()
                | CreateSpu()
                | WriteSpuSpec()
                | RewriteSpu()
                | RemoveSpu()
                | CreatePartitions()
                | RestoreTopic()
                | MarkDeleting()
                | LeaveTombstones()
                | RemovePartition()
                | RemoveObject()
                | RemoveTombstone()
                | ReplaceTombstone()
                | Step()
            ):
                revision = await self._write(action)
                log.info("wrote", action=type(action).__name__, **_subject(action))
                await self._applied(revision)
            case (
                RegisterSpu()
                | UnregisterSpu()
                | SendComplete()
                | SendAssignment()
                | SendLead()
                | SendDelete()
                | ProvisionSpu()
                | EndSpu()
            ):
                self._sessions.carry_out(action)
            case Settle(uid, settled):
                self._view.settled[uid] = settled
            case Read():
                raise AssertionError("records are read before actions are carried out")
            case WakeAt(key, at_ms):
                self._queue.add_after(key, cause, at_ms - self._now_ms())

    async def _show(self, key: Key, reason: str) -> None:
        """Say in an object's status why nothing goes on; if that fails, the next attempt does."""
        cls = BY_KIND.get(key.kind)
        obj = self._view.store.get(cls, key.name) if cls is not None else None
        if obj is None or obj.status.reason == reason:
            return
        try:
            status = obj.status.model_copy(update={"reason": reason})
            await self._applied(await self._write(WriteStatus(obj, status)))
        except FencedError:
            raise
        except RunnelError as error:
            log.warning("a reason cannot be written", key=str(key), why=error.message)

    def _retry(self, key: Key, cause: str) -> None:
        attempt = self._failures.get(key, 0)
        self._failures[key] = attempt + 1
        delay_ms = backoff_ms(attempt, RETRY_BASE_MS, RETRY_CAP_MS, random.random())  # noqa: S311
        if attempt < _FIRST_RETRIES:
            self._queue.retry_after(key, cause, delay_ms)
        else:
            self._queue.add_after(key, cause, delay_ms)


def note_election(view: View, action: Action, now_ms: int) -> int | None:
    """The new leader, if an action writes the outcome of an election. Notes when a partition gets
    its preferred leader, which paces the elections of preferred leaders."""
    if not isinstance(action, WriteStatus) or not isinstance(action.object, Partition):
        return None
    partition, after = action.object, action.status
    if not isinstance(after, PartitionStatus) or after.leader == partition.status.leader:
        return None
    if after.leader is not None and after.leader == partition.spec.preferred_leader:
        given = (after.leader, partition.uid, after.term)
        view.preferred_elections.decided(*given, now_ms, AGAIN_MS)
    return after.leader


def _places(action: Action) -> bool:
    """Whether an action may be carried out only while nothing else is placed."""
    match action:
        case CreatePartitions() | BeginMove() | RemoveSpu():
            return True
        case WriteSpuSpec(spu, spec):
            # If it restarts the SPU, others of other groups wait for it then.
            return runs_by(spu.spec) != runs_by(spec)
        case ProvisionSpu(_, session):
            # It ends a process that is connected: the next one must see that this one has ended.
            return session is not None
        case Step(create=create):
            return bool(create)
        case _:
            return False


def _is_independent(action: Action) -> bool:
    """Whether others of its kind may be carried out at the same time."""
    return isinstance(action, MarkDeleting | WritePartitionSpec | BeginMove | RemoveTombstone)


def _subject(action: KvAction) -> dict[str, str]:
    """What an action is about, for the log."""
    match action:
        case WriteStatus(obj, status):
            resolution = getattr(status, "resolution", None)
            return {"object": f"{obj.kind}/{obj.name}", "resolution": str(resolution)}
        case MarkDeleting(obj) | RemoveObject(obj) | RestoreTopic(obj, _) | TellMoves(obj, _):
            return {"object": f"{obj.kind}/{obj.name}"}
        case (
            WritePartitionSpec(partition, _)
            | BeginMove(partition, _, _)
            | EndMove(partition, _, _)
            | LeaveTombstones(partition, _)
            | RemovePartition(partition, _)
        ):
            return {"object": f"Partition/{partition.name}"}
        case CreateSpu(spu, _) | WriteSpuSpec(spu, _) | RewriteSpu(spu) | RemoveSpu(spu):
            return {"object": f"Spu/{spu.name}"}
        case CreatePartitions(_, partitions, _, _):
            return {"object": f"Partition/{partitions[0].name}", "count": str(len(partitions))}
        case Step(owner):
            return {"object": f"{owner.kind}/{owner.name}"}
        case RemoveTombstone(tombstone) | ReplaceTombstone(_, tombstone):
            return {"object": f"tombstone {tombstone.uid} on SPU {tombstone.spu_id}"}
