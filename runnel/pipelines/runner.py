"""One run of a pipeline: lease, query, reports, restarts, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from runnel.pipelines.progress import Batch, Progress
from runnel.pipelines.reporter import Reporter, Send
from schemas.backoff import Backoff
from schemas.errors import ConflictError, RunnelError
from schemas.objects.pipeline import (
    MAX_ERROR,
    Desired,
    Pipeline,
    PipelineReport,
    PipelineSpec,
    ReportedState,
)

LOOK_S: Final = 0.2
#: How long a batch may take to end after a stop was asked for.
STOP_S: Final = 60.0
RESTART_BASE_MS: Final = 1_000.0
RESTART_CAP_MS: Final = 60_000.0
#: A query that ran for so long counts as well: the next restart comes soon again.
WELL_S: Final = 60.0


class Query(Protocol):
    """A query that was started."""

    def news(self) -> list[Batch]:
        """The batches that ended since the last call, the oldest first."""

    @property
    def active(self) -> bool:
        """Whether it goes on."""

    @property
    def between_batches(self) -> bool:
        """Whether it waits for the next batch."""

    def failure(self) -> list[str] | None:
        """Why it ended, in a few lines; None if it ended as it should."""

    def stop(self) -> None:
        """End it now. A batch under way is repeated by the next run."""


class Spark(Protocol):
    """What starts queries."""

    def open(self, pipeline: Pipeline) -> None:
        """Start the session, unless there is one."""

    def start(self, pipeline: Pipeline) -> Query:
        """Start the query. Raises InvalidRequestError for what the manifest has wrong, and
        `QueryFailedError`."""

    def close(self) -> None:
        """End the session."""


class QueryFailedError(RunnelError):
    """The query failed; the message has at most six lines."""


class Teller(Protocol):
    """Takes what a person who runs the pipeline wants to know."""

    def begun(self, run_id: str, pipeline: Pipeline) -> None:
        """The lease is held; the session is being started."""

    def runs(self) -> None:
        """The query runs."""

    def progress(self, batches: list[Batch], rate: float) -> None:
        """These batches have ended; rows a second."""

    def restarts(self, lines: list[str], wait_s: float, attempt: int) -> None:
        """The query failed, and is started again after ``wait_s``."""

    def note(self, text: str) -> None:
        """Anything else."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run. ``generation`` is that of the pipeline as it was read; ``random`` gives numbers
    in [0, 1)."""

    run_id: str
    host: str
    generation: int
    restart: bool
    take_over: bool
    random: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: by itself, or because that was wanted."""

    progress: Progress
    stopped: bool


