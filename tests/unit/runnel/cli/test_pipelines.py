"""``runnel pipeline``: lines of progress, what is refused, and what stop and start change."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

import runnel
from runnel.cli.objects.describe import history_rows
from runnel.cli.objects.reasons import explain_state
from runnel.cli.pipelines import (
    MOST_INTERRUPTS,
    Lines,
    farewell,
    progress_line,
    undisturbed,
)
from runnel.cli.render import object_rows
from runnel.pipelines.progress import Batch, Progress
from runnel.pipelines.runner import Ended
from schemas.objects.manifest.manifest import load_text
from schemas.objects.pipeline import Desired, Pipeline, PipelineState, PipelineStatus
from tests.unit.runnel.cli.conftest import CommandLine

MANIFEST = """\
apiVersion: runnel/v1
kind: Pipeline
metadata: {name: delays}
spec:
  source:
    topic: flights
    options:
      startingOffsets: earliest
  query: SELECT * FROM flights
  sink: {topic: delays}
  checkpoint: /c
"""


def pipeline(text: str = MANIFEST, **status: object) -> Pipeline:
    (loaded,) = load_text(text)
    assert isinstance(loaded.object, Pipeline)
    return loaded.object.with_status(PipelineStatus.model_validate(status))


@pytest.mark.parametrize(
    ("batches", "line"),
    [
        pytest.param(
            [Batch(7, 1200, 40, 0, 1)],
            "batch 7: 1,200 rows in, 40 out, 400 rows/s, lag 0",
            id="given-one",
        ),
        pytest.param(
            [Batch(7, 1, 1, 9, 1), Batch(8, 0, 2, 3, 1)],
            "batches 7–8: 1 row in, 3 out, 400 rows/s, lag 3",
            id="given-two-then-their-sums-and-the-last-lag",
        ),
        pytest.param(
            [Batch(7, 2, None, None, 1)],
            "batch 7: 2 rows in, 400 rows/s",
            id="given-what-is-not-known-then-left-out",
        ),
    ],
)
def test_lines_of_progress(batches: list[Batch], line: str) -> None:
    assert progress_line(batches, 400.4) == line


def test_given_quick_batches_then_a_line_a_second() -> None:
    now, printed = 0.0, list[str]()
    lines = Lines(lambda: now, printed.append)
    for number in range(10):
        now = number * 0.3
        lines.progress([Batch(number, 1, 1, 0, 0.1)], 3)
    lines.flush()
    lines.flush()
    assert [line.partition(":")[0] for line in printed] == [
        "batch 0",
        "batches 1–4",
        "batches 5–8",
        "batch 9",
    ]


def test_how_a_run_ended() -> None:
    progress = Progress(0)
    assert farewell("p", Ended(progress, stopped=True)) == "pipeline p stopped: 0 rows in"
    progress.take(Batch(0, 1, 2, 0, 1), 1)
    assert farewell("p", Ended(progress, stopped=False)) == "pipeline p done: 1 row in, 2 out"


def test_the_table_of_pipelines() -> None:
    running = pipeline(
        state="running", lastBatch=1234, rowsPerSecond=98.6, lag=5, runId="r" * 8, host="h"
    )
    stopped = pipeline(state="stopped", lastBatch=3, rowsPerSecond=9.0)
    headings, rows = object_rows([running, stopped, pipeline()], wide=False)
    assert headings == ["NAME", "STATE", "BATCH", "ROWS/S", "LAG", "AGE"]
    assert [row[1:5] for row in rows] == [
        ["running", "1,234", "99", "5"],
        ["stopped", "3", "-", "-"],
        ["init", "-", "-", "-"],
    ]
    headings, (row,) = object_rows([running], wide=True)
    assert dict(zip(headings, row, strict=True))["HOST"] == "h"


def test_why_a_pipeline_is_in_its_state() -> None:
    changed = pipeline(state="running", observedGeneration=1).with_metadata(generation=2)
    assert explain_state(changed) == [
        "running: a runner runs its query",
        "the spec has changed since this run began; run it again to use the new one",
    ]
    failed = pipeline(state="failed", reason="boom")
    assert explain_state(failed)[1] == "because boom"
    assert "runnel pipeline run delays" in explain_state(failed)[0]


def test_a_history_leaves_numbers_of_runs_out() -> None:
    from runnel.admin.answers import HistoryEntry

    entry = HistoryEntry(
        revision=9,
        at=None,
        by="ann",
        cause="c",
        generation=1,
        resolution="running",
        reason=None,
        changed=("status.lag", "status.lastSeen", "status.state", "status.restarts"),
    )
    (row,) = history_rows([entry], complete=False)
    assert row[3] == "state → running, status.restarts"


def test_given_an_unknown_option_then_apply_refuses_it_with_its_line(
    command: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(MANIFEST.replace("startingOffsets", "startngOffsets"))
    done = command("apply", "-f", str(file))
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: {file}:8: spec.source.options.startngOffsets: unknown option 'startngOffsets';"
        " did you mean startingOffsets?\n"
    )
    assert ("pipelines", "delays") not in command.sc.objects


def test_stop_and_start_set_what_is_desired(command: CommandLine) -> None:
    with runnel.connect(command.sc.address) as cluster:
        cluster.create(pipeline())

    def desired() -> Desired:
        found = command.sc.objects["pipelines", "delays"]
        assert isinstance(found, Pipeline)
        return found.spec.desired

    assert command("pipeline", "stop", "delays").out == "pipeline/delays stopping\n"
    assert desired() is Desired.STOPPED
    assert command("pipeline", "stop", "delays").out == "pipeline/delays unchanged: stopping\n"
    done = command("pipeline", "run", "delays")
    assert (done.code, done.out) == (4, "")
    assert "let it run with: runnel pipeline start delays" in done.err
    assert command("pipeline", "start", "delays", "--dry-run").out.endswith("may run (dry run)\n")
    assert command("pipeline", "start", "delays").out == "pipeline/delays may run\n"
    assert desired() is Desired.RUNNING


def test_given_no_such_pipeline_then_not_found(command: CommandLine) -> None:
    done = command("pipeline", "run", "nosuch")
    assert (done.code, done.out) == (3, "")
    assert "nosuch" in done.err


def test_given_no_spark_then_the_extra_is_named(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runnel.connect(command.sc.address) as cluster:
        cluster.create(pipeline())
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.delitem(sys.modules, "spark_io.pipeline.query", raising=False)
    done = command("pipeline", "run", "delays")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("is not installed; install Spark too: pip install 'runnel[spark]'\n")


def test_states_that_can_be_waited_for() -> None:
    from runnel.admin.states import states_of

    assert states_of(Pipeline) == [state.value for state in PipelineState]


@pytest.mark.parametrize(
    ("signals", "ended"),
    [
        pytest.param(1, True, id="given-one-then-the-work-is-asked-to-end"),
        pytest.param(3, False, id="given-three-then-nobody-waits-for-it"),
    ],
)
def test_signals_do_not_reach_the_work(signals: int, ended: bool) -> None:
    asked: list[threading.Thread] = []
    heard, released = threading.Semaphore(0), threading.Event()

    def interrupt() -> None:
        asked.append(threading.current_thread())
        heard.release()

    def work() -> None:
        for number in range(signals):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if number < MOST_INTERRUPTS - 1:
                assert heard.acquire(timeout=30)
        if not ended:
            assert released.wait(30)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            undisturbed(work, interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
        released.set()
    assert asked == [threading.main_thread()] * min(signals, MOST_INTERRUPTS - 1)


def test_given_no_signal_then_the_result_or_the_error_of_the_work() -> None:
    def fail() -> None:
        raise ValueError("boom")

    assert undisturbed(lambda: 7, fail) == 7
    with pytest.raises(ValueError, match="boom"):
        undisturbed(fail, fail)


def test_given_an_unknown_option_then_diff_and_edit_refuse_it(
    command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runnel.connect(command.sc.address) as cluster:
        cluster.create(pipeline())
    file = tmp_path / "p.yaml"
    file.write_text(MANIFEST.replace("startingOffsets", "startngOffsets"))
    assert "did you mean startingOffsets?" in command("diff", "-f", str(file)).err
    # An unchanged text ends the second round.
    monkeypatch.setenv("EDITOR", "sed -i s/startingOffsets/startngOffsets/")
    done = command("edit", "pipeline", "delays")
    assert done.code == 2
    assert "spec.source.options.startngOffsets: unknown option" in done.err
    found = command.sc.objects["pipelines", "delays"]
    assert isinstance(found, Pipeline)
    assert found.spec.source.options == {"startingOffsets": "earliest"}
