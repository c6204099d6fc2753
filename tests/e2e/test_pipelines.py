"""A pipeline from its manifest to its results, with runners as processes that are killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

import runnel
from tests.e2e.conftest import SQLITE_ALONE, Command

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RECORDS = 1_000
DEADLINE_S = 180.0


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def status(cluster: Command, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.json("get", "pipeline", name)["status"]
    return found


def manifest(name: str, sink: str, checkpoint: Path) -> str:
    return f"""
apiVersion: runnel/v1
kind: Pipeline
metadata: {{name: {name}}}
spec:
  source:
    topic: {name}-in
    options: {{startingOffsets: earliest, maxOffsetsPerTrigger: 100}}
  query: SELECT key, value FROM `{name}-in` WHERE int(string(value)) % 2 = 0
  sink: {sink}
  checkpoint: {checkpoint}
  spark: {{conf: {{spark.master: "local[2]", spark.driver.memory: 512m}}}}
"""  # noqa: S608 - it is a manifest


def send(cluster: Command, topic: str, start: int, count: int) -> None:
    with runnel.connect(cluster.sc) as connected, connected.producer(topic) as producer:
        for number in range(start, start + count):
            producer.send(b"%d" % number)


@dataclass
class Runner:
    """A runner as a process, with what it prints."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)


@contextmanager
def running(cluster: Command, name: str, log: Path) -> Iterator[Runner]:
    """A runner, and Spark's processes below it, until the block ends."""
    with log.open("wb") as out:
        process = cluster.start("pipeline", "run", name, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield Runner(process, log)
    finally:
        if process.poll() is None:
            below = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for one in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait(60)


def copies(cluster: Command, topic: str) -> Counter[int]:
    with runnel.connect(cluster.sc) as connected:
        records = connected.consumer(topic, start="earliest", stop="latest")
        return Counter(int(record.value or b"") for record in records)


def committed(directory: Path) -> Counter[int]:
    """What Spark reads of the files: those that its log names."""
    named = set()
    for file in (directory / "_spark_metadata").iterdir():
        if not file.name.startswith("."):
            named |= {json.loads(line)["path"] for line in file.read_text().splitlines()[1:]}
    tables = [pq.read_table(path.removeprefix("file://")) for path in sorted(named)]
    return Counter(int(value.as_py()) for table in tables for value in table["value"])


@SQLITE_ALONE
@pytest.mark.parametrize(
    "into",
    # By hand, with `make chaos`, files too: `tests/chaos/spark` kills a driver that writes both.
    [pytest.param("topic", marks=pytest.mark.slow), pytest.param("files", marks=pytest.mark.chaos)],
)
def test_given_kills_then_the_result_is_that_of_a_batch(
    cluster: Command, tmp_path: Path, into: str
) -> None:
    name = f"evens-{into}"
    for topic in (f"{name}-in", f"{name}-out"):
        cluster("create", "topic", topic, "--partitions", "2")
    sink = f"{{topic: {name}-out}}" if into == "topic" else f"{{path: {tmp_path / 'files'}}}"
    cluster("apply", "-f", "-", stdin=manifest(name, sink, tmp_path / "checkpoint"))
    assert status(cluster, name)["state"] == "init"
    send(cluster, f"{name}-in", 0, RECORDS // 2)

    with running(cluster, name, tmp_path / "first") as first:
        until(lambda: status(cluster, name).get("totalRowsIn") or first.ended)
        refused = cluster.fails("pipeline", "run", name, code=4)
        assert status(cluster, name)["runId"] in refused
        assert "its lease ends in" in refused
        # The runner alone, as if the host had lost power; Spark's processes see that it is gone.
        first.process.kill()
        first.wait()
    assert status(cluster, name)["state"] == "running", "nobody knows yet"

    send(cluster, f"{name}-in", RECORDS // 2, RECORDS // 2)
    with second_runner(cluster, name, tmp_path) as second:
        until(lambda: done(cluster, name) or second.ended)
        cluster("pipeline", "stop", name)
        assert second.wait() == 0, second.text
    assert second.text.splitlines()[-1].startswith(f"pipeline {name} stopped: ")
    found = status(cluster, name)
    assert (found["state"], found["lag"]) == ("stopped", 0)

    expected = Counter(range(0, RECORDS, 2))
    if into == "topic":
        result = copies(cluster, f"{name}-out")
        assert result.keys() == expected.keys()
    else:
        assert committed(tmp_path / "files") == expected
    assert "runnel pipeline start" in cluster.fails("pipeline", "run", name, code=4)
    cluster("delete", "pipeline", name)


@contextmanager
def second_runner(cluster: Command, name: str, directory: Path) -> Iterator[Runner]:
    """A runner that begins once the lease of the one that died has ended; until then, it is
    refused."""
    for number in range(100):
        with running(cluster, name, directory / f"second-{number}") as runner:
            until(partial(has_begun, runner))
            if "starting Spark" in runner.text:
                yield runner
                return
            assert runner.wait() == 4, runner.text
            assert "its lease ends in" in runner.text
    raise AssertionError("the lease does not end")


def has_begun(runner: Runner) -> bool:
    return "starting Spark" in runner.text or runner.ended


def done(cluster: Command, name: str) -> bool:
    found = status(cluster, name)
    return bool(found.get("totalRowsIn")) and found.get("lag") == 0
