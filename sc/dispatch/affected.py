"""Which keys a change concerns: pure, and no wider than needed."""

from __future__ import annotations

from collections.abc import Iterator

from sc.controllers.actions import Key
from sc.controllers.membership import segments
from sc.controllers.membership.rebalance import LEADERS_WAIT
from sc.controllers.spu_group import is_draining, leaving
from sc.store.local_store import BellRang, Change, LocalStore, ObjectChanged, TombstoneChanged
from schemas.objects.partition import (
    DesiredState,
    Partition,
    has_lost_leader,
    is_led,
    is_taking_over,
    is_writable,
)
from schemas.objects.rebalance import Rebalance, RebalanceResolution
from schemas.objects.spu import Spu
from schemas.objects.spu_group import CHANGED, SpuGroup, SpuGroupResolution
from schemas.objects.stream import Stream, StreamState
from schemas.objects.topic import Topic, TopicResolution

#: Topics whose placement, or the reason why there is none, depends on the SPUs there are.
_WAITING = (
    TopicResolution.PENDING,
    TopicResolution.INSUFFICIENT_RESOURCES,
    TopicResolution.INVALID_CONFIG,
)

#: States of streams in which segments are created.
_GROWING = (StreamState.CREATING, StreamState.SCALING)


def affected_keys(change: Change, store: LocalStore) -> Iterator[Key]:
    """Keys whose reconcile may give another answer after this change of the mirror."""
    match change:
        case TombstoneChanged(tombstone, _):
            spu = store.spu(tombstone.spu_id)
            if spu is not None:
                yield Key("Spu", spu.name)
                if spu.spec.group is not None:
                    # It may wait for this to end the SPU.
                    yield Key("SpuGroup", spu.spec.group)
            yield from _movers(store)
        case BellRang(uid):
            if (name := store.stream_by_uid(uid)) is not None:
                yield Key("Stream", name)
        case ObjectChanged():
            subject = change.object
            yield Key(subject.kind, subject.name)
            match subject:
                case Spu():
                    yield from _after_spu(change, subject, store)
                case SpuGroup():
                    yield from _after_group(subject, store)
                case Rebalance():
                    yield from _rebalances(store, RebalanceResolution.PENDING)
                case Stream():
                    yield from _other_replicas(change)
                case Topic() if change.new is None:
                    for partition in store.partitions_of("Topic", subject.name):
                        yield Key("Partition", partition.name)
                case Partition():
                    if _concerns_owner(change, subject.spec.owner.kind):
                        yield Key(subject.spec.owner.kind, subject.spec.owner.name)
                    yield from _moving_segment(change, store)
                    yield from _those_that_empty(change, store)
                    yield from _after_move(change, store)
                    yield from _when_others_are_live(change, store)
                case _:
                    pass


def keys_of(kind: str, name: str) -> Iterator[Key]:
    """All keys that are reconciled for an object."""
    yield Key(kind, name)
    if kind == Stream.kind_name():
        yield Key(segments.KIND, name)


def keys_of_session(spu_id: int, store: LocalStore) -> Iterator[Key]:
    """Keys to look at when an SPU's session opens, ends, or has confirmed the complete list."""
    spu = store.spu(spu_id)
    if spu is not None:
        yield Key("Spu", spu.name)
        if spu.spec.group is not None and leaving(store, spu):
            # It waits for deletions only of an SPU that is there.
            yield Key("SpuGroup", spu.spec.group)
    yield from keys_that_wait_for_restarts(store)
    yield from _waiting(store)
    yield from _movers(store)
    for partition in store.partitions_on(spu_id):
        yield Key("Partition", partition.name)


def keys_that_wait_for_all(store: LocalStore, incarnation: int) -> Iterator[Key]:
    """Partitions that a recovery has not elected anew: they wait for whoever may hold them."""
    for partition in store.objects(Partition):
        if partition.status.incarnation < incarnation:
            yield Key("Partition", partition.name)


def keys_that_wait_for_restarts(store: LocalStore) -> Iterator[Key]:
    """Groups that wait until an SPU, also of another group, is back with its replicas."""
    for group in store.objects(SpuGroup):
        if CHANGED in (group.status.reason or ""):
            yield Key("SpuGroup", group.name)


def keys_that_wait_for_room(store: LocalStore) -> Iterator[Key]:
    """Keys to look at when an SPU has more room than before."""
    for name in store.topics_in(TopicResolution.INSUFFICIENT_RESOURCES):
        yield Key("Topic", name)
    yield from _movers(store)


