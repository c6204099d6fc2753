"""Takes a lease of the KV and renews it, for as long as the SC runs.

An attempt has `ATTEMPT_S`; one that fails is repeated soon. A lease that the KV has ended is
replaced by a new one. `holds` says whether the SC may rely on the lease now: an SC that was stopped
and goes on asks before it does anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sc.election.lease_clock import LeaseClock
from sc.kv.interface import KV
from schemas.daemon.logs import get_logger
from schemas.errors import NotFoundError, RunnelError

LEASE_MS: Final = 6_000
ATTEMPT_S: Final = 1.0
RETRY_S: Final = 0.2

log = get_logger(__name__)


class LeaseKeeper:
    """One lease. ``changed`` is called when another lease took its place, or none did."""

    def __init__(
        self,
        kv: KV,
        clock_ms: Callable[[], int],
        changed: Callable[[], None],
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._kv = kv
        self._clock_ms = clock_ms
        self._changed = changed
        self._lease_ms = lease_ms
        self._clock = LeaseClock(0, 0)
        self._in_trouble = False
        #: The lease, also one that the SC may not rely on any more; 0 if there is none.
        self.lease = 0

    def holds(self) -> bool:
        """Whether the SC may rely on the lease now."""
        return self.lease != 0 and self._clock.holds(self._clock_ms())

    @property
    def left_ms(self) -> int:
        """For how long the SC may rely on it, if it is not renewed."""
        return max(0, self._clock.until_ms - self._clock_ms()) if self.lease else 0

    async def run(self) -> None:
        """Take and renew it for ever."""
        while True:
            if not self.lease:
                await self._grant()
                continue
            await asyncio.sleep(max(0, self._clock.due_ms - self._clock_ms()) / 1000)
            await self._renew()

    async def give_back(self) -> None:
        """End the lease now, and with it all keys that are attached to it. Call it when `run` has
        been cancelled."""
        lease, self.lease = self.lease, 0
        if lease:
            with suppress(RunnelError, TimeoutError):
                async with asyncio.timeout(ATTEMPT_S):
                    await self._kv.lease_revoke(lease)

    async def _grant(self) -> None:
        sent_ms = self._clock_ms()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                lease = await self._kv.lease_grant(self._lease_ms)
        except (TimeoutError, RunnelError):
            await asyncio.sleep(RETRY_S)
            return
        self._clock = LeaseClock(self._lease_ms, sent_ms)
        self.lease = lease
        self._changed()

    async def _renew(self) -> None:
        sent_ms = self._clock_ms()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                ttl_ms = await self._kv.lease_keep_alive(self.lease)
        except NotFoundError:
            log.warning("the lease has ended, taking another one", lease=self.lease)
            self.lease = 0
            self._changed()
        except (TimeoutError, RunnelError) as error:
            if not self._in_trouble:
                log.warning(
                    "the lease was not renewed, trying again", why=str(error) or "no answer"
                )
            self._in_trouble = True
            await asyncio.sleep(RETRY_S)
        else:
            self._in_trouble = False
            self._clock.renewed(sent_ms, ttl_ms)
