"""Clients that behave well beside an attack, and what they and the cluster notice of it."""

from __future__ import annotations

import http.client
import os
import queue
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import runnel as library
from schemas.errors import InvalidRequestError
from tests.chaos.attacks.scene import until
from tests.chaos.replication.clients import TOPIC, check_acknowledged

#: Records a second: a load that leaves most of two cores to the attacker.
RATE = 500
KEYS = 30
_AT_ONCE = 10
#: A monitor has an address of its own; a stranger from there could take its place.
MONITOR = "127.0.0.2"
_MIB = 1 << 20


@dataclass(frozen=True)
class Noticed:
    """What clients had within some seconds: events a second, and the longest time without one."""

    rate: float
    worst_gap_s: float

    @classmethod
    def of(cls, times: list[float], start: float, end: float) -> Noticed:
        """Of sorted points in time within an interval; its ends count as events for the gap."""
        within = times[bisect_left(times, start) : bisect_left(times, end)]
        gaps = [b - a for a, b in zip([start, *within], [*within, end], strict=True)]
        return cls(len(within) / (end - start), max(gaps))

    def __str__(self) -> str:
        return f"{self.rate:4.0f}/s, gap {self.worst_gap_s:.2f} s"


class Neighbours:
    """A producer at a steady rate and a consumer, which note when records were acknowledged and
    read. Use as a context manager."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[bytes, list[int]] = defaultdict(list)
        self.acknowledged_at: list[float] = []
        self.read: dict[bytes, list[int]] = defaultdict(list)
        self.seen: set[int] = set()
        self.read_at: list[float] = []
        self.errors: list[BaseException] = []
        self._cluster = library.connect(address)
        self._consumer = self._cluster.consumer(TOPIC, start="earliest")
        self._sent: queue.Queue[tuple[bytes, int, library.Delivery] | None] = queue.Queue()
        self._over = threading.Event()
        works = (self._produce, self._settle, self._consume)
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def __enter__(self) -> Neighbours:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, wait for what is on its way, and raise the first error of a client."""
        if self._over.is_set():
            return
        self._over.set()
        producing, settling, consuming = self._threads
        producing.join(60)
        self._sent.put(None)
        settling.join(180)
        self._consumer.close()
        consuming.join(60)
        self._cluster.close()
        for error in self.errors:
            raise error

    def between(self, start: float, end: float) -> tuple[Noticed, Noticed]:
        """What the producer and the consumer noticed."""
        return Noticed.of(self.acknowledged_at, start, end), Noticed.of(self.read_at, start, end)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            # A consumer that was not waiting when it was closed says so.
            if not (self._over.is_set() and isinstance(error, InvalidRequestError)):
                self.errors.append(error)

    def _produce(self) -> None:
        with self._cluster.producer(TOPIC, linger_ms=2) as producer:
            count = 0
            while not self._over.wait(_AT_ONCE / RATE):
                for _ in range(_AT_ONCE):
                    key = b"%d" % (count % KEYS)
                    self._sent.put((key, count, producer.send(b"%d" % count, key)))
                    count += 1

    def _settle(self) -> None:
        while (sent := self._sent.get()) is not None:
            key, number, delivery = sent
            delivery.result(150)
            self.acknowledged_at.append(time.perf_counter())
            self.acknowledged[key].append(number)

    def _consume(self) -> None:
        for record in self._consumer:
            self.read_at.append(time.perf_counter())
            number = int(record.value or b"")
            self.read[record.key or b""].append(number)
            self.seen.add(number)


def check_nothing_lost(neighbours: Neighbours) -> None:
    """The consumer has read what was acknowledged, once and in order per key."""
    assert neighbours.errors == []
    acknowledged = {key: list(numbers) for key, numbers in tuple(neighbours.acknowledged.items())}
    newest = {numbers[-1] for numbers in acknowledged.values()}
    until(lambda: newest <= neighbours.seen, "what was acknowledged is read", 10)
    check_acknowledged(acknowledged, neighbours.read)


@dataclass
class Peak:
    """The most that a process used within some seconds, beyond what it used before."""

    grown_bytes: int = 0
    more_descriptors: int = 0

    def __str__(self) -> str:
        return f"+{self.grown_bytes / _MIB:.0f} MiB +{self.more_descriptors} fds"


@dataclass
class Watched:
    """What was seen of the daemons within some seconds, by their names."""

    peaks: dict[str, Peak]
    health: Counter[int | str] = field(default_factory=Counter)
    slowest_health_s: float = 0.0


class Watch:
    """Looks at the processes, and asks the SC for its health, each time on a new connection."""

    def __init__(self, sc_port: int, processes: Mapping[str, int]) -> None:
        self._sc_port = sc_port
        self._processes = dict(processes)

    @contextmanager
    def watching(self) -> Iterator[Watched]:
        before = {name: used(pid) for name, pid in self._processes.items()}
        watched = Watched({name: Peak() for name in before})
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.1):
                for name, pid in self._processes.items():
                    memory, descriptors = used(pid)
                    peak = watched.peaks[name]
                    peak.grown_bytes = max(peak.grown_bytes, memory - before[name][0])
                    more = descriptors - before[name][1]
                    peak.more_descriptors = max(peak.more_descriptors, more)

        def ask() -> None:
            while not over.wait(0.1):
                began = time.perf_counter()
                watched.health[health(self._sc_port)] += 1
                took = time.perf_counter() - began
                watched.slowest_health_s = max(watched.slowest_health_s, took)

        threads = [threading.Thread(target=look), threading.Thread(target=ask)]
        for thread in threads:
            thread.start()
        try:
            yield watched
        finally:
            over.set()
            for thread in threads:
                thread.join()


def used(pid: int) -> tuple[int, int]:
    """Resident bytes and open descriptors of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


def health(port: int) -> int | str:
    """The status of ``/health``, or the name of the error."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=5, source_address=(MONITOR, 0)
    )
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()
