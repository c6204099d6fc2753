"""The KV updater: carries out the actions that change objects.

Every write compares the revision of the object that it was computed from, and the writer's right
to write (`sc.dispatch.fences`). A lost compare-and-swap is a ConflictError: the key is reconciled
again from the store.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_never

from sc.controllers.actions import (
    BeginMove,
    CreatePartitions,
    CreateSpu,
    EndMove,
    KvAction,
    LeaveTombstones,
    MarkDeleting,
    RemoveObject,
    RemovePartition,
    RemoveSpu,
    RemoveTombstone,
    ReplaceTombstone,
    RestoreTopic,
    RewriteSpu,
    Step,
    TellMoves,
    WritePartitionSpec,
    WriteSpuSpec,
    WriteStatus,
)
from sc.dispatch.fences import Fence
from sc.kv.interface import (
    KV,
    Compare,
    Delete,
    DeletePrefix,
    DeleteResponse,
    GetResponse,
    ModRevisionIs,
    Op,
    Put,
)
from sc.store.codec import CONTROLLERS, encode_object, encode_tombstone
from schemas.causality import current_cause
from schemas.control.messages import Tombstone
from schemas.errors import ConflictError
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, PartitionSpec


def timestamp() -> str:
    """Now, as objects carry times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def written_at() -> str:
    """Now, as writes are marked: ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class KvUpdater:
    """Turns actions into guarded transactions."""

    def __init__(self, kv: KV, keys: ClusterKeys, fence: Fence) -> None:
        self._kv = kv
        self._keys = keys
        self._fence = fence

    async def carry_out(self, action: KvAction) -> int:
        """Carry it out, and give the KV revision at which it is done; 0 if there was nothing to do.

        Raises ConflictError when the object changed meanwhile or another SC works for it,
        FencedError when another SC has taken over.
        """
        compares, ops = self._transaction(action)
        fence = self._fence
        guards = fence.compares(action)
        result = await self._kv.txn([*guards, *compares], ops, fence.reads())
        if not result.succeeded:
            found = [r.kv for r in result.responses if isinstance(r, GetResponse)]
            if (failure := fence.failure(found)) is not None:
                raise failure
            raise ConflictError(
                f"{type(action).__name__}: the object changed meanwhile", revision=result.revision
            )
        if all(isinstance(r, DeleteResponse) and not r.deleted for r in result.responses):
            # The revision belongs to another write, perhaps of another cluster: no mirror shows it.
            return 0
        return result.revision

    def _transaction(self, action: KvAction) -> tuple[list[Compare], list[Op]]:
        match action:
            case WriteStatus(obj, status):
                return [self._unchanged(obj)], [self._put(obj.with_status(status))]
            case TellMoves(stream, moves):
                status = stream.status.model_copy(update={"moves": moves})
                return [self._unchanged(stream)], [self._put(stream.with_status(status))]
            case WritePartitionSpec(partition, spec):
                return [self._unchanged(partition)], [self._respec(partition, spec)]
            case BeginMove(partition, spec, spus):
                compares = [self._unchanged(obj) for obj in (partition, *spus)]
                compares.extend(
                    ModRevisionIs(self._keys.tombstone(s.spec.spu_id, partition.uid), 0)
                    for s in spus
                )
                return compares, [self._respec(partition, spec)]
            case EndMove(partition, spec, tombstones):
                ops = [self._respec(partition, spec), *self._graves(tombstones)]
                return [self._unchanged(partition)], ops
            case CreateSpu(spu, group):
                new_spu = spu.with_metadata(creation_timestamp=timestamp(), generation=1)
                id_key = self._keys.spu_id(spu.spec.spu_id)
                return (
                    [self._unchanged(group), self._absent(spu), ModRevisionIs(id_key, 0)],
                    [self._put(new_spu), Put(id_key, spu.name.encode())],
                )
            case WriteSpuSpec(spu, spu_spec):
                changed = spu.model_copy(update={"spec": spu_spec})
                changed = changed.with_metadata(generation=spu.generation + 1)
                return [self._unchanged(spu)], [self._put(changed)]
            case RewriteSpu(spu):
                return [self._unchanged(spu)], [self._put(spu)]
            case RemoveSpu(spu):
                id_key = self._keys.spu_id(spu.spec.spu_id)
                graves = self._keys.tombstones_of(spu.spec.spu_id)
                return (
                    [self._unchanged(spu)],
                    [
                        Delete(self._key(spu)),
                        Delete(id_key),
                        Delete(self._keys.spu_secret(spu.spec.spu_id)),
                        DeletePrefix(graves),
                    ],
                )
            case CreatePartitions(owner, partitions, spus, owner_status):
                created = timestamp()
                new_ones = [
                    p.with_metadata(creation_timestamp=created, generation=1) for p in partitions
                ]
                compares = [self._unchanged(obj) for obj in (owner, *spus)]
                compares.extend(self._absent(p) for p in new_ones)
                puts = [self._put(p) for p in new_ones]
                if owner_status is not None:
                    puts.append(self._put(owner.with_status(owner_status)))
                return compares, puts
            case RestoreTopic(topic, partition):
                restored = topic.with_metadata(creation_timestamp=timestamp())
                return [self._unchanged(partition), self._absent(topic)], [self._put(restored)]
            case MarkDeleting(obj):
                marked = obj.with_metadata(deletion_timestamp=timestamp())
                return [self._unchanged(obj)], [self._put(marked)]
            case LeaveTombstones(partition, tombstones):
                return [self._unchanged(partition)], self._graves(tombstones)
            case RemovePartition(partition, tombstones):
                ops = [*self._graves(tombstones), Delete(self._key(partition))]
                return [self._unchanged(partition)], ops
            case RemoveObject(obj):
                return [self._unchanged(obj)], [Delete(self._key(obj))]
            case RemoveTombstone(tombstone):
                return [], [Delete(self._keys.tombstone(tombstone.spu_id, tombstone.uid))]
            case ReplaceTombstone(partition, tombstone):
                return [self._unchanged(partition)], self._graves((tombstone,))
            case Step():
                return self._step(action)
            case _:
                assert_never(action)

    def _step(self, step: Step) -> tuple[list[Compare], list[Op]]:
        created = timestamp()
        compares: list[Compare] = [
            ModRevisionIs(self._keys.record(path), revision) for path, revision in step.compares
        ]
        compares.extend(self._absent(p) for p in step.create)
        compares.extend(self._unchanged(p) for p, _ in step.respec)
        compares.extend(self._unchanged(obj) for obj in (*step.mark, *step.spus))
        if step.same_owner or step.remove_owner:
            compares.append(self._unchanged(step.owner))
        ops: list[Op] = [Put(self._keys.record(path), value) for path, value in step.puts]
        ops.extend(Delete(self._keys.record(path)) for path in step.deletes)
        ops.extend(
            self._put(p.with_metadata(creation_timestamp=created, generation=1))
            for p in step.create
        )
        ops.extend(self._respec(partition, spec) for partition, spec in step.respec)
        ops.extend(self._put(p.with_metadata(deletion_timestamp=created)) for p in step.mark)
        bell = self._keys.bell(step.owner.uid)
        if step.remove_owner:
            ops.extend((Delete(self._key(step.owner)), Delete(bell)))
        else:
            # Its value says what the change came from, for whoever looks because of it.
            ops.append(Put(bell, current_cause().encode()))
        return compares, ops

    def _respec(self, partition: Partition, spec: PartitionSpec) -> Op:
        new = partition.model_copy(update={"spec": spec})
        return self._put(new.with_metadata(generation=partition.generation + 1))

    def _graves(self, tombstones: tuple[Tombstone, ...]) -> list[Op]:
        return [Put(self._keys.tombstone(t.spu_id, t.uid), encode_tombstone(t)) for t in tombstones]

    def _key(self, obj: Object) -> str:
        return self._keys.object(obj.PLURAL, obj.name)

    def _unchanged(self, obj: Object) -> Compare:
        return ModRevisionIs(self._key(obj), obj.revision)

    def _absent(self, obj: Object) -> Compare:
        return ModRevisionIs(self._key(obj), 0)

    def _put(self, obj: Object) -> Op:
        value = encode_object(obj, current_cause(), by=CONTROLLERS, at=written_at())
        return Put(self._key(obj), value)
