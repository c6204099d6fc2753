"""What a store holds of a cluster: counted, read at one revision, deleted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sc.kv.interface import KV, DeletePrefix, KeyValue, ModRevisionIs, RangePage, range_all
from schemas.errors import ConflictError
from schemas.objects.keys import ClusterKeys


@dataclass(frozen=True, slots=True)
class Store:
    """A store and what to call it: its URL, without a password."""

    kv: KV
    url: str


@dataclass(frozen=True, slots=True)
class KeyCount:
    """What a store holds of a cluster. ``uid`` is None where it was never there. ``moved_at`` and
    ``arriving_at`` are the revisions of the marks, 0 without."""

    uid: str | None
    keys: int
    moved_to: str | None
    arriving_from: str | None
    moved_at: int = 0
    arriving_at: int = 0


async def count_keys(kv: KV, keys: ClusterKeys, *, may_be_damaged: bool = False) -> KeyCount:
    """Count what a store holds of a cluster. Raises ConflictError for an identity or a mark that
    does not parse; it counts as missing if it ``may_be_damaged``."""
    uid, moved, arriving = [
        await _field(kv, key, name, may_be_damaged=may_be_damaged)
        for key, name in ((keys.identity, "uid"), (keys.moved, "to"), (keys.arriving, "from"))
    ]
    count = sum([len(page.items) async for page in pages(kv, keys)])
    at = [await revision_of(kv, key) for key in (keys.moved, keys.arriving)]
    return KeyCount(uid, count, moved, arriving, *at)


async def pages(kv: KV, keys: ClusterKeys, revision: int = 0) -> AsyncIterator[RangePage]:
    """Everything of a cluster as of one revision; by default, of now."""
    for root in keys.roots:
        async for page in range_all(kv, root, revision=revision):
            revision = page.revision
            yield page


def is_copied(item: KeyValue, keys: ClusterKeys) -> bool:
    """Not what belongs to one store: the marks, and who holds the office there."""
    own = (keys.moved, keys.arriving, keys.current_office)
    return item.lease == 0 and item.key not in own


async def revision_of(kv: KV, key: str) -> int:
    """When a key was last written; 0 where it is not there."""
    item = await kv.get(key)
    return 0 if item is None else item.mod_revision


async def erase(kv: KV, keys: ClusterKeys, *, most_offices: int | None = None) -> int:
    """Delete all of a cluster from a store. Gives the number of keys.

    Raises ConflictError where more SCs took office than ``most_offices``: it is not the caller's
    alone.
    """
    found = await count_keys(kv, keys)
    office = ModRevisionIs(keys.current_office, await revision_of(kv, keys.current_office))
    offices = await kv.range(keys.office(""), limit=(most_offices or 0) + 1)
    if most_offices is not None and len(offices.items) > most_offices:
        raise ConflictError(f"another SC has led cluster {keys.cluster!r}; nothing is deleted")
    if not (await kv.txn([office], list(map(DeletePrefix, keys.roots)))).succeeded:
        raise ConflictError(
            f"an SC took over cluster {keys.cluster!r} meanwhile; nothing is deleted"
        )
    return found.keys


async def _field(kv: KV, key: str, name: str, *, may_be_damaged: bool) -> str | None:
    item = await kv.get(key)
    if item is None:
        return None
    try:
        return str(json.loads(item.value)[name])
    except (ValueError, KeyError, TypeError) as error:
        if may_be_damaged:
            return None
        raise ConflictError(
            f"the key {key} does not parse ({type(error).__name__}: {error}); restore the KV from a"
            " backup, or put the key back"
        ) from error
