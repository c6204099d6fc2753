"""A KV that measures each request to the KV below it.

What it does is what the other one does. Neighbour: `sc.metrics.instruments` keeps the times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from sc.kv.interface import (
    DEFAULT_PAGE,
    KV,
    Compare,
    KeyValue,
    Op,
    RangePage,
    TxnResult,
    Watch,
)


class MeasuredKV(KV):
    """``measure`` gives a context for the name of an operation; each request runs in one. Watches
    are not measured: they wait for events."""

    def __init__(self, kv: KV, measure: Callable[[str], AbstractContextManager[None]]) -> None:
        self._kv = kv
        self._measure = measure

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        with self._measure("get"):
            return await self._kv.get(key, revision=revision)

    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int = DEFAULT_PAGE,
        revision: int = 0,
    ) -> RangePage:
        with self._measure("range"):
            return await self._kv.range(
                prefix, start_after=start_after, limit=limit, revision=revision
            )

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        with self._measure("txn"):
            return await self._kv.txn(compares, success, failure)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        return self._kv.watch(prefix, from_revision)

    async def lease_grant(self, ttl_ms: int) -> int:
        with self._measure("lease_grant"):
            return await self._kv.lease_grant(ttl_ms)

    async def lease_keep_alive(self, lease: int) -> int:
        with self._measure("lease_keep_alive"):
            return await self._kv.lease_keep_alive(lease)

    async def lease_revoke(self, lease: int) -> None:
        with self._measure("lease_revoke"):
            await self._kv.lease_revoke(lease)

    async def compact(self, revision: int) -> None:
        with self._measure("compact"):
            await self._kv.compact(revision)

    async def revision(self) -> int:
        with self._measure("revision"):
            return await self._kv.revision()

    async def check_writable(self) -> None:
        with self._measure("check_writable"):
            await self._kv.check_writable()

    async def close(self) -> None:
        await self._kv.close()
