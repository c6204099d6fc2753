"""Placement of the replicas of new partitions.

Goals, in this order:

1. replicas of one partition on different SPUs (a constraint, not a wish);
2. replicas of one partition on different racks while racks suffice (unless ignored);
3. leaders spread evenly over the SPUs;
4. replicas spread evenly over the SPUs;
5. ties go to the lowest id, so that the same input always gives the same answer.

Algorithm: one partition after the other, greedily. The leader is the SPU with the fewest
leaders, then the fewest replicas. Each follower is the SPU whose rack the partition uses least,
then the one with the fewest replicas. Existing load counts.

Worked example: SPUs 0, 1, 2 without racks or load, 3 partitions of 2 replicas. Partition 0: all
equal, leader 0; followers 1 and 2 are equal, 1. Partition 1: SPUs 1 and 2 lead nothing, 2 holds
fewer replicas: leader 2; follower 0 and 1 hold one each, 0. Partition 2: only 1 leads nothing:
leader 1; follower 2 holds fewest: 2. Result: [0, 1], [2, 0], [1, 2].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """An SPU that may take replicas, and what it holds already."""

    spu_id: int
    rack: str | None = None
    leaders: int = 0
    replicas: int = 0


def place(
    candidates: Iterable[Candidate],
    partitions: int,
    replication_factor: int,
    *,
    ignore_racks: bool = False,
) -> list[tuple[int, ...]] | None:
    """Replicas of ``partitions`` new partitions, leader first; None where SPUs do not suffice."""
    spus = sorted(candidates, key=lambda c: c.spu_id)
    if len(spus) < replication_factor:
        return None
    leaders = Counter({c.spu_id: c.leaders for c in spus})
    replicas = Counter({c.spu_id: c.replicas for c in spus})
    placed = []
    for _ in range(partitions):
        row = _place_one(spus, replication_factor, leaders, replicas, ignore_racks)
        leaders[row[0]] += 1
        replicas.update(row)
        placed.append(row)
    return placed


def _place_one(
    spus: Sequence[Candidate],
    replication_factor: int,
    leaders: Counter[int],
    replicas: Counter[int],
    ignore_racks: bool,
) -> tuple[int, ...]:
    leader = min(spus, key=lambda c: (leaders[c.spu_id], replicas[c.spu_id], c.spu_id))
    chosen = [leader]
    while len(chosen) < replication_factor:
        used_racks = Counter(c.rack for c in chosen if c.rack is not None)
        rest = [c for c in spus if c not in chosen]
        chosen.append(
            min(
                rest,
                key=lambda c: (
                    0 if ignore_racks or c.rack is None else used_racks[c.rack],
                    replicas[c.spu_id],
                    c.spu_id,
                ),
            )
        )
    return tuple(c.spu_id for c in chosen)
