"""A stream under load is split by itself and, when the load ends, merged, while a leader and the SC
are killed. Its retention removes what a group has read: the group reads each key once and in order,
and what it has read is gone."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import runnel
from tests.chaos.replication.spus import SPUS, Fleet
from tests.e2e.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

NAME: Final = "shop/clicks"
GROUP: Final = "all"
KEYS: Final = 200
RATE: Final = 2_000
TARGET: Final = 400
ENDS_S: Final = 120.0


class Writing(threading.Thread):
    """Sends numbers, counted by key, at an even rate until it is told to stop."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.sent: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.failed: list[runnel.RunnelError] = []
        self._address = address

    def run(self) -> None:
        try:
            with (
                runnel.connect(self._address) as cluster,
                cluster.stream(NAME).producer() as producer,
            ):
                number, began_s = 0, time.monotonic()
                while not self.stopped.wait(0.02):
                    while number < (time.monotonic() - began_s) * RATE:
                        key = f"k{number % KEYS}"
                        producer.send(str(self.sent[key]), key=key)
                        self.sent[key] += 1
                        number += 1
        except runnel.RunnelError as error:
            self.failed.append(error)


class Reading(threading.Thread):
    """Reads the stream as the only reader of a group, until its end."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.read: dict[str, list[int]] = defaultdict(list)
        self.failed: list[runnel.RunnelError] = []
        self._address = address

    def run(self) -> None:
        try:
            with (
                runnel.connect(self._address) as cluster,
                cluster.reader_group(
                    GROUP, streams=[NAME], checkpoint_every=1.0, retention="automatic"
                ) as group,
                group.reader("only") as reader,
            ):
                for record in reader:
                    assert record.key is not None
                    assert record.value is not None
                    self.read[bytes(record.key).decode()].append(int(record.value))
        except runnel.RunnelError as error:
            self.failed.append(error)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(Command(tmp_path / "home", kv="sqlite"))
    fleet.home.mkdir(parents=True)
    yield fleet
    fleet.stop()


def test_given_a_load_that_comes_and_goes_then_segments_follow_it(fleet: Fleet) -> None:
    fleet.start()
    fleet.command(
        "apply",
        "-f",
        "-",
        stdin=f"""
apiVersion: runnel/v1
kind: Scope
metadata: {{name: shop}}
---
apiVersion: runnel/v1
kind: Stream
metadata: {{name: {NAME}}}
spec:
  replicationFactor: {SPUS}
  scaling: {{type: eventsPerSecond, targetRate: {TARGET}, scaleFactor: 4, window: 1s}}
  retention: {{minTime: 1s, period: 1s}}
""",
    )

    def segments() -> int:
        found = fleet.command.json("get", "stream", NAME)["status"].get("segments", 0)
        assert isinstance(found, int)
        return found

    def begins() -> runnel.StreamCut:
        with runnel.connect(fleet.address) as cluster:
            return cluster.stream(NAME).head()

    reading = Reading(fleet.address)
    reading.start()
    with runnel.connect(fleet.address) as cluster:
        fleet.until(lambda: GROUP in cluster.stream(NAME).subscribers(), "the group subscribes")
    first = begins()
    writing = Writing(fleet.address)
    writing.start()
    fleet.until(lambda: segments() >= 2, "the hot segment is split")
    # What leaders measured goes with them, and what they said with the SC.
    fleet.kill_spu(0)
    fleet.kill_sc()
    fleet.start_sc()
    fleet.start_spu(0)
    # One segment may have up to the target.
    fleet.until(lambda: segments() >= RATE // TARGET, "no segment has more than the target")
    writing.stopped.set()
    writing.join(ENDS_S)
    assert not writing.is_alive()
    assert not writing.failed
    fleet.until(lambda: segments() == 1, "segments without load are merged, up to the minimum")
    # Nothing of the first segments is left.
    gone = set(first.offsets)
    fleet.until(lambda: not gone & set(begins().offsets), "what the group has read is removed")
    fleet.command("stream", "seal", NAME, "--yes", "--timeout", "80s")
    reading.join(ENDS_S)
    assert not reading.is_alive(), "the group ends with its stream"
    assert not reading.failed
    assert reading.read == {key: list(range(count)) for key, count in writing.sent.items()}
