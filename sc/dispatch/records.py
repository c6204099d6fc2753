"""Reads records for passes of controllers: what one pass wants, all at one revision of the KV.

Records that are never changed are kept in memory, up to a bound, across passes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from sc.kv.interface import KV, KeyValue
from sc.store.records import GetRecord, ListRecords, Record, Records, Want
from schemas.objects.keys import ClusterKeys

CACHE_BYTES: Final = 256 << 20
#: What a cached record takes besides its path and value.
_BESIDE_BYTES: Final = 200


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class RecordReader:
    """Reads under the cluster's second root. ``is_fixed`` says of a path whether its record is
    never written twice."""

    def __init__(
        self,
        kv: KV,
        keys: ClusterKeys,
        is_fixed: Callable[[str], bool],
        *,
        now_ms: Callable[[], int] = wall_ms,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._is_fixed = is_fixed
        self._now_ms = now_ms
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[Want, tuple[Record, ...]] = OrderedDict()
        self.cached_bytes = 0

    async def read(self, before: Records | None, wants: Sequence[Want]) -> Records:
        """The records of a pass together with some more, as of the revision of its first ones.

        Raises CompactedError if that revision is gone (begin a new pass), and what `KV` raises.
        """
        if before is None:
            before = Records(await self._kv.revision(), self._now_ms(), {})
        found = {want: await self._one(want, before.revision) for want in wants}
        return before.with_found(found)

    def clear(self) -> None:
        """Forget what is cached: the KV may have another history."""
        self._cache.clear()
        self.cached_bytes = 0

    async def _one(self, want: Want, revision: int) -> tuple[Record, ...]:
        if (cached := self._cache.get(want)) is not None:
            self._cache.move_to_end(want)
            return cached
        found: tuple[Record, ...]
        match want:
            case GetRecord(path):
                kv = await self._kv.get(self._keys.record(path), revision=revision)
                found = () if kv is None else (self._record(kv),)
                fixed = kv is not None and self._is_fixed(path)
            case ListRecords(prefix, limit, through):
                page = await self._kv.range(
                    self._keys.record(prefix), limit=limit, revision=revision
                )
                last = None if through is None else prefix + through
                some = map(self._record, page.items)
                found = tuple(one for one in some if last is None or one.path <= last)
                # Such records are written in the order of their paths: up to one that is there,
                # none will be added.
                fixed = last is not None and self._is_fixed(last) and _last(found) == last
        if fixed:
            self._keep(want, found)
        return found

    def _record(self, kv: KeyValue) -> Record:
        return Record(kv.key.removeprefix(self._keys.records), kv.value, kv.mod_revision)

    def _keep(self, want: Want, found: tuple[Record, ...]) -> None:
        self._cache[want] = found
        self.cached_bytes += _size(found)
        while self.cached_bytes > self._cache_bytes:
            _, gone = self._cache.popitem(last=False)
            self.cached_bytes -= _size(gone)


def _last(found: tuple[Record, ...]) -> str | None:
    return found[-1].path if found else None


def _size(found: tuple[Record, ...]) -> int:
    return sum(len(one.path) + len(one.value) + _BESIDE_BYTES for one in found)
