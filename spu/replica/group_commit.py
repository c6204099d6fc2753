"""Group commit: one fsync at a time per log, each for all records that were written before it.

However many producers wait, they wait for the fsync in flight and then share the next one. If a run
fails, there are no more runs: after a failed fsync nobody knows what the disk holds, and a second
fsync could succeed without having written anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import perf_counter

from schemas.daemon.latency import LatencyHistogram
from schemas.daemon.logs import get_logger
from spu.storage.log import PartitionLog
from spu.storage.segment import Segment
from spu.storage.sync_plan import SyncPlan
from spu.storage.truncated_segments import RetiredFiles

_log = get_logger(__name__)


class GroupCommit:
    """Runs the sync plans of one log.

    ``lac`` returns the last add confirmed for checkpoints, ``clock_us`` wall time; ``synced`` is
    called after every run, ``failed`` once, with the error, when a run fails. ``took`` gets how
    long each run took.
    """

    def __init__(
        self,
        log: PartitionLog,
        executor: Executor,
        *,
        lac: Callable[[], int],
        clock_us: Callable[[], int],
        synced: Callable[[], None],
        failed: Callable[[BaseException], None],
        took: LatencyHistogram,
    ) -> None:
        self._log = log
        self._executor = executor
        self._lac = lac
        self._clock_us = clock_us
        self._synced = synced
        self._failed = failed
        self._took = took
        self._scheduled = False
        self._running: asyncio.Future[float] | None = None
        self._retiring: set[asyncio.Future[RetiredFiles]] = set()
        self._stopped = False
        self._held = False
        #: Whether a run failed: what was written since the one before may not be on the disk.
        self.broken = False

    def wake(self) -> None:
        """Something was written. The run begins after the events that the loop already has, so
        that requests which arrived together share it."""
        idle = not self._scheduled and self._running is None and not self._held
        if idle and self._log.sync_is_due:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def sync_now(self) -> None:
        """Begin a run if there is anything to sync, due or not."""
        if self._running is None and self._log.needs_sync:
            self._start()

    async def checkpoint(self) -> None:
        """Run with a checkpoint of the whole log, after the run in flight, if there is one."""
        self._start(checkpoint=True)
        # It does not wait for later runs: while records keep coming, there is always another.
        if (run := self._running) is not None:
            await asyncio.wait([run])

    def hold(self) -> None:
        """Begin no run until `release`. After `quiet`, the log may be cut."""
        self._held = True

    @property
    def held(self) -> bool:
        """Whether the log is being cut, or could not be."""
        return self._held

    def release(self) -> None:
        """Go on after `hold`."""
        self._held = False
        self.wake()

    def stop(self) -> None:
        """Begin no more runs."""
        self._stopped = True

    async def quiet(self) -> None:
        """Wait for the run in flight."""
        while self._running is not None:
            await asyncio.wait([self._running])
        if self._retiring:
            await asyncio.wait(self._retiring)

    async def finish(self) -> None:
        """Make everything durable, write a checkpoint, and stop."""
        await self.quiet()
        while not self._stopped:
            self._start(checkpoint=True)
            await self.quiet()
            if not self._log.needs_sync:
                self.stop()

    def _start(self, *, checkpoint: bool = False) -> None:
        self._scheduled = False
        if self._stopped or self._held or self._running is not None:
            return
        plan = self._log.plan_sync(self._lac(), checkpoint=checkpoint)
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._executor, _timed, plan)
        self._running.add_done_callback(partial(self._done, plan))

    def _done(self, plan: SyncPlan, run: asyncio.Future[float]) -> None:
        self._running = None
        error = run.exception()
        if error is not None:
            self._stopped = self.broken = True
            self._failed(error)
            return
        self._took.observe(run.result())
        truncated = self._log.synced(plan)
        if truncated:
            self._retire(truncated)
        self._synced()
        if not self._stopped:
            self.wake()

    def _retire(self, truncated: tuple[Segment, ...]) -> None:
        loop = asyncio.get_running_loop()
        grace_ms = self._log.settings.retention.grace
        work = partial(self._log.truncated.retire_files, truncated, grace_ms, self._clock_us())
        retiring = loop.run_in_executor(self._executor, work)
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retired)

    def _retired(self, retiring: asyncio.Future[RetiredFiles]) -> None:
        self._retiring.discard(retiring)
        if (error := retiring.exception()) is not None:
            # They lie below the durable log start: the next start of the SPU retires them.
            _log.warning("could not retire truncated segments", error=str(error))
            return
        self._log.truncated.add(retiring.result())


def _timed(plan: SyncPlan) -> float:
    """Run ``plan`` in a thread; returns the seconds that it took."""
    began_s = perf_counter()
    plan.run()
    return perf_counter() - began_s
