"""Leaders killed and frozen, the SC killed, SPUs cut from each other, under a producer that never
rests and a reader that follows it: every acknowledged record is read exactly once, in order per
key, by both who follows and who reads it all at the end.

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


class Following(threading.Thread):
    """Reads on from the beginning, whatever happens; notes what each partition's records were."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.read: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.count = 0
        self.error: BaseException | None = None
        self._cluster = library.connect(address)
        self._consumer = self._cluster.consumer(TOPIC, start="earliest")

    def run(self) -> None:
        try:
            for record in self._consumer:
                self.read[record.partition].append((record.offset, int(record.value or b"")))
                self.count += 1
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        self._consumer.close()
        self.join(60)
        self._cluster.close()
        if self.error is not None:
            raise self.error


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


def test_every_acknowledged_record_is_there_once_and_in_order(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    fleet.command(
        "create", "topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3"
    )
    fleet.until(lambda: fleet.is_whole(TOPIC), "the topic is replicated")
    producing = Producing(fleet.address)
    following = Following(fleet.address)
    producing.start()
    following.start()
    rounds = Rounds(fleet, random.Random(SEED))
    for number in range(ROUNDS):
        before = producing.count
        rounds.run(number)
        fleet.until(lambda n=before: producing.count > n, "the producer goes on")  # type: ignore[misc]
        read = following.count
        fleet.until(lambda n=read: following.count > n, "the reader goes on")  # type: ignore[misc]
    producing.stop()
    fleet.until(lambda: fleet.is_whole(TOPIC), "all live at the end")
    found, stored = read_back(fleet.address)
    total = sum(map(len, stored.values()))
    fleet.until(lambda: following.count >= total, "the reader has read all")
    following.stop()
    assert following.read == stored, "who followed has read what is there, once and in order"
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
