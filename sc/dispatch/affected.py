"""Which keys a change concerns: pure, and no wider than needed."""

from __future__ import annotations

from collections.abc import Iterator

from sc.controllers.actions import Key
from sc.store.local_store import Change, LocalStore, ObjectChanged, TombstoneChanged
from schemas.partition import Partition
from schemas.spu import Spu
from schemas.topic import Topic, TopicResolution

#: Topics whose placement, or the reason why there is none, depends on the SPUs there are.
_WAITING = (
    TopicResolution.PENDING,
    TopicResolution.INSUFFICIENT_RESOURCES,
    TopicResolution.INVALID_CONFIG,
)


def affected_keys(change: Change, store: LocalStore) -> Iterator[Key]:
    """Keys whose reconcile may give another answer after this change of the mirror."""
    match change:
        case TombstoneChanged(tombstone, _):
            spu = store.spu(tombstone.spu_id)
            if spu is not None:
                yield Key("Spu", spu.name)
        case ObjectChanged():
            subject = change.object
            yield Key(subject.kind, subject.name)
            match subject:
                case Spu():
                    yield from _after_spu(change, subject, store)
                case Topic():
                    for partition in store.partitions_of("Topic", subject.name):
                        if change.new is None:
                            yield Key("Partition", partition.name)
                case Partition():
                    yield Key(subject.spec.owner.kind, subject.spec.owner.name)
                case _:
                    pass


def keys_of_session(spu_id: int, store: LocalStore) -> Iterator[Key]:
    """Keys to look at when an SPU's session opens, ends, or is told everything."""
    spu = store.spu(spu_id)
    if spu is not None:
        yield Key("Spu", spu.name)
    for name in store.topics_in(*_WAITING):
        yield Key("Topic", name)
    for partition in store.partitions_on(spu_id):
        yield Key("Partition", partition.name)


def _after_spu(change: ObjectChanged, spu: Spu, store: LocalStore) -> Iterator[Key]:
    old, new = change.old, change.new
    before = old.status.resolution if isinstance(old, Spu) else None
    after = new.status.resolution if isinstance(new, Spu) else None
    if before == after:
        return
    for name in store.topics_in(*_WAITING):
        yield Key("Topic", name)
    for partition in store.partitions_on(spu.spec.spu_id):
        yield Key("Partition", partition.name)
