"""Scans that last as long as a test needs, so that it can do something in their middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import runnel

ROWS = 40_000
VALUE = b"x" * 500


def fill(
    cluster: runnel.Cluster, topic: str, *, partitions: int = 2, replicas: int = 1
) -> list[bytes]:
    """A topic of its own with `ROWS` records; gives their keys."""
    cluster.apply(runnel.Topic(topic, partitions=partitions, replication_factor=replicas))
    cluster.wait("topic", topic, "provisioned")
    cluster.offsets(topic)
    keys = [b"%d" % number for number in range(ROWS)]
    with cluster.producer(topic, batch_bytes=64 << 10) as producer:
        producer.send_table(pa.table({"key": keys, "value": [VALUE] * ROWS}))
    return keys


def address(cluster: runnel.Cluster) -> str:
    """Where the SC of a client's cluster listens."""
    return repr(cluster).rpartition(" at ")[2].rstrip(">")


def wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Return once the condition holds; fail after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def slowly(begun: Path, seconds: float = 0.1) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For `mapInArrow`: waits before each batch, and leaves a file once it has begun."""
    text = str(begun)

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            Path(text).touch()
            time.sleep(seconds)
            yield batch

    return wait


class Scan:
    """Keys of a DataFrame, read in a thread; ``done`` gives them, or raises what Spark raised."""

    def __init__(self, frame: DataFrame, begun: Path, seconds: float = 0.1) -> None:
        self._begun = begun
        self._found: list[bytes] = []
        self._error: BaseException | None = None
        self._frame = frame.select("key").mapInArrow(slowly(begun, seconds), "key binary")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = [bytes(row[0]) for row in self._frame.collect()]
        except BaseException as error:
            self._error = error

    def in_the_middle(self) -> None:
        """Wait until some rows were read."""
        wait_until(lambda: self._begun.exists() or not self._thread.is_alive(), 60)
        assert self._thread.is_alive(), self._error

    def done(self) -> list[bytes]:
        self._thread.join(180)
        assert not self._thread.is_alive(), "the scan hangs"
        if self._error is not None:
            raise self._error
        return self._found
