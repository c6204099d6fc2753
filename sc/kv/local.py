"""The shared part of the backends inside the SC's own process: `Mvcc` behind the asyncio interface.

A step is applied to the head at once and then handed to `_make_durable`; its caller is answered,
and readers and watches see it, only when that is done and `_publish` moved the durable revision.
Answers that wrote nothing wait as well, because they may show a step that is not durable yet.

Watches hold no queue: each is a position in the history, woken when the durable revision moves.
Every waiting watch examines each new revision; that is cheap for the few watches of an SC.

Time comes from an injected monotonic ``clock`` in seconds. `start_lease_timer` expires leases by
itself; without it (simulations, tests on virtual time) the owner calls `expire_leases` whenever
`next_expiry` has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Callable, Sequence

from sc.kv.interface import (
    DEFAULT_PAGE,
    KV,
    Compare,
    KeyValue,
    Op,
    RangePage,
    TxnResult,
    Watch,
    WatchBatch,
)
from sc.kv.mvcc import Delta, Mvcc, event_under, lease_not_found
from sc.kv.requests import (
    check_key,
    check_page,
    check_prefix,
    check_read_revision,
    check_ttl,
    check_txn,
    check_watch_revision,
)
from schemas.daemon.logs import get_logger
from schemas.errors import (
    CompactedError,
    DeadlineExceededError,
    InvalidRequestError,
    RunnelError,
    UnreachableError,
)

KEEP_REVISIONS = 10_000
"""How many revisions of history automatic compaction leaves."""

KEEP_BYTES = 64 << 20
"""About how much memory, in bytes, the history that automatic compaction leaves may take."""

_SCAN_REVISIONS = 256
"""How many revisions a watch examines before it lets other tasks run."""

_log = get_logger(__name__)


class LocalKV(KV):
    """`KV` over an `Mvcc`. Backends say how a delta becomes durable."""

    def __init__(
        self,
        store: Mvcc,
        *,
        clock: Callable[[], float],
        keep_revisions: int = KEEP_REVISIONS,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        if keep_revisions < 1 or keep_bytes < 1:
            raise InvalidRequestError("keep_revisions and keep_bytes must be positive")
        self._store = store
        self._clock = clock
        self._keep_revisions = keep_revisions
        self._keep_bytes = keep_bytes
        self._compaction_step = max(1, keep_revisions // 100)
        self._durable_revision = store.revision
        self._moved = asyncio.Event()
        self._failure: Callable[[], RunnelError] | None = None
        now = clock()
        self._deadlines = {
            lease: now + store.lease_ttl_ms(lease) / 1000 for lease in store.leases()
        }
        self._granted = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None

    @abstractmethod
    async def _make_durable(self, delta: Delta) -> None:
        """Return when this delta and all before it are durable and published."""

    @abstractmethod
    def _new_lease(self) -> int:
        """An id that was never used in this store."""

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        check_key(key)
        return self._store.get(key, self._readable(revision))

    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int = DEFAULT_PAGE,
        revision: int = 0,
    ) -> RangePage:
        check_prefix(prefix)
        check_page(limit, start_after)
        at = self._readable(revision)
        items, more = self._store.range(prefix, start_after=start_after, limit=limit, revision=at)
        return RangePage(items, at, more)

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        check_txn(compares, success, failure)
        self._admit()
        result, delta = self._store.apply(compares, success, failure)
        await self._commit(delta)
        return result

    def watch(self, prefix: str, from_revision: int) -> Watch:
        check_prefix(prefix)
        check_watch_revision(from_revision)
        self._check_usable()
        return _LocalWatch(self, prefix, from_revision)

    async def lease_grant(self, ttl_ms: int) -> int:
        check_ttl(ttl_ms)
        self._admit()
        lease = self._new_lease()
        self._deadlines[lease] = self._clock() + ttl_ms / 1000
        self._granted.set()
        await self._commit(self._store.grant(lease, ttl_ms))
        return lease

    async def lease_keep_alive(self, lease: int) -> int:
        self._check_usable()
        ttl_ms = self._store.lease_ttl_ms(lease)
        now = self._clock()
        # A lease past its time is as good as gone: its holder may already have been told so.
        if self._deadlines[lease] <= now:
            raise lease_not_found(lease)
        self._deadlines[lease] = now + ttl_ms / 1000
        return ttl_ms

    async def lease_revoke(self, lease: int) -> None:
        self._admit()
        await self._revoke(lease)

    async def compact(self, revision: int) -> None:
        self._admit()
        if revision > self._durable_revision or revision < 1:
            raise InvalidRequestError(
                f"cannot compact to revision {revision}; the current one is "
                f"{self._durable_revision}"
            )
        if revision <= self._store.compacted:
            raise CompactedError(
                f"revision {revision} was compacted already; the compacted revision is "
                f"{self._store.compacted}",
                first_available=self._store.compacted,
            )
        await self._commit(self._store.compact(revision))

    async def revision(self) -> int:
        self._check_usable()
        return self._durable_revision

    def next_expiry(self) -> float | None:
        """When, on the clock, the next lease expires unless it is kept alive; None without any."""
        return min(self._deadlines.values(), default=None)

    async def expire_leases(self) -> int:
        """Revoke every lease whose time has passed, each in its own revision; returns how many."""
        now = self._clock()
        due = sorted((at, lease) for lease, at in self._deadlines.items() if at <= now)
        for _, lease in due:
            # It may have been revoked while an earlier one was made durable; once its time had
            # passed it cannot have been kept alive.
            if lease in self._deadlines:
                self._check_usable()
                await self._revoke(lease)
        return len(due)

    def start_lease_timer(self) -> None:
        """Expire leases in the background until `close`. The clock must run in real seconds, or
        in those of the event loop."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().create_task(
                self._expire_forever(), name="kv-lease-timer"
            )

    async def close(self) -> None:
        await self._stop_lease_timer()
        self._fail(closed_error)

    def look(self, prefix: str, position: int) -> tuple[WatchBatch | None, int]:
        """The first batch under ``prefix`` at or above ``position`` among a bounded number of
        durable revisions, and the position to look from next.

        Raises CompactedError when a batch may have been forgotten.
        """
        self._check_usable()
        if position < self._store.compacted:
            raise CompactedError(
                f"revision {position} was compacted; list again and watch from there",
                first_available=self._store.compacted,
            )
        stop = min(self._durable_revision + 1, position + _SCAN_REVISIONS)
        for revision in range(position, stop):
            events = self._store.events(revision)
            found = tuple([event for event in events if event_under(event, prefix)])
            if found:
                return WatchBatch(revision, found), revision + 1
        return None, max(position, stop)

    async def moved_to(self, revision: int) -> None:
        """Return when ``revision`` may be durable, or the store can no longer be used; at once,
        but not before other tasks had a turn, if it is already durable."""
        if revision <= self._durable_revision:
            await asyncio.sleep(0)
        else:
            await self._moved.wait()

    def _publish(self, revision: int) -> None:
        self._durable_revision = revision
        self._wake_watches()

    def _fail(self, failure: Callable[[], RunnelError]) -> None:
        # Each caller gets an error of its own: one raised in many tasks would gather tracebacks.
        self._failure = self._failure or failure
        self._wake_watches()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure()

    def _admit(self) -> None:
        """Before a write: raise unless it may be applied. Backends add their own bounds."""
        self._check_usable()

    def _readable(self, revision: int) -> int:
        self._check_usable()
        return check_read_revision(
            revision, current=self._durable_revision, compacted=self._store.compacted
        )

    async def _commit(self, delta: Delta) -> None:
        compaction = self._compact_excess()
        await self._make_durable(delta.then_compacted(compaction) if compaction else delta)

    async def _revoke(self, lease: int) -> None:
        delta = self._store.revoke(lease)
        del self._deadlines[lease]
        await self._commit(delta)

    def _compact_excess(self) -> Delta | None:
        target = self._store.compaction_target(
            keep_revisions=self._keep_revisions, keep_bytes=self._keep_bytes
        )
        # Keep revisions that are not durable yet: they have still to be read and watched.
        target = min(target, self._durable_revision)
        behind = target - self._store.compacted
        if behind >= self._compaction_step or (
            behind > 0 and self._store.log_bytes > self._keep_bytes
        ):
            return self._store.compact(target)
        return None

    def _wake_watches(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _stop_lease_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.wait([self._timer])

    async def _expire_forever(self) -> None:
        while True:
            self._granted.clear()
            due = self.next_expiry()
            delay = None if due is None else max(0.0, due - self._clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._granted.wait()
            try:
                await self.expire_leases()
            except DeadlineExceededError:
                # The lease is revoked, but not durably yet.
                continue
            except RunnelError as error:
                _log.error("leases no longer expire", error=str(error))
                return


def closed_error() -> UnreachableError:
    """The error of every call after `KV.close`."""
    return UnreachableError("the KV store is closed")


class _LocalWatch(Watch):
    def __init__(self, kv: LocalKV, prefix: str, from_revision: int) -> None:
        self._kv = kv
        self._prefix = prefix
        self._position = from_revision
        self._closed = False

    async def __anext__(self) -> WatchBatch:
        while not self._closed:
            # The position moves past other keys' revisions too, else compaction would overtake a
            # watch that waits on a quiet prefix and is cancelled now and then.
            batch, self._position = self._kv.look(self._prefix, self._position)
            if batch is not None:
                return batch
            await self._kv.moved_to(self._position)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._closed = True
