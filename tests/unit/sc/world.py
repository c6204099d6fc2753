"""A pure model of the world around the controllers: a KV, SPUs, sessions and a work queue.

It carries out actions at once and wakes the keys that the real metadata dispatcher names. Checks
that hold at every write (terms, leaders, live replica sets) are made where the write happens.
Which key is next, which wake-ups are lost and which come twice is decided by the caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from sc.controllers import reconcile
from sc.controllers.actions import (
    Action,
    BeginMove,
    CreatePartitions,
    CreateSpu,
    EndMove,
    EndSpu,
    Key,
    LeaveTombstones,
    MarkDeleting,
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
    Settle,
    Step,
    TellMoves,
    UnregisterSpu,
    WakeAt,
    WritePartitionSpec,
    WriteSpuSpec,
    WriteStatus,
)
from sc.controllers.spu_restarts import runs_by
from sc.controllers.unclean import wish_of
from sc.dispatch.changes import ChangeFeed
from sc.dispatch.loop import note_election
from sc.dispatch.metadata import MetadataDispatcher
from sc.dispatch.spu_updater import Outbox
from sc.store.local_store import Change, LocalStore
from sc.store.view import Liveness, Provisioned, Provisioning, SessionState, View
from schemas.control.messages import (
    AssignPartitions,
    DeleteReplicas,
    Hello,
    LeadPartitions,
    LrsRequest,
    Message,
    ReplicaReport,
    ReplicaRole,
    Report,
    SpuRequest,
    Stamp,
)
from schemas.control.session_end import SessionEnd
from schemas.ids import PartitionUid, StorageId, Term, election_term
from schemas.objects.metadata import Object
from schemas.objects.partition import (
    LiveReplica,
    Partition,
    PartitionSpec,
    PartitionStatus,
    UncleanElection,
)
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic
from tests.unit.sc.builders import DELETED_AT, PORT_STEP

STAMP = Stamp(revision=1, office="o")
#: Far more steps than any of the small worlds needs.
MAX_STEPS = 2_000


@dataclass
class ModelSpu:
    """An SPU process: what is on its disk."""

    spu_id: int
    disk: int = 1
    unfit: bool = False
    replicas: dict[str, ReplicaReport] = field(default_factory=dict)

    def handle(self, message: Message) -> Report:
        """Do what the SC asks, and say what changed."""
        match message:
            case AssignPartitions():
                changed = []
                for assignment in message.assignments:
                    storage = StorageId(f"disk-{self.spu_id}-{self.disk}")
                    old = self.replicas.get(assignment.uid) or ReplicaReport(
                        uid=assignment.uid, storage_id=storage, fit=not self.unfit
                    )
                    told = message.stamp.incarnation, assignment.revision
                    update: dict[str, Any] = {"assigned": True}
                    if told >= (old.incarnation, old.revision):
                        update |= {"incarnation": told[0], "revision": told[1]}
                        if assignment.leader is not None and assignment.leader != self.spu_id:
                            update["role"] = ReplicaRole.FOLLOWER
                        elif assignment.leader is None and told[0] > old.incarnation:
                            update["role"] = ReplicaRole.IDLE
                    new = old.model_copy(update=update)
                    self.replicas[new.uid] = new
                    changed.append(new)
                return Report(replicas=tuple(changed))
            case LeadPartitions():
                changed = []
                for lead in message.leads:
                    old = self.replicas[lead.uid]
                    assert old.fit or (old.unclean_boot and lead.unclean_term == lead.term)
                    assert old.term <= lead.term + 0xFFFF, "led at a later term before"
                    update = {"role": ReplicaRole.LEADER, "term": Term(lead.term + 1)}
                    update |= {"fit": True, "unclean_boot": False}
                    assert LiveReplica(spu_id=self.spu_id, storage_id=old.storage_id) in lead.lrs
                    self.replicas[lead.uid] = old.model_copy(update=update)
                    changed.append(self.replicas[lead.uid])
                return Report(replicas=tuple(changed))
            case DeleteReplicas():
                for tombstone in message.tombstones:
                    self.replicas.pop(tombstone.uid, None)
                return Report(deleted=message.tombstones)
            case _:
                raise AssertionError(f"unexpected {message}")


class World:
    """KV, SPUs and sessions, with the keys that wait to be looked at."""

    def __init__(self, *, grace_until_ms: int = 0) -> None:
        self.now_ms = 1_000
        self.sessions: dict[int, SessionState] = {}
        self.registered: dict[str, int] = {}
        self.provisioned: dict[str, Provisioned] = {}
        self.view = View(
            LocalStore(),
            self.sessions,
            self.registered,
            grace_until_ms,
            Provisioning(PORT_STEP, self.provisioned),
        )
        self.waiting: dict[Key, None] = {}
        self.timers: dict[Key, int] = {}
        self.dispatcher = MetadataDispatcher(
            self.view, self.sessions, self._wake, now_ms=lambda: self.now_ms
        )
        self.feed = ChangeFeed(self.view.store)
        self.feed.follow(self.dispatcher.changed)
        self.spus: dict[int, ModelSpu] = {}
        self.steps = 0
        #: Whether a replica was moved. Where to depends on who is looked at first.
        self.moved = False
        self._generations: dict[int, int] = {}

    @property
    def store(self) -> LocalStore:
        return self.view.store

    def _wake(self, key: Key, _cause: str) -> None:
        self.waiting[key] = None

    # -- events from outside ----------------------------------------------------------------

    def put(self, obj: Object) -> None:
        """Somebody (a user, a controller) wrote an object."""
        revision = self.store.revision + 1
        change = self.store.put(obj.with_metadata(resource_version=str(revision)))
        assert change is not None
        self._changed(change, revision)

    def remove(self, obj: Object) -> None:
        change = self.store.remove(obj.kind, obj.name)
        assert change is not None
        self._changed(change, self.store.revision + 1)

    def connect(self, spu_id: int, *, complete: bool = False) -> None:
        """The SPU's process opens a session. Only registered ones get in."""
        if spu_id not in self.registered.values():
            return
        generation = self._generations[spu_id] = self._generations.get(spu_id, 0) + 1
        replicas = tuple(self.spus.setdefault(spu_id, ModelSpu(spu_id)).replicas.values())
        hello = Hello(software="model", spu_id=spu_id, instance="i", replicas=replicas)
        self.dispatcher.opened(generation, hello)
        if complete:
            self.dispatcher.told_everything(spu_id, generation)

    def ask(self, spu_id: int, ask: SpuRequest) -> None:
        """An SPU asks for something, whether it leads or not."""
        if (session := self.sessions.get(spu_id)) is not None:
            self.dispatcher.asked(spu_id, session.generation, ask)

    def change_replica(self, spu_id: int, uid: str, **changes: Any) -> None:
        """Something happened to a replica; the SPU says so if it has a session."""
        spu = self.spus[spu_id]
        spu.replicas[uid] = spu.replicas[uid].model_copy(update=changes)
        if (session := self.sessions.get(spu_id)) is not None:
            report = Report(replicas=(spu.replicas[uid],))
            self.dispatcher.reported(spu_id, session.generation, report)

    def trouble(self, name: str, why: str | None) -> None:
        """The provisioner says that a process does not run, or that it runs again."""
        self.provisioned[name] = replace(self.provisioned[name], trouble=why)
        self._provisioning_changed(name)

    def _provisioning_changed(self, name: str) -> None:
        self._wake(Key("Spu", name), "provisioner")
        spu = self.store.get(Spu, name)
        if spu is not None and spu.spec.group is not None:
            self._wake(Key("SpuGroup", spu.spec.group), "provisioner")

    def disconnect(self, spu_id: int, end: SessionEnd = SessionEnd.LOST) -> None:
        if (session := self.sessions.get(spu_id)) is not None:
            self.dispatcher.closed(spu_id, session.generation, end)

    # -- the controllers at work ------------------------------------------------------------

    def all_keys(self) -> list[Key]:
        started = {*self.registered, *self.provisioned}
        names = self.store.object_keys() | {("Spu", name) for name in started}
        return [Key(kind, name) for kind, name in sorted(names)]

    def step(self, key: Key) -> tuple[Action, ...]:
        """Reconcile one key and carry out what it asks for."""
        self.steps += 1
        assert self.steps < MAX_STEPS, f"no end in sight, now at {key}"
        before = snapshot(self.view)
        actions = reconcile(self.view, key, self.now_ms)
        assert snapshot(self.view) == before, "reconcile changed the view"
        for action in actions:
            self.carry_out(action)
        return actions

    def work_off(self, pick: Callable[[list[Key]], Key] = lambda keys: keys[0]) -> None:
        """Look at waiting keys until none waits."""
        while self.waiting:
            key = pick(list(self.waiting))
            del self.waiting[key]
            self.step(key)

    def settle(self, pick: Callable[[list[Key]], Key] = lambda keys: keys[0]) -> None:
        """Work everything off, timers included: time passes when nothing else is left to do."""
        self.work_off(pick)
        while self._leaders_ask() or self.timers:
            if self.waiting:
                self.work_off(pick)
                continue
            self.now_ms = max(self.now_ms, min(self.timers.values()))
            for key in [k for k, at in self.timers.items() if at <= self.now_ms]:
                del self.timers[key]
                self.waiting[key] = None
            self.work_off(pick)

    def _leaders_ask(self) -> bool:
        """Newcomers have caught up, and their leaders ask for them, as long as one is missing."""
        before = len(self.waiting)
        for partition in [*self.store.moving()]:
            status, uid = partition.status, partition.uid
            session = None if status.leader is None else self.sessions.get(status.leader)
            report = None if session is None else session.reports.get(uid)
            if session is None or report is None or report.role is not ReplicaRole.LEADER:
                continue
            live = {m.spu_id for m in status.lrs}
            came = tuple(
                LiveReplica(spu_id=i, storage_id=found.storage_id)
                for i in partition.spec.replicas
                if i not in live and (found := self.view.report(i, uid)) is not None and found.fit
            )
            leads = election_term(report.term) == status.term and report.fit
            if came and leads and report.revision >= partition.revision:
                wanted = tuple(sorted((*status.lrs, *came), key=lambda m: m.spu_id))
                self.ask_for(partition, wanted)
        return len(self.waiting) > before

    def ask_for(self, partition: Partition, lrs: tuple[LiveReplica, ...]) -> None:
        """The leader of a partition asks for a live replica set."""
        leader = partition.status.leader
        assert leader is not None
        change = LrsRequest(
            uid=PartitionUid(partition.uid),
            term=self.sessions[leader].reports[partition.uid].term,
            revision=partition.revision,
            lrs=lrs,
            reason="caught up",
        )
        self.ask(leader, SpuRequest(lrs=(change,)))

    def full_pass(self) -> None:
        """What the periodic repair does: look at everything."""
        self.waiting.update(dict.fromkeys(self.all_keys()))
        self.settle()

    def chaotic(self, rng: random.Random) -> None:
        """Lose some wake-ups, repeat others, take all of them in any order."""

        def pick(keys: list[Key]) -> Key:
            if rng.random() < 0.3:
                self.step(rng.choice(self.all_keys() or keys))
            if rng.random() < 0.3:
                self.waiting.pop(rng.choice(keys), None)
            left = list(self.waiting)
            if not left:
                self.waiting[keys[0]] = None
                left = keys[:1]
            return rng.choice(left)

        self.settle(pick)

    # -- actions ----------------------------------------------------------------------------

    def carry_out(self, action: Action) -> None:
        match action:
            case WriteStatus(obj, status):
                self._check_current(obj)
                note_election(self.view, action, self.now_ms)
                if isinstance(obj, Partition) and isinstance(status, PartitionStatus):
                    check_election(obj.status, status)
                    if status.unclean_term == status.term != obj.status.term:
                        self._check_unclean(obj, status)
                    else:
                        self._check_live_set(obj, status)
                self.put(obj.with_status(status))
            case BeginMove(partition, spec, spus):
                self.moved = True
                for spu in spus:
                    self._check_current(spu)
                    grave = self.store.tombstone(spu.spec.spu_id, partition.uid)
                    assert grave is None, "a replica begins where its predecessor is deleted"
                self.carry_out(WritePartitionSpec(partition, spec))
            case EndMove(partition, spec, tombstones):
                self._check_end(partition, spec)
                for tombstone in tombstones:
                    if (change := self.store.put_tombstone(tombstone)) is not None:
                        self._changed(change, self.store.revision + 1)
                self.carry_out(WritePartitionSpec(partition, spec))
            case WritePartitionSpec(partition, spec):
                self._check_current(partition)
                new = partition.model_copy(update={"spec": spec})
                self.put(new.with_metadata(generation=partition.generation + 1))
            case CreateSpu(spu, group):
                self._check_current(group)
                assert self.store.spu(spu.spec.spu_id) is None
                assert self.store.get(Spu, spu.name) is None
                self.put(spu.with_metadata(generation=1))
            case WriteSpuSpec(spu, spu_spec):
                self._check_current(spu)
                changed = spu.model_copy(update={"spec": spu_spec})
                self.put(changed.with_metadata(generation=spu.generation + 1))
            case RewriteSpu(spu):
                self._check_current(spu)
                self.put(spu)
            case RemoveSpu(spu):
                self._check_current(spu)
                assert not self.store.holds_replicas(spu.spec.spu_id), "an SPU with data was ended"
                self.remove(spu)
                for tombstone in self.store.tombstones_of(spu.spec.spu_id):
                    self.carry_out(RemoveTombstone(tombstone))
            case ProvisionSpu(spu):
                self.provisioned[spu.name] = Provisioned(spu.spec)
                self._provisioning_changed(spu.name)
            case EndSpu(name):
                ended = self.provisioned.pop(name)
                self.disconnect(ended.spec.spu_id)
            case CreatePartitions(owner, partitions, spus, owner_status):
                for compared in (owner, *spus):
                    self._check_current(compared)
                for partition in partitions:
                    assert self.store.get(Partition, partition.name) is None
                    self.put(partition.with_metadata(generation=1))
                if owner_status is not None:
                    self.put(owner.with_status(owner_status))
            case RestoreTopic(topic, partition):
                self._check_current(partition)
                assert self.store.get(Topic, topic.name) is None
                self.put(topic)
            case MarkDeleting(obj):
                self._check_current(obj)
                self.put(obj.with_metadata(deletion_timestamp=DELETED_AT))
            case LeaveTombstones(partition, tombstones) | RemovePartition(partition, tombstones):
                assert not self.view.recovering, "deleted while the cluster recovers"
                self._check_current(partition)
                for tombstone in tombstones:
                    if (change := self.store.put_tombstone(tombstone)) is not None:
                        self._changed(change, self.store.revision + 1)
                if isinstance(action, RemovePartition):
                    self.remove(partition)
            case RemoveObject(obj):
                self._check_current(obj)
                self.remove(obj)
            case RemoveTombstone(tombstone):
                gone = self.store.remove_tombstone(tombstone.spu_id, tombstone.uid)
                assert gone is not None
                self._changed(gone, self.store.revision + 1)
            case ReplaceTombstone(partition, tombstone):
                self._check_current(partition)
                if (change := self.store.put_tombstone(tombstone)) is not None:
                    self._changed(change, self.store.revision + 1)
            case RegisterSpu(spu):
                self.registered[spu.name] = spu.spec.spu_id
                self._wake(Key("Spu", spu.name), "register")
            case UnregisterSpu(name, spu_id):
                del self.registered[name]
                self.disconnect(spu_id)
            case SendComplete() | SendAssignment() | SendLead() | SendDelete():
                self._send(action)
            case WakeAt(key, at_ms):
                assert at_ms > self.now_ms, "a timer in the past would spin"
                self.timers[key] = min(at_ms, self.timers.get(key, at_ms))
            case Step() | TellMoves() | Read() | Settle():
                raise AssertionError(f"there are no streams here: {action}")
            case _:
                assert_never(action)

    def _send(self, action: SendComplete | SendAssignment | SendLead | SendDelete) -> None:
        session = self.sessions.get(action.spu_id)
        assert session is not None, "sent to an SPU without a session"
        outbox = Outbox(STAMP.model_copy(update={"incarnation": self.view.incarnation}))
        outbox.add(action)
        while (message := outbox.next()) is not None:
            report = self.spus[action.spu_id].handle(message)
            outbox.sent()
            self.dispatcher.reported(action.spu_id, session.generation, report)
            if isinstance(message, AssignPartitions) and message.complete:
                self.dispatcher.told_everything(action.spu_id, session.generation)

    def _check_current(self, obj: Object) -> None:
        mirrored = self.store.get(type(obj), obj.name)
        assert mirrored is not None
        assert mirrored.revision == obj.revision, "two writes of one reconcile collide"

    def _check_live_set(self, old: Partition, new: PartitionStatus) -> None:
        """Who joined was asked for by the leader and is fit; who left is unfit, or is offline or
        was asked for while the minimum remains. Judged by what SPUs and sessions are, alone."""
        if old.status.leader is None:
            return
        before, after = set(old.status.lrs), set(new.lrs)
        if before == after:
            return
        assert len({m.spu_id for m in after}) == len(new.lrs), "an SPU is live twice"
        (leader,) = [m for m in new.lrs if m.spu_id == new.leader]
        assert self._fit(old.uid, leader), "changed without a leader that is fit"
        request = self.sessions[leader.spu_id].lrs_requests.get(old.uid)
        asked = None
        if request is not None and new.term == old.status.term == election_term(request.term):
            asked = set(request.lrs) if request.revision == old.revision else None
        for member in after - before:
            assert asked is not None, "joined without a request of the leader"
            assert member in asked, "joined without being asked for"
            assert member.spu_id in old.spec.replicas, "joined though it is to leave"
            assert self._fit(old.uid, member), "joined though it is not fit"
        minimum = old.spec.log.min_in_sync_replicas
        for member in before - after:
            session = self.sessions.get(member.spu_id)
            reported = session is not None and old.uid in session.reports
            if reported and not self._fit(old.uid, member):
                continue
            assert len(before & after) >= minimum, "fewer than the minimum were left"
            gone = self.view.liveness(member.spu_id, self.now_ms) is Liveness.OFFLINE
            moved = member.spu_id in (old.spec.leaving or ()) and self._copies(old) >= minimum
            assert gone or moved or (asked is not None and member not in asked), "left for nothing"

    def _copies(self, partition: Partition) -> int:
        """How many fit live replicas a partition has on the SPUs that are to stay."""
        return sum(
            m.spu_id in partition.spec.replicas and self._fit(partition.uid, m)
            for m in partition.status.lrs
        )

    def _check_end(self, old: Partition, spec: PartitionSpec) -> None:
        """Nothing is deleted that is live or leads; what stays is enough, and the leader knows."""
        assert not self.view.recovering, "deleted while the cluster recovers"
        gone = set(old.spec.holders) - set(spec.holders)
        assert gone == set(old.spec.leaving or ())
        assert not gone & {m.spu_id for m in old.status.lrs}, "a live replica is deleted"
        assert self._copies(old) >= max(
            old.spec.log.min_in_sync_replicas, len(spec.replicas) // 2 + 1
        )
        assert old.status.leader is not None
        report = self.sessions[old.status.leader].reports[old.uid]
        assert not gone or report.revision >= old.revision, "its leader does not know"

    def _check_unclean(self, old: Partition, new: PartitionStatus) -> None:
        """A replica that holds data leads alone; nobody wished for it, and all have answered, or
        somebody did at that very term and no live replica could lead."""
        (leader,) = new.lrs
        assert leader.spu_id == new.leader
        found = self.sessions[leader.spu_id].reports[old.uid]
        assert found.storage_id == leader.storage_id
        assert found.may_lead_uncleanly
        pending = self.view.recovering and old.status.incarnation < self.view.incarnation
        mirrored = self.store.get(Partition, old.name)
        wish = wish_of(mirrored) if mirrored is not None else None
        if isinstance(wish, UncleanElection) and wish.term == old.status.term:
            live_ones = [m for m in old.status.lrs if self._fit(old.uid, m)]
            assert pending or not live_ones, "a live replica could lead"
            if wish.leader in (None, new.leader):
                return
        asked = old.spec.holders if pending else [m.spu_id for m in old.status.lrs]
        reports = [self.sessions[i].reports[old.uid] for i in asked]
        assert all(report.may_lead_uncleanly for report in reports)
        if pending:
            assert all(report.incarnation == self.view.incarnation for report in reports)
            assert all(report.role is not ReplicaRole.LEADER for report in reports), "still leads"
        else:
            assert not any(report.fit for report in reports)
        most = max((report.last_term, report.leo) for report in reports)
        assert (found.last_term, found.leo) == most

    def _fit(self, uid: str, member: LiveReplica) -> bool:
        session = self.sessions.get(member.spu_id)
        report = None if session is None else session.reports.get(uid)
        return report is not None and report.fit and report.storage_id == member.storage_id

    def _changed(self, change: Change, revision: int) -> None:
        self.feed.apply([(change, "-")], revision)

    # -- what tests compare -----------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything but revisions and the number of connections, to compare two runs."""
        store = self.store
        objects = {}
        for kind, mirrored in store._objects.items():
            for name, obj in mirrored.items():
                metadata = obj.metadata.model_copy(update={"resource_version": None})
                objects[f"{kind}/{name}"] = obj.model_copy(update={"metadata": metadata})
        sessions = {
            spu_id: (
                session.complete,
                {u: r.model_copy(update={"revision": 0}) for u, r in session.reports.items()},
            )
            for spu_id, session in self.sessions.items()
        }
        return {
            "objects": objects,
            "registered": dict(self.registered),
            "provisioned": {n: (runs_by(p.spec), p.trouble) for n, p in self.provisioned.items()},
            "tombstones": store.tombstone_keys(),
            "sessions": sessions,
        }


