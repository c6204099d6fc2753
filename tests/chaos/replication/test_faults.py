"""Leaders killed and frozen, the SC killed, SPUs cut from each other, under a producer that never
rests: every acknowledged record is read back exactly once, in order per key.

`RUNNEL_CHAOS_ROUNDS` says how many rounds (10), `RUNNEL_CHAOS_SEED` which.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import runnel as library
from schemas.errors import RunnelError
from tests.chaos.replication.spus import SPUS, Fleet
from tests.e2e.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("RUNNEL_CHAOS_ROUNDS", "10"))
SEED = int(os.environ.get("RUNNEL_CHAOS_SEED", "1"))
TOPIC = "chaos"
PARTITIONS = 3
KEYS = 30


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(Command(tmp_path / "home"))
    fleet.home.mkdir(parents=True)
    yield fleet
    fleet.stop()


class Producing(threading.Thread):
    """Sends numbers, key by key in order, as fast as it can; notes what was acknowledged."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[bytes, list[int]] = defaultdict(list)
        self.failed = 0
        self.count = 0
        self.error: BaseException | None = None
        self._address = address
        self._over = threading.Event()

    def run(self) -> None:
        try:
            with (
                library.connect(self._address) as cluster,
                cluster.producer(TOPIC, linger_ms=2, batch_bytes=8_000) as producer,
            ):
                sent: list[tuple[bytes, int, library.Delivery]] = []
                while not self._over.is_set():
                    for _ in range(200):
                        key = b"%d" % (self.count % KEYS)
                        sent.append((key, self.count, producer.send(b"%d" % self.count, key)))
                        self.count += 1
                    if len(sent) > 5_000:
                        self._settle(sent)
                        sent = []
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

    def _settle(self, sent: list[tuple[bytes, int, library.Delivery]]) -> None:
        for key, number, delivery in sent:
            try:
                delivery.result(150)
            except RunnelError:
                self.failed += 1
            else:
                self.acknowledged[key].append(number)


class Rounds:
    """Faults in turn, each followed by its end and by the wait until all is whole again."""

    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self.longest_s = 0.0
        self._fleet = fleet
        self._chance = chance

    def run(self, number: int) -> None:
        fleet, chance = self._fleet, self._chance
        partition = f"{TOPIC}-{chance.randrange(PARTITIONS)}"
        leader = fleet.leader(partition)
        victim = chance.randrange(SPUS) if leader is None else leader
        fault = (self._kill, self._freeze, self._cut, self._kill_sc)[number % 4]
        self.done[fault.__name__.strip("_")] += 1
        fault(victim)
        began = time.monotonic()
        fleet.until(lambda: fleet.is_whole(TOPIC), f"all live again after {fault.__name__}")
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def _kill(self, victim: int) -> None:
        self._fleet.kill_spu(victim)
        time.sleep(self._chance.uniform(0, 3))
        self._fleet.start_spu(victim)

    def _freeze(self, victim: int) -> None:
        self._fleet.freeze(victim)
        time.sleep(self._chance.uniform(0.5, 6))
        self._fleet.thaw(victim)

    def _cut(self, victim: int) -> None:
        other = (victim + self._chance.choice((1, 2))) % SPUS
        self._fleet.cut(victim, other)
        time.sleep(self._chance.uniform(1, 14))
        self._fleet.heal()

    def _kill_sc(self, victim: int) -> None:
        """The SC first, so that nobody can elect while the leader is away."""
        self._fleet.kill_sc()
        self._fleet.kill_spu(victim)
        time.sleep(self._chance.uniform(0, 2))
        self._fleet.start_sc()
        self._fleet.start_spu(victim)


def read_back(address: str) -> dict[bytes, list[int]]:
    """All records of each key, in the order in which they stand."""
    with library.connect(address) as cluster:
        table = cluster.read(TOPIC)
    found: dict[bytes, list[int]] = defaultdict(list)
    for row in table.select(["key", "value"]).to_pylist():
        found[row["key"]].append(int(row["value"]))
    return found


def test_every_acknowledged_record_is_there_once_and_in_order(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    fleet.command(
        "create", "topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3"
    )
    fleet.until(lambda: fleet.is_whole(TOPIC), "the topic is replicated")
    producing = Producing(fleet.address)
    producing.start()
    rounds = Rounds(fleet, random.Random(SEED))
    for number in range(ROUNDS):
        before = producing.count
        rounds.run(number)
        fleet.until(lambda n=before: producing.count > n, "the producer goes on")  # type: ignore[misc]
    producing.stop()
    fleet.until(lambda: fleet.is_whole(TOPIC), "all live at the end")
    found = read_back(fleet.address)
    for key, numbers in producing.acknowledged.items():
        known = set(numbers)
        there = [number for number in found[key] if number in known]
        assert there == numbers, f"key {key!r}"
    for key, numbers in found.items():
        assert len(numbers) == len(set(numbers)), f"key {key!r} holds a record twice"
        assert numbers == sorted(numbers), f"key {key!r} is out of order"
    with capsys.disabled():
        acknowledged = sum(map(len, producing.acknowledged.values()))
        print(
            f"\n{ROUNDS} rounds ({dict(rounds.done)}): {acknowledged:,} records acknowledged,"
            f" {producing.failed} of unknown outcome, at most {rounds.longest_s:.1f} s until whole"
        )