def _movers(store: LocalStore) -> Iterator[Key]:
    """Who may have replicas that wait until they may move."""
    for spu in store.objects(Spu):
        if store.held_count(spu.spec.spu_id) and is_draining(store, spu):
            yield Key("Spu", spu.name)
    for name in store.topics_moving():
        yield Key("Topic", name)
    for name in store.streams_moving():
        yield Key(segments.KIND, name)
    # One that is pending may wait for an SPU to come back.
    yield from _rebalances(store, RebalanceResolution.PENDING, RebalanceResolution.MOVING)


def _moving_rebalances(store: LocalStore) -> Iterator[Key]:
    """Those that may go on when a partition has changed."""
    for rebalance in store.objects(Rebalance):
        status = rebalance.status
        if status.resolution is RebalanceResolution.MOVING and status.reason != LEADERS_WAIT:
            yield Key("Rebalance", rebalance.name)


def _rebalances(store: LocalStore, *resolutions: RebalanceResolution) -> Iterator[Key]:
    for rebalance in store.objects(Rebalance):
        if rebalance.status.resolution in resolutions:
            yield Key("Rebalance", rebalance.name)


def _waiting(store: LocalStore) -> Iterator[Key]:
    """Owners whose partitions may wait for SPUs."""
    for name in store.topics_in(*_WAITING):
        yield Key("Topic", name)
    for name in store.streams_in(*_GROWING):
        yield Key("Stream", name)


def _other_replicas(change: ObjectChanged) -> Iterator[Key]:
    """The stream whose replicas have to move, if this change is why."""
    old, new = change.old, change.new
    if not isinstance(new, Stream):
        return
    wants = isinstance(old, Stream) and old.spec.replication_factor != new.spec.replication_factor
    told = isinstance(old, Stream) and old.status.moves is None and new.status.moves is not None
    if wants or told:
        yield Key(segments.KIND, new.name)


def _concerns_owner(change: ObjectChanged, owner_kind: str) -> bool:
    """Whether the owner of a partition depends on this change. Of statuses, a topic depends only on
    whether partitions commit and, while they move, on newcomers that join; a stream depends on
    whether they are writable, sealed and truncated: each change makes it look at all of them. Both
    depend on whether partitions have lost their leader; an election that ends well is no such
    change."""
    old, new = change.old, change.new
    if not isinstance(old, Partition) or not isinstance(new, Partition):
        return True
    if has_lost_leader(old.status) != has_lost_leader(new.status):
        return True
    if owner_kind == "Topic" and (
        old.status.writable != new.status.writable or _has_more_to_rely_on(old, new)
    ):
        return True
    if owner_kind == "Stream" and (
        _sealing(old) != _sealing(new)
        or _truncating(old) != _truncating(new)
        or is_writable(old) != is_writable(new)
    ):
        return True
    return old.uid != new.uid or old.deleting != new.deleting or old.spec != new.spec


def _has_more_to_rely_on(old: Partition, new: Partition) -> bool:
    """Whether newcomers have joined a partition that moves: a higher minimum waits for them."""
    return new.spec.moves and len(new.status.lrs) > len(old.status.lrs)


def _sealing(partition: Partition) -> tuple[int | None, str | None] | None:
    """How far the seal of a segment has come, and what its stream says while it waits for that."""
    if partition.spec.desired is DesiredState.OPEN:
        return None
    offset = partition.status.sealed_offset
    return offset, partition.status.reason if offset is None else None


def _truncating(partition: Partition) -> tuple[int, str | None] | None:
    """How far the truncation of a segment has come, and what its stream says while it waits."""
    wanted = partition.spec.truncate_before
    if wanted is None:
        return None
    offset = partition.status.start_offset
    return offset, partition.status.reason if offset < wanted else None


def _moving_segment(change: ObjectChanged, store: LocalStore) -> Iterator[Key]:
    """The stream of a segment, if it has to tell that replicas move, or may raise the minimum of
    one that moves."""
    old, new = change.old, change.new
    if not isinstance(old, Partition) or not isinstance(new, Partition):
        return
    owner = new.spec.owner
    told = store.is_moving(owner)
    if owner.kind == "Stream" and new.spec.moves and (not told or _has_more_to_rely_on(old, new)):
        yield Key(segments.KIND, owner.name)


