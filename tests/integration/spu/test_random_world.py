"""Real SPUs in a random world of faults: nothing that was acknowledged may be lost.

``RUNNEL_WORLD_SEED=517 pytest -m "slow or not slow" tests/integration/spu/test_random_world.py``
begins with that seed instead of the fixed one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.spu.world import World

SEED = int(os.environ.get("RUNNEL_WORLD_SEED", "500"))
#: In the default tier, and in the slow one.
FEW, MANY = 2, 10
FAULTS, MANY_FAULTS = 12, 30


@pytest.fixture(autouse=True)
def hurry(short_pauses: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let patience end sooner than in a real cluster, so that a world sees more of its ends."""
    for module in ("leader", "unproven_leader"):
        monkeypatch.setattr(f"spu.replication.{module}.REPLICA_LAG_TIME_MS", 1_000)
    monkeypatch.setattr("spu.replication.attachments.STALLED_MS", 300)


async def live_through(seed: int, path: Path, faults: int) -> None:
    world = World(seed, path)
    await world.run(faults)
    # Shown with a failure: what led to it.
    print(f"seed {seed}: {len(world.acknowledged)} acknowledged;", *world.operations, sep="\n  ")
    assert world.problems == []
    assert len(world.acknowledged) > 10
    assert len(world.operations) > faults // 3


@pytest.mark.parametrize(
    "seed", range(SEED, SEED + FEW), ids=lambda seed: f"given-seed-{seed}-then-all-holds"
)
async def test_a_short_life(tmp_path: Path, seed: int) -> None:
    await live_through(seed, tmp_path, FAULTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    range(SEED + FEW, SEED + FEW + MANY),
    ids=lambda seed: f"given-seed-{seed}-then-all-holds",
)
async def test_a_longer_life(tmp_path: Path, seed: int) -> None:
    await live_through(seed, tmp_path, MANY_FAULTS)
