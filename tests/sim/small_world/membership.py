"""Replicas that move in a small world: the real SC, what it hears, and what SPUs do about it.

What the KV and the sessions hold is made a `sc.store.view.View`, and the real controllers of the
partition and of the SPUs decide by that, one write at a time. Assignments come late or never, as
elsewhere in the small world, but none of before a deletion comes after it: a session keeps order,
and whoever deletes was told by an SC that knew the tombstone. An order to delete is on its way to
one SPU once, and is gone with its session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from sc.controllers.actions import (
    Action,
    BeginMove,
    EndMove,
    Key,
    RemoveTombstone,
    ReplaceTombstone,
    SendDelete,
    WriteStatus,
)
from sc.controllers.membership.begin import begin, may_move, respecified
from sc.controllers.membership.budget import Budget
from sc.controllers.partition import reconcile as reconcile_partition
from sc.controllers.spu import reconcile as reconcile_spu
from sc.store.view import ElectionAsked, SessionState, View
from schemas.control.messages import (
    ElectionRequest,
    LrsRequest,
    ReplicaReport,
    ReplicaRole,
    Tombstone,
)
from schemas.ids import PartitionUid, StorageId, Term, election_term
from schemas.objects.metadata import Metadata, OwnerReference
from schemas.objects.partition import (
    LiveReplica,
    Partition,
    PartitionResolution,
    PartitionSpec,
    PartitionStatus,
)
from schemas.objects.spu import Spu, SpuSpec
from schemas.objects.topic import LogSettings
from spu.replication.events import LinkDown, LinkUp, Resume, Unassigned
from spu.replication.state import HardState, LogView, Member, Members, recovered
from tests.sim.explore import Move
from tests.sim.small_world.world import (
    Asked,
    Disk,
    Grave,
    Node,
    Revision,
    Session,
    Told,
    ViolationError,
    World,
    absent,
    feed,
    learned,
    report_of,
    reported,
    with_node,
)

UID: Final = PartitionUid("8f1f6a34-9a42-4c1a-8a52-3d4be5c1a001")
_NAME: Final = "t-0"
_OWNER: Final = OwnerReference(kind="Topic", name="t", uid="6f1f6a34-9a42-4c1a-8a52-3d4be5c1a001")
#: Any time: nobody waits for anything here.
_NOW_MS: Final = 1_000_000

Option = tuple[Move, Callable[[], World]]


def moves(world: World) -> Iterator[Option]:
    """What may happen to replicas that move, beside what happens to all."""
    left = world.left
    for spu, node in enumerate(world.nodes):
        if node.session is None:
            yield ("connects", spu), partial(connect, world, spu)
        elif _has_news(node):
            yield ("reports", spu), partial(reported, world, spu)
        if left.silences and node.session is not None:
            less = replace(world, left=replace(left, silences=left.silences - 1))
            yield ("loses its session", spu), partial(_silence, less, spu)
        if node.order is not None:
            yield ("deletes", spu, node.order), partial(delete, world, spu)
        for revision in world.kv:
            if is_left_out(node, spu, revision):
                yield ("is left out", spu, revision), partial(leave_out, world, spu)
    if left.wishes:
        yield from _wishes(world)
    yield from looks(world)


# -- what SPUs do ---------------------------------------------------------------------------


def assign(world: World, spu: int, known: Revision, now_ms: int = 0) -> World:
    """An SPU is told a revision by which it holds a replica. If it has none, it creates one."""
    node = world.nodes[spu]
    if not node.held:
        world = _create(world, spu)
    elif not node.assigned:
        world = with_node(world, spu, replace(node, assigned=True))
    return feed(world, spu, learned(world, known), now_ms)


def _create(world: World, spu: int) -> World:
    before = world.nodes[spu]
    world = replace(world, storages=world.storages + 1, boots=world.boots + 1)
    hard_state = HardState(f"s{world.storages}")
    state = recovered(spu, f"b{world.boots}", hard_state, LogView(), -1, fresh=True)
    node = replace(before, disk=Disk(hard_state), state=state, held=True, assigned=True)
    world = feed(with_node(world, spu, node), spu, Resume())
    for peer in range(len(world.nodes)):
        if peer != spu:
            world = feed(world, spu, LinkUp(peer))
    return world


def is_left_out(node: Node, spu: int, known: Revision) -> bool:
    """Whether a complete list of a later revision leaves out a replica that an SPU has."""
    later = known.revision > node.state.newest.revision
    here = node.held and node.assigned and known.revision >= node.since
    return here and later and spu not in known.holders


def leave_out(world: World, spu: int) -> World:
    """What a complete list leaves out is stopped, and kept."""
    world = with_node(world, spu, replace(world.nodes[spu], assigned=False))
    return feed(world, spu, Unassigned())


def delete(world: World, spu: int) -> World:
    """An SPU does what it was told to: its replica goes if the tombstone names its storage."""
    node = world.nodes[spu]
    grave = node.order
    assert grave is not None
    held = {node.disk.hard_state.storage, node.state.newest.storage} if node.held else set()
    if any(is_named(grave, storage) for storage in held):
        live = [m for m in world.now.lrs if m.spu == spu and m.storage in held]
        if live:
            raise ViolationError(f"SPU {spu} deletes {live}, the KV has {world.now}")
        node = absent(spu, node)
    since = max(node.since, grave.revision)
    node = replace(node, order=None, done=grave, since=since)
    world = with_node(world, spu, node)
    return reported(world, spu) if world.prompt else world


def is_named(grave: Grave, storage: str) -> bool:
    """Whether a tombstone means this storage."""
    return grave.storage in (None, storage)


def wiped(world: World, spu: int) -> World:
    """The disk of an SPU is replaced by an empty one; its process starts without a replica."""
    node = replace(absent(spu, world.nodes[spu]), session=None)
    world = with_node(world, spu, node)
    for peer in range(len(world.nodes)):
        if peer != spu:
            world = feed(feed(world, peer, LinkDown(spu)), peer, LinkUp(spu))
    return world


# -- sessions -------------------------------------------------------------------------------


def connect(world: World, spu: int) -> World:
    """A session begins: with a report of what there is."""
    node = replace(world.nodes[spu], session=Session(), order=None, done=None)
    return reported(with_node(world, spu, node), spu)


def _silence(world: World, spu: int) -> World:
    node = replace(world.nodes[spu], session=None, order=None, done=None)
    return with_node(world, spu, node)


def _has_news(node: Node) -> bool:
    """Whether there is something to report. That the log grows is none."""
    session, now = node.session, report_of(node)
    if session is None:
        return False
    told = session.told
    if told is not None and now is not None:
        now = now._replace(last_term=told.last_term, leo=told.leo)
    return told != now or session.deleted != node.done


# -- the SC ---------------------------------------------------------------------------------


def _wishes(world: World) -> Iterator[Option]:
    """Somebody wants other replicas."""
    wish, *later = world.left.wishes
    view, partition = view_of(world)
    if may_move(view, partition) is not None:
        return
    found = begin(view, partition, respecified(partition, wish), Budget(view))
    if isinstance(found, BeginMove) and found.spec != partition.spec:
        less = replace(world, left=replace(world.left, wishes=tuple(later)))
        yield ("is wanted on", wish), partial(_write, less, _respecified(world.now, found.spec))


def looks(world: World) -> Iterator[Option]:
    """What the controllers write or send next, if they look now: at what was asked, or not."""
    current = [a for a in world.asked if a.sender == world.now.leader]
    for asked in (None, *(a for a in current if a.request.revision == world.now.revision)):
        view, _ = view_of(world, asked)
        for action in reconcile_partition(view, Key("Partition", _NAME), _NOW_MS):
            after = _decided(world, action, asked)
            if after is not None:
                yield ("the SC looks", asked), after
    if not world.graves:
        return
    view, _ = view_of(world)
    for grave in sorted(world.graves, key=repr):
        for action in reconcile_spu(view, Key("Spu", f"spu-{grave.spu}"), _NOW_MS):
            match action:
                case SendDelete():
                    node = world.nodes[grave.spu]
                    if node.order is None and node.done != grave:
                        told = with_node(world, grave.spu, replace(node, order=grave))
                        yield ("is to delete", grave), partial(_same, told)
                case RemoveTombstone():
                    yield ("the SC forgets", grave), partial(_dig, world, grave, None)
                case ReplaceTombstone(_, left):
                    yield ("the SC buries", grave), partial(_dig, world, grave, left.storage_id)
                case _:
                    pass


def _decided(world: World, action: Action, asked: Asked | None) -> Callable[[], World] | None:
    """What a write of the partition's controller makes of the world. Only a request is answered
    with a write that changes neither leader nor live replica set."""
    now = world.now
    match action:
        case WriteStatus(_, PartitionStatus() as status):
            leader = now.leader if status.leader is None else status.leader
            lrs = tuple(Member(m.spu_id, m.storage_id) for m in status.lrs)
            new = now._replace(term=status.term, leader=leader, lrs=lrs)
            if new == now and asked is None:
                return None
            return partial(_write, world, new)
        case EndMove(_, spec, tombstones):
            revision = now.revision + 1
            graves = {Grave(t.spu_id, t.storage_id, revision) for t in tombstones}
            gone = {grave.spu for grave in graves}
            kept = {grave for grave in world.graves if grave.spu not in gone}
            buried = replace(world, graves=frozenset(kept | graves))
            return partial(_end, buried, _respecified(now, spec))
        case _:
            return None


def _end(world: World, new: Revision) -> World:
    """A move ends: all that are wanted and that the SC hears are live."""
    live = {member.spu for member in new.lrs}
    late = [i for i in new.replicas if i not in live and world.nodes[i].session is not None]
    if late:
        raise ViolationError(f"a move ends, and SPUs {late} are not live: {new}")
    return _write(world, new)


def _respecified(now: Revision, spec: PartitionSpec) -> Revision:
    return now._replace(
        replicas=spec.replicas, joining=spec.joining or (), leaving=spec.leaving or ()
    )


def _write(world: World, new: Revision) -> World:
    """The KV has another revision. Of those that are fit, nobody leaves a set that is too small
    without them."""
    now = world.now
    gone = [m for m in now.lrs if m not in new.lrs and _is_fit(world, m)]
    if gone and len(new.lrs) < min(world.min_in_sync, len(now.lrs)):
        raise ViolationError(f"{gone} leave {now}, and {len(new.lrs)} stay")
    return replace(world, kv=(*world.kv, new._replace(revision=now.revision + 1)))


def _is_fit(world: World, member: Member) -> bool:
    hard_state = world.nodes[member.spu].disk.hard_state
    return hard_state.storage == member.storage and hard_state.unfit is None


def _dig(world: World, grave: Grave, left: str | None) -> World:
    """A tombstone goes, or names what an SPU has instead."""
    graves = world.graves - {grave}
    if left is not None:
        graves |= {Grave(grave.spu, left, world.now.revision)}
    node = world.nodes[grave.spu]
    session = None if node.session is None else node.session._replace(deleted=None)
    world = with_node(world, grave.spu, replace(node, session=session, done=None))
    return replace(world, graves=graves)


def _same(world: World) -> World:
    return world


# -- what the SC knows ----------------------------------------------------------------------


def view_of(world: World, asked: Asked | None = None) -> tuple[View, Partition]:
    """The view of an SC that has seen all that is in the KV, and the partition in it."""
    now = world.now
    led = _leads(world)
    partition = _partition(now, world.min_in_sync, led)
    sessions = {}
    for spu, node in enumerate(world.nodes):
        if node.session is not None:
            sessions[spu] = _session(spu, node.session)
    leader = sessions.get(now.leader)
    if leader is not None and asked is not None:
        leader.lrs_requests[UID] = LrsRequest(
            uid=UID,
            term=Term(asked.request.term),
            revision=asked.request.revision,
            lrs=_live(asked.request.lrs),
            reason=asked.request.reason,
        )
    if leader is not None and (now.leader, now.term) in world.elections:
        request = ElectionRequest(uid=UID, term=Term(now.term), reason="it cannot commit")
        leader.elections[UID] = ElectionAsked(request, now.revision)
    view = View(sessions=sessions, registered={f"spu-{i}": i for i in range(len(world.nodes))})
    # Nobody is elected because others preferred it.
    view.preferred_elections.by_partition[UID] = _NOW_MS, 0, Term(0)
    view.store.put(partition)
    for spu in range(len(world.nodes)):
        view.store.put(_spu(spu))
    for grave in world.graves:
        view.store.put_tombstone(_tombstone(grave))
    return view, partition


def _leads(world: World) -> bool:
    """Whether the leader has reported that it leads."""
    session = world.nodes[world.now.leader].session
    told = None if session is None else session.told
    return told is not None and told.leads and election_term(told.term) == world.now.term


@lru_cache(maxsize=10_000)
def _partition(now: Revision, minimum: int, led: bool) -> Partition:
    spec = PartitionSpec(
        owner=_OWNER,
        index=0,
        replicas=now.replicas,
        joining=now.joining or None,
        leaving=now.leaving or None,
        preferred_leader=now.replicas[0],
        log=LogSettings(min_in_sync_replicas=minimum),
    )
    status = PartitionStatus(
        resolution=PartitionResolution.ONLINE if led else PartitionResolution.OFFLINE,
        leader=now.leader,
        term=Term(now.term),
        lrs=_live(now.lrs),
    )
    metadata = Metadata(name=_NAME, uid=UID, generation=1, resource_version=str(now.revision))
    return Partition(metadata=metadata, spec=spec, status=status)


@lru_cache
def _spu(spu: int) -> Spu:
    metadata = Metadata(name=f"spu-{spu}", uid=f"spu-{spu}", generation=1)
    return Spu(metadata=metadata, spec=SpuSpec(spu_id=spu))


def _session(spu: int, heard: Session) -> SessionState:
    state = SessionState(spu, 1, complete=True)
    if heard.told is not None:
        state.reports[UID] = _report(heard.told)
    if heard.deleted is not None:
        state.deleted[UID] = _tombstone(heard.deleted)
    return state


@lru_cache(maxsize=10_000)
def _report(told: Told) -> ReplicaReport:
    role = ReplicaRole.LEADER if told.leads else ReplicaRole.FOLLOWER
    return ReplicaReport(
        uid=UID,
        storage_id=StorageId(told.storage),
        role=role if told.fit else ReplicaRole.STOPPED,
        term=Term(told.term),
        revision=told.revision,
        leo=told.leo,
        last_term=Term(told.last_term),
        fit=told.fit,
        assigned=told.assigned,
    )


def _tombstone(grave: Grave) -> Tombstone:
    storage = None if grave.storage is None else StorageId(grave.storage)
    return Tombstone(uid=UID, spu_id=grave.spu, storage_id=storage)


def _live(members: Members) -> tuple[LiveReplica, ...]:
    return tuple(LiveReplica(spu_id=m.spu, storage_id=m.storage) for m in members)
