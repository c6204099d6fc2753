"""What a topic or a stream says of its partitions that take no records. Pure.

Why is in the statuses of the partitions (`sc.controllers.partition`, `commit_obstacles`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from schemas.objects.partition import Partition, has_lost_leader

#: How many are named.
NAMED: Final = 3


def out_of_use(
    partitions: Sequence[Partition], noun: str, name: Callable[[Partition], str]
) -> str | None:
    """Which have lost their leader, and which have one that commits nothing; None if all are well.
    ``noun``: what they are, in the plural; ``name``: what users call one of them."""
    leaderless = [name(p) for p in partitions if has_lost_leader(p.status)]
    # A sealed one has nothing left to commit.
    blocked = [
        name(p) for p in partitions if p.status.writable is False and p.status.sealed_offset is None
    ]
    told = (
        _told(leaderless, len(partitions), noun, "has no leader", "have no leader"),
        _told(blocked, len(partitions), noun, "commits nothing", "commit nothing"),
    )
    return "; ".join(filter(None, told)) or None


def _told(names: list[str], of: int, noun: str, one: str, many: str) -> str | None:
    if not names:
        return None
    more = ", …" if len(names) > NAMED else ""
    what = one if len(names) == 1 else many
    return f"{len(names)} of {of} {noun} {what}: {', '.join(names[:NAMED])}{more}"