def _after_move(change: ObjectChanged, store: LocalStore) -> Iterator[Key]:
    """Who may go on when a partition has ended its move, has a leader again, gets none for now,
    or is deleted."""
    old, new = change.old, change.new
    if not isinstance(old, Partition):
        return
    if isinstance(new, Partition) and new.spec.moves:
        # Those that are live no more hold up a move, which a drain may change then.
        gone = {m.spu_id for m in old.status.lrs} - {m.spu_id for m in new.status.lrs}
        for spu_id in sorted(gone):
            if (spu := store.spu(spu_id)) is not None and is_draining(store, spu):
                yield Key("Spu", spu.name)
    if old.spec.moves and not (isinstance(new, Partition) and new.spec.moves):
        yield from _movers(store)
    elif isinstance(new, Partition) and (
        is_led(old.status) != is_led(new.status)
        or has_lost_leader(old.status) != has_lost_leader(new.status)
    ):
        yield from _moving_rebalances(store)
        yield from _draining_holders(new, store)
        if store.is_moving(owner := new.spec.owner):
            yield Key("Topic" if owner.kind == "Topic" else segments.KIND, owner.name)
    elif not isinstance(new, Partition) or new.deleting != old.deleting:
        # It is not waited for any more. A topic that goes may have thousands: only those wake a
        # rebalance that it waits for.
        if is_taking_over(old.status):
            yield from _moving_rebalances(store)
        if isinstance(new, Partition):
            # It is in the way of no drain any more; `_those_that_empty` sees it go.
            yield from _draining_holders(new, store)
        if old.spec.owner.kind == "Stream" and store.is_moving(old.spec.owner):
            yield Key(segments.KIND, old.spec.owner.name)


def _draining_holders(partition: Partition, store: LocalStore) -> Iterator[Key]:
    for spu_id in partition.spec.holders:
        if (spu := store.spu(spu_id)) is not None and is_draining(store, spu):
            yield Key("Spu", spu.name)


def _those_that_empty(change: ObjectChanged, store: LocalStore) -> Iterator[Key]:
    """SPUs that are to have no replicas, and their groups, if this change gives or takes one."""
    before, after = (
        set(side.spec.holders) if isinstance(side, Partition) else set()
        for side in (change.old, change.new)
    )
    spus = [spu for i in sorted(before ^ after) if (spu := store.spu(i)) is not None]
    for spu in spus:
        if is_draining(store, spu):
            yield Key("Spu", spu.name)
    groups = {spu.spec.group for spu in spus if leaving(store, spu)}
    for name in sorted(group for group in groups if group is not None):
        yield Key("SpuGroup", name)


def _waits(store: LocalStore, group: str) -> bool:
    """Whether a group may be waiting: it says for what."""
    found = store.get(SpuGroup, group)
    return found is not None and found.status.reason is not None


def _when_others_are_live(change: ObjectChanged, store: LocalStore) -> Iterator[Key]:
    """Groups that may wait until the replicas of this partition are live, to restart an SPU."""
    old, new = change.old, change.new
    if not isinstance(old, Partition):
        return
    if isinstance(new, Partition) and ((new.status.lrs, new.spec) == (old.status.lrs, old.spec)):
        return
    spus = (store.spu(spu_id) for spu_id in old.spec.holders)
    groups = {spu.spec.group for spu in spus if spu is not None and spu.spec.group is not None}
    for name in sorted(groups):
        if _waits(store, name):
            yield Key("SpuGroup", name)


def _after_group(group: SpuGroup, store: LocalStore) -> Iterator[Key]:
    """Its SPUs, and other groups that may have waited for its ids."""
    for spu in store.spus_of(group.name):
        yield Key("Spu", spu.name)
    yield from _movers(store)
    yield from _invalid_groups(store, group.name)


def _invalid_groups(store: LocalStore, besides: str | None) -> Iterator[Key]:
    for group in store.objects(SpuGroup):
        if group.status.resolution is SpuGroupResolution.INVALID and group.name != besides:
            yield Key("SpuGroup", group.name)


def _after_spu(change: ObjectChanged, spu: Spu, store: LocalStore) -> Iterator[Key]:
    old, new = change.old, change.new
    if spu.spec.group is not None:
        yield Key("SpuGroup", spu.spec.group)
    if old is None or new is None:
        # What keeps a group from its ids, or the first of several that do.
        yield from _invalid_groups(store, spu.spec.group)
    if not (isinstance(old, Spu) and isinstance(new, Spu) and old.spec == new.spec):
        # One that others wait for may run by its spec now, or be gone, or drain.
        yield from keys_that_wait_for_restarts(store)
    draining = [isinstance(side, Spu) and side.spec.drain for side in (old, new)]
    if draining[0] != draining[1]:
        yield from _movers(store)
    before = old.status.resolution if isinstance(old, Spu) else None
    after = new.status.resolution if isinstance(new, Spu) else None
    if before == after:
        return
    yield from _waiting(store)
    yield from _movers(store)
    for partition in store.partitions_on(spu.spec.spu_id):
        yield Key("Partition", partition.name)
