"""Objects of the cluster: apply, create, get, list, watch, patch, delete, wait, history."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from runnel.admin.answers import (
    ApplyResult,
    DivergentSpu,
    History,
    ReplicaState,
    parse_divergent,
    parse_history_entry,
    parse_replica,
)
from runnel.admin.calls import object_path, parse_answer, understood
from runnel.admin.http import MERGE_PATCH, ScClient
from runnel.admin.manifests import parse_object
from runnel.admin.reads import ObjectReads, Selector, selection
from runnel.admin.states import find_resolution
from runnel.admin.streams import StreamAdmin, stream_name
from runnel.admin.wait import wait_for
from runnel.admin.watch import Watch
from schemas.errors import (
    CompactedError,
    ConflictError,
    DeadlineExceededError,
    NotFoundError,
    NotReadyError,
    RunnelError,
)
from schemas.objects.kinds import find_kind, full_name
from schemas.objects.metadata import Object
from schemas.objects.partition import UNCLEAN_ELECTION, Partition

_APPLY_ATTEMPTS: Final = 5
_DRY: Final = {"dryRun": "true"}
_random = secrets.SystemRandom().random


def _nothing(_name: str) -> None:
    pass


class Admin(ObjectReads):
    """Calls of the object API. Kinds are named in any spelling that `runnel get` takes.

    ``written`` is called with the name of an object before it is written.
    """

    def __init__(self, sc: ScClient, written: Callable[[str], None] = _nothing) -> None:
        super().__init__(sc)
        self._sc = sc
        self._written = written

    @property
    def by(self) -> str:
        """The name under which the history of objects lists changes by this client."""
        return self._sc.by

    async def apply(
        self, wanted: Object | Mapping[str, Any], *, dry_run: bool = False
    ) -> ApplyResult:
        """Create the object, or replace labels, annotations and spec of the one that exists.

        With a ``resourceVersion`` only that version is replaced. ``dry_run``: the SC checks
        everything and writes nothing. Raises ManifestError; ConflictError if others changed the
        object or it is being deleted.
        """
        obj = wanted if isinstance(wanted, Object) else parse_object(wanted)
        for _ in range(_APPLY_ATTEMPTS):
            current = await self._find(obj)
            if current is None:
                try:
                    created = await self.create(obj, dry_run=dry_run)
                    return ApplyResult("created", created, dry_run)
                except ConflictError:
                    # Either another client created it meanwhile, or something else is taken, such
                    # as the id of an SPU.
                    if await self._find(obj) is None:
                        raise
                    continue
            if current.deleting:
                raise ConflictError(
                    f"{obj.kind} {obj.name} is being deleted; wait for it with:"
                    f" runnel wait {obj.kind.lower()} {obj.name} --for deleted"
                )
            if _same(current, obj):
                return ApplyResult("unchanged", current, dry_run)
            version = obj.metadata.resource_version or current.metadata.resource_version
            body = _writable(obj.with_metadata(resource_version=version))
            try:
                answer = await self._write("PUT", type(obj), obj.name, body, dry_run=dry_run)
            except ConflictError:
                if obj.metadata.resource_version is not None:
                    raise
                continue
            return ApplyResult("configured", answer, dry_run)
        raise ConflictError(
            f"{obj.kind} {obj.name} is being changed by others all the time; try again"
        )

    async def create(self, wanted: Object | Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Create an object. Raises ConflictError if it exists, ManifestError."""
        obj = wanted if isinstance(wanted, Object) else parse_object(wanted)
        self._written(obj.name)
        answer = await self._sc.call(
            "POST",
            f"/v1/{obj.PLURAL}",
            body=_writable(obj),
            query=_DRY if dry_run else None,
            repeatable=dry_run,
        )
        return parse_answer(type(obj), answer)

    async def patch(
        self, kind: str, name: str, patch: Mapping[str, Any], *, dry_run: bool = False
    ) -> Object:
        """Change some fields of labels, annotations and spec, as JSON merge patch (RFC 7386).

        Fields are named as in manifests; None removes one. A ``resourceVersion`` in
        ``metadata`` makes it a compare-and-swap. Raises NotFoundError, ConflictError,
        InvalidRequestError.
        """
        return await self._write(
            "PATCH", find_kind(kind), name, dict(patch), dry_run=dry_run, content_type=MERGE_PATCH
        )

    def watch(
        self,
        kind: str,
        name: str | None = None,
        selector: Selector | None = None,
        *,
        since: int | None = None,
        show_system: bool = False,
        on_trouble: Callable[[RunnelError], None] | None = None,
    ) -> Watch:
        """Follow the objects of a kind, or one of them: see `runnel.admin.watch.Watch`.

        ``since`` is a revision: begin after it, instead of with all existing objects. Objects of
        the system are left out, unless ``name`` is one, or with ``show_system``.
        """
        query = selection(selector)
        if name is not None:
            query["fieldSelector"] = f"metadata.name={full_name(find_kind(kind), name)}"
        return Watch(
            self._sc,
            find_kind(kind),
            query,
            _random,
            since=since,
            show_system=show_system or name is not None,
            on_trouble=on_trouble,
        )

    async def delete(
        self, kind: str, name: str, *, force: bool = False, dry_run: bool = False
    ) -> Object:
        """Begin to delete an object; `wait` for ``deleted``. Raises NotFoundError, ConflictError.

        ``force`` deletes even an SPU that still holds replicas, or a system topic; what they hold
        is lost.
        """
        query = {**({"force": "true"} if force else {}), **(_DRY if dry_run else {})}
        cls = find_kind(kind)
        self._written(name)
        answer = await self._sc.call(
            "DELETE", object_path(cls, name), query=query or None, repeatable=dry_run
        )
        return parse_answer(cls, answer)

    def stream(self, name: str) -> StreamAdmin:
        """One stream, by SCOPE/NAME, or NAME for one in the scope ``default``; asks nobody yet.
        Raises InvalidRequestError for what is no name."""
        return StreamAdmin(self._sc, stream_name(name))

    async def history(self, kind: str, name: str, limit: int = 20) -> History:
        """The last writes of an object that exists. Raises NotFoundError."""
        cls = find_kind(kind)
        answer = await self._sc.call(
            "GET", object_path(cls, name, "history"), query={"limit": str(limit)}
        )
        with understood("a history"):
            entries = tuple(map(parse_history_entry, answer["items"]))
            return History(entries, bool(answer["complete"]))

    async def wait(
        self,
        kind: str,
        name: str,
        resolution: str,
        timeout: float = 60.0,
        on_state: Callable[[str], None] | None = None,
    ) -> Object | None:
        """Wait until an object has a resolution, or is deleted (``deleted``; gives None).

        ``on_state`` is called with what is missing, in words, and again when that changes.
        A resolution counts only if it is about the object's current spec, not an earlier one, and
        if the SC can write to its KV: what it shows of objects may be old otherwise.
        Raises DeadlineExceededError after ``timeout`` seconds, with the current state;
        NotFoundError if the object does not exist or is deleted meanwhile; InvalidRequestError for
        a resolution that the kind does not have. If the SC does not answer, asks again until the
        time is over.
        """
        cls = find_kind(kind)
        wanted = find_resolution(cls, resolution)
        return await wait_for(
            self._sc, cls, full_name(cls, name), wanted, timeout, _random, on_state
        )

    async def replicas(self, partition: str) -> tuple[ReplicaState, ...]:
        """The last reports of a partition's replicas, by its name. Raises NotFoundError."""
        answer = await self._sc.call("GET", object_path(Partition, partition, "replicas"))
        with understood("a list of replicas"):
            return tuple(map(parse_replica, answer["items"]))

    async def elect(
        self, name: str, term: int, leader: int | None = None, timeout: float = 60.0
    ) -> Partition:
        """Elect a leader that may lack committed records; the records that it lacks are lost.

        For a partition whose live replicas cannot be elected and will not return. ``term`` is the
        term in the status that led to this decision. ``leader`` is an SPU; by default, of the
        available replicas, the one that holds most. Gives the partition with its new leader. Raises
        ConflictError if another term has begun or a live replica can lead, NotFoundError,
        NotReadyError while the SC does not know yet which SPUs may return, and
        DeadlineExceededError after ``timeout`` seconds; the election may still happen then.
        """
        body = {"term": term} if leader is None else {"term": term, "leader": leader}
        answer = await self._sc.call("POST", object_path(Partition, name, "elect"), body=body)
        asked = parse_answer(Partition, answer)
        try:
            async with asyncio.timeout(timeout):
                try:
                    return await self._until_elected(asked, term, asked.revision)
                except CompactedError:
                    # The election may have ended a recovery: what was before is of another time.
                    return await self._until_elected(asked, term, None)
        except TimeoutError:
            raise DeadlineExceededError(
                f"partition {name!r} has no new leader after {timeout:g} s; see: runnel describe"
                f" partition {name}"
            ) from None

    async def _until_elected(self, asked: Partition, term: int, since: int | None) -> Partition:
        """The partition once an unclean election was answered. Raises CompactedError."""
        async with self.watch("partitions", asked.name, since=since) as watch:
            async for event in watch:
                if event.type == "deleted":
                    raise NotFoundError(f"partition {asked.name!r} was deleted meanwhile")
                found = event.object
                if (
                    isinstance(found, Partition)
                    and found.revision >= asked.revision
                    and not waits_for_election(found)
                ):
                    return _elected(found, term)
        raise AssertionError("a watch does not end by itself")

    async def divergent_spus(self) -> tuple[DivergentSpu, ...]:
        """The SPUs that the SC turns away until an operator decides on a recovery (`recover`).

        Raises NotReadyError if no SC leads for a while: nobody knows them then.
        """
        answer = await self._sc.cluster_of_leader()
        if answer.get("office") is None:
            raise NotReadyError(answer.get("officeUnknown") or "no SC leads at the moment")
        with understood("its state"):
            return tuple(map(parse_divergent, answer.get("divergent", ())))

    async def recover(self, spu: int) -> int:
        """Recover the cluster from a KV that was restored from a backup, and believe an SPU of
        `divergent_spus`; gives the new incarnation.

        All sessions end, and the SC elects every partition anew from what its replicas hold. Raises
        ConflictError if the SC does not turn this SPU away.
        """
        answer = await self._sc.call("POST", "/v1/cluster/recover", body={"spu": spu})
        with understood("its state"):
            return int(answer["office"]["incarnation"])

    async def note_archived(self, seen: Partition, before: int) -> Partition:
        """Tell the SC that records of a partition below an offset are archived and listed: its
        replicas may remove them by retention. ``seen``: the partition before its log was compared
        with the archive.

        Raises NotFoundError, ConflictError if the SC was told otherwise since, or an unclean
        election came.
        """
        partition, was = seen.name, seen.spec.archived_before or 0
        path = object_path(Partition, partition, "archived")
        body = {"before": before, "was": was}
        if (unclean := seen.status.unclean_term) is not None:
            # An SC of an earlier version does not know this.
            body["uncleanTerm"] = unclean
        return parse_answer(Partition, await self._sc.call("POST", path, body=body))

    async def truncate_partition(
        self, partition: str, before: int, *, force: bool = False
    ) -> Partition:
        """Remove the records of a partition below an offset, on every replica, for good.

        The decision is durable when this returns; each replica carries it out when it learns of it.
        The caller makes sure that ``before`` is not above the end of the log: records that are not
        committed yet would be removed once they are. ``force``: also what is in no archive yet, of
        a topic that has one. Raises NotFoundError, ConflictError.
        """
        path = object_path(Partition, partition, "truncate")
        # An SC of an earlier version knows no force, and no archives either.
        body = {"before": before, "force": True} if force else {"before": before}
        return parse_answer(Partition, await self._sc.call("POST", path, body=body))

    async def _find(self, obj: Object) -> Object | None:
        try:
            return await self._get(type(obj), obj.name)
        except NotFoundError:
            return None

    async def _write(
        self,
        method: str,
        cls: type[Object],
        name: str,
        body: Mapping[str, Any],
        *,
        dry_run: bool,
        content_type: str = "application/json",
    ) -> Object:
        self._written(name)
        answer = await self._sc.call(
            method,
            object_path(cls, name),
            body=body,
            query=_DRY if dry_run else None,
            content_type=content_type,
            repeatable=dry_run,
        )
        return parse_answer(cls, answer)


def waits_for_election(partition: Partition) -> bool:
    """Whether an unclean election was asked for and not answered yet."""
    return UNCLEAN_ELECTION in partition.metadata.annotations


def _elected(partition: Partition, term: int) -> Partition:
    """The partition, if an unclean election was held after ``term``. Raises ConflictError."""
    if (partition.status.unclean_term or 0) > term:
        return partition
    raise ConflictError(
        f"no unclean election of {partition.name}: {partition.status.reason or 'it was not needed'}"
    )


def _writable(obj: Object) -> dict[str, Any]:
    """The part of an object that a user may write: all but its status and server-set metadata."""
    content = obj.to_json()
    content.pop("status", None)
    metadata = content["metadata"]
    for field in ("uid", "generation", "creationTimestamp", "deletionTimestamp"):
        metadata.pop(field, None)
    return content


def _same(current: Object, wanted: Object) -> bool:
    return (
        current.spec == wanted.spec
        and current.metadata.labels == wanted.metadata.labels
        and current.metadata.annotations == wanted.metadata.annotations
    )
