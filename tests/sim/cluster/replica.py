"""What an SPU does for one replica: carries out what the core puts out, and tells it what became.

Nothing is decided here. The journal, cuts and fsyncs take time; writes are in the page cache at
once. Everything that waits belongs to a process and ends with it (``life``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from schemas.control.messages import ElectionRequest, LrsRequest, ReplicaReport, ReplicaRole
from schemas.errors import RunnelError
from schemas.ids import PartitionUid, StorageId, Term, election_term
from schemas.objects.partition import LiveReplica
from schemas.objects.topic import Durability
from schemas.wire.batch import BatchHeader
from spu.replication.core import step
from spu.replication.events import (
    AdvanceLogStart,
    AppendBatches,
    AppendControl,
    Appended,
    AppendSeal,
    Committed,
    Failed,
    Flushed,
    HardStatePersisted,
    Input,
    LeadsOn,
    LinkUp,
    LogReset,
    LogStartAdvanced,
    LogTruncated,
    NewStorageId,
    Output,
    PersistHardState,
    Push,
    Pushed,
    RequestElection,
    RequestLrsChange,
    ResetLog,
    Resume,
    Send,
    SteppedDown,
    StorageIdChosen,
    TruncateLog,
)
from spu.replication.messages import Append, Batch, Reset
from spu.replication.producer_state import ProducerTable
from spu.replication.state import OLD, UNCLEAN_BOOT, HardState, Members, ReplicaState, recovered
from tests.sim.cluster import disk as disks
from tests.sim.cluster.clients import Answer, Refusal
from tests.sim.cluster.disk import CONTROL, ReplicaDisk
from tests.sim.cluster.ledger import Holder, Ledger, ViolationError

if TYPE_CHECKING:
    from tests.sim.cluster.spu import SimSpu

#: Batches in one push.
PUSH_BATCHES = 3
#: How often page caches are written back where nobody waits for it.
WRITE_BACK_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A producer that is answered once everything below ``end`` is committed."""

    end: int
    base: int
    header: BatchHeader
    answer: Answer


