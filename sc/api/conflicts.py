"""Conflicts that name the winner: the write that came first, by whom, when and why."""

from __future__ import annotations

from typing import Any

from sc.api.history import last_by_a_user
from sc.api.requests import is_number
from sc.api.routes import MAX_REVISION
from sc.kv.interface import KV, KeyValue
from sc.store.codec import Write, split_write
from schemas.errors import CompactedError, ConflictError
from schemas.objects.metadata import Object


async def changed_meanwhile(kv: KV, key: str, now: Object, wanted: str) -> ConflictError:
    """An object is not at the revision that a write compared it with.

    The winner is the last user who wrote it since; where only controllers did, their last write.
    """
    since = int(wanted) if is_number(wanted, 0, MAX_REVISION) else 0
    won = await last_by_a_user(kv, key, since)
    return ConflictError(
        f"{now.kind} {now.name} was changed meanwhile{_by(won)}: it is at resourceVersion"
        f" {now.metadata.resource_version}, not {wanted}; read it again",
        **_details(won),
    )


async def being_deleted(kv: KV, key: str, obj: Object) -> ConflictError:
    """An object that is being deleted cannot be changed."""
    won = await last_by_a_user(kv, key, 0)
    return ConflictError(
        f"{obj.kind} {obj.name} is being deleted; wait until it is gone", **_details(won)
    )


async def changes_too_often(kv: KV, key: str, obj: Object) -> ConflictError:
    """Every attempt met another write."""
    won = await kv.get(key)
    return ConflictError(
        f"{obj.kind} {obj.name} changes too often{_by(won)}; try again", **_details(won)
    )


async def exists(kv: KV, key: str, message: str) -> ConflictError | None:
    """The conflict ``message`` with the object at ``key``; None if that is absent."""
    found = await kv.get(key)
    if found is None:
        return None
    won: KeyValue | None = found
    try:
        # The creation won, not the last write.
        won = await kv.get(key, revision=found.create_revision) or found
    except CompactedError:
        won = None
    return ConflictError(f"{message}{_by(won, ', created')}", **_details(won or found))


def _write(kv: KeyValue) -> Write:
    return split_write(kv.value)[1]


def _by(won: KeyValue | None, verb: str = "") -> str:
    if won is None or (write := _write(won)).by is None:
        return ""
    return f"{verb} by {write.by}" + (f" at {write.at}" if write.at else "")


def _details(won: KeyValue | None) -> dict[str, Any]:
    if won is None:
        return {}
    write = _write(won)
    return {
        "resourceVersion": str(won.mod_revision),
        "by": write.by,
        "at": write.at,
        "cause": write.cause,
    }
