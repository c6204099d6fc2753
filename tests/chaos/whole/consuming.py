"""A reader as a process of its own: reads a topic from its beginning on, notes what it gets.

    python -m tests.chaos.whole.consuming NAME ADDRESSES TOPIC WAY FILE

``WAY`` is one of `tests.chaos.whole.history.WAYS`. SIGTERM ends it, once nothing new has come for
a while.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import runnel
from schemas.errors import RunnelError
from tests.chaos.whole.history import STEADY
from tests.chaos.whole.recording import Recording
from tests.chaos.whole.values import decode

GATHER_S: Final = 0.1
QUIET_S: Final = 3.0
#: How long a consumer of those is used that are opened again and again.
SESSION_S: Final = 15.0
#: How many offsets such a one goes back.
BACK: Final = 500
#: After an error, before the next attempt.
PAUSE_S: Final = 1.0


class Reading:
    """Reads in one of the ways until it is told to stop, and then until nothing new comes."""

    def __init__(self, name: str, topic: str, way: str, recording: Recording) -> None:
        self._name = name
        self._topic = topic
        self._way = way
        self._recording = recording
        self._read: dict[int, int] = {}
        self._over = threading.Event()
        self._quiet_since = 0.0

    def stop(self) -> None:
        self._over.set()

    def run(self, addresses: str) -> None:
        """Open one consumer after the other; an error ends one and not the next."""
        self._recording.write("reader", name=self._name, topic=self._topic, way=self._way)
        with runnel.connect(addresses) as cluster:
            while not self._is_done():
                try:
                    self._session(cluster)
                except RunnelError as error:
                    self._recording.write("error", error=f"{error.code.name}: {error}")
                    time.sleep(PAUSE_S)

    def _session(self, cluster: runnel.Cluster) -> None:
        start = None
        if self._read and self._way != "named":
            back = BACK if self._way == "again" else 0
            partitions = range(len(cluster.topic(self._topic).partitions))
            start = {number: max(0, self._read.get(number, 0) - back) for number in partitions}
        settings = runnel.ConsumerSettings(
            push=self._way != "followers", follower_reads=self._way == "followers"
        )
        consumer = cluster.consumer(
            self._topic,
            start or "earliest",
            name=self._name if self._way == "named" else None,
            settings=settings,
        )
        # Where a named one goes on, it knows better; then what it reads first says so.
        first = not self._read
        self._recording.write("open", start=None if first else (start or {}))
        with consumer:
            lasts = float("inf") if self._way in STEADY else SESSION_S
            end_s = time.monotonic() + lasts
            self._follow(consumer, lambda: self._is_done() or time.monotonic() > end_s)
            handed_out = consumer.position()
        if consumer.name is not None:
            # It was closed in order: that commits everything that was handed out.
            self._recording.write("committed", offsets=handed_out)

    def _follow(self, consumer: runnel.Consumer, is_over: Callable[[], bool]) -> None:
        while not is_over():
            rows: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
            until_s = time.monotonic() + GATHER_S
            try:
                while (left_s := until_s - time.monotonic()) > 0:
                    if (record := consumer.poll(left_s)) is not None:
                        read = decode(record.value)
                        rows[record.partition].append((record.offset, read.producer, read.sequence))
            finally:
                # Also of what was handed out before an error: it may be committed under the name.
                self._note(rows)
            if rows or not self._over.is_set():
                self._quiet_since = time.monotonic()

    def _note(self, rows: dict[int, list[tuple[int, str, int]]]) -> None:
        for partition, found in rows.items():
            self._recording.write("read", partition=partition, rows=list(found))
            furthest = max(self._read.get(partition, 0), found[-1][0] + 1)
            self._read[partition] = furthest

    def _is_done(self) -> bool:
        return self._over.is_set() and time.monotonic() - self._quiet_since > QUIET_S


if __name__ == "__main__":
    own_name, own_addresses, own_topic, own_way, path = sys.argv[1:]
    own = Recording(Path(path))
    reading = Reading(own_name, own_topic, own_way, own)
    signal.signal(signal.SIGTERM, lambda *_: reading.stop())
    reading.run(own_addresses)
    own.close()
