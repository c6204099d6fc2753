"""Leaders killed and frozen, the SC killed, SPUs cut from each other, under a producer that never
rests and a reader that follows it: every acknowledged record is read exactly once, in order per
key, by both who follows and who reads it all at the end.

`RUNNEL_CHAOS_ROUNDS` says how many rounds (6), `RUNNEL_CHAOS_SEED` which.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from tests.chaos.replication.clients import (
    TOPIC,
    Following,
    Producing,
    check_acknowledged,
    read_back,
)
from tests.chaos.replication.spus import SPUS, Fleet

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("RUNNEL_CHAOS_ROUNDS", "6"))
SEED = int(os.environ.get("RUNNEL_CHAOS_SEED", "1"))
PARTITIONS = 3


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
    check_acknowledged(producing.acknowledged, found)
    with capsys.disabled():
        acknowledged = sum(map(len, producing.acknowledged.values()))
        print(
            f"\n{ROUNDS} rounds ({dict(rounds.done)}): {acknowledged:,} records acknowledged,"
            f" {producing.failed} of unknown outcome, at most {rounds.longest_s:.1f} s until whole"
        )
