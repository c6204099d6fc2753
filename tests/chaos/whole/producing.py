"""A producer as a process of its own: sends records at a steady rate, notes what it is told.

    python -m tests.chaos.whole.producing NAME ADDRESSES TOPIC RATE KEYS FILE

``KEYS`` is the number of keys that choose partitions, or 0: then records go to the partitions in
turn. SIGTERM ends it, once everything that it sent has an outcome.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final

import runnel
from runnel.records.record import RecordMetadata
from schemas.errors import RunnelError
from tests.chaos.whole.recording import Recording
from tests.chaos.whole.values import RecordId, encode

TICK_S: Final = 0.05
#: So many records may wait for an outcome; more are not sent until it is known.
MOST_WAITING: Final = 20_000


class Outcomes:
    """What became of records, noted by the client's thread, written by `flush`."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._lock = threading.Lock()
        self._acknowledged: list[tuple[int, int, int, float]] = []
        self._failed: list[tuple[int, str]] = []
        self.count = 0

    def note(
        self, sequence: int, error: RunnelError | None, located: RecordMetadata | None
    ) -> None:
        with self._lock:
            self.count += 1
            if located is not None:
                at_s = round(time.monotonic(), 3)
                row = (sequence, located.partition, located.offset, at_s)
                self._acknowledged.append(row)
            elif error is not None:
                self._failed.append((sequence, f"{error.code.name}: {error}"))

    def flush(self) -> None:
        with self._lock:
            acknowledged, self._acknowledged = self._acknowledged, []
            failed, self._failed = self._failed, []
        if acknowledged:
            self._recording.write("acked", rows=list(acknowledged))
        if failed:
            self._recording.write("failed", rows=list(failed))


def produce(
    name: str, addresses: str, topic: str, rate: int, keys: int, recording: Recording
) -> None:
    """Send until SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    recording.write("producer", name=name, topic=topic)
    outcomes = Outcomes(recording)
    begun, sent = time.monotonic(), 0
    with runnel.connect(addresses) as cluster:
        partitions = len(cluster.topic(topic).partitions)
        with cluster.producer(topic) as producer:
            while not over.wait(TICK_S):
                due = min(int((time.monotonic() - begun) * rate), outcomes.count + MOST_WAITING)
                if due > sent:
                    # Written before it is done: what is in the log must have been sent.
                    recording.write("sent", below=due)
                for sequence in range(sent, due):
                    value = encode(RecordId(name, sequence))
                    if keys:
                        delivery = producer.send(value, b"%d" % (sequence % keys))
                    else:
                        delivery = producer.send(value, partition=sequence % partitions)
                    delivery.call(partial(outcomes.note, sequence))
                sent = max(sent, due)
                outcomes.flush()
            producer.flush()
    outcomes.flush()


if __name__ == "__main__":
    own_name, own_addresses, own_topic, own_rate, own_keys, path = sys.argv[1:]
    own = Recording(Path(path))
    produce(own_name, own_addresses, own_topic, int(own_rate), int(own_keys), own)
    own.close()