class SimReplica:
    """One replica of one partition on one SPU."""

    def __init__(self, spu: SimSpu, ledger: Ledger, uid: str, disk: ReplicaDisk) -> None:
        self.spu = spu
        self.ledger = ledger
        self.name = ledger.name
        self.uid = PartitionUid(uid)
        self.disk = disk
        self.durability = spu.world.durability[self.name]
        self.state: ReplicaState | None = None
        self.stopped: str | None = None
        self.assigned = True
        self.table = ProducerTable()
        self.waiting: list[Waiting] = []
        self.life = 0
        self._promises: deque[HardState] = deque()
        self._cuts: deque[TruncateLog | ResetLog] = deque()
        self._journal_us = 0
        self._syncing = False
        self._syncs = 0
        self._told: tuple[object, ...] = ()
        self._may_lack_records = False
        self._went_back = False
        self._forgot = False
        ledger.holders[spu.id] = Holder(spu.id, disk)

    @property
    def leads_in(self) -> int | None:
        """The election term in which it leads, or is about to, or will after a start where nobody
        tells it of another leader; None if it does not."""
        kept = self.disk.hard_state if self.state is None else self.state.newest
        return election_term(kept.term) if kept.leading else None

    @property
    def is_old(self) -> bool:
        """Whether its disk went back in time, and lacks records or promises since."""
        return self.disk.old or self._forgot

    # -- a process begins and ends ----------------------------------------------------------

    def start(self, boot: str, *, fresh: bool = False) -> None:
        """Recover what the disk has. ``fresh``: it was created just now."""
        disk = self.disk
        self.life += 1
        self._syncing, self.stopped = False, None
        self._journal_us = 0
        self.ledger.shortened(self.spu.id)
        disks.settle(disk)
        self.table = disk.producers(self.ledger.headers)
        view = disk.view()
        self.state = recovered(self.spu.id, boot, disk.hard_state, view, disk.lac, fresh=fresh)
        if disk.damage is not None:
            self.feed(Failed(disk.damage))
        self.feed(Resume())

    def end(self) -> None:
        """The process is gone. Of what was on its way to the disk, some has come there."""
        self.life += 1
        self._may_lack_records = False
        self.state = None
        self.waiting.clear()
        chance = self.spu.world.chance
        while self._promises and chance.random() < 0.5:
            self.disk.hard_state = self._promises.popleft()
        if self._cuts and not self._promises and chance.random() < 0.5:
            self._apply(self._cuts[0])
        self._promises.clear()
        self._cuts.clear()

    def put_back(self, copy: ReplicaDisk) -> None:
        """The process is down, and a copy of its disk replaces the disk."""
        held = max(self.disk.synced, self.disk.held)
        self.disk = copy.copied()
        self.disk.held = held
        self.disk.old = self._went_back = self._forgot = True
        self.ledger.holders[self.spu.id] = Holder(self.spu.id, self.disk)
        self.ledger.forgets(self.spu.id)

    def stop(self, reason: str) -> None:
        """Serve nothing any more until the process is started anew: a write was not possible."""
        self.end()
        self.stopped = reason
        self.report()

    # -- the core ---------------------------------------------------------------------------

    def feed(self, event: Input) -> None:
        """One input, and everything that follows at once."""
        before = self.state
        if before is None:
            return
        world = self.spu.world
        state, outputs = step(before, event, world.clock.now_ms)
        self.state = state
        self._forgot = self._forgot and not state.proven
        world.traced(self.name, self.spu.id, event, outputs)
        for output in outputs:
            self._carry_out(output)
            if self.stopped is not None:
                # A write was not possible: nothing that needs it is said.
                return
        if state.hard_state is not before.hard_state and state.leading is not None:
            partition = world.kv.partition(self.name)
            if partition is not None:
                self.ledger.leads_rightly(self.spu.id, state, partition)
        self.report()

    def later(self, life: int, event: Input) -> None:
        """Tell the core, if it is still the same process."""
        if life == self.life:
            self.feed(event)

    def _soon(self, event: Input, delay_us: int = 0) -> None:
        self.spu.world.clock.after(delay_us, self.later, self.life, event)

    def _carry_out(self, output: Output) -> None:
        spu = self.spu
        world = spu.world
        match output:
            case Send(to, message):
                if isinstance(message, Reset):
                    # The core does not know producers.
                    known = self.table.dump_before(message.start)
                    message = replace(message, producers=known)
                world.network.send(spu.id, to, self.name, message)
            case Push(to, term, attach, boot, start, lac, log_start):
                batches = self.disk.read(start, PUSH_BATCHES)
                append = Append(term, attach, boot, batches, lac, log_start)
                world.network.send(spu.id, to, self.name, append)
                self._soon(Pushed(to, attach, batches[-1].end), world.chance.randint(50, 2_000))
            case PersistHardState(hard_state):
                self._promises.append(hard_state)
                self._journal_us = max(self._journal_us + 1, world.clock.now_us + spu.disk_us())
                world.clock.at(self._journal_us, self._hard_state_persisted, self.life)
            case LeadsOn(term):
                self._leads(term)
                world.count("leaderships without a record")
            case AppendControl(term):
                self._leads(term)
                leo = self.disk.leo
                self._write((Batch(leo, leo + 1, term, CONTROL),))
            case AppendSeal(term):
                leo = self.disk.leo
                self._write((Batch(leo, leo + 1, term, CONTROL, seals=True),))
                world.count("seals")
            case AppendBatches(batches):
                self._write(batches)
            case Committed(lac):
                self._committed(lac)
            case TruncateLog() | ResetLog():
                self._cuts.append(output)
                self._syncs += 1
                world.clock.after(spu.disk_us(), self._cut, self.life)
            case AdvanceLogStart(start):
                self.disk.drop(start, self.ledger.headers)
            case NewStorageId():
                partition = world.kv.partition(self.name)
                self.ledger.gives_up(spu.id, self.disk.hard_state.storage, partition)
                storage = disks.new_storage(world.next_number())
                self._soon(StorageIdChosen(storage))
            case RequestLrsChange(revision, term, lrs, reason):
                spu.ask(
                    LrsRequest(
                        uid=self.uid,
                        term=Term(term),
                        revision=revision,
                        lrs=live_replicas(lrs),
                        reason=reason,
                    )
                )
            case RequestElection(term, reason):
                spu.ask(ElectionRequest(uid=self.uid, term=Term(term), reason=reason))
            case SteppedDown():
                self._refuse_waiting()
            case _:
                assert_never(output)

    def _leads(self, term: int) -> None:
        world = self.spu.world
        self.ledger.begins(self.spu.id, term)
        if self._may_lack_records and self.state is not None:
            lost = self.ledger.retracts(self.spu.id, term)
            self.ledger.recalls(self.spu.id, self.state.lac)
            world.count("batches lost, excused", lost)
            world.count("unclean leaderships")
        self._may_lack_records = False
        world.count("leaderships")

    def _hard_state_persisted(self, life: int) -> None:
        if life == self.life and self._promises:
            hard_state = self.disk.hard_state = self._promises.popleft()
            if hard_state.unfit is None and self.disk.damage == UNCLEAN_BOOT:
                # It was elected in spite of that.
                self.disk.damage = None
                self._may_lack_records = True
            self.feed(HardStatePersisted(hard_state))

    # -- the log ----------------------------------------------------------------------------

    def _write(self, batches: tuple[Batch, ...]) -> None:
        if self._cuts:
            raise AssertionError(f"{self.name} on SPU {self.spu.id} is written to while it is cut")
        if self.spu.disk_is_full:
            self.stop("the disk is full")
            return
        self.ledger.wrote(self.spu.id, batches)
        for batch in batches:
            if batch.base != self.disk.leo:
                raise AssertionError(f"{batch} in a log that ends at {self.disk.leo}")
            self.disk.append(batch)
            disks.note(self.table, batch, self.ledger.headers)
        if self.durability is Durability.REPLICATED:
            self._soon(Flushed(self.disk.leo))
            self._sync(WRITE_BACK_US)
        else:
            self._sync(self.spu.world.chance.randint(0, 500))

    def _sync(self, delay_us: int) -> None:
        if not self._syncing:
            self._syncing = True
            self.spu.world.clock.after(delay_us, self._begin_sync, self.life)

    def _begin_sync(self, life: int) -> None:
        if life == self.life:
            upto = self.disk.leo
            delay = self.spu.disk_us()
            self.spu.world.clock.after(delay, self._synced, life, self._syncs, upto)

    def _synced(self, life: int, syncs: int, upto: int) -> None:
        state, disk = self.state, self.disk
        if life != self.life or state is None:
            return
        self._syncing = False
        if self.spu.fsync_fails(self.name):
            disk.broken = True
            self.feed(Failed("an fsync failed"))
            return
        if disk.broken:
            return
        if syncs == self._syncs:
            disk.synced = max(disk.synced, min(upto, disk.leo))
            disk.lac = max(disk.lac, min(state.durable_lac, disk.synced - 1))
            if self.durability is Durability.FSYNC:
                self.feed(Flushed(upto))
        if disk.synced < disk.leo and not self._cuts:
            self._sync(0 if self.durability is Durability.FSYNC else WRITE_BACK_US)

    def _cut(self, life: int) -> None:
        if life != self.life:
            return
        cut = self._cuts.popleft()
        self._apply(cut)
        self.spu.world.count("cuts" if isinstance(cut, TruncateLog) else "rebuilds")
        self.table = rolled_back(self.table, self.disk, self.ledger)
        self.feed(LogTruncated() if isinstance(cut, TruncateLog) else LogReset(cut.storage))
        # What is kept was synced with it.
        self.later(life, Flushed(self.disk.leo))

    def _apply(self, cut: TruncateLog | ResetLog) -> None:
        disk = self.disk
        if isinstance(cut, TruncateLog):
            disk.cut(cut.leo)
            disks.settle(disk)
        else:
            first = self.ledger.index_of(cut.start)
            disk.begin_anew(cut.start, cut.last_term, first, cut.producers)
            self.ledger.holders[self.spu.id].verified = disk.first
        self.ledger.shortened(self.spu.id)

    def retain(self, start: int) -> None:
        """The leader's retention lets the log begin at ``start``."""
        state = self.state
        if state is None or not state.may_append or not state.log_is_steady:
            return
        start = start if state.log.sealed is None else min(start, state.log.sealed)
        if self.disk.start < start <= state.lac + 1:
            self.disk.drop(start, self.ledger.headers)
            self.feed(LogStartAdvanced(start))

    # -- clients ----------------------------------------------------------------------------

    def produce(self, header: BatchHeader, data: bytes, answer: Answer) -> None:
        """Append a batch of a producer; ``answer`` is called once."""
        state = self.state
        if state is None or state.leading is None or state.leading.proving:
            answer(None, Refusal.NOT_LEADER)
            return
        if state.hard_state.smallest < state.hard_state.min_in_sync or state.is_to_seal:
            answer(None, Refusal.NOT_ENOUGH)
            return
        try:
            found = self.table.check(header)
        except RunnelError as error:
            answer(None, Refusal.of(error))
            return
        if found is not None:
            self.spu.world.count("duplicates")
            self.answer_duplicate(Waiting(found.next_offset, found.base_offset, header, answer))
            return
        if state.log.sealed is not None:
            answer(None, Refusal.NOT_ENOUGH if state.sealed_end is None else Refusal.SEALED)
            return
        if self.spu.disk_is_full:
            answer(None, Refusal.NOT_ENOUGH)
            return
        base = self.disk.leo
        batch = Batch(base, base + header.record_count, state.leading.term, data)
        self._write((batch,))
        self.waiting.append(Waiting(batch.end, base, header, answer))
        self.feed(Appended(batch.end))

    def answer_duplicate(self, waiting: Waiting) -> None:
        """Answer once the first of the two is committed."""
        self.waiting.append(waiting)
        self.answer_waiting()

    def answer_waiting(self) -> None:
        """Answer those whose batches are committed."""
        state = self.state
        if state is None or not self.waiting:
            return
        done = [w for w in self.waiting if w.end <= state.lac + 1]
        if done:
            self.waiting = [w for w in self.waiting if w.end > state.lac + 1]
            for waiting in done:
                self.acknowledge(waiting)

    def acknowledge(self, waiting: Waiting) -> None:
        """Say that a batch is committed."""
        if self.ledger.acknowledges(self.spu.id, waiting.header, waiting.base):
            self.spu.world.count("acknowledged")
        waiting.answer(waiting.base, None)

    def _refuse_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one.answer(None, Refusal.NOT_LEADER)

    def _committed(self, lac: int) -> None:
        if self.state is None:
            return
        partition = self.spu.world.kv.partition(self.name)
        self.ledger.calls_committed(self.spu.id, self.state, partition)
        self.answer_waiting()

    def fetch(self, offset: int) -> tuple[int, tuple[Batch, ...]] | None:
        """Where a read of ``offset`` begins, and committed batches from there on; None where
        nothing is served."""
        state = self.state
        if state is None or (state.leading is None and state.following is None):
            return None
        if state.is_serving:
            partition = self.spu.world.kv.partition(self.name)
            self.ledger.says_latest(self.spu.id, state, partition)
        if not state.log_is_steady:
            return None
        offset = max(offset, self.disk.start)
        found = self.disk.read(offset, 20)
        return offset, tuple(batch for batch in found if batch.end <= state.lac + 1)

    # -- the SC -----------------------------------------------------------------------------

    def report(self) -> None:
        """Tell the SC where something has changed that it should know."""
        if (state := self.state) is None or state.newest.unfit is not None:
            self.ledger.is_unfit(self.spu.id, self.disk.hard_state.storage)
        if state is not None and (state.newest.unfit or "").startswith(OLD) and not self._went_back:
            raise ViolationError(f"{self.name}: SPU {self.spu.id} takes its disk for an old one")
        said = self._said()
        if said != self._told:
            self._told = said
            self.spu.report(self.name)

    def _said(self) -> tuple[object, ...]:
        state = self.state
        if state is None:
            return (self.stopped,)
        role = self._role(state)
        return state.hard_state, role, state.newest.unfit, self.assigned, state.sealed_end

    def _role(self, state: ReplicaState) -> ReplicaRole:
        if state.newest.unfit is not None:
            return ReplicaRole.STOPPED
        if state.may_append:
            return ReplicaRole.LEADER
        return ReplicaRole.IDLE if state.following is None else ReplicaRole.FOLLOWER

    def status(self) -> ReplicaReport:
        """Its state for the SC."""
        state = self.state
        hard_state = self.disk.hard_state if state is None else state.hard_state
        unfit = self.stopped if state is None else state.newest.unfit
        log = self.disk.view() if state is None else state.log.durable_part
        return ReplicaReport(
            uid=self.uid,
            storage_id=StorageId(hard_state.storage),
            role=ReplicaRole.STOPPED if state is None else self._role(state),
            term=Term(hard_state.term),
            revision=hard_state.revision,
            incarnation=hard_state.incarnation,
            unclean_term=Term(hard_state.unclean_term) or None,
            lrs=live_replicas(hard_state.lrs),
            log_start=log.start,
            leo=log.leo,
            last_term=Term(log.last_term),
            fit=unfit is None,
            unclean_boot=unfit == UNCLEAN_BOOT,
            old=(unfit or "").startswith(OLD) or None,
            assigned=self.assigned,
            reason=unfit,
            sealed=None if state is None else state.sealed_end,
        )

    def connected(self, peers: tuple[int, ...]) -> None:
        """Connections that were there before the replica was."""
        for peer in peers:
            self.feed(LinkUp(peer))


def rolled_back(_table: ProducerTable, disk: ReplicaDisk, ledger: Ledger) -> ProducerTable:
    """The producers after a cut: as they follow from what is left."""
    return disk.producers(ledger.headers)


def live_replicas(members: Members) -> tuple[LiveReplica, ...]:
    """Members as the SC knows them."""
    return tuple(LiveReplica(spu_id=spu, storage_id=storage) for spu, storage in members)
