"""Which segments a reader takes, and which it gives back. Pure.

All readers compute the same division from the same state: what is free goes, one by one, to
whoever has least, and by name among equals. So they seldom want the same segment, and a reader that
takes its share leaves loads that differ by one at most, if they did before. Once nothing is free, a
reader gives back what it has above the average. So a group of any size is even after one round of
giving back and one of taking; where the average is no whole number, one more may be needed.
"""

from __future__ import annotations

import heapq
from collections import Counter

from runnel.groups.places import SourceSegment
from runnel.groups.state import GroupState


def to_acquire(group: GroupState, reader: str) -> tuple[SourceSegment, ...]:
    """The free segments that a reader should take now.

    A reader with a checkpoint to pass takes nothing, and others do not count on it.
    """
    free = sorted(group.free())
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


def to_release(group: GroupState, reader: str) -> tuple[SourceSegment, ...]:
    """The segments that a reader should give back now."""
    if group.free():
        return ()
    loads = Counter(group.owners.values())
    least, above = divmod(len(group.owners), len(group.readers))
    count = max(0, loads[reader] - least - (above > 0))
    if not count and loads[reader] > least:
        # It has one more than the least share, as others may: as many of these give one back as
        # readers lack of theirs.
        lacking = sum(max(0, least - loads[name]) for name in group.readers)
        lacking -= sum(max(0, loads[name] - least - 1) for name in group.readers)
        with_one_more = sorted(name for name in group.readers if loads[name] == least + 1)
        count = int(with_one_more.index(reader) < lacking)
    return tuple(sorted(group.owned(reader))[:count])
