"""Which transactions may be sent twice, and what a second answer proves about the first. Pure.

When no answer comes, a transaction may have been applied, may still be, or never will. Sending it
again is safe only if it cannot then be applied twice:

- It only reads.
- Its success branch breaks one of its own compares: it writes the key whose revision it compares,
  or creates the key it compares to be absent. (A compare that only fences, such as one on an
  office or a lease, does not do: between two applications someone else may have written, and
  would be overwritten unseen.) The failure branch must not write.

A key that the first attempt created and someone deleted before the second is created again; a
caller who reads that it is absent and then decides would do the same.

If the second attempt's compares fail, the first may be the reason. The key's history tells: when
another client's write broke the compare, or no write did, the conflict is certain. Otherwise the
outcome stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sc.kv.interface import (
    Compare,
    CreateRevisionIs,
    Delete,
    Get,
    KeyValue,
    ModRevisionIs,
    Op,
    Put,
    VersionIs,
)


@dataclass(frozen=True, slots=True)
class Guard:
    """A compare that its own transaction breaks: ``key`` was last written at ``revision`` (0:
    absent). ``put`` is what the transaction writes there; None when it deletes the key."""

    key: str
    revision: int
    put: Put | None


def only_reads(success: Sequence[Op], failure: Sequence[Op]) -> bool:
    """Whether neither branch writes."""
    return all(isinstance(op, Get) for op in (*success, *failure))


def guard_of(
    compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]
) -> Guard | None:
    """A compare that makes a second application impossible; None when there is none."""
    if not only_reads((), failure):
        return None
    writes = {op.key: op for op in success if isinstance(op, Put | Delete)}
    for compare in compares:
        match compare, writes.get(compare.key):
            case ModRevisionIs(key, revision), Put() as put:
                return Guard(key, revision, put)
            case ((CreateRevisionIs(key, 0) | VersionIs(key, 0)), Put() as put):
                return Guard(key, 0, put)
            case ModRevisionIs(key, revision), Delete() if revision > 0:
                return Guard(key, revision, None)
    return None


def conflict_is_certain(guard: Guard, current: KeyValue | None, before: KeyValue | None) -> bool:
    """Whether an attempt without an answer can be ruled out, after a later one found a compare
    broken. ``current`` is the key now, ``before`` as it was before its last write."""
    if current is None:
        # Deleted by this transaction, or created by it and deleted since, or neither.
        return False
    if current.mod_revision == guard.revision:
        # Untouched: another compare of the transaction failed.
        return True
    if before is None or before.mod_revision != guard.revision:
        # More than one write since. A key that was absent may have been created by this
        # transaction, deleted, and created again by someone else.
        return False
    return guard.put is None or (
        (current.value, current.lease) != (guard.put.value, guard.put.lease)
    )
