"""The stored form of objects and tombstones: JSON, together with its writer, time and cause.

The value does not hold the revision: the key has it.

A mirror holds very many partitions, most of them of few topics. To save memory, the partitions of a
topic share their settings and owner, and objects of a kind share the sets of their given fields.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from schemas.control.messages import Tombstone
from schemas.errors import InvalidRequestError
from schemas.model import Model
from schemas.objects.kinds import BY_PLURAL
from schemas.objects.metadata import Object, OwnerReference
from schemas.objects.partition import Partition
from schemas.objects.topic import LogSettings

CONTROLLERS: Final = "sc"
"""The writer of everything that no user wrote."""

_CAUSE: Final = "cause"
_BY: Final = "by"
_AT: Final = "at"


@dataclass(frozen=True, slots=True)
class Write:
    """Who wrote a value, when (ISO 8601, UTC, milliseconds) and why (a causality id).

    ``by`` and ``at`` are None for values of an older version that did not store them.
    """

    cause: str
    by: str | None
    at: str | None


def encode_object(
    obj: Object, cause: str, *, by: str | None = None, at: str | None = None
) -> bytes:
    """The stored form of an object that ``by`` wrote at ``at`` because of ``cause``."""
    text = obj.model_dump_json(
        by_alias=True, exclude_none=True, exclude={"metadata": {"resource_version"}}
    )
    beside = {_CAUSE: cause, _BY: by, _AT: at}
    more = json.dumps(
        {name: value for name, value in beside.items() if value is not None}, separators=(",", ":")
    )
    return f"{text[:-1]},{more[1:]}".encode()


def decode_object(plural: str, value: bytes, mod_revision: int) -> tuple[Object, str]:
    """The object at a revision, and the cause of that write.

    Raises InvalidRequestError that says which part does not parse.
    """
    cls = BY_PLURAL.get(plural)
    if cls is None:
        raise InvalidRequestError(f"unknown kind {plural!r} in the KV store")
    try:
        data, write = split_write(value)
        if isinstance(metadata := data.get("metadata"), dict):
            metadata["resourceVersion"] = str(mod_revision)
        if isinstance(spec := data.get("spec"), dict) and plural == Partition.PLURAL:
            _share(spec)
        obj = cls.model_validate(data)
    except ValidationError as error:
        raise InvalidRequestError(f"stored object does not parse: {error}") from error
    if obj.metadata.uid is None:
        raise InvalidRequestError(f"stored {obj.kind} {obj.name} has no uid: no server wrote it")
    for part in (obj, obj.metadata, obj.spec, obj.status):
        _share_fields_set(part)
    return obj, write.cause


def _share(spec: dict[str, Any]) -> None:
    """Replace plain data that the partitions of a topic have in common by shared objects."""
    log, owner = spec.get("log"), spec.get("owner")
    if isinstance(log, dict):
        spec["log"] = _log_settings(json.dumps(log))
    if isinstance(owner, dict):
        spec["owner"] = _owner(json.dumps(owner))


@lru_cache(maxsize=1024)
def _log_settings(text: str) -> LogSettings:
    return LogSettings.model_validate_json(text)


@lru_cache(maxsize=1024)
def _owner(text: str) -> OwnerReference:
    return OwnerReference.model_validate_json(text)


def _share_fields_set(part: Model) -> None:
    """Share the set of given fields. Only copies ask for it, and a copy has a set of its own."""
    fields = _fields_set(type(part), frozenset(part.model_fields_set))
    object.__setattr__(part, "__pydantic_fields_set__", fields)


@lru_cache(maxsize=1024)
def _fields_set(_cls: type[Model], names: frozenset[str]) -> set[str]:
    return set(names)


def split_write(value: bytes) -> tuple[dict[str, Any], Write]:
    """The plain data of a stored object, not validated, and its writer.

    Raises InvalidRequestError if it is not a JSON mapping.
    """
    try:
        data = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"stored object does not parse: {error}") from error
    if not isinstance(data, dict):
        raise InvalidRequestError("stored object does not parse: it is not a mapping")
    by, at = data.pop(_BY, None), data.pop(_AT, None)
    write = Write(
        cause=str(data.pop(_CAUSE, "-")),
        by=None if by is None else str(by),
        at=None if at is None else str(at),
    )
    return data, write


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return tombstone.model_dump_json(by_alias=True, exclude_none=True).encode()


def decode_tombstone(value: bytes) -> Tombstone:
    """Raises InvalidRequestError."""
    try:
        return Tombstone.model_validate_json(value)
    except ValidationError as error:
        raise InvalidRequestError(f"stored tombstone does not parse: {error}") from error
