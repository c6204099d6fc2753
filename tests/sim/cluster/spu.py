"""An SPU's process: its replicas, its connections to other SPUs, and its session with the SC.

It does what the SC asks as an SPU does: what it is to hold it creates, what a complete list leaves
out it stops and keeps, an order to lead goes to the core. What changes is reported; what the end of
a session kept from being told is in the hello of the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.control.messages import (
    Assignment,
    AssignPartitions,
    DeleteReplicas,
    ElectionRequest,
    Hello,
    LeadPartitions,
    LrsRequest,
    Report,
    SpuRequest,
    Stamp,
    Tombstone,
)
from schemas.control.messages import Message as SessionMessage
from schemas.ids import PartitionUid
from schemas.objects.partition import LiveReplica
from schemas.objects.topic import Durability
from spu.replication.events import (
    Elected,
    Failed,
    LinkDown,
    LinkUp,
    PartitionUpdated,
    Received,
    Tick,
    Unassigned,
)
from spu.replication.messages import Message
from spu.replication.state import UNCLEAN_BOOT, HardState, Member, Members
from tests.sim.cluster import disk as disks
from tests.sim.cluster.disk import ReplicaDisk
from tests.sim.cluster.network import SC
from tests.sim.cluster.replica import SimReplica
from tests.sim.cluster.session import Session

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

TICK_US = 500_000
#: How often an SPU looks whether it may connect again.
LOOK_AGAIN_US = 5_000


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of an SPU's files: its replicas by name, and what it knew from the SC."""

    disks: dict[str, ReplicaDisk]
    assignments: dict[str, tuple[int, Assignment]]
    seen: tuple[int, int, Stamp | None]


