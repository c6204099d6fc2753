"""``runnel pipeline``: runs the query of a pipeline in this process; stops and starts pipelines."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from runnel.cli import completion
from runnel.cli.arguments import DryRunOption, ScOption
from runnel.cli.connection import administered, who
from runnel.cli.failure import say
from runnel.cli.interrupts import counting
from runnel.cli.render import count
from runnel.contexts import default_sc
from runnel.waiters import Flag
from schemas.errors import NotFoundError
from schemas.objects.pipeline import Desired, Pipeline, PipelineReport

if TYPE_CHECKING:
    from runnel.pipelines.progress import Batch
    from runnel.pipelines.runner import Ended

T = TypeVar("T")

app = typer.Typer(help="Run the query of a pipeline, or stop it.", no_args_is_help=True)

PipelineArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The pipeline.",
        autocompletion=completion.pipelines,
        show_default=False,
    ),
]
#: This one ends the command, whatever goes on.
MOST_INTERRUPTS: Final = 3
#: At most one line of progress in so many seconds.
LINE_S: Final = 1.0


@app.command()
def run(
    name: PipelineArgument,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="Where Spark runs: local[2], spark://HOST:PORT. Default: spark.master of the"
            " manifest, else all cores of this machine.",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Start the query again when it fails, after a pause that grows to 60 s.",
        ),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Take the pipeline from a runner that has died. One that lives ends its query.",
        ),
    ] = False,
    sc: ScOption = None,
) -> None:
    """Run the query of a pipeline in this process, until it ends or is stopped.

    Ctrl-C ends it after the batch, and so does runnel pipeline stop. Run again, it goes on where
    its checkpoint says. One runner at a time runs a pipeline.
    """
    from runnel.pipelines.runner import Run, Settings, require_running
    from runnel.spark_pipelines import check_pipeline, pipeline_spark

    address = default_sc() if sc is None else sc
    pipeline = _get(name, address)
    require_running(pipeline)
    check_pipeline(pipeline.spec)
    engine = pipeline_spark(address, master)
    settings = Settings(
        run_id=secrets.token_hex(8),
        host=socket.gethostname(),
        generation=pipeline.generation,
        restart=restart,
        take_over=take_over,
        random=secrets.SystemRandom().random,
    )
    told = Lines(time.monotonic, print_line)
    started = Run(_sender(name, address), engine, told, settings)

    def work() -> Ended:
        try:
            return started.run()
        finally:
            told.flush()
            engine.close()

    print_line(farewell(name, undisturbed(work, started.interrupt)))


#: How often a wait for the work looks whether a signal has come.
_LOOK_UP_S: Final = 0.2


def undisturbed(work: Callable[[], T], interrupt: Callable[[], None]) -> T:
    """The result of ``work``, done in a thread: signals do not reach it, and call ``interrupt``.
    After that, KeyboardInterrupt is raised once it has ended; the third signal does not wait."""
    outcome: Future[T] = Future()
    ended = Flag()

    def run_it() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)
        ended.set()

    with counting(MOST_INTERRUPTS) as signals:
        threading.Thread(target=run_it, name="pipeline", daemon=True).start()
        told = 0
        while not ended.wait(_LOOK_UP_S):
            if told < signals.count:
                told += 1
                interrupt()
    if signals.count:
        raise KeyboardInterrupt
    return outcome.result()


@app.command()
def stop(name: PipelineArgument, dry_run: DryRunOption = False, sc: ScOption = None) -> None:
    """Have the runner of a pipeline end its query after the batch, and let none start."""
    _desire(name, Desired.STOPPED, "stopping", sc, dry_run=dry_run)


@app.command()
def start(name: PipelineArgument, dry_run: DryRunOption = False, sc: ScOption = None) -> None:
    """Let a pipeline run again that was stopped. A runner does the work: runnel pipeline run."""
    _desire(name, Desired.RUNNING, "may run", sc, dry_run=dry_run)


def _desire(name: str, desired: Desired, done: str, sc: str | None, *, dry_run: bool) -> None:
    with administered(sc) as cluster:
        before = cluster.get(Pipeline.PLURAL, name)
        unchanged = isinstance(before, Pipeline) and before.spec.desired is desired
        if not unchanged:
            patch = {"spec": {"desired": desired.value}}
            cluster.patch(Pipeline.PLURAL, name, patch, dry_run=dry_run)
    tried = " (dry run)" if dry_run else ""
    print(f"pipeline/{name} {'unchanged: ' if unchanged else ''}{done}{tried}")


def _get(name: str, address: str) -> Pipeline:
    from runnel.admin.one_shot import OneShotReads

    found = OneShotReads(address, who()).get(Pipeline.PLURAL, name)
    if not isinstance(found, Pipeline):
        raise NotFoundError(f"pipeline {name!r} does not exist")
    return found


def _sender(name: str, address: str) -> Callable[[PipelineReport], Pipeline]:
    from runnel.admin.calls import object_path, parse_answer
    from runnel.admin.one_shot import OneShotCalls

    calls = OneShotCalls(address, who())
    path = object_path(Pipeline, name, "status")

    def send(report: PipelineReport) -> Pipeline:
        # Twice, it must not take over from a run that has done so since.
        again = not report.take_over
        answer = calls.call("PUT", path, body=report.to_json(), repeatable=again)
        return parse_answer(Pipeline, answer)

    return send


def print_line(line: str) -> None:
    """Print a line at once: another process may read it."""
    print(line, flush=True)


class Lines:
    """What a runner prints: see `runnel.pipelines.runner.Teller`. Batches that follow each other
    quickly share a line."""

    def __init__(self, clock: Callable[[], float], out: Callable[[str], None]) -> None:
        self._clock = clock
        self._out = out
        self._waiting: list[Batch] = []
        self._rate = 0.0
        self._printed_s = float("-inf")

    def begun(self, run_id: str, pipeline: Pipeline) -> None:
        """The lease is held."""
        self._out(f"pipeline {pipeline.name}: run {run_id}, starting Spark")

    def runs(self) -> None:
        """The query runs."""
        self._out("running; Ctrl-C stops after the batch")

    def progress(self, batches: list[Batch], rate: float) -> None:
        """Batches have ended."""
        self._waiting += batches
        self._rate = rate
        if self._clock() >= self._printed_s + LINE_S:
            self.flush()

    def restarts(self, lines: list[str], wait_s: float, attempt: int) -> None:
        """The query failed."""
        self.flush()
        say("\n".join(["the query failed:", *lines]))
        say(f"restart {attempt} in {wait_s:.1f} s")

    def note(self, text: str) -> None:
        """Anything else."""
        self.flush()
        say(text)

    def flush(self) -> None:
        """Print what waits."""
        batches, self._waiting = self._waiting, []
        if batches:
            self._printed_s = self._clock()
            self._out(progress_line(batches, self._rate))


def progress_line(batches: list[Batch], rate: float) -> str:
    """``batch 7: 1,200 rows in, 40 out, 400 rows/s, lag 0``"""
    first, last = batches[0].number, batches[-1].number
    numbers = f"batch {last}" if first == last else f"batches {first}–{last}"
    rows_in = sum(batch.rows_in for batch in batches)
    outs = [batch.rows_out for batch in batches if batch.rows_out is not None]
    parts = [f"{count(rows_in, 'row')} in"]
    if outs:
        parts.append(f"{sum(outs):,} out")
    parts.append(f"{rate:,.0f} rows/s")
    if batches[-1].lag is not None:
        parts.append(f"lag {batches[-1].lag:,}")
    return f"{numbers}: {', '.join(parts)}"


def farewell(name: str, ended: Ended) -> str:
    """How a run ended that did not fail."""
    progress = ended.progress
    how = "stopped" if ended.stopped else "done"
    out = "" if progress.total_out is None else f", {progress.total_out:,} out"
    return f"pipeline {name} {how}: {count(progress.total_in, 'row')} in{out}"
