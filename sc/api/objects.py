"""Writing objects on behalf of users.

A write checks the object, fills in the server's fields, and is a compare-and-swap on the object's
revision. It returns once the local store shows it, so that a later read sees it. A conflict that
only the controllers caused (they write the status) is retried: users replace specs, not statuses.
A dry run is the same transaction without its operations: it compares, and writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence

from sc.api import conflicts
from sc.api.admission import admit_change, admit_delete, admit_kind, admit_log_dir, admit_new
from sc.api.answers import ReplicaAnswer, Replicas
from sc.api.reads import ObjectReads, absent
from sc.api.requests import WriteOptions
from sc.api.streams import StreamService
from sc.api.system_topics import system_topic
from sc.controller import Controller
from sc.controllers.unclean import decide, with_wish
from sc.dispatch.kv_updater import timestamp, written_at
from sc.kv.interface import (
    Compare,
    Delete,
    DeletePrefix,
    Get,
    GetResponse,
    ModRevisionIs,
    Op,
    Put,
    TxnResult,
)
from sc.store.codec import decode_object, encode_object
from sc.store.view import View
from schemas.causality import current_cause
from schemas.errors import ConflictError, NotFoundError, NotReadyError
from schemas.objects.metadata import Metadata, Object
from schemas.objects.partition import (
    ArchivedRange,
    Partition,
    Truncation,
    UncleanElection,
)
from schemas.objects.quantities import DEFAULT_SCOPE
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuGroup
from schemas.objects.stream import Scope, Stream
from schemas.objects.system_topics import SYSTEM_TOPICS
from schemas.objects.topic import Topic

ATTEMPTS = 10

Change = Callable[[Object], Awaitable[Object]]
"""Makes the object that a user wants of the one that is there."""


class ObjectService:
    """Create, replace, patch and delete, over one controller's KV and mirror."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._kv = controller.kv
        self._keys = controller.keys
        self._streams = StreamService(controller)
        self._reads = ObjectReads(controller.mirror, controller.as_now)

    # -- writing ----------------------------------------------------------------------------

    async def create(self, obj: Object, options: WriteOptions) -> Object:
        """Raises ConflictError when the name (or the id of an SPU) is taken."""
        admit_new(obj, self._controller.view.store)
        admit_log_dir(obj, None, self._controller.view.provisioning)
        return await self._create(obj, options)

    async def system_topic(self, name: str, options: WriteOptions) -> Object:
        """The topic of the system that ``name`` stands for; created if it does not exist.

        Raises NotFoundError, ConflictError while it is being deleted.
        """
        if name not in SYSTEM_TOPICS:
            known = ", ".join(SYSTEM_TOPICS)
            raise NotFoundError(f"there is no system topic {name!r}; known ones: {known}")
        controller = self._controller
        try:
            found = self._reads.get(Topic, SYSTEM_TOPICS[name])
        except NotFoundError:
            wanted = system_topic(SYSTEM_TOPICS[name], controller.view, controller.now_ms())
            try:
                return await self._create(wanted, options)
            except ConflictError:
                # Another client was first.
                found = await self._read(Topic, wanted.name)
                await controller.feed.applied(found.revision)
        if found.deleting:
            raise ConflictError(f"{found.kind} {found.name} is being deleted; try again")
        return found

    async def _create(self, obj: Object, options: WriteOptions) -> Object:
        metadata = type(obj.metadata)(
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
        ops: list[Op] = [self._put(fresh, options)]
        if isinstance(fresh, Spu):
            id_key = self._keys.spu_id(fresh.spec.spu_id)
            compares.append(ModRevisionIs(id_key, 0))
            ops.append(Put(id_key, fresh.name.encode()))
        for _ in range(ATTEMPTS):
            scope_compare, scope_op = await self._scope(fresh, options)
            result = await self._commit([*compares, *scope_compare], [*ops, *scope_op], options)
            if result.succeeded:
                return await self._stored(fresh, result.revision, options)
            if (taken := await self._taken(fresh)) is not None:
                raise taken
        raise await conflicts.changes_too_often(self._kv, self._key(fresh), fresh)

    async def _scope(self, obj: Object, options: WriteOptions) -> tuple[list[Compare], list[Op]]:
        """What creates an object in its scope: it writes the scope anew, so that a deletion of the
        scope that has not seen the object fails. Raises NotFoundError without the scope."""
        if not isinstance(obj, Stream):
            return [], []
        key = self._keys.object(Scope.PLURAL, obj.scope)
        found = await self._kv.get(key)
        if found is not None:
            return [ModRevisionIs(key, found.mod_revision)], [Put(key, found.value)]
        if obj.scope != DEFAULT_SCOPE:
            raise NotFoundError(
                f"scope {obj.scope!r} does not exist; create it: runnel create scope {obj.scope}"
            )
        default = Scope(
            metadata=Metadata(
                name=DEFAULT_SCOPE,
                uid=str(uuid.uuid4()),
                generation=1,
                creation_timestamp=timestamp(),
            )
        )
        return [ModRevisionIs(key, 0)], [self._put(default, options)]

    async def replace(self, obj: Object, options: WriteOptions) -> Object:
        """Replace labels, annotations and spec of an object; its status stays.

        With a ``resourceVersion`` it is a compare-and-swap. Raises NotFoundError, ConflictError.
        """

        async def change(_old: Object) -> Object:
            return obj

        return await self._change(type(obj), obj.name, change, options)

    async def patch(
        self, cls: type[Object], name: str, change: Change, options: WriteOptions
    ) -> Object:
        """Change an object to what ``change`` makes of it, as `replace` does.

        Raises what ``change`` raises, too.
        """
        return await self._change(cls, name, change, options)

    async def delete(
        self,
        cls: type[Object],
        name: str,
        options: WriteOptions,
        *,
        wanted: int | None = None,
        force: bool = False,
    ) -> Object:
        """Begin (a topic) or do (an SPU) the deletion, if it is at revision ``wanted``.

        ``force`` deletes an SPU that holds replicas, or a topic of the system. Raises
        NotFoundError, ConflictError, InvalidRequestError.
        """
        admit_kind(cls)
        if cls in (Spu, SpuGroup):
            # Otherwise replicas could be placed meanwhile on SPUs that go.
            async with self._controller.placing:
                return await self._delete(cls, name, options, wanted=wanted, force=force)
        return await self._delete(cls, name, options, wanted=wanted, force=force)

    def replicas(self, name: str) -> Replicas:
        """What the replicas of a partition last reported. Raises NotFoundError."""
        partition, view = self._reads.get(Partition, name), self._controller.view
        if not isinstance(partition, Partition):
            raise AssertionError(f"{name} is no partition")
        return Replicas(items=tuple(_replica(view, partition, i) for i in partition.spec.holders))

    async def elect(self, name: str, election: UncleanElection, options: WriteOptions) -> Object:
        """Have the controller elect a replica of a partition that may lack committed records.

        The controller decides; obvious reasons to refuse are reported here. Raises NotFoundError,
        ConflictError, NotReadyError while it is not known yet which SPUs return.
        """
        for _ in range(ATTEMPTS):
            old = await self._read(Partition, name)
            await self._controller.feed.applied(old.revision)
            if isinstance(old, Partition):
                self._admit_election(old, election)
                new = with_wish(old, election)
                result = await self._commit(
                    [self._unchanged(old)], [self._put(new, options)], options
                )
                if result.succeeded:
                    return await self._stored(new, result.revision, options)
        raise await conflicts.changes_too_often(self._kv, self._key(old), old)

    def _admit_election(self, partition: Partition, election: UncleanElection) -> None:
        if partition.deleting:
            raise ConflictError(f"Partition {partition.name} is being deleted")
        view, now_ms = self._controller.view, self._controller.now_ms()
        found = decide(view, partition, election, now_ms)
        if isinstance(found, str):
            raise ConflictError(f"no unclean election of {partition.name}: {found}")
        if found is None:
            raise NotReadyError(
                f"it is not known yet whether a live replica of {partition.name} returns; try again"
                " in a moment"
            )

    async def truncate(self, name: str, truncation: Truncation, options: WriteOptions) -> Object:
        """Have the log of a partition begin at an offset: the SC tells its replicas, and an offline
        one when it returns. A truncation cannot be undone; a later one below it changes nothing.

        Raises NotFoundError, ConflictError, also if the topic has an archive which lacks records
        that are to be removed.
        """

        def change(partition: Partition) -> dict[str, int]:
            old = partition.spec
            if (old.truncate_before or 0) >= truncation.before:
                return {}
            archived = old.archived_before
            if archived is not None and archived < truncation.before and not truncation.force:
                since = " since an unclean election" if partition.status.unclean_term else ""
                raise ConflictError(
                    f"records of {name} from offset {archived} on are in no archive yet{since}, and"
                    f" would be lost: archive them first (runnel archive run {old.owner.name}"
                    " --all), or truncate with --force"
                )
            return {"truncate_before": truncation.before}

        return await self._change_partition(name, change, options)

    async def archived(self, name: str, archived: ArchivedRange, options: WriteOptions) -> Object:
        """Note how far a partition is archived: retention removes only what is below.

        Raises NotFoundError; ConflictError if it was noted otherwise meanwhile, or the topic has no
        archive.
        """

        def change(partition: Partition) -> dict[str, int]:
            old = partition.spec
            if old.archived_before is None:
                raise ConflictError(
                    f"topic {old.owner.name} has no archive: apply it with spec.archive"
                )
            if old.archived_before == archived.before:
                return {}
            if old.archived_before != archived.was:
                raise ConflictError(
                    f"{name} was archived up to offset {old.archived_before} by another run"
                    f" meanwhile, and this one began at {archived.was}; nothing is lost, the next"
                    " run goes on from there"
                )
            if partition.status.unclean_term != archived.unclean_term:
                raise ConflictError(
                    f"an unclean election of {name} came since this run compared its log with the"
                    " archive; the next run archives what the log holds now"
                )
            return {"archived_before": archived.before}

        return await self._change_partition(name, change, options)

    async def _change_partition(
        self, name: str, change: Callable[[Partition], dict[str, int]], options: WriteOptions
    ) -> Object:
        """Write the fields of a partition's spec that ``change`` gives; none: leave it as it is."""
        for _ in range(ATTEMPTS):
            old = await self._read(Partition, name)
            if not isinstance(old, Partition):
                raise AssertionError(f"{name} is no partition")
            if old.deleting:
                raise ConflictError(f"Partition {name} is being deleted")
            if not (fields := change(old)):
                return old
            new = old.model_copy(update={"spec": old.spec.model_copy(update=fields)})
            new = new.with_metadata(generation=old.generation + 1)
            result = await self._commit([self._unchanged(old)], [self._put(new, options)], options)
            if result.succeeded:
                return await self._stored(new, result.revision, options)
        raise await conflicts.changes_too_often(self._kv, self._key(old), old)

    async def _delete(
        self,
        cls: type[Object],
        name: str,
        options: WriteOptions,
        *,
        wanted: int | None,
        force: bool,
    ) -> Object:
        old = await self._read(cls, name)
        for _ in range(ATTEMPTS):
            if wanted is not None and wanted != old.revision:
                raise await conflicts.changed_meanwhile(self._kv, self._key(old), old, str(wanted))
            await self._controller.feed.applied(old.revision)
            admit_delete(old, self._controller.view.store, force=force)
            if old.deleting:
                return old
            if isinstance(old, Spu) and not force and not options.dry_run:
                # A placement on it without an answer may still be under way. Either the mirror
                # shows it after this, or it fails.
                rewritten = await self._commit(
                    [*self._controller.leadership.guards, self._unchanged(old)],
                    [self._put(old, options)],
                    options,
                )
                if not rewritten.succeeded:
                    old = await self._read(cls, name)
                    continue
                old = old.with_metadata(resource_version=str(rewritten.revision))
                await self._controller.feed.applied(old.revision)
                admit_delete(old, self._controller.view.store)
                wanted = wanted and old.revision
            if isinstance(old, Stream):
                marked = old.with_metadata(deletion_timestamp=timestamp())
                revision = await self._streams.delete(
                    old,
                    self._put(marked, options),
                    self._unchanged(old),
                    dry_run=options.dry_run,
                )
                if revision is not None:
                    return await self._stored(marked, revision, options)
                old = await self._read(cls, name)
                continue
            gone, ops = self._deletion(old, options)
            compares: list[Compare] = [self._unchanged(old)]
            if isinstance(old, Spu):
                # A later SC may have placed replicas on it that this one does not know.
                compares.extend(self._controller.leadership.guards)
            result = await self._commit(compares, ops, options)
            if result.succeeded:
                return await self._stored(gone, result.revision, options)
            old = await self._read(cls, name)
        raise await conflicts.changes_too_often(self._kv, self._key(old), old)

    async def _change(
        self,
        cls: type[Object],
        name: str,
        change: Change,
        options: WriteOptions,
    ) -> Object:
        admit_kind(cls)
        old = await self._read(cls, name)
        for _ in range(ATTEMPTS):
            obj = await change(old)
            wanted = obj.metadata.resource_version or None
            if wanted is not None and wanted != old.metadata.resource_version:
                raise await conflicts.changed_meanwhile(self._kv, self._key(old), old, wanted)
            if old.deleting:
                raise await conflicts.being_deleted(self._kv, self._key(old), old)
            # What decides must be at least as new as the object that the write compares.
            await self._controller.feed.applied(old.revision)
            admit_change(old, obj, self._controller.view.store)
            admit_log_dir(obj, old, self._controller.view.provisioning)
            new = old.model_copy(update={"spec": obj.spec}).with_metadata(
                labels=obj.metadata.labels,
                annotations=obj.metadata.annotations,
                generation=old.generation + (obj.spec != old.spec),
            )
            if new == old:
                return old
            result = await self._commit([self._unchanged(old)], [self._put(new, options)], options)
            if result.succeeded:
                return await self._stored(new, result.revision, options)
            old = await self._read(cls, name)
        raise await conflicts.changes_too_often(self._kv, self._key(old), old)

    def _deletion(self, old: Object, options: WriteOptions) -> tuple[Object, list[Op]]:
        """Topics and groups are marked: their partitions or SPUs are removed first. Other objects
        are removed at once."""
        if isinstance(old, Topic | SpuGroup):
            marked = old.with_metadata(deletion_timestamp=timestamp())
            return marked, [self._put(marked, options)]
        ops: list[Op] = [Delete(self._key(old))]
        if isinstance(old, Spu):
            ops.append(Delete(self._keys.spu_id(old.spec.spu_id)))
            ops.append(Delete(self._keys.spu_secret(old.spec.spu_id)))
            ops.append(DeletePrefix(self._keys.tombstones_of(old.spec.spu_id)))
        return old, ops

    async def _commit(
        self, compares: Sequence[Compare], ops: Sequence[Op], options: WriteOptions
    ) -> TxnResult:
        """Write. Raises ConflictError if the cluster was moved to another store."""
        moved = self._keys.moved
        done = () if options.dry_run else ops
        here = [ModRevisionIs(moved, 0), ModRevisionIs(self._keys.arriving, 0)]
        result = await self._kv.txn([*here, *compares], done, [Get(moved)])
        if not result.succeeded:
            (found,) = result.responses
            if isinstance(found, GetResponse) and found.kv is not None:
                raise ConflictError("the cluster was moved to another store; this SC is stopping")
        return result

    async def _read(self, cls: type[Object], name: str) -> Object:
        """The object as the KV has it now, not as the mirror had it a moment ago."""
        found = await self._kv.get(self._keys.object(cls.PLURAL, name))
        if found is None:
            raise absent(cls, name)
        return decode_object(cls.PLURAL, found.value, found.mod_revision)[0]

    async def _stored(self, obj: Object, revision: int, options: WriteOptions) -> Object:
        if options.dry_run:
            return obj
        await self._controller.feed.applied(revision)
        return obj.with_metadata(resource_version=str(revision))

    async def _taken(self, obj: Object) -> ConflictError | None:
        """Why a name or an id is taken, or None if it is free by now."""
        if isinstance(obj, Spu):
            holder = await self._kv.get(self._keys.spu_id(obj.spec.spu_id))
            if holder is not None and (name := holder.value.decode()) != obj.name:
                message = f"spuId {obj.spec.spu_id} belongs to SPU {name}"
                key = self._keys.object(Spu.PLURAL, name)
                return await conflicts.exists(self._kv, key, message) or ConflictError(message)
        return await conflicts.exists(self._kv, self._key(obj), f"{obj.kind} {obj.name} exists")

    def _key(self, obj: Object) -> str:
        return self._keys.object(obj.PLURAL, obj.name)

    def _unchanged(self, obj: Object) -> Compare:
        return ModRevisionIs(self._key(obj), obj.revision)

    def _put(self, obj: Object, options: WriteOptions) -> Put:
        value = encode_object(obj, current_cause(), by=options.by, at=written_at())
        return Put(self._key(obj), value)


def _replica(view: View, partition: Partition, spu_id: int) -> ReplicaAnswer:
    report = view.report(spu_id, partition.uid)
    storages = {member.spu_id: member.storage_id for member in partition.status.lrs}
    live = spu_id in storages and (report is None or report.storage_id == storages[spu_id])
    return ReplicaAnswer(
        spu=spu_id,
        live=live,
        role=report.role.value if report else None,
        fit=report.fit if report else None,
        log_start=report.log_start if report else None,
        next_offset=report.leo if report else None,
        reason=report.reason if report else None,
    )
