"""Moving a cluster from one KV store to another, with verification.

The source keeps its copy, marked as ``moved``: no SC leads over it again. The target is marked as
``arriving`` until every key was read back from it, so that no SC runs on half a cluster. Until
then, only the source is the cluster's store::

    arriving in target ── raise revision ── copy ── moved in source ── verify ── arriving deleted

Every write of a move to the target compares the mark of that very attempt: an abandoned process
that still sends writes cannot change a target that a later attempt has cleared.

A move that was interrupted is repeated by starting it again: before ``moved`` it begins anew,
after it only the verification and the last step remain. Where the verification finds a
difference, ``moved`` is taken back.

Revisions must never go back: SPUs remember the highest one that they saw, with its stamp. So the
move first raises the target to the source's revision, with as many empty writes as needed. The last
write is the identity, once more: a reader that names a lower revision has it from the source.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sc.kv.interface import KV, Delete, DeletePrefix, KeyValue, ModRevisionIs, Op, Put, ValueIs
from sc.transfer.contents import KeyCount, Store, count_keys, is_copied, pages
from sc.transfer.copying import (
    IN_FLIGHT,
    Digest,
    Progress,
    chunks,
    mark_value,
    own_attempt,
    somebody_else,
    together,
    write_own,
)
from schemas.errors import (
    ConflictError,
    NotFoundError,
    RetryableError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.keys import ClusterKeys


@dataclass(frozen=True, slots=True)
class Migration:
    """What was moved: keys and their bytes, with the digest that both stores agreed on.

    ``left`` counts keys bound to a lease, which end with their owner and are not copied.
    """

    uid: str
    keys: int
    bytes: int
    sha256: str
    left: int


async def migrate(source: Store, target: Store, keys: ClusterKeys, progress: Progress) -> Migration:
    """Move a cluster. An SC that still runs on the source is deposed.

    Raises NotFoundError when the source holds no such cluster, ConflictError when the target
    holds another of that name, or when what is read back from it differs from what the source
    holds then: somebody wrote meanwhile, and the source stays the cluster's store.
    """
    found, there = await count_keys(source.kv, keys), await count_keys(target.kv, keys)
    if found.uid is None:
        raise NotFoundError(f"{source.url} holds no cluster {keys.cluster!r}")
    if found.arriving_from is not None:
        raise ConflictError(
            f"{source.url} does not hold all of cluster {keys.cluster!r}: its move from"
            f" {found.arriving_from} is not finished; repeat that move first"
        )
    if found.moved_to is None:
        await _make_room(source, target, keys, found, there)
        pinned = await source.kv.revision()
        ours = await own_attempt(target, keys)
        await _raise_revision(target, keys, ours, pinned, progress)
        await _copy(source.kv, target, keys, ours, pinned, found.keys, progress)
        await _close(source, target, keys, found)
    elif there.uid != found.uid or there.arriving_from is None:
        raise ConflictError(
            f"cluster {keys.cluster!r} was moved to {found.moved_to} already; start its SC there"
        )
    ours = await own_attempt(target, keys)
    try:
        result = await _verify(source, target, keys, str(found.uid), found.keys, progress)
    except (RunnelError, asyncio.CancelledError) as error:
        await _take_back(source, keys, error)
        raise
    await _raise_revision(target, keys, ours, await source.kv.revision(), progress)
    identity = await target.kv.get(keys.identity)
    if identity is None:
        raise ConflictError(f"{keys.identity} was deleted while the cluster was being moved")
    ended: list[Op] = [Put(keys.identity, identity.value), Delete(keys.arriving)]
    # Repeated after a lost answer it finds no mark, which another attempt would have set anew.
    if not (await target.kv.txn([ours], ended)).succeeded and await target.kv.get(keys.arriving):
        raise somebody_else(target, keys)
    return result


async def _take_back(source: Store, keys: ClusterKeys, cause: BaseException) -> None:
    """The source stays the cluster's store. Raises UnreachableError where it cannot be told so."""
    try:
        await source.kv.txn((), [Delete(keys.moved)])
    except RetryableError as error:
        raise UnreachableError(
            f"{source.url} stays the cluster's store, but this cannot be written there"
            f" ({error.message}); repeat the move when it answers. The move ended because: {cause}"
        ) from cause


