"""Objects of the cluster: apply, create, get, list, delete, wait; and the bounds of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pydantic

from runnel.manifests import parse_object
from runnel.metadata import Metadata
from runnel.sc_client import ScClient
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    UnreachableError,
)
from schemas.kinds import find_kind, nearest
from schemas.metadata import Object

DELETED: Final = "deleted"
_APPLY_ATTEMPTS: Final = 5
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What `apply` did, and the object as it is now."""

    change: Literal["created", "configured", "unchanged"]
    object: Object

    def __str__(self) -> str:
        return f"{self.object.kind.lower()}/{self.object.name} {self.change}"


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The bounds of one partition: ``earliest`` is the first offset that is kept, ``latest`` the
    one after the last committed record; ``size_bytes`` as stored."""

    partition: int
    earliest: int
    latest: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Who the cluster is."""

    cluster: str
    cluster_uid: str
    version: str


class Admin:
    """Calls of the object API. Kinds are named in any spelling that `runnel get` takes."""

    def __init__(self, sc: ScClient, metadata: Metadata) -> None:
        self._sc = sc
        self._metadata = metadata

    async def apply(self, wanted: Object | Mapping[str, Any]) -> ApplyResult:
        """Create the object, or replace labels, annotations and spec of the one that exists.

        With a ``resourceVersion`` only that version is replaced. Raises ManifestError,
        ConflictError when others changed it, or while it is being deleted.
        """
        obj = wanted if isinstance(wanted, Object) else parse_object(wanted)
        self._metadata.forget(obj.name)
        for _ in range(_APPLY_ATTEMPTS):
            current = await self._find(obj)
            if current is None:
                try:
                    return ApplyResult("created", await self.create(obj))
                except ConflictError:
                    # Either somebody created it meanwhile, or not its name is taken but, say,
                    # the id of an SPU.
                    if await self._find(obj) is None:
                        raise
                    continue
            if current.deleting:
                raise ConflictError(
                    f"{obj.kind} {obj.name} is being deleted; wait for it with:"
                    f" runnel wait {obj.kind.lower()} {obj.name} --for deleted"
                )
            if _same(current, obj):
                return ApplyResult("unchanged", current)
            version = obj.metadata.resource_version or current.metadata.resource_version
            body = _writable(obj.with_metadata(resource_version=version))
            try:
                answer = await self._sc.call("PUT", self._path(obj), body=body)
            except ConflictError:
                if obj.metadata.resource_version is not None:
                    raise
                continue
            return ApplyResult("configured", self._parsed(type(obj), answer))
        raise ConflictError(f"{obj.kind} {obj.name} is changed by others all the time; try again")

    async def create(self, wanted: Object | Mapping[str, Any]) -> Object:
        """Create an object. Raises ConflictError if it exists, ManifestError."""
        obj = wanted if isinstance(wanted, Object) else parse_object(wanted)
        self._metadata.forget(obj.name)
        answer = await self._sc.call("POST", f"/v1/{obj.PLURAL}", body=_writable(obj))
        return self._parsed(type(obj), answer)

    async def get(self, kind: str, name: str) -> Object:
        """One object. Raises NotFoundError with the nearest name there is."""
        cls = find_kind(kind)
        try:
            return await self._get(cls, name)
        except NotFoundError as error:
            known = [obj.name for obj in await self.list(kind)]
            hint = nearest(name, known)
            meant = f"; did you mean {hint!r}?" if hint else ""
            raise NotFoundError(
                f"{cls.kind_name().lower()} {name!r} does not exist{meant}"
            ) from error

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """All objects of a kind, or those that carry the labels."""
        cls = find_kind(kind)
        query = (
            {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())}
            if labels
            else None
        )
        answer = await self._sc.call("GET", f"/v1/{cls.PLURAL}", query=query)
        return [self._parsed(cls, item) for item in answer["items"]]

    async def delete(self, kind: str, name: str) -> Object:
        """Begin to delete an object; `wait` for ``deleted``. Raises NotFoundError."""
        cls = find_kind(kind)
        self._metadata.forget(name)
        return self._parsed(cls, await self._sc.call("DELETE", f"/v1/{cls.PLURAL}/{name}"))

    async def wait(
        self, kind: str, name: str, resolution: str, timeout: float = 60.0
    ) -> Object | None:
        """Wait until an object has a resolution, or (``deleted``) is gone: then None.

        Raises DeadlineExceededError after ``timeout`` seconds that says what it is instead,
        NotFoundError when it is not there, InvalidRequestError for a resolution the kind does
        not have. An SC that does not answer is asked again until the time is over.
        """
        cls = find_kind(kind)
        wanted = _resolution(cls, resolution)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            state = "is not known: no SC answers"
            try:
                obj = await self._get(cls, name)
                current = _state(obj)
                if current == wanted:
                    return obj
                reason = getattr(obj.status, "reason", None)
                state = f"is {current}{f': {reason}' if reason else ''}"
            except NotFoundError:
                if wanted == DELETED:
                    return None
                raise
            except UnreachableError as error:
                state = f"is not known: {error.message}"
            if loop.time() >= deadline:
                raise DeadlineExceededError(
                    f"{cls.kind_name().lower()} {name!r} is not {wanted} after {timeout:g} s; it"
                    f" {state}"
                )
            await asyncio.sleep(max(0.0, min(_POLL_S, deadline - loop.time())))

    async def _find(self, obj: Object) -> Object | None:
        try:
            return await self._get(type(obj), obj.name)
        except NotFoundError:
            return None

    async def _get(self, cls: type[Object], name: str) -> Object:
        return self._parsed(cls, await self._sc.call("GET", f"/v1/{cls.PLURAL}/{name}"))

    def _path(self, obj: Object) -> str:
        return f"/v1/{obj.PLURAL}/{obj.name}"

    def _parsed(self, cls: type[Object], answer: Any) -> Object:
        try:
            return cls.model_validate(answer)
        except pydantic.ValidationError as error:
            raise RunnelError(
                f"the SC sent a {cls.kind_name()} that this client does not understand; install"
                f" the client of the cluster's version. {error.errors()[0]['loc']}:"
                f" {error.errors()[0]['msg']}"
            ) from error


def _writable(obj: Object) -> dict[str, Any]:
    """What a user may write of an object: everything but its status and server-set metadata."""
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


def _state(obj: Object) -> str:
    state = getattr(obj.status, "resolution", None) or getattr(obj.status, "state", "unknown")
    return str(state)


def _resolution(cls: type[Object], wanted: str) -> str:
    known = [DELETED]
    fields = cls.model_fields["status"].annotation.model_fields  # type: ignore[union-attr]
    for field in ("resolution", "state"):
        if field in fields:
            known += [str(member) for member in fields[field].annotation]
    for name in known:
        if name.lower() == wanted.lower():
            return name
    hint = nearest(wanted, known)
    meant = f"; did you mean {hint}?" if hint else "."
    raise InvalidRequestError(
        f"{wanted!r} is no resolution of {cls.PLURAL}{meant} Known: {', '.join(known)}"
    )
