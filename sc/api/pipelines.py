"""Reports of the runners of pipelines: who holds one is stored, what it has done is remembered.

One report of a pipeline is worked on at a time, and what it stores is compared with the version
that decided it: so two runs that ask at once do not both get the lease, and neither do two runs
that ask two SCs.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from sc.controller import Controller
from sc.dispatch.kv_updater import written_at
from sc.kv.interface import Get, GetResponse, ModRevisionIs, Put
from sc.pipelines.board import Heard
from sc.pipelines.lease import holder, refusal, to_store
from sc.store.codec import encode_object
from schemas.causality import current_cause
from schemas.daemon.logs import get_logger
from schemas.errors import ConflictError, NotFoundError, NotReadyError
from schemas.objects.pipeline import Pipeline, PipelineReport

_ATTEMPTS = 10

log = get_logger(__name__)


class PipelineReports:
    """Takes reports for one controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        #: By name, while somebody waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, name: str, report: PipelineReport, by: str) -> Pipeline:
        """Accept a report, and give the pipeline as it is then.

        Raises NotFoundError; ConflictError if another run holds the pipeline, or none may.
        """
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            return await self._take(name, report, by)

    async def _take(self, name: str, report: PipelineReport, by: str) -> Pipeline:
        controller, board = self._controller, self._controller.pipelines
        for _ in range(_ATTEMPTS):
            pipeline = self._find(name)
            now_ms = controller.clock_ms()
            why = refusal(pipeline, board.heard_ms(pipeline), report, now_ms)
            if why is not None:
                held = pipeline.status
                raise ConflictError(why, runId=held.run_id, host=held.host)
            at = written_at()
            status = to_store(pipeline, report, at)
            if status is not None:
                if not await self._store(pipeline.with_status(status), by):
                    continue
                if holder(pipeline.status) != report.run_id:
                    log.info("a run holds a pipeline", pipeline=name, run=report.run_id)
                pipeline = self._find(name)
            board.take(pipeline, Heard(report, now_ms, at))
            return board.shown(pipeline, now_ms)
        raise ConflictError(f"Pipeline {name} is being changed by others all the time; try again")

    def _find(self, name: str) -> Pipeline:
        found = self._controller.view.store.get(Pipeline, name)
        if found is None:
            raise _absent(name)
        return found

    async def _store(self, pipeline: Pipeline, by: str) -> bool:
        """Write a status; False if the pipeline has changed meanwhile, which the mirror then
        shows. Raises NotReadyError if another SC has taken over."""
        controller = self._controller
        keys, guards = controller.keys, controller.leadership.guards
        key = keys.object(Pipeline.PLURAL, pipeline.name)
        value = encode_object(pipeline, current_cause(), by=by, at=written_at())
        compares = [*guards, ModRevisionIs(keys.moved, 0), ModRevisionIs(keys.arriving, 0)]
        unchanged = ModRevisionIs(key, pipeline.revision)
        result = await controller.kv.txn([*compares, unchanged], [Put(key, value)], [Get(key)])
        if not result.succeeded:
            (found,) = result.responses
            if not isinstance(found, GetResponse) or found.kv is None:
                raise _absent(pipeline.name)
            if found.kv.mod_revision == pipeline.revision:
                raise NotReadyError("this SC does not lead the cluster any more; ask again")
            await controller.feed.applied(found.kv.mod_revision)
            return False
        await controller.feed.applied(result.revision)
        return True


def _absent(name: str) -> NotFoundError:
    return NotFoundError(f"Pipeline {name!r} does not exist")
