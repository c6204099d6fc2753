"""The KV in memory: for tests and simulations. Nothing survives the process.

Deterministic: the same calls in the same order on the same clock give the same revisions, lease
ids and events, and no call waits for anything but a watch for its next event.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sc.kv.local import KEEP_BYTES, KEEP_REVISIONS, LocalKV
from sc.kv.mvcc import Delta, Mvcc


class MemoryKV(LocalKV):
    """An empty store, or one that holds what is given. ``clock`` gives seconds; without
    `start_lease_timer` leases expire only when `expire_leases` is called."""

    def __init__(
        self,
        store: Mvcc | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        keep_revisions: int = KEEP_REVISIONS,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        super().__init__(
            Mvcc() if store is None else store,
            clock=clock,
            keep_revisions=keep_revisions,
            keep_bytes=keep_bytes,
        )
        self._last_lease = 0

    async def _make_durable(self, delta: Delta) -> None:
        if delta.written:
            self._publish(delta.revision)

    def _new_lease(self) -> int:
        self._last_lease += 1
        return self._last_lease
