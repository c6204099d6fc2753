"""What the runs of pipelines last reported, in memory: the KV holds only what changes with a run.

A new SC knows no report; the next one of each run, which comes within seconds, brings everything.
Until then, a run that is stored as running counts as heard when the SC began.
"""

from __future__ import annotations

from dataclasses import dataclass

from sc.pipelines.lease import holder, shown
from sc.store.local_store import Change, LocalStore, ObjectChanged
from schemas.objects.pipeline import Pipeline, PipelineReport, PipelineStatus


@dataclass(frozen=True, slots=True)
class Heard:
    """A report, and when it came: by the SC's clock, and for people."""

    report: PipelineReport
    at_ms: int
    at: str


class PipelineBoard:
    """The last report of each pipeline that the store knows."""

    def __init__(self, store: LocalStore, now_ms: int) -> None:
        self._store = store
        self._began_ms = now_ms
        self._heard: dict[str, Heard] = {}
        self._shown: dict[str, PipelineStatus] = {}
        self._changed: dict[str, int] = {}

    def begin(self, now_ms: int) -> None:
        """From now on, reports come: what is stored as running counts as heard now."""
        self._began_ms = now_ms

    def take(self, pipeline: Pipeline, heard: Heard) -> None:
        """A report that was accepted."""
        self._heard[pipeline.uid] = heard

    def note(self, change: Change) -> None:
        """The mirror has changed: what was deleted is forgotten."""
        old, new = (change.old, change.new) if isinstance(change, ObjectChanged) else (None, None)
        if isinstance(old, Pipeline) and (new is None or new.uid != old.uid):
            self._heard.pop(old.uid, None)

    def heard_ms(self, pipeline: Pipeline) -> int:
        """When the run that holds the pipeline reported last."""
        found = self._of_holder(pipeline)
        return self._began_ms if found is None else found.at_ms

    def shown(self, pipeline: Pipeline, now_ms: int) -> Pipeline:
        """The pipeline with the status of now."""
        found = self._of_holder(pipeline)
        if found is None:
            status = shown(pipeline, None, self._began_ms, None, now_ms)
        else:
            status = shown(pipeline, found.report, found.at_ms, found.at, now_ms)
        return pipeline.model_copy(update={"status": status})

    def _of_holder(self, pipeline: Pipeline) -> Heard | None:
        found = self._heard.get(pipeline.uid)
        return found if found and found.report.run_id == holder(pipeline.status) else None

    # -- for those that follow statistics -------------------------------------------------------

    def close_second(self, version: int, now_ms: int) -> None:
        """Note which pipelines look otherwise than a second ago, under the statistics' version."""
        before, self._shown = self._shown, {}
        for pipeline in self._store.objects(Pipeline):
            status = self.shown(pipeline, now_ms).status
            self._shown[pipeline.name] = status
            if before.get(pipeline.name) != status:
                self._changed[pipeline.name] = version
        for name in self._changed.keys() - self._shown.keys():
            del self._changed[name]

    def changed_since(self, version: int | None) -> dict[str, PipelineStatus]:
        """By name, the statuses that changed after a version, as of the last second; None: all."""
        return {
            name: status
            for name, status in self._shown.items()
            if version is None or self._changed[name] > version
        }
