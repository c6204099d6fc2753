"""A Kafka consumer group on one broker: how soon all partitions are read evenly after its members
join, after one is killed, and after one more joins.

The members are JVMs with Kafka's own consumer (`GroupMember.java`), which ``javac`` compiles. Each
says itself which partitions it has.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.kafka_brokers import (
    KAFKA_VERSION,
    QUIET,
    Broker,
    broker_jars,
    java_program,
    running_broker,
)
from benchmarks.peers.peer import UnavailableError

_SOURCE: Final = Path(__file__).with_name("GroupMember.java")
_HEAP: Final = "-Xmx256m"
_WARM_UP: Final = "warm-up"
_PATIENCE_S: Final = 300.0
_LOOK_S: Final = 0.01

PROTOCOLS: Final = ("classic", "consumer")
"""What is measured: the classic protocol with the cooperative sticky assignor, and the one of
KIP-848, in which the broker assigns."""


@dataclass(frozen=True, slots=True)
class Rebalances:
    """Seconds: from the moment when all join; for each kill; for each member that joins later."""

    join_s: float
    kill_s: tuple[float, ...]
    one_more_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class KafkaGroups:
    """A broker, and the program of a member. ``lease_ms``: after which silence a member is dead."""

    broker: Broker
    java: str
    libs: Path
    classes: Path
    lease_ms: int

    @property
    def version(self) -> str:
        return f"Kafka {KAFKA_VERSION}"

    def measure(self, protocol: str, partitions: int, members: int, rounds: int) -> Rebalances:
        """``rounds``: how many members are killed, and join, one after the other."""
        topic = f"owned-{partitions}"
        self.broker.create_topic(_WARM_UP, 1)
        self.broker.create_topic(topic, partitions)
        names = [f"{protocol}-{topic}", topic, _WARM_UP]
        command = [self.java, _HEAP, QUIET, "-cp", f"{self.libs}/*:{self.classes}", "GroupMember"]
        command += [*names, *(f"{k}={v}" for k, v in self._settings(protocol).items())]
        with _members(command, members + rounds) as started:
            _until(lambda: all(one.ready for one in started), started)
            return _rebalances(started[:members], started[members:], partitions, self.lease_ms)

    def _settings(self, protocol: str) -> dict[str, object]:
        common: dict[str, object] = {
            "bootstrap.servers": self.broker.address,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
        if protocol == "consumer":
            return common
        return {
            **common,
            "session.timeout.ms": self.lease_ms,
            "heartbeat.interval.ms": self.lease_ms // 3,
            "partition.assignment.strategy": (
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            ),
        }


@contextmanager
def kafka_groups(lease_s: float) -> Iterator[KafkaGroups]:
    """With a broker of its own. Raises UnavailableError."""
    java, javac = java_program(), java_program("javac")
    libs, lease_ms = broker_jars(), round(lease_s * 1000)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-java-") as directory:
        command = [javac, "-cp", f"{libs}/*", "-d", directory, str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise UnavailableError(f"javac does not compile {_SOURCE.name}: {done.stderr[-500:]}")
        with running_broker(java, libs, broker_settings(lease_ms)) as broker:
            yield KafkaGroups(broker, java, libs, Path(directory), lease_ms)


def broker_settings(lease_ms: int) -> dict[str, object]:
    """With which members may be as impatient as a Runnel group. Pure."""
    return {
        "group.min.session.timeout.ms": lease_ms,
        "group.consumer.min.session.timeout.ms": lease_ms,
        "group.consumer.session.timeout.ms": lease_ms,
        "group.consumer.min.heartbeat.interval.ms": lease_ms // 3,
        "group.consumer.heartbeat.interval.ms": lease_ms // 3,
    }


class _Member:
    """A process; a thread reads what it says."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._log = log
        self.ready = False
        self.owned: frozenset[int] = frozenset()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            word, _, numbers = line.strip().partition(" ")
            if word == "ready":
                self.ready = True
            elif word == "owns":
                self.owned = frozenset(int(one) for one in numbers.split(",") if one)

    def join(self) -> None:
        """Have it join the group."""
        if self._process.stdin is not None:
            self._process.stdin.write("join\n")
            self._process.stdin.flush()

    def check(self) -> None:
        """Raise RuntimeError if it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"a member ended:\n{self._log.read_text()[-2_000:]}")

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def _members(command: Sequence[str], count: int) -> Iterator[list[_Member]]:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-members-"))
        started = []
        for n in range(count):
            one = _Member(command, Path(directory) / f"member-{n}.log")
            stack.callback(one.close)
            started.append(one)
        yield started


def _rebalances(
    alive: list[_Member], later: list[_Member], partitions: int, lease_ms: int
) -> Rebalances:
    def took(act: Callable[[], None]) -> float:
        begun = time.perf_counter()
        act()
        _until(lambda: is_even([one.owned for one in alive], partitions), alive)
        return time.perf_counter() - begun

    def join_all() -> None:
        for one in alive:
            one.join()

    def join_one() -> None:
        alive.append(later.pop())
        alive[-1].join()

    join_s, kill_s, one_more_s = took(join_all), [], []
    while later:
        time.sleep(lease_ms / 1000)
        kill_s.append(took(lambda: alive.pop(0).kill()))
        time.sleep(lease_ms / 1000)
        one_more_s.append(took(join_one))
    return Rebalances(join_s, tuple(kill_s), tuple(one_more_s))


def is_even(owned: Sequence[frozenset[int]], partitions: int) -> bool:
    """Whether each partition has one member, and loads differ by one at most. Pure."""
    loads = [len(one) for one in owned]
    everything = len(frozenset().union(*owned)) == sum(loads) == partitions
    return everything and max(loads) - min(loads) <= 1


def _until(condition: Callable[[], bool], members: Sequence[_Member]) -> None:
    deadline = time.perf_counter() + _PATIENCE_S
    while not condition():
        for one in members:
            one.check()
        if time.perf_counter() > deadline:
            raise RuntimeError(f"members own {[len(one.owned) for one in members]} partitions")
        time.sleep(_LOOK_S)
