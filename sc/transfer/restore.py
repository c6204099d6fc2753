"""From a file into a store, so that an SC can lead over what was backed up.

What is restored may be older than what SPUs did since. So a restored cluster begins a new
incarnation, and recovers in it (`sc.restored_kv`): nothing is deleted, and each partition is led by
the replica that holds most. The SC would not always notice by itself: another store may be at a
higher revision than any that an SPU has seen.

While a file is being restored, the store has the mark ``arriving``, which each write compares, so
that no SC leads over half a cluster::

    arriving ── delete what was there ── write ── read back and compare ── arriving deleted

A restore that was interrupted is repeated by starting it again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sc.dispatch.kv_updater import written_at
from sc.kv.interface import Compare, CreateRevisionIs, Delete, ModRevisionIs, Op, Put
from sc.leadership import BACKUP, Identity, Recovery
from sc.transfer.backup_file import Backup, Header, read_backup
from sc.transfer.contents import KeyCount, Store, count_keys, is_copied, pages
from sc.transfer.copying import (
    OPS,
    Progress,
    chunks,
    mark_value,
    write_own,
)
from schemas.causality import current_cause
from schemas.errors import ConflictError, InvalidRequestError
from schemas.objects.keys import ClusterKeys

Items = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: of which cluster, from when (ISO 8601 in UTC), its keys by kind of object,
    and the incarnation in which it recovers. ``replaced`` counts the keys that went."""

    cluster: str
    uid: str
    at: str
    revision: int
    version: str
    keys: int
    bytes: int
    kinds: dict[str, int]
    incarnation: int
    replaced: int


async def restore(
    path: Path, target: Store, *, may_replace: bool, by: str, dry_run: bool, progress: Progress
) -> Restored:
    """Put a backup's cluster into a store. With ``dry_run`` nothing is changed.

    Raises what `read_backup` raises; ConflictError while an SC runs over the store, where the
    store holds another cluster of that name, the same one (unless ``may_replace``), or was left
    for another store.
    """
    backup = read_backup(path)
    keys = ClusterKeys(backup.header.cluster)
    # It may be what the restore is to mend.
    there = await count_keys(target.kv, keys, may_be_damaged=True)
    if not dry_run:
        await _check_unused(target, keys)
    _check_target(target, keys, backup.header, there, may_replace=may_replace or dry_run)
    identity = await _identity(target, keys, backup, path, by)
    if not dry_run:
        items = [
            (key, identity.encode() if key == keys.identity else value)
            for key, value in backup.items
        ]
        ours = await _begin(target, keys, there, path)
        await _clear(target, keys, ours, progress)
        await _write(target, keys, ours, items, progress)
        await _verify(target, keys, items, progress)
        # Once more, as the last write: a reader that names a lower revision has it from the store
        # that was before.
        ended: list[Op] = [Put(keys.identity, identity.encode()), Delete(keys.arriving)]
        await write_own(target, keys, ours, ended)
    header, digest = backup.header, backup.digest
    return Restored(
        header.cluster,
        header.uid,
        header.at,
        header.revision,
        header.version,
        digest.keys,
        digest.bytes,
        _kinds(keys, backup),
        identity.incarnation,
        there.keys,
    )


def _kinds(keys: ClusterKeys, backup: Backup) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, _ in backup.items:
        parsed = keys.parse_object(key)
        if parsed is not None:
            found[parsed[0]] = found.get(parsed[0], 0) + 1
    return found


async def _check_unused(target: Store, keys: ClusterKeys) -> None:
    """Raise ConflictError while an SC uses the store."""
    running = await target.kv.range(keys.scs, limit=1)
    if running.items:
        name = running.items[0].key.removeprefix(keys.scs)
        raise ConflictError(
            f"SC {name} runs over {target.url}: stop all SCs of cluster {keys.cluster!r} first"
            " (one that was killed counts for some seconds)"
        )


