"""Reading and writing objects on behalf of users.

A write checks, sets what the server sets, and is a compare-and-swap on the object's revision; it
returns once the local store shows it, so that a read after a write sees it. A conflict that only
the controllers caused (they write the status) is retried: users replace specs, not statuses.
"""

from __future__ import annotations

import uuid

from sc.api.admission import admit_change, admit_delete, admit_new
from sc.controller import Controller
from sc.dispatch.kv_updater import timestamp
from sc.kv.interface import Compare, Delete, ModRevisionIs, Op, Put
from sc.store.codec import decode_object, encode_object
from schemas.causality import current_cause
from schemas.errors import ConflictError, NotFoundError
from schemas.metadata import Metadata, Object
from schemas.spu import Spu
from schemas.topic import Topic

ATTEMPTS = 10


class ObjectService:
    """Create, replace and delete, over one controller's KV and mirror."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._kv = controller.kv
        self._keys = controller.keys

    def get(self, cls: type[Object], name: str) -> Object:
        """Raises NotFoundError."""
        found = self._controller.view.store.get(cls, name)
        if found is None:
            raise NotFoundError(f"{cls.kind_name()} {name!r} does not exist")
        return found

    def select(self, cls: type[Object], labels: dict[str, str]) -> list[Object]:
        """Objects that carry all these labels, in the order of their names."""
        return [
            obj
            for obj in self._controller.view.store.objects(cls)
            if labels.items() <= obj.metadata.labels.items()
        ]

    async def create(self, obj: Object) -> Object:
        """Raises ConflictError when the name (or the id of an SPU) is taken."""
        admit_new(obj)
        metadata = Metadata(
            name=obj.name,
            labels=obj.metadata.labels,
            annotations=obj.metadata.annotations,
            uid=str(uuid.uuid4()),
            generation=1,
            creation_timestamp=timestamp(),
        )
        fresh = obj.model_copy(
            update={"metadata": metadata, "status": type(obj).model_fields["status"].default}
        )
        compares: list[Compare] = [ModRevisionIs(self._key(fresh), 0)]
        ops = [self._put(fresh)]
        if isinstance(fresh, Spu):
            id_key = self._keys.spu_id(fresh.spec.spu_id)
            compares.append(ModRevisionIs(id_key, 0))
            ops.append(Put(id_key, fresh.name.encode()))
        result = await self._kv.txn(compares, ops)
        if not result.succeeded:
            raise ConflictError(await self._taken(fresh))
        return await self._stored(fresh, result.revision)

    async def replace(self, obj: Object) -> Object:
        """Replace labels, annotations and spec of an object; its status stays.

        With a ``resourceVersion`` it is a compare-and-swap. Raises NotFoundError, ConflictError.
        """
        wanted = obj.metadata.resource_version
        for _ in range(ATTEMPTS):
            old = await self._read(type(obj), obj.name)
            if wanted is not None and wanted != old.metadata.resource_version:
                raise ConflictError(
                    f"{obj.kind} {obj.name} was changed meanwhile: it is at resourceVersion"
                    f" {old.metadata.resource_version}, not {wanted}; read it again"
                )
            admit_change(old, obj, self._controller.view.store)
            generation = old.generation + (obj.spec != old.spec)
            new = old.model_copy(update={"spec": obj.spec}).with_metadata(
                labels=obj.metadata.labels,
                annotations=obj.metadata.annotations,
                generation=generation,
            )
            if new == old:
                return old
            result = await self._kv.txn([self._unchanged(old)], [self._put(new)])
            if result.succeeded:
                return await self._stored(new, result.revision)
        raise ConflictError(f"{obj.kind} {obj.name} changes too often; try again")

    async def delete(self, cls: type[Object], name: str) -> Object:
        """Begin (a topic) or do (an SPU) the deletion. Raises NotFoundError, ConflictError."""
        for _ in range(ATTEMPTS):
            old = await self._read(cls, name)
            admit_delete(old, self._controller.view.store)
            if old.deleting:
                return old
            gone, ops = self._deletion(old)
            result = await self._kv.txn([self._unchanged(old)], ops)
            if result.succeeded:
                return await self._stored(gone, result.revision)
        raise ConflictError(f"{cls.kind_name()} {name} changes too often; try again")

    def _deletion(self, old: Object) -> tuple[Object, list[Op]]:
        """A topic is marked, because its partitions go first; anything else goes at once."""
        if isinstance(old, Topic):
            marked = old.with_metadata(deletion_timestamp=timestamp())
            return marked, [self._put(marked)]
        ops: list[Op] = [Delete(self._key(old))]
        if isinstance(old, Spu):
            ops.append(Delete(self._keys.spu_id(old.spec.spu_id)))
        return old, ops

    async def _read(self, cls: type[Object], name: str) -> Object:
        """The object as the KV has it now, not as the mirror had it a moment ago."""
        found = await self._kv.get(self._keys.object(cls.PLURAL, name))
        if found is None:
            raise NotFoundError(f"{cls.kind_name()} {name!r} does not exist")
        return decode_object(cls.PLURAL, found.value, found.mod_revision)[0]

    async def _stored(self, obj: Object, revision: int) -> Object:
        await self._controller.dispatcher.applied(revision)
        return obj.with_metadata(resource_version=str(revision))

    async def _taken(self, obj: Object) -> str:
        if isinstance(obj, Spu):
            holder = await self._kv.get(self._keys.spu_id(obj.spec.spu_id))
            if holder is not None and holder.value.decode() != obj.name:
                return f"spuId {obj.spec.spu_id} belongs to SPU {holder.value.decode()}"
        return f"{obj.kind} {obj.name} exists"

    def _key(self, obj: Object) -> str:
        return self._keys.object(obj.PLURAL, obj.name)

    def _unchanged(self, obj: Object) -> Compare:
        return ModRevisionIs(self._key(obj), obj.revision)

    def _put(self, obj: Object) -> Put:
        return Put(self._key(obj), encode_object(obj, current_cause()))
