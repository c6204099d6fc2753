"""One run at a time holds a pipeline: the machine alone, and in random lives of runs and SCs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc.pipelines.board import Heard, PipelineBoard
from sc.pipelines.lease import LEASE_MS, UNKNOWN_MS, refusal, shown, to_store
from sc.store.local_store import LocalStore, ObjectChanged
from schemas.objects.metadata import Metadata
from schemas.objects.pipeline import (
    Desired,
    Pipeline,
    PipelineReport,
    PipelineSink,
    PipelineSource,
    PipelineSpec,
    PipelineState,
    PipelineStatus,
    ReportedState,
)
from tests.laws import examples

A, B = "aaaaaaaa", "bbbbbbbb"
AT = "2026-01-31T12:00:00.000Z"


def pipeline(desired: Desired = Desired.RUNNING, **status: Any) -> Pipeline:
    return Pipeline(
        metadata=Metadata(name="p", uid="u", generation=3),
        spec=PipelineSpec(
            source=PipelineSource(topic="in"),
            query="q",
            sink=PipelineSink(topic="out"),
            checkpoint="/c",
            desired=desired,
        ),
        status=PipelineStatus(**status),
    )


def held(state: str = "running", **more: Any) -> Pipeline:
    desired = more.pop("desired", Desired.RUNNING)
    return pipeline(desired, state=PipelineState(state), run_id=A, host="one", **more)


def report(run: str, state: str, **more: Any) -> PipelineReport:
    return PipelineReport(run_id=run, host="two", state=ReportedState(state), **more)


@pytest.mark.parametrize(
    ("before", "asked", "silent_ms", "why"),
    [
        pytest.param(pipeline(), report(B, "init"), 0, None, id="given-none-then-granted"),
        pytest.param(
            pipeline(Desired.STOPPED),
            report(B, "init"),
            0,
            "to be stopped (spec.desired); let it run with: runnel pipeline start p",
            id="given-stopped-is-desired-then-refused",
        ),
        pytest.param(held(), report(A, "running"), 9e6, None, id="given-the-holder-then-kept"),
        pytest.param(
            held(desired=Desired.STOPPED),
            report(A, "running"),
            0,
            None,
            id="given-a-stop-then-kept",
        ),
        pytest.param(
            held(),
            report(B, "init"),
            LEASE_MS - 2_500,
            "run by run aaaaaaaa on host one; if that one has died, its lease ends in 3 s",
            id="given-another-then-refused",
        ),
        pytest.param(held(), report(B, "init"), LEASE_MS, None, id="given-silence-then-granted"),
        pytest.param(
            held(), report(B, "init", take_over=True), 0, None, id="given-take-over-then-granted"
        ),
        pytest.param(
            held(),
            report(B, "running"),
            LEASE_MS,
            "run bbbbbbbb does not hold pipeline p any more: run aaaaaaaa on host one has taken it",
            id="given-one-that-lost-it-then-refused",
        ),
        pytest.param(
            pipeline(),
            report(B, "running"),
            0,
            "created again",
            id="given-a-new-object-then-refused",
        ),
        pytest.param(held("failed"), report(B, "init"), 0, None, id="given-an-end-then-granted"),
        pytest.param(held("stopped"), report(A, "stopped"), 0, None, id="given-an-end-twice"),
        pytest.param(
            held("stopped"),
            report(A, "running"),
            0,
            "has ended (stopped)",
            id="given-a-late-report",
        ),
    ],
)
def test_refusal(before: Pipeline, asked: PipelineReport, silent_ms: int, why: str | None) -> None:
    found = refusal(before, 1_000, asked, 1_000 + int(silent_ms))
    assert (found is None) == (why is None)
    assert (why or "") in (found or "")


def test_given_a_batch_then_nothing_is_stored() -> None:
    first = to_store(pipeline(), report(A, "running", generation=3, last_batch=1), AT)
    assert first is not None
    assert (first.state, first.run_id, first.last_batch) == (PipelineState.RUNNING, A, 1)
    before = pipeline().with_status(first)
    assert to_store(before, report(A, "running", generation=3, last_batch=2, lag=9), AT) is None
    for change in (
        report(A, "stopped", generation=3),
        report(B, "running", generation=3),
        report(A, "running", generation=4),
        report(A, "running", generation=3, restarts=1),
        report(A, "running", generation=3, last_error="boom"),
    ):
        assert to_store(before, change, AT) is not None


def test_shown_status() -> None:
    stored = held(observed_generation=3)
    now = report(A, "running", generation=3, last_batch=7, lag=12)
    status = shown(stored, now, 5_000, AT, 6_000)
    assert (status.state, status.last_batch, status.lag) == (PipelineState.RUNNING, 7, 12)
    assert (status.last_seen, status.host, status.reason) == (AT, "two", None)

    silent = shown(stored, now, 5_000, AT, 5_000 + UNKNOWN_MS)
    assert (silent.state, silent.last_batch) == (PipelineState.UNKNOWN, 7)
    assert "has not reported for 30 s" in (silent.reason or "")
    # A new SC has heard nothing yet, and gives the run time to report.
    assert shown(stored, None, 5_000, None, 5_001).state is PipelineState.RUNNING
    assert shown(stored, None, 5_000, None, 99_000).state is PipelineState.UNKNOWN

    failed = shown(held("failed", reason="boom"), None, 0, None, 99_000)
    assert (failed.state, failed.reason) == (PipelineState.FAILED, "boom")
    fresh = shown(pipeline(), None, 0, None, 99_000)
    assert "runnel pipeline run p" in (fresh.reason or "")
    assert fresh.observed_generation == 3


@dataclass
class World:
    """A KV, one SC at a time, and runs that believe what their last answer said."""

    now_ms: int = 0
    stored: Pipeline = field(default_factory=pipeline)
    #: By run, until when it holds the pipeline as far as it knows.
    believed: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another SC: what the last one had heard is gone."""
        self.board = PipelineBoard(LocalStore(), self.now_ms)

    def report(self, run: str, state: ReportedState, *, take_over: bool) -> None:
        asked = PipelineReport(run_id=run, host="h", state=state, take_over=take_over)
        if refusal(self.stored, self.board.heard_ms(self.stored), asked, self.now_ms) is not None:
            self.believed.pop(run, None)
            return
        if take_over:
            # It was told that another run may still be alive.
            self.believed.clear()
        status = to_store(self.stored, asked, AT)
        self.stored = self.stored if status is None else self.stored.with_status(status)
        self.board.take(self.stored, Heard(asked, self.now_ms, AT))
        if state.live:
            self.believed[run] = self.now_ms + LEASE_MS
        else:
            self.believed.pop(run, None)