def _check_target(
    target: Store, keys: ClusterKeys, header: Header, there: KeyCount, *, may_replace: bool
) -> None:
    """Raise ConflictError where a restore would take away what is somebody's."""
    if there.moved_to is not None:
        raise ConflictError(
            f"cluster {keys.cluster!r} was moved from {target.url} to {there.moved_to}; restore it"
            " there"
        )
    if there.uid not in (None, header.uid):
        raise ConflictError(
            f"{target.url} holds another cluster {keys.cluster!r} (uid {there.uid}; the backup is"
            f" of {header.uid}); choose an empty store. If an SC has made it over an empty"
            f" etcd, stop all SCs and delete it: etcdctl del --prefix {keys.root}"
        )
    if there.keys and there.arriving_from is None and not may_replace:
        raise ConflictError(
            f"{target.url} holds cluster {keys.cluster!r} already ({there.keys:,} keys); add --yes"
            " to put the backup in their place"
        )


async def _identity(
    target: Store, keys: ClusterKeys, backup: Backup, path: Path, by: str
) -> Identity:
    """The cluster as it begins to recover, above each incarnation that is known of."""
    identity = _decoded(dict(backup.items).get(keys.identity, b""))
    if identity is None:
        raise InvalidRequestError(
            f"{path} holds no identity of cluster {keys.cluster!r}; use another backup"
        )
    stored = await target.kv.get(keys.identity)
    there = None if stored is None else _decoded(stored.value)
    known = [one.incarnation for one in (identity, there) if one is not None]
    header = backup.header
    why = f"a backup of {header.at} was restored, of revision {header.revision}"
    recovery = Recovery(by, written_at(), why, current_cause())
    return replace(identity, incarnation=max(known) + 1, recovering=True, recovery=recovery)


def _decoded(value: bytes) -> Identity | None:
    """The identity; None for what is none."""
    try:
        return Identity.decode(value)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


async def _begin(target: Store, keys: ClusterKeys, there: KeyCount, path: Path) -> ModRevisionIs:
    """Mark the store, so that no SC begins to lead; gives what all writes of this attempt
    compare."""
    mark = {"from": f"{BACKUP}{path.name}", "uid": there.uid, "attempt": secrets.token_hex(8)}
    unchanged: list[Compare] = [
        ModRevisionIs(keys.arriving, there.arriving_at),
        ModRevisionIs(keys.moved, 0),
        CreateRevisionIs(keys.leader, 0),
    ]
    result = await target.kv.txn(unchanged, [Put(keys.arriving, mark_value(mark))])
    if not result.succeeded:
        raise ConflictError(f"somebody else began to use {target.url}; stop all SCs and try again")
    return ModRevisionIs(keys.arriving, result.revision)


async def _clear(target: Store, keys: ClusterKeys, ours: ModRevisionIs, progress: Progress) -> None:
    """Delete everything of the cluster but the mark."""
    ops: list[Op] = [
        Delete(item.key)
        async for page in pages(target.kv, keys)
        for item in page.items
        if item.key != keys.arriving
    ]
    for begin in range(0, len(ops), OPS):
        await write_own(target, keys, ours, ops[begin : begin + OPS])
        progress("removing what was there", min(begin + OPS, len(ops)), len(ops))


async def _write(
    target: Store, keys: ClusterKeys, ours: ModRevisionIs, items: Items, progress: Progress
) -> None:
    done = 0
    for chunk in chunks([Put(key, value) for key, value in items]):
        await write_own(target, keys, ours, chunk)
        done += len(chunk)
        progress("writing", done, len(items))


async def _verify(target: Store, keys: ClusterKeys, items: Items, progress: Progress) -> None:
    """Read everything back. Raises ConflictError where it is not what was written."""
    read = 0
    expected = iter(items)
    async for page in pages(target.kv, keys):
        for item in page.items:
            if not is_copied(item, keys):
                continue
            if next(expected, None) != (item.key, item.value):
                raise _differs(target, item.key)
            read += 1
        progress("verifying", read, len(items))
    if (missing := next(expected, None)) is not None:
        raise _differs(target, missing[0])


def _differs(target: Store, key: str) -> ConflictError:
    return ConflictError(
        f"{key} in {target.url} is not what was written: somebody else wrote there meanwhile. Stop"
        " what writes there and restore again"
    )