async def _make_room(
    source: Store, target: Store, keys: ClusterKeys, found: KeyCount, there: KeyCount
) -> None:
    """Mark the target, and clear what an interrupted or an earlier, opposite move left there."""
    if there.keys:
        ours = there.uid in (None, found.uid)
        if not (ours and (there.arriving_from is not None or there.moved_to is not None)):
            raise ConflictError(
                f"{target.url} holds a cluster {keys.cluster!r} already (uid {there.uid},"
                f" {there.keys} keys); choose an empty store"
            )
        # Not where somebody else's move ended since it was counted.
        unchanged = [
            ModRevisionIs(keys.arriving, there.arriving_at),
            ModRevisionIs(keys.moved, there.moved_at),
        ]
        if not (await target.kv.txn(unchanged, list(map(DeletePrefix, keys.roots)))).succeeded:
            raise somebody_else(target, keys)
    attempt = secrets.token_hex(8)
    mark = Put(
        keys.arriving, mark_value({"from": source.url, "uid": found.uid, "attempt": attempt})
    )
    if not (await target.kv.txn([ModRevisionIs(keys.arriving, 0)], [mark])).succeeded:
        raise somebody_else(target, keys)


async def _close(source: Store, target: Store, keys: ClusterKeys, found: KeyCount) -> None:
    """Mark the source as left, and depose its SC."""
    mark = Put(keys.moved, mark_value({"to": target.url, "uid": found.uid}))
    deposed = Put(keys.current_office, b"moved")
    if not (await source.kv.txn([ModRevisionIs(keys.moved, 0)], [mark, deposed])).succeeded:
        raise somebody_else(source, keys)


async def _raise_revision(
    target: Store, keys: ClusterKeys, ours: ValueIs, least: int, progress: Progress
) -> None:
    """Write until the store's revision is at least ``least``."""
    again = Put(ours.key, ours.value)
    begin = current = await target.kv.revision()
    while current < least:
        progress("raising the revision", current - begin, least - begin)
        batch = min(IN_FLIGHT * 16, least - current)
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def write(limit: asyncio.Semaphore = limit) -> None:
            async with limit:
                await write_own(target, keys, ours, [again])

        await together(write() for _ in range(batch))
        current = await target.kv.revision()


async def _copy(
    source: KV,
    target: Store,
    keys: ClusterKeys,
    ours: ValueIs,
    revision: int,
    total: int,
    progress: Progress,
) -> None:
    done = 0
    async for page in pages(source, keys, revision):
        puts = [Put(item.key, item.value) for item in page.items if is_copied(item, keys)]
        await together(write_own(target, keys, ours, chunk) for chunk in chunks(puts))
        done += len(page.items)
        progress("copying", done, total)


async def _verify(
    source: Store, target: Store, keys: ClusterKeys, uid: str, total: int, progress: Progress
) -> Migration:
    """Read both stores as they are now, and compare every key and value."""
    digest = Digest()
    read = left = 0
    copies = _copied(target.kv, keys)
    async for page in pages(source.kv, keys):
        for item in page.items:
            if not is_copied(item, keys):
                left += item.lease != 0
                continue
            copy = await anext(copies, None)
            if copy is None or (copy.key, copy.value) != (item.key, item.value):
                raise _differs(source, target, item.key)
            digest.add(item.key, item.value)
        read += len(page.items)
        progress("verifying", min(read, total), total)
    if (more := await anext(copies, None)) is not None:
        raise _differs(source, target, more.key)
    return Migration(uid, digest.keys, digest.bytes, digest.sha256, left)


async def _copied(kv: KV, keys: ClusterKeys) -> AsyncIterator[KeyValue]:
    async for page in pages(kv, keys):
        for item in page.items:
            if is_copied(item, keys):
                yield item


def _differs(source: Store, target: Store, key: str) -> ConflictError:
    return ConflictError(
        f"{key} differs between {source.url} and {target.url}: somebody wrote there meanwhile."
        f" {source.url} stays the cluster's store; stop what writes there and try again"
    )