class Run:
    """One run. `run` blocks until it ends. It is called in a thread that no signal interrupts, as
    Spark's calls bear none; `interrupt` is for the thread that gets the signals."""

    def __init__(self, send: Send, spark: Spark, teller: Teller, settings: Settings) -> None:
        self._send = send
        self._spark = spark
        self._teller = teller
        self._settings = settings
        self._state = ReportedState.INIT
        self._restarts = 0
        self._error: str | None = None
        self._progress = Progress(time.monotonic())
        self._spec: PipelineSpec | None = None
        self._generation = settings.generation
        self._noted_spec: PipelineSpec | None = None
        self._interrupts = 0
        first = self._report().model_copy(update={"take_over": settings.take_over})
        self._reporter = Reporter(send, first, self._trouble)

    def run(self) -> Ended:
        """Run until the query ends, or is to. Raises ConflictError for a lease that another run
        has, NotFoundError for a pipeline that was deleted, InvalidRequestError for a manifest that
        cannot be run, and QueryFailedError."""
        pipeline = self._reporter.begin()
        self._spec, self._generation = pipeline.spec, pipeline.generation
        self._teller.begun(self._settings.run_id, pipeline)
        try:
            stopped = self._run_queries(pipeline)
        except RunnelError as error:
            self._error = _first_line(error.message)
            self._end(ReportedState.FAILED)
            raise
        except Exception as error:
            # A fault of ours: the next run must not wait for the lease.
            self._error = _first_line(f"internal error: {error!r}")
            self._end(ReportedState.FAILED)
            raise
        self._end(ReportedState.STOPPED)
        return Ended(self._progress, stopped)

    def interrupt(self) -> None:
        """End the run after the batch, or at once if it is called again."""
        self._interrupts += 1
        if self._interrupts == 1:
            self._teller.note("stopping after the batch; again to stop at once")

    def _run_queries(self, pipeline: Pipeline) -> bool:
        """Run the query, and again after failures. Gives whether it was stopped."""
        backoff = Backoff(RESTART_BASE_MS, RESTART_CAP_MS, self._settings.random)
        while True:
            began_s = time.monotonic()
            try:
                return self._run_query(pipeline)
            except QueryFailedError as error:
                if not self._settings.restart:
                    raise
                message = error.message
            if time.monotonic() - began_s >= WELL_S:
                backoff.reset()
            self._restarts += 1
            self._error = _first_line(message)
            self._say(ReportedState.INIT)
            wait_s = backoff.next_ms() / 1000
            self._teller.restarts(message.splitlines(), wait_s, self._restarts)
            until_s = time.monotonic() + wait_s
            while time.monotonic() < until_s:
                if self._is_to_stop():
                    return True
                time.sleep(LOOK_S)

    def _run_query(self, pipeline: Pipeline) -> bool:
        self._spark.open(pipeline)
        if self._is_to_stop():
            return True
        query = self._spark.start(pipeline)
        try:
            self._say(ReportedState.RUNNING)
            self._teller.runs()
            while query.active:
                self._look(query)
                if self._is_to_stop():
                    self._stop_gently(query)
                    return True
                time.sleep(LOOK_S)
            self._look(query)
            failure = query.failure()
        except Exception:
            query.stop()
            raise
        if failure is not None:
            raise QueryFailedError("\n".join(failure))
        return False

    def _look(self, query: Query) -> bool:
        """Take what is new, and say it. Gives whether a batch has ended."""
        batches = query.news()
        now_s = time.monotonic()
        for batch in batches:
            self._progress.take(batch, now_s)
        self._say(self._state)
        if batches:
            self._teller.progress(batches, self._progress.rate(now_s))
        return bool(batches)

    def _stop_gently(self, query: Query) -> None:
        """Stop between two batches, or `STOP_S` later."""
        until_s = time.monotonic() + STOP_S
        try:
            while query.active and time.monotonic() < until_s:
                if self._look(query) or query.between_batches or self._interrupts > 1:
                    break
                time.sleep(LOOK_S)
            self._look(query)
        finally:
            query.stop()

    def _is_to_stop(self) -> bool:
        """Whether somebody wants this run to end. Raises the reason why it may not go on."""
        if self._reporter.lost is not None:
            raise self._reporter.lost
        if self._interrupts:
            return True
        pipeline = self._reporter.pipeline
        if pipeline is None or self._spec is None:
            return False
        if pipeline.spec.desired is Desired.STOPPED:
            self._generation = pipeline.generation
            return True
        if same_query(pipeline.spec, self._spec):
            self._generation = pipeline.generation
        elif pipeline.spec != self._noted_spec:
            self._noted_spec = pipeline.spec
            self._teller.note("the spec has changed; run the pipeline again to use it")
        return False

    def _report(self) -> PipelineReport:
        numbers = self._progress.numbers(time.monotonic(), self._restarts, self._error)
        return PipelineReport(
            run_id=self._settings.run_id,
            host=self._settings.host,
            state=self._state,
            generation=self._generation,
            **numbers.model_dump(),
        )

    def _say(self, state: ReportedState) -> None:
        self._state = state
        self._reporter.tell(self._report())

    def _end(self, state: ReportedState) -> None:
        self._state = state
        untold = self._reporter.end(self._report())
        if untold is not None:
            self._teller.note(f"the SC was not told that this run has ended: {untold.message}")

    def _trouble(self, error: RunnelError | None) -> None:
        if error is None:
            self._teller.note("the SC answers again")
        else:
            self._teller.note(f"the query goes on, but the SC cannot be told: {error.message}")


def _first_line(message: str) -> str:
    """As a status holds it."""
    return message.partition("\n")[0][:MAX_ERROR]


def same_query(one: PipelineSpec, other: PipelineSpec) -> bool:
    """Whether two specs differ at most in what is desired. Pure."""
    return one.model_copy(update={"desired": other.desired}) == other


def require_running(pipeline: Pipeline) -> None:
    """Raise ConflictError for a pipeline that is to be stopped."""
    if pipeline.spec.desired is Desired.STOPPED:
        raise ConflictError(
            f"pipeline {pipeline.name} is to be stopped (spec.desired); let it run with: runnel"
            f" pipeline start {pipeline.name}"
        )
