"""The lease by which one run at a time holds a pipeline. Pure.

The stored status names the run that holds it, or held it last. A run asks with a report of the
state `init`, keeps the lease with further reports, and gives it up with `stopped` or `failed`.
Another run gets it when the holder has not reported for `LEASE_MS`. Time is a number of
milliseconds that grows.
"""

from __future__ import annotations

from typing import Final

from schemas.objects.pipeline import (
    Desired,
    Pipeline,
    PipelineReport,
    PipelineState,
    PipelineStatus,
    ReportedState,
)

LEASE_MS: Final = 10_000
"""So long after its last report, another run may take the pipeline over."""
UNKNOWN_MS: Final = 30_000
"""So long after its last report, nobody can say whether a run goes on."""

_LIVE: Final = (PipelineState.INIT, PipelineState.RUNNING)


def holder(status: PipelineStatus) -> str | None:
    """The run that holds the pipeline, as stored; None if the last one has ended."""
    return status.run_id if status.state in _LIVE else None


def refusal(pipeline: Pipeline, heard_ms: int, report: PipelineReport, now_ms: int) -> str | None:
    """Why a report is refused; None if its run holds the lease now.

    ``heard_ms`` is when the holder last reported; for one of which this SC has heard nothing, when
    the SC began to listen.
    """
    status, name = pipeline.status, pipeline.name
    if report.run_id == status.run_id:
        if holder(status) is not None or not report.state.live:
            return None
        return f"run {report.run_id} of pipeline {name} has ended ({status.state.value})"
    if report.state is not ReportedState.INIT:
        return f"run {report.run_id} does not hold pipeline {name} any more: {_taken(status)}"
    if pipeline.spec.desired is Desired.STOPPED:
        return (
            f"pipeline {name} is to be stopped (spec.desired); let it run with: runnel pipeline"
            f" start {name}"
        )
    left_ms = heard_ms + LEASE_MS - now_ms
    if holder(status) is None or left_ms <= 0 or report.take_over:
        return None
    return (
        f"pipeline {name} is run by run {status.run_id} on host {status.host}; if that one has"
        f" died, its lease ends in {max(1, -(-left_ms // 1000))} s: try again then, or add"
        " --take-over"
    )


def _taken(status: PipelineStatus) -> str:
    if status.run_id is None:
        return "it was deleted and created again, or the cluster was restored from a backup"
    return f"run {status.run_id} on host {status.host} has taken it over"


def to_store(pipeline: Pipeline, report: PipelineReport, at: str) -> PipelineStatus | None:
    """The status to store after a report that is not refused; None if the stored one says it all.

    Only what changes when a run begins, ends or fails is stored, so that batches write nothing.
    """
    old = pipeline.status
    same = (
        old.run_id == report.run_id
        and old.state.value == report.state.value
        and old.host == report.host
        and old.restarts == report.restarts
        and old.last_error == report.last_error
        and old.observed_generation == report.generation
    )
    return None if same else reported(pipeline, report, at)


def reported(pipeline: Pipeline, report: PipelineReport, at: str) -> PipelineStatus:
    """The status that a report describes; ``at`` is when it came."""
    state = PipelineState(report.state.value)
    if state not in _LIVE:
        report = report.model_copy(update={"rows_per_second": None})
    if report.last_batch is None:
        # A run that has ended no batch yet goes on after the last one of the run before.
        report = report.model_copy(update={"last_batch": pipeline.status.last_batch})
    return PipelineStatus(
        observed_generation=report.generation,
        state=state,
        reason=_reason(pipeline, state, report.last_error),
        run_id=report.run_id,
        last_seen=at,
        **report.model_dump(exclude={"run_id", "state", "generation", "take_over"}),
    )


def _reason(pipeline: Pipeline, state: PipelineState, error: str | None) -> str | None:
    if state is PipelineState.FAILED:
        return error
    if state is PipelineState.INIT and error is not None:
        return f"its query failed and is started again: {error}"
    if state in _LIVE and pipeline.spec.desired is Desired.STOPPED:
        return "spec.desired is stopped: its runner ends the query after the batch"
    return None


def shown(
    pipeline: Pipeline, report: PipelineReport | None, heard_ms: int, at: str | None, now_ms: int
) -> PipelineStatus:
    """The status as users see it. ``report`` is the last one of the run that holds the pipeline,
    which came at ``at``; None if this SC has heard nothing of it."""
    status = pipeline.status
    if holder(status) is None:
        reason = status.reason
        if status.run_id is None:
            reason = f"no runner has begun it; begin with: runnel pipeline run {pipeline.name}"
            if pipeline.spec.desired is Desired.STOPPED:
                reason = "spec.desired is stopped"
        return status.model_copy(
            update={"reason": reason, "observed_generation": pipeline.generation}
        )
    if report is not None and at is not None:
        status = reported(pipeline, report, at)
    silent_ms = now_ms - heard_ms
    if silent_ms >= UNKNOWN_MS:
        reason = (
            f"run {status.run_id} on host {status.host} has not reported for {silent_ms // 1000} s;"
            f" if it has died, run it again: runnel pipeline run {pipeline.name}"
        )
        return status.model_copy(update={"state": PipelineState.UNKNOWN, "reason": reason})
    return status.model_copy(update={"reason": _reason(pipeline, status.state, status.last_error)})
