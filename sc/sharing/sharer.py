"""This SC's part in the work for streams: what it holds, and who does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sc.mirror import Mirror
from sc.sharing.claims import BucketClaims
from sc.sharing.listening import DEAF_MS
from sc.sharing.worker import StreamWorker
from schemas.control.controllers import ControllerEntry


class Sharer:
    """The part of the SC ``me``. ``lease`` and ``predecessor``: see `BucketClaims`."""

    def __init__(
        self,
        mirror: Mirror,
        me: ControllerEntry,
        lease: Callable[[], int],
        predecessor: str | None = None,
    ) -> None:
        def leader() -> ControllerEntry | None:
            found = mirror.leader_entry
            return None if found is None or found.instance == me.instance else found

        self._mirror = mirror
        self.claims = BucketClaims(mirror, me, lease, predecessor)
        self._worker = StreamWorker(mirror, self.claims, leader)

    async def run(self) -> None:
        """Take part for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.claims.run(), name="buckets")
            group.create_task(self._worker.run(), name="streams")

    @property
    def shares(self) -> bool:
        """Whether this SC can work for streams now. One that cannot hear the leader, or does not
        see what happens in the KV, leaves them to others."""
        return self._worker.is_able and self._mirror.stale_ms < DEAF_MS

    @property
    def trouble(self) -> str:
        """Why this SC cannot, and what to do."""
        if self._worker.is_able:
            return f"has not followed the KV for {self._mirror.stale_ms / 1000:.0f} s"
        return self._worker.trouble

    def rest(self, resting: bool) -> None:
        """While this SC leads, its controller does the work, and the worker rests."""
        self._worker.rest(resting)
