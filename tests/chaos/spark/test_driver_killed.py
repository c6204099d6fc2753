"""``kill -9`` of a streaming driver at each place of a batch: between the commit of the one before
and its offsets, and between those and its commit; the example in ``examples/05-spark`` goes on each
time."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

import runnel
from tests.architecture.source import ROOT
from tests.chaos.spark.scans import address

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(900)]

EXAMPLE: Final = ROOT / "examples" / "05-spark" / "delays.py"
PER_S: Final = 1_000
DEADLINE_S: Final = 300.0
#: Two queries of one session share what Spark serializes for their tasks. One of them has failed
#: with this at its start, in CI only; nobody knows why yet.
SPARKS_OWN: Final = "Task not serializable"
ERROR: Final = re.compile(r"Caused by: |[\w.]+(Error|Exception)\b")


def flight(number: int) -> dict[str, Any]:
    """Each fourth one is late."""
    return {
        "origin": "JFK",
        "dest": "SFO",
        "tailnum": f"N{number % 97}",
        "time_hour": f"{number}",
        "dep_delay": 90.0 if number % 4 == 0 else 5.0,
    }


@contextmanager
def producing(cluster: runnel.Cluster) -> Iterator[list[int]]:
    """Flights are sent all the while, in the order of their numbers; the list has how many."""
    sent = [0]
    enough = threading.Event()

    def send() -> None:
        with cluster.producer("flights") as producer:
            while not enough.wait(0.1):
                for _ in range(PER_S // 10):
                    one = flight(sent[0])
                    producer.send(json.dumps(one).encode(), key=one["tailnum"].encode())
                    sent[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        enough.set()
        thread.join(DEADLINE_S)


class FailedByItselfError(Exception):
    """Spark ended the query before the test did: as good a place as any to begin again."""


class Driver:
    """The example as a process; its checkpoints say where its batches are."""

    def __init__(self, sc: str, directory: Path, *options: str) -> None:
        self.checkpoints = directory / "checkpoints"
        self.log = directory / "driver.log"
        # Every driver adds to it.
        self.begins = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(EXAMPLE), sc, str(directory), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def batch(self, query: str, kind: str) -> int:
        """The last number in ``offsets`` or ``commits`` of a query."""
        found = self.checkpoints / query / kind
        names = (path.name for path in found.glob("[0-9]*")) if found.is_dir() else ()
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def until(self, there: Callable[[], bool]) -> None:
        """Looks as often as it can: the places last milliseconds."""
        deadline = time.monotonic() + DEADLINE_S
        while not there():
            if self.process.poll() is not None and self.failed_by_itself():
                raise FailedByItselfError
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.0005)

    def kill(self) -> None:
        """The driver, its JVM and its workers, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def failed_by_itself(self) -> bool:
        return SPARKS_OWN in self._logged()

    def text(self) -> str:
        """The end, and every error once."""
        text = self._logged()
        errors = [line[:500] for line in text.splitlines() if ERROR.match(line)]
        return "\n".join([text[-3_000:], "Errors:", *dict.fromkeys(errors)])

    def _logged(self) -> str:
        return self.log.read_bytes()[self.begins :].decode(errors="replace")


def before_offsets(driver: Driver, query: str) -> Callable[[], bool]:
    """A batch was committed, and the next one is not written down yet."""
    begun = driver.batch(query, "commits")
    return lambda: (
        driver.batch(query, "commits") > begun
        and (driver.batch(query, "offsets") == driver.batch(query, "commits"))
    )


def between(driver: Driver, query: str) -> Callable[[], bool]:
    """The offsets of a batch are written down, and the batch is not committed."""
    begun = driver.batch(query, "offsets")
    return lambda: (
        driver.batch(query, "offsets") > begun
        and (driver.batch(query, "commits") < driver.batch(query, "offsets"))
    )


PLACES: Final = (before_offsets, between)


def reach(
    place: Callable[[Driver, str], Callable[[], bool]], query: str, start: Callable[[], Driver]
) -> None:
    """Kill a driver there; one that fails before is started again."""
    for left in (2, 1, 0):
        driver = start()
        try:
            driver.until(place(driver, query))
        except FailedByItselfError:
            print(driver.text())
            assert left, "three times in a row"
        else:
            return
        finally:
            driver.kill()


def finish(start: Callable[[], Driver]) -> None:
    """Let a driver come to its end; one that Spark ends before is started again."""
    for left in (2, 1, 0):
        driver = start()
        if driver.process.wait(DEADLINE_S) == 0:
            return
        assert left, "three times in a row"
        assert driver.failed_by_itself(), driver.text()
        print(driver.text())


def test_nothing_is_lost_wherever_the_driver_is_killed(tmp_path: Path) -> None:
    with runnel.LocalCluster(spus=1) as cluster:
        sc = address(cluster)
        for name in ("flights", "delays"):
            cluster.apply(runnel.Topic(name, partitions=2))
            cluster.wait("topic", name, "provisioned")
        queries = random.Random(7)
        with producing(cluster) as sent:
            for place in PLACES:
                reach(place, queries.choice(("topic", "files")), lambda: Driver(sc, tmp_path))
        finish(lambda: Driver(sc, tmp_path, "--once"))
        late = {number for number in range(sent[0]) if number % 4 == 0}
        # Spark's sink of files keeps a log of those that count: exactly once.
        found = read_parquet(tmp_path / "parquet")
        assert Counter(found) == Counter(late)
        # The topic has every row at least once.
        values = cluster.read("delays", ["value"])["value"].to_pylist()
        written = Counter(int(json.loads(value)["time_hour"]) for value in values)
        assert set(written) == late


def read_parquet(directory: Path) -> list[int]:
    """The flights in the files that Spark's log names."""
    files: set[str] = set()
    for entry in (directory / "_spark_metadata").iterdir():
        if entry.name.startswith("."):
            continue
        for line in entry.read_text().splitlines()[1:]:
            files.add(Path(json.loads(line)["path"].removeprefix("file://")).name)
    rows = [
        value
        for name in sorted(files)
        for value in pq.read_table(directory / name)["value"].to_pylist()
    ]
    return [int(json.loads(value)["time_hour"]) for value in rows]
