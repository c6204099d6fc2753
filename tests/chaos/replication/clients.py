"""A producer that never rests and a reader that follows it, and what has to come of that: every
acknowledged record is there once, and in order per key."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import runnel as library
from runnel.records.record import RecordMetadata
from schemas.errors import InvalidRequestError, RunnelError

TOPIC = "chaos"
KEYS = 30
_AT_ONCE = 200


class Producing(threading.Thread):
    """Sends numbers, key by key in order, as fast as it can, or ``rate`` of them a second at most;
    notes what was acknowledged, and for how long nothing was, by partition."""

    def __init__(self, address: str, rate: int | None = None) -> None:
        super().__init__(daemon=True)
        self._pause_s = 0.0 if rate is None else _AT_ONCE / rate
        self.acknowledged: dict[bytes, list[int]] = defaultdict(list)
        self.failed = 0
        self.count = 0
        self.longest_gap_s: dict[int, float] = defaultdict(float)
        self.error: BaseException | None = None
        self._address = address
        self._over = threading.Event()
        self._last_s: dict[int, float] = {}

    def run(self) -> None:
        try:
            with (
                library.connect(self._address) as cluster,
                cluster.producer(TOPIC, linger_ms=2, batch_bytes=8_000) as producer,
            ):
                sent: list[tuple[bytes, int, library.Delivery]] = []
                while not self._over.is_set():
                    for _ in range(_AT_ONCE):
                        key = b"%d" % (self.count % KEYS)
                        delivery = producer.send(b"%d" % self.count, key)
                        delivery.call(self._note)
                        sent.append((key, self.count, delivery))
                        self.count += 1
                    if len(sent) > 5_000:
                        self._settle(sent)
                        sent = []
                    self._over.wait(self._pause_s)
                self._settle(sent)
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        """Send no more, and wait for what is on its way."""
        self._over.set()
        self.join(180)
        assert not self.is_alive(), "the producer does not end"
        if self.error is not None:
            raise self.error

    def _note(self, _: RunnelError | None, located: RecordMetadata | None) -> None:
        if located is not None:
            now_s, partition = time.monotonic(), located.partition
            gap_s = now_s - self._last_s.get(partition, now_s)
            self.longest_gap_s[partition] = max(self.longest_gap_s[partition], gap_s)
            self._last_s[partition] = now_s

    def _settle(self, sent: list[tuple[bytes, int, library.Delivery]]) -> None:
        for key, number, delivery in sent:
            try:
                delivery.result(150)
            except RunnelError:
                self.failed += 1
            else:
                self.acknowledged[key].append(number)


class Following(threading.Thread):
    """Reads on from the beginning, whatever happens; notes what each partition's records were."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.read: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.count = 0
        self.error: BaseException | None = None
        self._over = False
        self._cluster = library.connect(address)
        self._consumer = self._cluster.consumer(TOPIC, start="earliest")

    def run(self) -> None:
        try:
            for record in self._consumer:
                self.read[record.partition].append((record.offset, int(record.value or b"")))
                self.count += 1
        except InvalidRequestError as error:
            # A consumer that was not waiting when it was closed says so.
            if not self._over:
                self.error = error
                raise
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        self._over = True
        self._consumer.close()
        self.join(60)
        self._cluster.close()
        if self.error is not None:
            raise self.error


def read_back(address: str) -> tuple[dict[bytes, list[int]], dict[int, list[tuple[int, int]]]]:
    """All records of each key, and of each partition with their offsets, in the order in which
    they stand."""
    with library.connect(address) as cluster:
        table = cluster.read(TOPIC)
    by_key: dict[bytes, list[int]] = defaultdict(list)
    by_partition: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in table.select(["key", "value", "partition", "offset"]).to_pylist():
        number = int(row["value"])
        by_key[row["key"]].append(number)
        by_partition[row["partition"]].append((row["offset"], number))
    return by_key, by_partition


def check_acknowledged(acknowledged: dict[bytes, list[int]], found: dict[bytes, list[int]]) -> None:
    """Check what was read against what was acknowledged, both by key. Either may still grow."""
    acknowledged = {key: list(numbers) for key, numbers in tuple(acknowledged.items())}
    found = {key: list(numbers) for key, numbers in tuple(found.items())}
    for key, numbers in acknowledged.items():
        known = set(numbers)
        there = [number for number in found.get(key, []) if number in known]
        assert there == numbers, f"key {key!r}"
    for key, numbers in found.items():
        assert len(numbers) == len(set(numbers)), f"key {key!r} holds a record twice"
        assert numbers == sorted(numbers), f"key {key!r} is out of order"
