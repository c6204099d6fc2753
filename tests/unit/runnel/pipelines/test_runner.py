"""One run with a played Spark and a played SC: how it begins, goes on and ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from runnel.pipelines import reporter, runner
from runnel.pipelines.progress import Batch
from runnel.pipelines.reporter import BUSY_S, IDLE_S, due_s
from runnel.pipelines.runner import (
    Ended,
    QueryFailedError,
    Run,
    Settings,
    require_running,
    same_query,
)
from sc.pipelines.lease import LEASE_MS
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.metadata import Metadata
from schemas.objects.pipeline import (
    Desired,
    Pipeline,
    PipelineReport,
    PipelineSink,
    PipelineSource,
    PipelineSpec,
    ReportedState,
)

RUN = "aaaaaaaa"
SPEC = PipelineSpec(
    source=PipelineSource(topic="in"), query="q", sink=PipelineSink(topic="out"), checkpoint="/c"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (reporter, "BUSY_S"),
        (reporter, "IDLE_S"),
        (reporter, "_AGAIN_S"),
        (runner, "LOOK_S"),
    ):
        monkeypatch.setattr(module, name, 0.005)
    monkeypatch.setattr(runner, "RESTART_BASE_MS", 10.0)


@dataclass
class Sc:
    """Keeps what it is told; ``answer`` may refuse."""

    spec: PipelineSpec = SPEC
    generation: int = 1
    reports: list[PipelineReport] = field(default_factory=list)
    answer: Callable[[PipelineReport], None] = lambda _: None

    def __call__(self, report: PipelineReport) -> Pipeline:
        self.reports.append(report)
        self.answer(report)
        return Pipeline(
            metadata=Metadata(name="p", uid="u", generation=self.generation), spec=self.spec
        )

    @property
    def states(self) -> list[str]:
        """What it was told, without repetition."""
        found: list[str] = []
        for report in self.reports:
            if not found or found[-1] != report.state.value:
                found.append(report.state.value)
        return found


@dataclass
class Query:
    """Ends after ``looks`` looks; None goes on for ever."""

    looks: int | None = 3
    error: list[str] | None = None
    batches: list[Batch] = field(default_factory=lambda: [Batch(7, 10, 5, 2, 1.0)])
    stopped: bool = False

    def news(self) -> list[Batch]:
        found, self.batches = self.batches, []
        return found

    @property
    def active(self) -> bool:
        if self.looks is not None:
            self.looks -= 1
        return not self.stopped and (self.looks is None or self.looks > 0)

    @property
    def between_batches(self) -> bool:
        return True

    def failure(self) -> list[str] | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


class Spark:
    def __init__(self, *queries: Query | RunnelError) -> None:
        self.queries = list(queries)

    def open(self, _pipeline: Pipeline) -> None:
        pass

    def start(self, _pipeline: Pipeline) -> Query:
        query = self.queries.pop(0)
        if isinstance(query, RunnelError):
            raise query
        return query

    def close(self) -> None:
        pass


class Told:
    def __init__(self) -> None:
        self.said: list[str] = []

    def begun(self, run_id: str, pipeline: Pipeline) -> None:
        self.said.append(f"begun {run_id}")

    def runs(self) -> None:
        self.said.append("runs")

    def progress(self, batches: list[Batch], rate: float) -> None:
        self.said += [f"batch {batch.number}" for batch in batches]

    def restarts(self, lines: list[str], wait_s: float, attempt: int) -> None:
        self.said.append(f"restart {attempt}: {lines}")

    def note(self, text: str) -> None:
        self.said.append(text)


def run(sc: Sc, spark: Spark, told: Told | None = None, **settings: Any) -> Ended:
    chosen: dict[str, Any] = {"restart": False, "take_over": False, **settings}
    return Run(sc, spark, told or Told(), Settings(RUN, "h", 1, random=lambda: 0.0, **chosen)).run()


def test_given_a_query_that_ends_then_everything_is_told() -> None:
    sc, told = Sc(), Told()
    ended = run(sc, Spark(Query()), told)
    assert not ended.stopped
    assert told.said == [f"begun {RUN}", "runs", "batch 7"]
    assert (sc.reports[0].state, sc.reports[0].generation) == (ReportedState.INIT, 1)
    last = sc.reports[-1]
    assert (last.state.value, last.last_batch, last.total_rows_in, last.lag) == (
        "stopped",
        7,
        10,
        2,
    )
    assert last.generation == 1


def test_given_a_refused_lease_then_no_query_starts() -> None:
    def refuse(_: PipelineReport) -> None:
        raise ConflictError("run b has it")

    with pytest.raises(ConflictError, match="run b has it"):
        run(Sc(answer=refuse), Spark())


def test_given_take_over_then_it_is_asked_for_once() -> None:
    sc = Sc()
    run(sc, Spark(Query(looks=20)), take_over=True)
    assert [report.take_over for report in sc.reports[:2]] == [True, False]
    assert not any(report.take_over for report in sc.reports[1:])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(ConflictError("run b has taken it"), ConflictError, id="given-a-lost-lease"),
        pytest.param(NotFoundError("p does not exist"), NotFoundError, id="given-a-deletion"),
    ],
)
def test_given_a_run_that_may_not_go_on_then_its_query_ends(
    error: RunnelError, kind: type[RunnelError]
) -> None:
    def refuse(report: PipelineReport) -> None:
        if report.state is ReportedState.RUNNING:
            raise error

    sc, query = Sc(answer=refuse), Query(looks=None)
    with pytest.raises(kind):
        run(sc, Spark(query))
    assert query.stopped
    # Who does not hold the lease has nothing to say any more.
    assert sc.states == ["init", "running"]


def test_given_stopped_is_desired_then_the_query_ends_after_the_batch() -> None:
    sc, query = Sc(), Query(looks=None)

    def stop(report: PipelineReport) -> None:
        if report.last_batch is not None:
            sc.spec, sc.generation = SPEC.model_copy(update={"desired": Desired.STOPPED}), 2

    sc.answer = stop
    assert run(sc, Spark(query)).stopped
    assert query.stopped
    assert (sc.states[-1], sc.reports[-1].generation) == ("stopped", 2)


def test_given_an_sc_that_is_away_then_the_query_goes_on() -> None:
    told, query = Told(), Query(looks=None)
    away = threading.Event()
    away.set()
    sc = Sc()

    def answer(report: PipelineReport) -> None:
        if report.state is ReportedState.RUNNING and away.is_set():
            raise UnreachableError("no SC answers")
        if report.state is ReportedState.RUNNING:
            query.looks = 1

    sc.answer = answer
    original = told.note

    def note(text: str) -> None:
        original(text)
        away.clear()

    told.note = note  # type: ignore[method-assign]
    assert not run(sc, Spark(query), told).stopped
    assert told.said[-2:] == [
        "the query goes on, but the SC cannot be told: no SC answers",
        "the SC answers again",
    ]
    assert sc.states[-1] == "stopped"


def test_given_a_failure_then_its_reason_is_told() -> None:
    sc = Sc()
    with pytest.raises(QueryFailedError, match="boom\nmore"):
        run(sc, Spark(Query(error=["boom", "more"])))
    assert (sc.reports[-1].state.value, sc.reports[-1].last_error) == ("failed", "boom")


def test_given_restart_then_it_is_started_again_until_it_ends_well() -> None:
    sc, told = Sc(), Told()
    spark = Spark(Query(error=["boom"]), QueryFailedError("no topic"), Query(batches=[]))
    run(sc, spark, told, restart=True)
    assert [line for line in told.said if line.startswith("restart")] == [
        "restart 1: ['boom']",
        "restart 2: ['no topic']",
    ]
    last = sc.reports[-1]
    assert (last.state.value, last.restarts, last.last_error) == ("stopped", 2, "no topic")
    assert spark.queries == []


def test_given_a_manifest_that_is_wrong_then_restart_does_not_repeat_it() -> None:
    sc, spark = Sc(), Spark(InvalidRequestError("spec.query: no"), Query())
    with pytest.raises(InvalidRequestError):
        run(sc, spark, restart=True)
    assert len(spark.queries) == 1
    assert sc.reports[-1].last_error == "spec.query: no"


def started(sc: Sc, spark: Spark, told: Told) -> Run:
    settings = Settings(RUN, "h", 1, restart=True, take_over=False, random=lambda: 0.0)
    return Run(sc, spark, told, settings)


def test_given_an_interrupt_then_the_query_ends_after_the_batch_and_gives_the_lease_up() -> None:
    class Interrupting(Told):
        def progress(self, batches: list[Batch], rate: float) -> None:
            super().progress(batches, rate)
            begun.interrupt()

    sc, told, query = Sc(), Interrupting(), Query(looks=None)
    begun = started(sc, Spark(query), told)
    assert begun.run().stopped
    assert query.stopped
    assert sc.states[-1] == "stopped"
    assert told.said[-2:] == ["batch 7", "stopping after the batch; again to stop at once"]


def test_given_a_second_interrupt_then_it_does_not_wait_for_the_batch() -> None:
    class Busy(Query):
        @property
        def between_batches(self) -> bool:
            begun.interrupt()
            return False

    class Interrupting(Told):
        def runs(self) -> None:
            begun.interrupt()

    query = Busy(looks=None, batches=[])
    begun = started(Sc(), Spark(query), Interrupting())
    assert begun.run().stopped
    assert query.stopped


def test_given_an_interrupt_while_spark_starts_then_no_batch_begins() -> None:
    class Slow(Spark):
        def open(self, _pipeline: Pipeline) -> None:
            begun.interrupt()

    told, spark = Told(), Slow(Query())
    begun = started(Sc(), spark, told)
    assert begun.run().stopped
    assert len(spark.queries) == 1
    assert "runs" not in told.said


def test_given_another_spec_then_it_says_so_once() -> None:
    sc, told, query = Sc(), Told(), Query(looks=None)

    def change(_: PipelineReport) -> None:
        if len(sc.reports) > 3:
            sc.spec, sc.generation = SPEC.model_copy(update={"query": "other"}), 2
        if any("spec has changed" in line for line in told.said):
            query.looks = 1 if query.looks is None else query.looks

    sc.answer = change
    run(sc, Spark(query), told)
    assert [line for line in told.said if "spec has changed" in line] == [
        "the spec has changed; run the pipeline again to use it"
    ]
    assert sc.reports[-1].generation == 1, "the status is about the spec that runs"
    assert same_query(SPEC, SPEC.model_copy(update={"desired": Desired.STOPPED}))
    assert not same_query(SPEC, sc.spec)


def test_given_a_batch_then_a_report_is_due_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "BUSY_S", BUSY_S)
    monkeypatch.setattr(reporter, "IDLE_S", IDLE_S)
    assert (due_s(100.0, changed=True), due_s(100.0, changed=False)) == (101.0, 102.0)
    assert 2 * IDLE_S * 1000 < LEASE_MS, "one report that is lost costs no lease"


def test_given_a_pipeline_that_is_to_be_stopped_then_it_is_not_begun() -> None:
    spec = SPEC.model_copy(update={"desired": Desired.STOPPED})
    with pytest.raises(ConflictError, match="runnel pipeline start p"):
        require_running(Pipeline(metadata=Metadata(name="p"), spec=spec))
