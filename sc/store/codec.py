"""How objects and tombstones stand in the KV: JSON, with the causality id of the write beside.

The revision is not stored in the value: it is the key's own.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import ValidationError

from schemas.errors import InvalidRequestError
from schemas.kinds import BY_PLURAL
from schemas.messages import Tombstone
from schemas.metadata import Object

_CAUSE: Final = "cause"


def encode_object(obj: Object, cause: str) -> bytes:
    """The stored form of an object written because of ``cause``."""
    data = obj.to_json()
    data["metadata"].pop("resourceVersion", None)
    data[_CAUSE] = cause
    return json.dumps(data, separators=(",", ":")).encode()


def decode_object(plural: str, value: bytes, mod_revision: int) -> tuple[Object, str]:
    """The object at a revision, and the cause of that write.

    Raises InvalidRequestError that says what does not parse.
    """
    cls = BY_PLURAL.get(plural)
    if cls is None:
        raise InvalidRequestError(f"unknown kind {plural!r} in the KV store")
    try:
        data: dict[str, Any] = json.loads(value)
        cause = str(data.pop(_CAUSE, "-"))
        obj = cls.model_validate(data)
    except (ValueError, TypeError, AttributeError, ValidationError) as error:
        raise InvalidRequestError(f"stored object does not parse: {error}") from error
    if obj.metadata.uid is None:
        raise InvalidRequestError(f"stored {obj.kind} {obj.name} has no uid: no server wrote it")
    return obj.with_metadata(resource_version=str(mod_revision)), cause


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return tombstone.model_dump_json(by_alias=True, exclude_none=True).encode()


def decode_tombstone(value: bytes) -> Tombstone:
    """Raises InvalidRequestError."""
    try:
        return Tombstone.model_validate_json(value)
    except ValidationError as error:
        raise InvalidRequestError(f"stored tombstone does not parse: {error}") from error