STEPS = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 2 * LEASE_MS)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(
        st.just("report"),
        st.tuples(
            st.sampled_from([A, B, "cccccccc"]), st.sampled_from(ReportedState), st.booleans()
        ),
    ),
)


@settings(max_examples=examples(100))
@given(st.lists(STEPS, max_size=60))
def test_law_there_are_never_two_live_leases(steps: list[tuple[str, Any]]) -> None:
    world = World()
    for what, value in steps:
        match what:
            case "wait":
                world.now_ms += value
            case "restart":
                world.restart()
            case _:
                run, state, take_over = value
                init = state is ReportedState.INIT
                world.report(run, state, take_over=take_over and init)
        live = [run for run, until in world.believed.items() if world.now_ms < until]
        assert len(live) <= 1


def test_given_a_new_sc_then_the_next_report_brings_everything_back() -> None:
    world = World()
    world.report(A, ReportedState.INIT, take_over=False)
    world.report(A, ReportedState.RUNNING, take_over=False)
    world.now_ms = 50_000
    world.restart()
    assert world.board.shown(world.stored, 50_000).status.state is PipelineState.RUNNING
    world.report(B, ReportedState.INIT, take_over=False)
    assert B not in world.believed
    world.board.take(world.stored, Heard(report(A, "running", last_batch=9), 50_001, AT))
    assert world.board.shown(world.stored, 50_001).status.last_batch == 9


def test_who_follows_gets_what_changed() -> None:
    store = LocalStore()
    board = PipelineBoard(store, 0)
    obj = held()
    store.put(obj)
    board.close_second(1, 0)
    assert list(board.changed_since(0)) == ["p"]
    board.close_second(2, 1_000)
    assert board.changed_since(1) == {}
    board.take(obj, Heard(report(A, "running", last_batch=1), 1_500, AT))
    board.close_second(3, 2_000)
    assert board.changed_since(2)["p"].last_batch == 1
    board.close_second(4, 1_500 + UNKNOWN_MS)
    assert board.changed_since(3)["p"].state is PipelineState.UNKNOWN
    store.remove("Pipeline", "p")
    board.note(ObjectChanged(obj, None))
    board.close_second(5, 2_000)
    assert board.changed_since(None) == {}
    assert board.heard_ms(obj) == 0
    # To load a large store takes time, in which nobody can report.
    board.begin(7_000)
    assert board.heard_ms(obj) == 7_000
