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
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sc.kv.interface import (
    KV,
    Delete,
    DeletePrefix,
    KeyValue,
    ModRevisionIs,
    Op,
    Put,
    RangePage,
    ValueIs,
    range_all,
)
from schemas.errors import (
    ConflictError,
    NotFoundError,
    RetryableError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.keys import ClusterKeys

OPS = 100
"""Keys in one transaction of the copy; etcd takes 128 by default."""

BYTES = 1_000_000
"""Bytes of keys and values in one transaction of the copy."""

IN_FLIGHT = 64
"""Empty writes, or transactions of the copy, at a time."""

#: A stage, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Store:
    """A store and what to call it: its URL, without a password."""

    kv: KV
    url: str


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


async def count_keys(kv: KV, keys: ClusterKeys) -> KeyCount:
    """Count what a store holds of a cluster."""
    uid, moved, arriving = [
        await _field(kv, key, name)
        for key, name in ((keys.identity, "uid"), (keys.moved, "to"), (keys.arriving, "from"))
    ]
    count = sum([len(page.items) async for page in _pages(kv, keys)])
    at = [await _revision_of(kv, key) for key in (keys.moved, keys.arriving)]
    return KeyCount(uid, count, moved, arriving, *at)


async def _pages(kv: KV, keys: ClusterKeys, revision: int = 0) -> AsyncIterator[RangePage]:
    """Everything of a cluster as of one revision; by default, of now."""
    for root in keys.roots:
        async for page in range_all(kv, root, revision=revision):
            revision = page.revision
            yield page


async def _revision_of(kv: KV, key: str) -> int:
    item = await kv.get(key)
    return 0 if item is None else item.mod_revision


async def erase(kv: KV, keys: ClusterKeys, *, most_offices: int | None = None) -> int:
    """Delete all of a cluster from a store. Gives the number of keys.

    Raises ConflictError where more SCs took office than ``most_offices``: it is not the caller's
    alone.
    """
    found = await count_keys(kv, keys)
    office = ModRevisionIs(keys.current_office, await _revision_of(kv, keys.current_office))
    offices = await kv.range(keys.office(""), limit=(most_offices or 0) + 1)
    if most_offices is not None and len(offices.items) > most_offices:
        raise ConflictError(f"another SC has led cluster {keys.cluster!r}; nothing is deleted")
    if not (await kv.txn([office], list(map(DeletePrefix, keys.roots)))).succeeded:
        raise ConflictError(
            f"an SC took over cluster {keys.cluster!r} meanwhile; nothing is deleted"
        )
    return found.keys


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
        ours = await _attempt(target, keys)
        await _raise_revision(target, keys, ours, pinned, progress)
        await _copy(source.kv, target, keys, ours, pinned, found.keys, progress)
        await _close(source, target, keys, found)
    elif there.uid != found.uid or there.arriving_from is None:
        raise ConflictError(
            f"cluster {keys.cluster!r} was moved to {found.moved_to} already; start its SC there"
        )
    ours = await _attempt(target, keys)
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
        raise _somebody_else(target, keys)
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


async def _attempt(target: Store, keys: ClusterKeys) -> ValueIs:
    """What all writes of this attempt compare: its mark in the target."""
    mark = await target.kv.get(keys.arriving)
    if mark is None:
        raise ConflictError(f"{keys.arriving} was deleted while the cluster was being moved")
    return ValueIs(keys.arriving, mark.value)


async def _write(target: Store, keys: ClusterKeys, ours: ValueIs, ops: Sequence[Op]) -> None:
    if not (await target.kv.txn([ours], ops)).succeeded:
        raise _somebody_else(target, keys)


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
            raise _somebody_else(target, keys)
    attempt = secrets.token_hex(8)
    mark = Put(keys.arriving, _mark({"from": source.url, "uid": found.uid, "attempt": attempt}))
    if not (await target.kv.txn([ModRevisionIs(keys.arriving, 0)], [mark])).succeeded:
        raise _somebody_else(target, keys)


async def _close(source: Store, target: Store, keys: ClusterKeys, found: KeyCount) -> None:
    """Mark the source as left, and depose its SC."""
    mark = Put(keys.moved, _mark({"to": target.url, "uid": found.uid}))
    deposed = Put(keys.current_office, b"moved")
    if not (await source.kv.txn([ModRevisionIs(keys.moved, 0)], [mark, deposed])).succeeded:
        raise _somebody_else(source, keys)


def _mark(value: dict[str, str | None]) -> bytes:
    return json.dumps(value).encode()


def _somebody_else(store: Store, keys: ClusterKeys) -> ConflictError:
    return ConflictError(f"somebody else is moving cluster {keys.cluster!r} in {store.url}")


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
                await _write(target, keys, ours, [again])

        await _together(write() for _ in range(batch))
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
    async for page in _pages(source, keys, revision):
        puts = [Put(item.key, item.value) for item in page.items if _is_copied(item, keys)]
        await _together(_write(target, keys, ours, chunk) for chunk in _chunks(puts))
        done += len(page.items)
        progress("copying", done, total)


async def _together(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Do all at once. Raises what failed first, when the rest has ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _chunks(puts: Sequence[Put]) -> Iterator[list[Put]]:
    """Transactions of at most `OPS` puts and about `BYTES` bytes."""
    chunk: list[Put] = []
    size = 0
    for put in puts:
        cost = len(put.key.encode()) + len(put.value)
        if chunk and (len(chunk) == OPS or size + cost > BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(put)
        size += cost
    if chunk:
        yield chunk


def _is_copied(item: KeyValue, keys: ClusterKeys) -> bool:
    """Not what belongs to one store: the marks, and who holds the office there."""
    own = (keys.moved, keys.arriving, keys.current_office)
    return item.lease == 0 and item.key not in own


async def _verify(
    source: Store, target: Store, keys: ClusterKeys, uid: str, total: int, progress: Progress
) -> Migration:
    """Read both stores as they are now, and compare every key and value."""
    digest = hashlib.sha256()
    read = count = size = left = 0
    copies = _copied(target.kv, keys)
    async for page in _pages(source.kv, keys):
        for item in page.items:
            if not _is_copied(item, keys):
                left += item.lease != 0
                continue
            copy = await anext(copies, None)
            if copy is None or (copy.key, copy.value) != (item.key, item.value):
                raise _differs(source, target, item.key)
            count += 1
            for part in (item.key.encode(), item.value):
                size += len(part)
                digest.update(len(part).to_bytes(4))
                digest.update(part)
        read += len(page.items)
        progress("verifying", min(read, total), total)
    if (more := await anext(copies, None)) is not None:
        raise _differs(source, target, more.key)
    return Migration(uid, count, size, digest.hexdigest(), left)


async def _copied(kv: KV, keys: ClusterKeys) -> AsyncIterator[KeyValue]:
    async for page in _pages(kv, keys):
        for item in page.items:
            if _is_copied(item, keys):
                yield item


def _differs(source: Store, target: Store, key: str) -> ConflictError:
    return ConflictError(
        f"{key} differs between {source.url} and {target.url}: somebody wrote there meanwhile."
        f" {source.url} stays the cluster's store; stop what writes there and try again"
    )


async def _field(kv: KV, key: str, name: str) -> str | None:
    item = await kv.get(key)
    return None if item is None else str(json.loads(item.value)[name])
