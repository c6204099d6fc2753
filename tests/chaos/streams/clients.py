"""Who writes to a stream and who reads it while it is changed under faults."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final, Literal

import runnel
from tests.e2e.conftest import Command

ENDS_S: Final = 120.0
RESUMES_S: Final = 0.7
KEYS: Final = 40


class Writing(threading.Thread):
    """Sends numbers, counted by key, until it is told to stop; all have to be acknowledged."""

    def __init__(self, address: str, stream: str, name: str) -> None:
        super().__init__(daemon=True)
        self.sent: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.failed: list[runnel.RunnelError] = []
        self._address = address
        self._stream = stream
        self._name = name

    def run(self) -> None:
        try:
            with (
                runnel.connect(self._address) as cluster,
                cluster.stream(self._stream).producer(batch_bytes=4_000) as producer,
            ):
                number = 0
                while not self.stopped.is_set():
                    key = f"{self._name}-{number % KEYS}"
                    producer.send(str(self.sent[key]), key=key)
                    self.sent[key] += 1
                    number += 1
                    if number % 100 == 0:
                        time.sleep(0.01)
        except runnel.RunnelError as error:
            self.failed.append(error)


@dataclass
class Place:
    """A reader's position as text, and how many records of each key were read before it."""

    cut: str
    read: dict[str, int]


class Reading(threading.Thread):
    """Reads the stream to its end. It begins anew at its position now and then, if it
    ``resumes``."""

    def __init__(self, address: str, stream: str, *, resumes: bool = False) -> None:
        super().__init__(daemon=True)
        self.read: defaultdict[str, list[int]] = defaultdict(list)
        self.failed: list[runnel.RunnelError] = []
        self.place: Place | None = None
        self._address = address
        self._stream = stream
        self._resumes = resumes

    def run(self) -> None:
        start: Literal["earliest"] | runnel.StreamCut = "earliest"
        try:
            with runnel.connect(self._address) as cluster:
                while True:
                    with _opened(cluster, self._stream, start) as consumer:
                        begun = time.monotonic()
                        for record in consumer:
                            self._note(record)
                            if self._resumes and time.monotonic() > begun + RESUMES_S:
                                break
                        else:
                            return
                        cut = str(consumer.position())
                    counts = {key: len(numbers) for key, numbers in self.read.items()}
                    self.place = Place(cut, counts)
                    start = runnel.StreamCut.parse(cut)
        except runnel.RunnelError as error:
            self.failed.append(error)

    def _note(self, record: runnel.Record) -> None:
        assert record.key is not None
        assert record.value is not None
        self.read[bytes(record.key).decode()].append(int(record.value))

    def has(self, read: dict[str, int]) -> bool:
        return all(len(self.read[key]) >= count for key, count in read.items())


def _opened(
    cluster: runnel.Cluster, stream: str, start: Literal["earliest"] | runnel.StreamCut
) -> runnel.StreamConsumer:
    """A consumer that has begun; there may be no SC at first."""
    while True:
        consumer = cluster.stream(stream).consumer(start)
        try:
            return consumer.__enter__()
        except runnel.UnreachableError:
            consumer.close()
            time.sleep(0.2)


def until_done(command: Command, *words: str) -> None:
    """Have the stream changed, however often an SC that is killed does not answer."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        if command.run("stream", *words, "--timeout", "80s").returncode == 0:
            return
        time.sleep(0.5)
