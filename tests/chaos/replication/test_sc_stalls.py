"""The SC stands still and goes on, under a producer that never rests: nothing is elected for that,
no replica stays away, and every acknowledged record is read once, in order per key.

`RUNNEL_CHAOS_ROUNDS` says how many rounds of all durations (1).
"""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.replication.clients import TOPIC, Producing, check_acknowledged, read_back
from tests.chaos.replication.spus import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("RUNNEL_CHAOS_ROUNDS", "1"))
PARTITIONS = 12
#: Records a second: a load that leaves time for heartbeats to everybody.
RATE = 2_000
STALLS_S = (0.5, 1.0, 3.0, 10.0)
#: SPUs are back, and suspicions are over.
SETTLED_S = 3.0


def test_given_an_sc_that_stands_still_then_no_election_and_nothing_lost(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    fleet.command(
        "create", "topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3"
    )
    fleet.until(lambda: fleet.is_whole(TOPIC), "the topic is replicated")
    before = leaders(fleet)
    assert len(before) == PARTITIONS
    producing = Producing(fleet.address, RATE)
    producing.start()
    fleet.until(lambda: producing.count > 0, "the producer has begun")
    sent: dict[float, int] = dict.fromkeys(STALLS_S, 0)
    for number in range(ROUNDS):
        for stall_s in STALLS_S:
            count = producing.count
            fleet.stall_sc(stall_s)
            sent[stall_s] += producing.count - count
            time.sleep(SETTLED_S)
            # One that stalls itself, as on a machine with other work, leaves for a moment.
            fleet.until(lambda: fleet.is_whole(TOPIC), "all replicas are live after a stall")
            assert leaders(fleet) == before, (
                f"round {number}, after {stall_s:g} s\n{fleet.sessions()}"
            )
    producing.stop()
    assert producing.failed == 0
    check_acknowledged(producing.acknowledged, read_back(fleet.address)[0])
    with capsys.disabled():
        rates = {f"{s:g} s": f"{n / s / ROUNDS:,.0f}/s" for s, n in sent.items()}
        acknowledged = sum(map(len, producing.acknowledged.values()))
        print(f"\n{ROUNDS} rounds: {acknowledged:,} records acknowledged; sent in stalls: {rates}")


def leaders(fleet: Fleet) -> dict[str, tuple[object, object]]:
    """Leader and term of each partition."""
    return {name: (leader, term) for name, (leader, term, _) in fleet.elected(TOPIC).items()}
