"""Writing a cluster into a store: bounded transactions that compare the mark of their attempt."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

from sc.kv.interface import Compare, Op, Put, ValueIs
from sc.transfer.contents import Store
from schemas.errors import ConflictError
from schemas.objects.keys import ClusterKeys

OPS = 100
"""Keys in one transaction of the copy; etcd takes 128 by default."""

BYTES = 1_000_000
"""Bytes of keys and values in one transaction of the copy."""

IN_FLIGHT = 64
"""Empty writes, or transactions of the copy, at a time."""


#: A stage, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


class Digest:
    """Keys, bytes and SHA-256 of keys and values in their order."""

    def __init__(self) -> None:
        self.keys = self.bytes = 0
        self._sha256 = hashlib.sha256()

    def add(self, key: str, value: bytes) -> None:
        self.keys += 1
        for part in (key.encode(), value):
            self.bytes += len(part)
            self._sha256.update(len(part).to_bytes(4))
            self._sha256.update(part)

    @property
    def sha256(self) -> str:
        """As hexadecimal digits."""
        return self._sha256.hexdigest()


async def own_attempt(target: Store, keys: ClusterKeys) -> ValueIs:
    """What all writes of this attempt compare: its mark in the target."""
    mark = await target.kv.get(keys.arriving)
    if mark is None:
        raise ConflictError(f"{keys.arriving} was deleted while the cluster was being moved")
    return ValueIs(keys.arriving, mark.value)


async def write_own(target: Store, keys: ClusterKeys, ours: Compare, ops: Sequence[Op]) -> None:
    """Write what counts only while the mark is this attempt's. Raises ConflictError."""
    if not (await target.kv.txn([ours], ops)).succeeded:
        raise somebody_else(target, keys)


def somebody_else(store: Store, keys: ClusterKeys) -> ConflictError:
    """Why an attempt ends whose mark is not in the store any more."""
    return ConflictError(
        f"somebody else is moving or restoring cluster {keys.cluster!r} in {store.url}"
    )


def mark_value(value: dict[str, str | None]) -> bytes:
    """A mark as it is stored."""
    return json.dumps(value).encode()


async def together(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Do all at once. Raises what failed first, when the rest has ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def chunks(puts: Sequence[Put]) -> Iterator[list[Put]]:
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
