"""Producers of numbers, and readers of them, in a process on some machine.

    python -m tests.chaos.edge.numbering send RATE DIRECTORY TOPIC…
    python -m tests.chaos.edge.numbering read 0 DIRECTORY TOPIC…

They go on until SIGTERM. A producer writes each number into its file once it is acknowledged, or
``failed`` and why; a reader writes what it reads.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import deque
from pathlib import Path
from typing import TextIO

import runnel as library
from schemas.errors import RunnelError

SC = "sc.example:9003"
_PATIENCE_S = 60.0


def send(topic: str, rate: float, notes: TextIO, over: threading.Event) -> None:
    waiting: deque[tuple[int, library.Delivery]] = deque()
    number = 0
    with library.connect(SC) as cluster, cluster.producer(topic) as producer:
        while not over.wait(1 / rate):
            waiting.append((number, producer.send(b"%d" % number)))
            number += 1
            while waiting and waiting[0][1].done():
                _settle(*waiting.popleft(), notes)
        for one in waiting:
            _settle(*one, notes)


def _settle(number: int, delivery: library.Delivery, notes: TextIO) -> None:
    try:
        delivery.result(_PATIENCE_S)
    except RunnelError as error:
        notes.write(f"failed {number}: {error}\n")
    else:
        notes.write(f"{number}\n")


def read(topic: str, notes: TextIO, over: threading.Event) -> None:
    with library.connect(SC) as cluster, cluster.consumer(topic, start="earliest") as consumer:
        while not over.is_set():
            if (record := consumer.poll(0.5)) is not None:
                notes.write(f"{bytes(record.value or b'').decode()}\n")


def note(directory: Path, work: str, topic: str, rate: float, over: threading.Event) -> None:
    """Send or read, until ``over``; the notes go to ``WORK-TOPIC.txt``."""
    path = directory / f"{work}-{topic}.txt"
    with path.open("w", buffering=1, encoding="ascii", errors="replace") as notes:
        if work == "send":
            send(topic, rate, notes, over)
        else:
            read(topic, notes, over)


def main(work: str, rate: str, directory: str, *topics: str) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    threads = [
        threading.Thread(target=note, args=(Path(directory), work, topic, float(rate), over))
        for topic in topics
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