def check_election(old: PartitionStatus, new: PartitionStatus) -> None:
    """Leader and term change together, by an election, which adds nobody unless it is recorded as
    unclean; the leader is live."""
    assert new.term >= old.term, "the term went back"
    if new.term == old.term:
        assert new.leader == old.leader, "another leader without an election"
    elif old.lrs and new.unclean_term != new.term:
        assert set(new.lrs) <= set(old.lrs), "an election added somebody"
    live = {m.spu_id for m in new.lrs}
    assert new.leader is None or new.leader in live, "the leader is not live"


def snapshot(view: View) -> Any:
    """The containers of a view copied, the (frozen) objects in them as they are."""
    return _copied(
        {
            "store": vars(view.store),
            "sessions": {i: replace(s) for i, s in view.sessions.items()},
            "said": {
                i: (s.reports, s.deleted, s.lrs_requests, s.elections)
                for i, s in view.sessions.items()
            },
            "elected": dict(view.elected),
            "registered": view.registered,
            "provisioned": view.provisioning.spus if view.provisioning is not None else {},
            "grace": view.grace_until_ms,
            "incarnation": (view.incarnation, view.recovering),
        }
    )


def _copied(value: Any) -> Any:
    match value:
        case dict():
            # Looking something up may leave an empty index behind; that is not a change.
            copied = {k: _copied(v) for k, v in value.items()}
            return {k: v for k, v in copied.items() if not _empty(v)}
        case set():
            return set(value)
        case tuple():
            return tuple(_copied(v) for v in value)
        case SessionState():
            return replace(
                value,
                reports=dict(value.reports),
                deleted=dict(value.deleted),
                lrs_requests=dict(value.lrs_requests),
                elections=dict(value.elections),
            )
        case _:
            return value


def _empty(value: Any) -> bool:
    return isinstance(value, dict | set) and not value