class SimSpu:
    """One SPU. ``life`` counts its processes."""

    def __init__(self, world: World, spu_id: int) -> None:
        self.world = world
        self.id = spu_id
        self.is_up = False
        self.life = 0
        self.replicas: dict[str, SimReplica] = {}
        self.session: Session | None = None
        self.disk_is_full = False
        self.slow_disk = False
        self._assignments: dict[str, tuple[int, Assignment]] = {}
        self._failing: set[str] = set()
        self._links: tuple[int, ...] = ()
        self._changed: dict[str, None] = {}
        self._reporting = False
        self._seen: tuple[int, int, Stamp | None] = (0, 0, None)
        #: Of the SC that welcomed this process last.
        self._heard: Stamp | None = None
        self._attempt = 0
        #: Messages of the SC that are being carried out.
        self._handling = 0
        #: Storage ids that were lost with a disk: what replaces them has others.
        self._wiped: dict[str, str] = {}

    # -- the process ------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, with what the disk has."""
        if self.is_up:
            return
        self.life += 1
        self.is_up = True
        self._heard = self._seen[2]
        self.slow_disk = self.disk_is_full = self._reporting = False
        self._handling = 0
        self._links = ()
        self._failing.clear()
        self._changed.clear()
        for replica in self.replicas.values():
            replica.start(f"b{self.id}.{self.life}")
        for peer in self.world.spus:
            if peer != self.id:
                self.world.network.dial(self.id, peer)
        clock, chance = self.world.clock, self.world.chance
        clock.after(chance.randint(0, TICK_US), self._tick, self.life)
        clock.after(chance.randint(1_000, 50_000), self._connect, self.life)

    def crash(self, *, power_fails: bool) -> None:
        """The process ends; if ``power_fails`` the host as well, with what was not synced."""
        if not self.is_up:
            return
        self.is_up = False
        self._attempt += 1
        session, self.session = self.session, None
        for replica in self.replicas.values():
            replica.end()
            disk, lost = replica.disk, False
            if power_fails or disk.broken:
                lost = disk.lose_power(self.world.chance)
                self.world.count("crashes that lost records" if lost else "crashes without loss")
            elif replica.durability is Durability.FSYNC and self.world.chance.random() < 0.3:
                # The write in hand is there in half, and cut off.
                lost = disk.tear()
            # The next process finds a disk that works again: what failed before is not read back.
            disk.broken = False
            if power_fails and replica.durability is Durability.REPLICATED:
                disk.damage = disk.damage or UNCLEAN_BOOT
            replica.ledger.shortened(self.id)
        self.world.network.died(self.id, silently=power_fails)
        if session is not None:
            session.died(self.id, silently=power_fails)

    def lose_disk(self) -> None:
        """The disk of a process that is down is replaced by an empty one."""
        kept = {name: replica.disk.hard_state.storage for name, replica in self.replicas.items()}
        self.replicas.clear()
        for name, storage in kept.items():
            self.world.ledgers[name].holders.pop(self.id, None)
            self._wiped[name] = storage
        self._assignments.clear()
        self._seen = (0, 0, None)

    def copied(self) -> Copy:
        """A copy of its files as they are now."""
        disks = {name: replica.disk.copied() for name, replica in self.replicas.items()}
        return Copy(disks, dict(self._assignments), self._seen)

    def put_back(self, copy: Copy, names: Iterable[str]) -> None:
        """The process is down, and a copy of its files replaces them; of its replicas, these."""
        for name in names:
            self.replicas[name].put_back(copy.disks[name])
        self._assignments = dict(copy.assignments)
        self._seen = copy.seen

    def disk_us(self) -> int:
        """How long the disk takes for a write and its fsync."""
        chance = self.world.chance
        if self.slow_disk:
            return chance.randint(10_000, 900_000)
        return chance.randint(150, 4_000)

    def fail_fsync(self, name: str) -> None:
        """The next fsync of a replica's log fails."""
        self._failing.add(name)

    def will_fail(self, name: str) -> bool:
        """Whether an fsync of a replica's log is about to fail, or has failed."""
        return name in self._failing or self.replicas[name].disk.broken

    def fsync_fails(self, name: str) -> bool:
        """Whether the fsync that ends now fails."""
        if name not in self._failing:
            return False
        self._failing.discard(name)
        return True

    def find_damage(self, name: str) -> None:
        """A read finds damage while the process runs."""
        replica = self.replicas[name]
        if replica.state is not None:
            replica.disk.damage = "a read found damage"
            replica.feed(Failed(replica.disk.damage))

    def _tick(self, life: int) -> None:
        if life == self.life and self.is_up:
            for replica in self.replicas.values():
                if replica.state is not None and replica.state.leading is not None:
                    replica.feed(Tick())
            self.world.clock.after(TICK_US, self._tick, life)

    # -- other SPUs -------------------------------------------------------------------------

    def link_up(self, peer: int) -> None:
        self._links = tuple(sorted({*self._links, peer}))
        for replica in self.replicas.values():
            replica.feed(LinkUp(peer))

    def link_down(self, peer: int) -> None:
        self._links = tuple(link for link in self._links if link != peer)
        for replica in self.replicas.values():
            replica.feed(LinkDown(peer))

    def receive(self, sender: int, partition: str, message: Message) -> None:
        replica = self.replicas.get(partition)
        if self.is_up and replica is not None:
            replica.feed(Received(sender, message))

    # -- the session with the SC ------------------------------------------------------------

    def _connect(self, life: int) -> None:
        """Try to get a session, again and again, one attempt at a time."""
        world = self.world
        if life != self.life or not self.is_up or self.session is not None:
            return
        if self._handling:
            # What the session before has begun is finished first, also on a slow disk.
            world.clock.after(LOOK_AGAIN_US, self._connect, life)
            return
        self._attempt += 1
        if world.network.reaches(self.id, SC):
            delay = world.network.delay_us()
            hello = self._hello()
            world.clock.after(delay, world.arrives, self.id, world.sc, self._attempt, hello)
        world.clock.after(world.chance.randint(50_000, 900_000), self._connect, life)

    def _hello(self) -> Hello:
        self._changed.clear()
        revision, stamp = self._seen[1:]
        heard = self._heard
        if heard is not None and (stamp is None or heard.version > stamp.version):
            revision, stamp = heard.revision, heard
        return Hello(
            software="simulated",
            spu_id=self.id,
            instance=f"{self.id}.{self.life}",
            kv_revision=revision,
            stamp=stamp,
            replicas=tuple(replica.status() for replica in self.replicas.values()),
            seals=True,
        )

    def welcomed(self, session: Session, attempt: int, stamp: Stamp) -> bool:
        """The SC has let it in; gives whether it still waits for that."""
        if not self.is_up or attempt != self._attempt or self.session is not None:
            return False
        self._heard = stamp
        self.session = session
        self._flush_soon()
        return True

    def session_ended(self, session: Session) -> None:
        """It found out that a session is over."""
        if self.session is session:
            self.session = None
            if self.is_up:
                self._attempt += 1
                delay = self.world.chance.randint(20_000, 200_000)
                self.world.clock.after(delay, self._connect, self.life)

    def report(self, name: str) -> None:
        """A replica's state has changed."""
        self._changed[name] = None
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._changed and not self._reporting and self.session is not None:
            self._reporting = True
            self.world.clock.after(300, self._flush, self.life)

    def _flush(self, life: int) -> None:
        self._reporting = False
        if life == self.life and self.session is not None and self._changed:
            names = [name for name in self._changed if name in self.replicas]
            self._changed.clear()
            reports = tuple(self.replicas[name].status() for name in names)
            self.session.to_sc(Report(replicas=reports))

    def ask(self, request: LrsRequest | ElectionRequest) -> None:
        """A replica asks for something as a leader; lost without a session."""
        if self.session is None:
            return
        if isinstance(request, LrsRequest):
            self.session.to_sc(SpuRequest(lrs=(request,)))
        else:
            self.session.to_sc(SpuRequest(elections=(request,)))

    # -- what the SC asks -------------------------------------------------------------------

    def handle(self, session: Session, message: SessionMessage) -> None:
        """Do what the SC asks, and say that it is done once it is durable."""
        clock = self.world.clock
        self._handling += 1
        clock.after(self.disk_us(), self._do, self.life, session, message)

    def has_seen(self, incarnation: int, revision: int) -> bool:
        """Whether it has seen a later revision than this, in this incarnation or a later one."""
        return self._seen[:2] > (incarnation, revision)

    def _note(self, stamp: Stamp, revision: int) -> None:
        revision = max(revision, stamp.revision)
        if (stamp.incarnation, revision) > self._seen[:2]:
            self._seen = (stamp.incarnation, revision, stamp)

    def _do(self, life: int, session: Session, message: SessionMessage) -> None:
        if life != self.life or not self.is_up:
            return
        self._handling -= 1
        error = False
        match message:
            case AssignPartitions():
                self._note(message.stamp, max((a.revision for a in message.assignments), default=0))
                self._assign(message)
            case LeadPartitions():
                self._note(message.stamp, max((a.revision for a in message.leads), default=0))
                for lead in message.leads:
                    found = self._assignments.get(lead.uid)
                    replica = self._by_uid(lead.uid)
                    if found is None or replica is None:
                        error = True
                        continue
                    assignment = found[1]
                    order = Elected(
                        lead.revision,
                        lead.term,
                        members_of(lead.lrs),
                        assignment.replicas,
                        assignment.log.min_in_sync_replicas,
                        message.stamp.incarnation,
                        unclean=lead.unclean_term == lead.term,
                    )
                    replica.feed(order)
            case DeleteReplicas():
                for tombstone in message.tombstones:
                    self._delete(tombstone)
                # What is still there has another storage: the SC hears that first.
                named = {tombstone.uid for tombstone in message.tombstones}
                left = tuple(r.status() for r in self.replicas.values() if r.uid in named)
                if self.session is not None:
                    self.session.to_sc(Report(replicas=left, deleted=message.tombstones))
            case _:
                raise AssertionError(f"an SC does not send {message.type}")
        self.world.clock.after(self.disk_us(), session.reply, message, error)

    def _assign(self, message: AssignPartitions) -> None:
        for assignment in sorted(message.assignments, key=lambda one: one.revision):
            version = (message.stamp.incarnation, assignment.revision)
            known = self._assignments.get(assignment.uid)
            if known is None or (known[0], known[1].revision) <= version:
                self._assignments[assignment.uid] = (message.stamp.incarnation, assignment)
            replica = self.replicas.get(assignment.name)
            if replica is None:
                replica = self._create(assignment)
            replica.assigned = True
            replica.feed(learned_of(assignment, message.stamp.incarnation))
            # What came of it is told even where it was known already.
            replica.report()
        if message.complete:
            named = {assignment.name for assignment in message.assignments}
            for name in [name for name in self.replicas if name not in named]:
                self.leave(name)

    def _create(self, assignment: Assignment) -> SimReplica:
        lost = self._wiped.pop(assignment.name, None)
        storage = disks.new_storage(self.world.next_number(), lost)
        ledger = self.world.ledgers[assignment.name]
        replica = SimReplica(self, ledger, assignment.uid, ReplicaDisk(HardState(storage)))
        self.replicas[assignment.name] = replica
        replica.start(f"b{self.id}.{self.life}", fresh=True)
        replica.connected(self._links)
        return replica

    def leave(self, name: str) -> None:
        """What a complete list leaves out is stopped, and kept."""
        replica = self.replicas[name]
        replica.assigned = False
        replica.feed(Unassigned())
        replica.report()

    def _delete(self, tombstone: Tombstone) -> None:
        """Delete a replica if the tombstone names its storage."""
        replica = self._by_uid(tombstone.uid)
        if replica is None:
            return
        held = {replica.disk.hard_state.storage, replica.status().storage_id}
        if tombstone.storage_id is None or tombstone.storage_id in held:
            ledger, name = replica.ledger, replica.name
            for storage in held:
                ledger.gives_up(self.id, storage, self.world.kv.partition(name))
            replica.end()
            del self.replicas[name]
            self._assignments.pop(tombstone.uid, None)
            ledger.holders.pop(self.id, None)
            self.world.count("replicas deleted")
        else:
            self.world.count("tombstones of another storage")

    def _by_uid(self, uid: PartitionUid) -> SimReplica | None:
        return next((r for r in self.replicas.values() if r.uid == uid), None)


def learned_of(assignment: Assignment, incarnation: int) -> PartitionUpdated:
    """What a replica learns from an assignment, all of it of one revision."""
    return PartitionUpdated(
        assignment.revision,
        assignment.term,
        assignment.leader,
        members_of(assignment.lrs),
        assignment.replicas,
        assignment.log.min_in_sync_replicas,
        incarnation,
        assignment.unclean_term or 0,
        bool(assignment.sealed),
    )


def members_of(lrs: tuple[LiveReplica, ...]) -> Members:
    """Live replicas as the core knows them."""
    return tuple(Member(member.spu_id, member.storage_id) for member in lrs)
