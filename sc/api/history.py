"""Who wrote an object, when, why and what: read from the KV's own history.

The KV keeps old versions until it compacts them, so nothing is stored twice; compacted versions
are missing here, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from sc.api.answers import History, HistoryItem
from sc.kv.interface import KV, KeyValue
from sc.store.codec import CONTROLLERS, split_write
from schemas.errors import CompactedError, NotFoundError

MOST_READ = 500
"""Most writes that one history tells of: each is a read of the KV, one after the other."""

LOOKED_AT = 50
"""Most writes to look through for the one that a user made."""

#: The server sets these with every write; they say nothing about what the writer wanted.
_COUNTERS: Final = frozenset({"metadata.resourceVersion", "metadata.generation"})
#: Not null, which some fields may hold.
_ABSENT: Final = object()


async def versions(kv: KV, key: str) -> AsyncIterator[KeyValue]:
    """Versions of a key from the newest back to its creation; none for an absent key.

    Raises CompactedError where older ones are compacted.
    """
    found = await kv.get(key)
    while found is not None:
        yield found
        if found.mod_revision == found.create_revision:
            return
        found = await kv.get(key, revision=found.mod_revision - 1)


async def history(kv: KV, key: str, label: str, limit: int) -> History:
    """The last ``limit`` writes of an object. Raises NotFoundError that calls it ``label``."""
    found: list[KeyValue] = []
    try:
        async for version in versions(kv, key):
            found.append(version)
            # One more, to find out what the oldest of them changed.
            if len(found) > min(limit, MOST_READ):
                break
    except CompactedError:
        pass
    if not found:
        raise NotFoundError(f"{label} does not exist")
    items = [history_item(new, old) for new, old in zip(found, [*found[1:], None], strict=True)]
    listed = found[: min(limit, MOST_READ)]
    return History(
        items=tuple(items[: len(listed)]),
        complete=listed[-1].mod_revision == listed[-1].create_revision,
    )


async def last_by_a_user(kv: KV, key: str, since: int) -> KeyValue | None:
    """The newest version above revision ``since`` that no controller wrote, else the newest one.

    None for an absent key.
    """
    newest: KeyValue | None = None
    looked_at = 0
    try:
        async for version in versions(kv, key):
            if newest is not None and version.mod_revision <= since:
                break
            if split_write(version.value)[1].by not in (None, CONTROLLERS):
                return version
            newest = newest or version
            looked_at += 1
            if looked_at == LOOKED_AT:
                break
    except CompactedError:
        pass
    return newest


def changed_fields(old: dict[str, Any] | None, new: dict[str, Any]) -> tuple[str, ...]:
    """Paths such as ``spec.retention.time`` in the order of their names.

    A mapping that only one side has is named as a whole, a list that differs, too. Of a creation
    (``old`` is None) these are the parts of the new object.
    """
    if old is None:
        return tuple(sorted(new.keys() - {"apiVersion", "kind"}))
    return tuple(path for path in _differences(old, new, "") if path not in _COUNTERS)


def history_item(new: KeyValue, old: KeyValue | None) -> HistoryItem:
    """What a write did; ``old`` is the version before it. Raises InvalidRequestError where one does
    not parse."""
    data, write = split_write(new.value)
    created = new.mod_revision == new.create_revision
    changed: tuple[str, ...] = ()
    if created or old is not None:
        changed = changed_fields(None if old is None else split_write(old.value)[0], data)
    metadata, status = data.get("metadata") or {}, data.get("status") or {}
    return HistoryItem(
        revision=str(new.mod_revision),
        at=write.at,
        by=write.by,
        cause=write.cause,
        generation=metadata.get("generation") or 0,
        resolution=status.get("resolution") or status.get("state"),
        reason=status.get("reason"),
        changed=changed,
    )


def _differences(old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{where}{name}.")
        else:
            yield f"{where}{name}"
