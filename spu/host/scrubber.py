"""Reads all records of an SPU within a given time, so that damage is found before a reader
meets it.

One replica after another is verified, in the read threads, a slice at a time, with pauses: a pass
is spread over about half of the period, but reads at least `LEAST_BYTES_S` and at most
`MOST_BYTES_S`. The order is random, so that an SPU that is often restarted does not always verify
the same replicas. A damaged replica becomes unfit, and is rebuilt from its leader. Nothing of this
is stored. Neighbours: `spu.replica.verify_slice`, `spu.http` (metrics).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from schemas.daemon.logs import get_logger
from schemas.errors import RunnelError
from schemas.ids import PartitionUid
from spu.replica.replica import Replica
from spu.replica.verify_slice import verify_slice
from spu.storage.verification import Severity, Verification

_log = get_logger(__name__)

SLICE_BYTES: Final = 256 << 10
LEAST_BYTES_S: Final = 1 << 20
MOST_BYTES_S: Final = 32 << 20
#: After a start, an SPU has more urgent things to read.
DELAY_S: Final = 60.0


class Scrubber:
    """Scrubs ``replicas`` every ``period_s`` seconds; None: never."""

    def __init__(
        self,
        replicas: Mapping[PartitionUid, Replica],
        threads: Executor,
        period_s: float | None,
    ) -> None:
        self._replicas = replicas
        self._threads = threads
        self._period_s = period_s
        #: Bytes that were verified, passes that ended, replicas that were damaged, since the start.
        self.checked_bytes = 0
        self.passes = 0
        self.damaged = 0

    async def run(self) -> None:
        """Scrub for ever."""
        if self._period_s is None:
            return
        loop = asyncio.get_running_loop()
        await asyncio.sleep(DELAY_S)
        while True:
            next_s = loop.time() + self._period_s
            await self.scrub()
            await asyncio.sleep(max(0.0, next_s - loop.time()))

    async def scrub(self) -> None:
        """One pass over all replicas that are here now."""
        uids = list(self._replicas)
        random.shuffle(uids)
        rate = self._bytes_s(sum(replica.size_bytes for replica in self._replicas.values()))
        for uid in uids:
            if (replica := self._replicas.get(uid)) is not None:
                try:
                    await self._scrub_replica(replica, rate)
                except Exception as error:
                    # The others are scrubbed all the same.
                    _log.error("scrubbing failed", partition=replica.meta.name, exc_info=error)
        self.passes += 1

    def _bytes_s(self, total_bytes: int) -> float:
        wanted = 2 * total_bytes / (self._period_s or 1.0)
        return min(max(wanted, LEAST_BYTES_S), MOST_BYTES_S)

    async def _scrub_replica(self, replica: Replica, rate: float) -> None:
        verification: Verification | None = None
        try:
            verification = Verification(replica.verifiable()[1])
            while not verification.finished:
                before = verification.checked_bytes
                await verify_slice(replica, verification, self._threads, SLICE_BYTES)
                checked = verification.checked_bytes - before
                self.checked_bytes += checked
                await asyncio.sleep(checked / rate)
        except RunnelError as error:
            # It does not serve, or was cut meanwhile: the next pass reads it.
            _log.debug("not scrubbed", partition=replica.meta.name, why=error.message)
        finally:
            if verification is not None:
                verification.close()
                self._note(replica, verification)

    def _note(self, replica: Replica, verification: Verification) -> None:
        found = [one for one in verification.problems if one.severity is Severity.DAMAGE]
        self.damaged += bool(found)
        for problem in found:
            _log.error("scrubbing found damage", partition=replica.meta.name, **problem.to_json())
