"""An SC: the real controllers, view and metadata dispatcher, with a KV and sessions around them.

It does what `sc.dispatch.loop` does: a key is with one worker until what was written for it stands
in the mirror as well, a lost compare-and-swap looks again, elections that are decided count before
they are written. Reads of the KV come late and in order; a write on its way outlives its SC.

It leads by a lease. While it is cut off from the KV, or stands still, nobody renews that, and when
its own time is over it says nothing more: another SC may lead a moment later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sc import restored_kv
from sc.controller import GRACE_MS, RESYNC_S
from sc.controllers import reconcile
from sc.controllers.actions import (
    Action,
    BeginMove,
    EndMove,
    Key,
    RegisterSpu,
    RemoveTombstone,
    ReplaceTombstone,
    SendAssignment,
    SendComplete,
    SendDelete,
    SendLead,
    WakeAt,
    WritePartitionSpec,
    WriteStatus,
)
from sc.controllers.recovery import RESTORED
from sc.dispatch.changes import ChangeFeed
from sc.dispatch.loop import note_election
from sc.dispatch.metadata import MetadataDispatcher
from sc.dispatch.spu_updater import Outbox
from sc.dispatch.work_queue import WorkQueueState
from sc.kv.interface import ModRevisionIs
from sc.leadership import Identity, Leadership
from sc.store.local_store import Change
from sc.store.suspicions import TICK_MS
from sc.store.view import SessionState, View
from schemas.control.messages import AssignPartitions, Hello, Message, Report, SpuRequest, Stamp
from schemas.control.session_end import SessionEnd
from schemas.objects.partition import Partition, PartitionSpec, PartitionStatus
from tests.sim.cluster.clock import Call
from tests.sim.cluster.kv import DeposedError, Written
from tests.sim.cluster.network import SC
from tests.sim.cluster.session import SUSPICION_US, Session

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

Writing = (
    WriteStatus | WritePartitionSpec | BeginMove | EndMove | RemoveTombstone | ReplaceTombstone
)
CAUSE = "sim"
#: How long it takes at most until a lost compare-and-swap is computed anew.
RETRY_US = (50_000, 150_000)


class SimSc:
    """One process of an SC, in office from the start."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_up = True
        kv = world.kv
        self._copy = kv.copy
        self._holder = f"o{world.next_number()}"
        self.leadership = self._tenure(kv.identity, self._holder)
        self.sessions: dict[int, Session] = {}
        self.slow_us = 0
        self._states: dict[int, SessionState] = {}
        self._registered: dict[str, int] = {}
        self._outboxes: dict[int, Outbox] = {}
        #: The newest attempt of each SPU that was let in.
        self._let_in: dict[int, int] = {}
        self._queue = WorkQueueState()
        self._working = False
        self._waiting: list[tuple[int, Key, tuple[Action, ...]]] = []
        self._seen_us = 0
        #: Whether it reaches the KV no more: it reads nothing, and writes nothing.
        self._is_cut_off = False
        #: Until when it may rely on its lease, unless that is renewed all the time.
        self._leads_until_us: int | None = None
        #: What came while it stands still; None while it runs.
        self._backlog: list[tuple[Call, tuple[Any, ...]]] | None = None
        grace_until_ms = world.clock.now_ms + GRACE_MS
        self.view = View(
            sessions=self._states,
            registered=self._registered,
            grace_until_ms=grace_until_ms,
            incarnation=kv.identity.incarnation,
            recovering=kv.identity.recovering,
        )
        self._dispatcher = MetadataDispatcher(
            self.view, self._states, self._wake, now_ms=self._now_ms
        )
        self._feed = ChangeFeed(self.view.store)
        self._feed.follow(self._dispatcher.changed)
        changes: list[tuple[Change, str]] = []
        for found in world.kv.objects():
            change = self.view.store.put(found)
            if change is not None:
                changes.append((change, CAUSE))
        changes.extend(
            (buried, CAUSE)
            for grave in world.kv.graves()
            if (buried := self.view.store.put_tombstone(grave)) is not None
        )
        self._feed.apply(changes, world.kv.revision)
        world.kv.watchers.append(self._watched)
        self._tick()
        self._repair()

    def _tenure(self, identity: Identity, tenure: str) -> Leadership:
        kv = self.world.kv
        revision = kv.acquire(tenure)
        stamp = Stamp(revision=revision, office=tenure, incarnation=identity.incarnation)
        guard = ModRevisionIs("office", revision)
        return Leadership(identity, stamp, guard, self._holder, dict(kv.tenures))

    def _now_ms(self) -> int:
        now_ms = self.world.clock.now_ms
        self.view.observe(now_ms)
        return now_ms

    def crash(self) -> None:
        """The process ends; what it has sent to the KV may still arrive there."""
        self.is_up, self._backlog = False, None
        self.world.kv.watchers.remove(self._watched)
        for session in self.sessions.values():
            session.died(SC, silently=False)
        self.sessions.clear()

    # -- its lease --------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether it may still speak for the cluster: asked before it says anything."""
        return self._leads_until_us is None or self.world.clock.now_us < self._leads_until_us

    @property
    def loses_its_lease(self) -> bool:
        """Whether nobody renews its lease."""
        return self._leads_until_us is not None

    def renews_no_more(self, left_us: int, *, is_cut_off: bool) -> None:
        """Its lease ends for it after a time, because it stands still or reaches no KV."""
        self._is_cut_off = is_cut_off
        self._leads_until_us = self.world.clock.now_us + left_us
        self.world.clock.after(left_us, self._lease_ends)

    def _lease_ends(self) -> None:
        if self.is_up and self._backlog is None and not self.leads:
            # It stands by, and is another one when it leads again.
            self.crash()

    # -- standing still ---------------------------------------------------------------------

    def stall(self, lasts_us: int) -> bool:
        """Do nothing for a while: what comes meanwhile waits, and SPUs that miss heartbeats leave.
        Gives whether it ran before."""
        if not self.is_up or self._backlog is not None:
            return False
        clock, chance = self.world.clock, self.world.chance
        self._backlog = []
        for session in self.sessions.values():
            patience_us = chance.randint(*SUSPICION_US)
            if patience_us < lasts_us:
                clock.after(patience_us, session.leave)
        clock.after(lasts_us, self._go_on)
        return True

    def _go_on(self) -> None:
        backlog, self._backlog = self._backlog or [], None
        if self.is_up and not self.leads:
            self.crash()
        if self.is_up:
            self.view.suspicions.tick(self._now_ms())
        for call, args in backlog:
            call(*args)

    def _waits(self, call: Call, *args: Any) -> bool:
        """Whether the SC stands still; then this is called when it goes on."""
        if self._backlog is None:
            return False
        self._backlog.append((call, args))
        return True

    def _tick(self) -> None:
        if self.is_up:
            if self._backlog is None:
                self.view.suspicions.tick(self._now_ms())
            self.world.clock.after(TICK_MS * 1_000, self._tick)

    # -- the KV -----------------------------------------------------------------------------

    def _watched(self, written: Written) -> None:
        if self._is_cut_off:
            return
        clock, chance = self.world.clock, self.world.chance
        delay = chance.randint(300, 3_000) + (
            chance.randint(0, self.slow_us) if self.slow_us else 0
        )
        self._seen_us = max(self._seen_us, clock.now_us + delay)
        clock.at(self._seen_us, self._apply, written)

    def _apply(self, written: Written) -> None:
        if self._waits(self._apply, written) or not self.is_up:
            return
        store = self.view.store
        if written.new is not None:
            change: Change | None = store.put(written.new)
        else:
            change = store.remove(written.kind, written.name)
        found = [
            change,
            *(store.put_tombstone(grave) for grave in written.graves),
            *(store.remove_tombstone(grave.spu_id, grave.uid) for grave in written.dug),
        ]
        changes = [(one, CAUSE) for one in found if one is not None]
        self._feed.apply(changes, written.revision)
        self._end_recovery()
        ready = [w for w in self._waiting if w[0] <= store.revision]
        if ready:
            self._waiting = [w for w in self._waiting if w[0] > store.revision]
            for _, key, rest in ready:
                self._carry_out(key, rest)

    def _write(self, key: Key, action: Writing, rest: tuple[Action, ...], office: int) -> None:
        """The transaction arrives: it counts whether its SC lives or not."""
        kv = self.world.kv
        if kv.copy != self._copy:
            # The store that this was sent to is no more.
            return
        stood = self._in_kv(action)
        try:
            revision = self._swap(action, office)
        except DeposedError:
            self.world.count("writes of deposed SCs")
            # Of its own tenure before the recovery, if it still runs.
            self._written(key, action, rest, None)
            return
        if revision is not None and stood is not None:
            if isinstance(action, EndMove):
                self.world.moved(stood, action.tombstones)
            else:
                self.world.partition_written(stood)
        self._written(key, action, rest, revision)

    def _in_kv(self, action: Writing) -> Partition | None:
        """The partition that a write replaces as it stands now, which is not what the SC believes
        where the compare is broken."""
        match action:
            case WriteStatus(Partition(), _):
                return self.world.kv.partition(action.object.name)
            case WritePartitionSpec() | BeginMove() | EndMove():
                return self.world.kv.partition(action.partition.name)
            case _:
                return None

    def _swap(self, action: Writing, office: int) -> int | None:
        kv = self.world.kv
        match action:
            case WriteStatus(obj, status):
                return kv.swap(office, obj, obj.with_status(status))
            case WritePartitionSpec(partition, spec):
                return kv.swap(office, partition, _respecified(partition, spec))
            case BeginMove(partition, spec, spus):
                if any(kv.has_grave(spu.spec.spu_id, partition.uid) for spu in spus):
                    return None
                return kv.swap(office, partition, _respecified(partition, spec))
            case EndMove(partition, spec, graves):
                return kv.swap(office, partition, _respecified(partition, spec), graves)
            case RemoveTombstone(grave):
                return kv.dig(office, grave)
            case ReplaceTombstone(partition, grave):
                return kv.bury(office, partition, grave)

    def _written(
        self, key: Key, action: Writing, rest: tuple[Action, ...], revision: int | None
    ) -> None:
        """The answer to a write; ``revision`` is None if it was not possible."""
        if self._waits(self._written, key, action, rest, revision):
            return
        if not self.is_up or self._is_cut_off:
            return
        if revision is None:
            self.world.count("conflicts")
            self._lost(key, action)
            return
        self._count_elected(action, -1)
        if self.view.store.revision >= revision:
            self._carry_out(key, rest)
        else:
            self._waiting.append((revision, key, rest))

    def _lost(self, key: Key, action: Writing) -> None:
        """A write was not possible: look again."""
        self._count_elected(action, -1)
        self._queue.done(key)
        self.world.clock.after(self.world.chance.randint(*RETRY_US), self._wake, key, CAUSE)

    def _count_elected(self, action: Writing, by: int) -> None:
        """Elections that are decided and not written yet count, as in the real loop."""
        leader = note_election(self.view, action, self._now_ms())
        if leader is not None:
            self.view.elected[leader] += by

    # -- the loop ---------------------------------------------------------------------------

    def _wake(self, key: Key, _cause: str) -> None:
        if self.is_up and key.kind in ("Partition", "Spu"):
            self._queue.add(key, CAUSE)
            self._work_soon()

    def _work_soon(self) -> None:
        if not self._working and self._queue.waiting:
            self._working = True
            self.world.clock.after(self.world.chance.randint(50, 1_000), self._work)

    def _work(self) -> None:
        if self._waits(self._work):
            return
        self._working = False
        while self.is_up and (taken := self._queue.take()) is not None:
            key = taken[0]
            self._carry_out(key, reconcile(self.view, key, self._now_ms()))

    def _carry_out(self, key: Key, actions: tuple[Action, ...]) -> None:
        for at, action in enumerate(actions):
            match action:
                case (
                    WriteStatus()
                    | WritePartitionSpec()
                    | BeginMove()
                    | EndMove()
                    | RemoveTombstone()
                    | ReplaceTombstone()
                ):
                    if isinstance(action, WriteStatus):
                        self.world.decided(action.object, action.status)
                    delay = self.world.chance.randint(200, 4_000)
                    if self.slow_us:
                        delay += self.world.chance.randint(0, self.slow_us)
                    self._count_elected(action, 1)
                    if self._is_cut_off:
                        # It waits for an answer.
                        return
                    rest = actions[at + 1 :]
                    office = self.leadership.guard.revision
                    self.world.clock.after(delay, self._write, key, action, rest, office)
                    return
                case RegisterSpu(spu):
                    self._registered[spu.name] = spu.spec.spu_id
                    self._wake(Key("Spu", spu.name), CAUSE)
                case SendComplete() | SendAssignment() | SendLead() | SendDelete():
                    self._send(action)
                case WakeAt(which, at_ms):
                    at_us = max(at_ms * 1000, self.world.clock.now_us + 1_000)
                    self.world.clock.at(at_us, self._wake, which, CAUSE)
                case _:
                    raise AssertionError(f"nothing here asks for {action}")
        self._queue.done(key)
        self._work_soon()

    def _repair(self) -> None:
        """The pass over everything that comes now and then."""
        if self.is_up:
            self._look_at_everything()
            self.world.clock.after(int(RESYNC_S * 1_000_000), self._repair)

    # -- recovery from a restored KV ------------------------------------------------------------

    def _recover_if_behind(self, hello: Hello) -> None:
        """Begin a new incarnation where an SPU has seen what the KV does not know."""
        kv = self.world.kv
        if restored_kv.divergence(hello, kv.revision, self.leadership, self.view.store) is None:
            return
        incarnation = restored_kv.next_incarnation(hello, self.leadership)
        identity = Identity(kv.identity.uid, incarnation, recovering=True)
        kv.become(identity)
        self.leadership = self._tenure(identity, f"{self._holder}-{incarnation}")
        self.world.count("recoveries")
        self.world.noted(f"the KV is behind: incarnation {incarnation} begins")
        self.view.incarnation, self.view.recovering = incarnation, True
        self.view.grace_until_ms = self.world.clock.now_ms + GRACE_MS
        for session in tuple(self.sessions.values()):
            session.end_at_sc(SessionEnd.CLOSED)
            self.world.clock.after(self.world.network.delay_us(), session.end_at_spu)
        self._look_at_everything()

    def _end_recovery(self) -> None:
        view, kv = self.view, self.world.kv
        if self._is_cut_off:
            return
        if view.recovering and not view.store.elected_before(view.incarnation):
            kv.become(replace(kv.identity, recovering=False))
            view.recovering = False
            self._look_at_everything()

    def _look_at_everything(self) -> None:
        for kind, name in sorted(self.view.store.object_keys()):
            self._wake(Key(kind, name), CAUSE)

    # -- sessions ---------------------------------------------------------------------------

    def admit(self, attempt: int, hello: Hello) -> None:
        """An SPU says hello. It is let in unless another process of its id is there, or it was let
        in on a newer connection."""
        spu = hello.spu_id
        if self._waits(self.admit, attempt, hello):
            return
        if not self.is_up or self._is_cut_off or spu not in self._registered.values():
            # One that is cut off waits for the KV, to compare what the SPU has seen.
            return
        before = self.sessions.get(spu)
        if before is not None and before.instance != hello.instance:
            return
        if not self.is_newest(spu, attempt):
            self.world.count("hellos that came late")
            return
        self._let_in[spu] = attempt
        if before is not None:
            before.end_at_sc(SessionEnd.CLOSED)
            self.world.clock.after(self.world.network.delay_us(), before.end_at_spu)
        self._recover_if_behind(hello)
        generation = self.world.next_number()
        session = Session(self.world, self, spu, generation, hello.instance)
        self.sessions[spu] = session
        self._outboxes[spu] = Outbox(self.leadership.stamp)
        session.welcome(self._welcome, attempt)
        self.world.heard(spu, hello.replicas)
        self._dispatcher.opened(generation, hello)

    def is_newest(self, spu: int, attempt: int) -> bool:
        """Whether no newer connection of an SPU was let in."""
        return attempt > self._let_in.get(spu, 0)

    def _welcome(self, session: Session, attempt: int) -> None:
        spu = self.world.spus[session.spu]
        reached = (SC, session.spu) not in self.world.network.blocked
        stamp = self.leadership.stamp
        if not (session.open_at_sc and reached and spu.welcomed(session, attempt, stamp)):
            # The connection ends before it is of any use.
            if spu.is_up and reached:
                session.leave()
            else:
                session.died(session.spu, silently=not reached)
        elif not self.world.network.reaches(session.spu, SC):
            # The hello came before the cut, and lay here while the SC stood still.
            session.breaks()

    def session_ended(self, session: Session, end: SessionEnd) -> None:
        """Heartbeats stay out, or the connection was closed."""
        if self._waits(self.session_ended, session, end):
            return
        if self.is_up and self.sessions.get(session.spu) is session:
            del self.sessions[session.spu], self._outboxes[session.spu]
            blocked = self.world.network.blocked
            quiet = sum(
                not other.open_at_spu or (other.spu, SC) in blocked
                for other in self.sessions.values()
            )
            self._dispatcher.closed(session.spu, session.generation, end, quiet)

    def told(self, session: Session, message: Message) -> None:
        """An SPU says something."""
        if self._waits(self.told, session, message) or not self.is_up:
            return
        match message:
            case Report():
                self.world.heard(session.spu, message.replicas)
                self._dispatcher.reported(session.spu, session.generation, message)
            case SpuRequest():
                self._dispatcher.asked(session.spu, session.generation, message)
            case _:
                raise AssertionError(f"an SPU does not send {message.type}")

    def _send(self, action: SendComplete | SendAssignment | SendLead | SendDelete) -> None:
        session = self.sessions.get(action.spu_id)
        if session is None or not self.leads:
            return
        if isinstance(action, SendComplete) and action.generation != session.generation:
            return
        self._outboxes[action.spu_id].add(action)
        self._send_next(session)

    def _send_next(self, session: Session) -> None:
        outbox = self._outboxes[session.spu]
        if self.leads and outbox.sending is None and (message := outbox.next()) is not None:
            self.world.is_told(session.spu, self.leadership)
            session.to_spu(message)

    def replied(self, session: Session, message: Message, error: bool) -> None:
        """An SPU has done what it was asked, or refuses."""
        if self._waits(self.replied, session, message, error):
            return
        if not session.open_at_sc or self.sessions.get(session.spu) is not session:
            return
        if error:
            self.world.clock.after(1_000_000, self._refused, session)
            return
        self._outboxes[session.spu].sent()
        if isinstance(message, AssignPartitions) and message.complete:
            self._dispatcher.told_everything(session.spu, session.generation)
        self._send_next(session)

    def _refused(self, session: Session) -> None:
        if self._waits(self._refused, session):
            return
        if self.is_up and self.sessions.get(session.spu) is session:
            self._outboxes[session.spu].sent()
            self._dispatcher.refused(session.spu)
            self._send_next(session)


def _respecified(partition: Partition, spec: PartitionSpec) -> Partition:
    changed = partition.model_copy(update={"spec": spec})
    return changed.with_metadata(generation=partition.generation + 1)


def restored(partition: Partition) -> Partition:
    """A partition as its topic's controller makes it again where somebody removed its object."""
    note = {RESTORED: "all its replicas are asked who leads"}
    return partition.with_status(PartitionStatus()).with_metadata(annotations=note)
