"""Which segments a reader takes, and which it gives back. Pure.

All readers compute the same division from the same state: what is free goes, one by one, to
whoever has least, and by name among equals. So they seldom want the same segment, and a reader that
takes its share leaves loads that differ by one at most, if they did before. A reader that has two
more than another gives half of the difference back, once nothing is free; so a group of any size is
even after about as many rounds as the difference has binary digits.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

from runnel.groups.places import SourceSegment
from runnel.groups.state import GroupState


def to_acquire(
    group: GroupState, reader: str, unread: Mapping[SourceSegment, int] | None = None
) -> tuple[SourceSegment, ...]:
    """The free segments that a reader should take now. ``unread``: how much of each is unread, as
    far as this reader knows; those with most go first to whoever has least.

    A reader with a checkpoint to pass takes nothing, and others do not count on it.
    """
    free = sorted(group.free(), key=lambda one: (-(unread or {}).get(one, 0), one))
    if not free or group.pending(reader):
        return ()
    loads = Counter(group.owners.values())
    heap = [(loads[name], name) for name in group.readers if not group.pending(name)]
    heapq.heapify(heap)
    mine = []
    for one in free:
        load, name = heap[0]
        if name == reader:
            mine.append(one)
        heapq.heapreplace(heap, (load + 1, name))
    return tuple(mine)


def to_release(
    group: GroupState, reader: str, unread: Mapping[SourceSegment, int] | None = None
) -> tuple[SourceSegment, ...]:
    """The segments that a reader should give back now: half of what it has more than whoever has
    least, those with least unread first."""
    if group.free():
        return ()
    loads = Counter(group.owners.values())
    least = min((loads[name] for name in group.readers), default=0)
    count = (loads[reader] - least) // 2
    owned = sorted(group.owned(reader), key=lambda one: ((unread or {}).get(one, 0), one))
    return tuple(owned[:count])
