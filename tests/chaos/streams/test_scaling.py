"""A stream is scaled 1 → 8 → 2 under writers and readers, while SPUs and the SC are killed: nothing
is lost, nothing comes twice, and each key is read in the order in which it was written."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import runnel
from tests.chaos.replication.spus import SPUS, Fleet
from tests.contract.kv.etcd_server import require_etcd
from tests.e2e.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]

NAME: Final = "shop/orders"
ENDS_S: Final = 120.0
KEYS: Final = 40
WRITERS: Final = 2


class Writing(threading.Thread):
    """Sends numbers, counted by key, until it is told to stop; all have to be acknowledged."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(daemon=True)
        self.sent: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.failed: list[runnel.RunnelError] = []
        self._address = address
        self._name = name

    def run(self) -> None:
        try:
            with (
                runnel.connect(self._address) as cluster,
                cluster.stream(NAME).producer(batch_bytes=4_000) as producer,
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


class Reading(threading.Thread):
    """Reads the stream to its end."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.read: defaultdict[str, list[int]] = defaultdict(list)
        self.failed: list[runnel.RunnelError] = []
        self._address = address

    def run(self) -> None:
        try:
            with (
                runnel.connect(self._address) as cluster,
                cluster.stream(NAME).consumer("earliest") as consumer,
            ):
                for record in consumer:
                    assert record.key is not None
                    assert record.value is not None
                    self.read[bytes(record.key).decode()].append(int(record.value))
        except runnel.RunnelError as error:
            self.failed.append(error)


def _kill_an_spu(fleet: Fleet, number: int) -> Callable[[], None]:
    victim = number % SPUS
    fleet.kill_spu(victim)
    return lambda: fleet.start_spu(victim)


def _freeze_an_spu(fleet: Fleet, number: int) -> Callable[[], None]:
    victim = number % SPUS
    fleet.freeze(victim)
    return lambda: fleet.thaw(victim)


def _kill_the_sc(fleet: Fleet, _number: int) -> Callable[[], None]:
    fleet.kill_sc()
    fleet.start_sc()
    return lambda: None


def _nothing(_fleet: Fleet, _number: int) -> Callable[[], None]:
    return lambda: None


#: What comes in the middle of each scale, and to how many segments that goes.
COURSE: Final = (
    (8, _nothing),
    (2, _kill_the_sc),
    (8, _kill_an_spu),
    (1, _freeze_an_spu),
    (5, _kill_the_sc),
    (2, _kill_an_spu),
)


@pytest.fixture(params=["sqlite", "etcd"])
def cluster_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    if request.param == "etcd":
        require_etcd()
    fleet = Fleet(Command(tmp_path / "home", kv=request.param))
    fleet.home.mkdir(parents=True)
    yield fleet
    fleet.stop()


def test_given_faults_while_a_stream_is_scaled_then_each_key_is_read_once_and_in_order(
    cluster_of: Fleet,
) -> None:
    fleet = cluster_of
    fleet.start()
    command = fleet.command
    command("create", "scope", "shop")
    command("create", "stream", NAME, "--replication-factor", str(SPUS))
    writing = [Writing(fleet.address, f"w{n}") for n in range(WRITERS)]
    reading = [Reading(fleet.address) for _ in range(2)]
    for thread in (*writing, *reading):
        thread.start()
    for number, (segments, begin) in enumerate(COURSE):
        time.sleep(1.0)
        done: list[int] = []

        def scale(segments: int = segments, done: list[int] = done) -> None:
            _until_scaled(command, segments)
            done.append(segments)

        scaling = threading.Thread(target=scale, daemon=True)
        scaling.start()
        time.sleep(0.1)
        end = begin(fleet, number)
        time.sleep(2.0)
        end()
        scaling.join(ENDS_S)
        assert done == [segments], (
            f"not scaled to {segments}: {command('describe', 'stream', NAME)}"
        )
        fleet.until(fleet.is_complete, "all SPUs are online")
    for one in writing:
        one.stopped.set()
    for one in writing:
        one.join(ENDS_S)
        assert not one.is_alive()
        assert not one.failed
        assert sum(one.sent.values()) > 1_000
    command("stream", "seal", NAME, "--yes", "--timeout", f"{ENDS_S:g}s")
    wanted = {key: list(range(count)) for one in writing for key, count in one.sent.items()}
    for one_reading in reading:
        one_reading.join(ENDS_S)
        assert not one_reading.is_alive(), "a reader does not end with its stream"
        assert not one_reading.failed
        wrong = {key for key, numbers in wanted.items() if one_reading.read[key] != numbers}
        assert not wrong
    late = Reading(fleet.address)
    late.run()
    assert late.read == wanted, "and so does one that begins after the end"


def _until_scaled(command: Command, segments: int) -> None:
    """Have the stream scaled, however often an SC that is killed does not answer."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        done = command.run(
            "stream", "scale", NAME, "--segments", str(segments), "--timeout", "100s"
        )
        if done.returncode == 0:
            return
        time.sleep(0.5)
