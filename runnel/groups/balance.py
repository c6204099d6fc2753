"""Which segments a reader takes, and which it gives back. Pure.

All readers compute the same division from the same state. What is free goes, one by one, to whoever
has least, and by name among equals; then whoever has most gives to whoever has least, until loads
differ by one at most. So they seldom want the same segment, a reader that takes its share leaves
loads that are as even as before, and what one reader does changes nothing for the others. All who
have too much give that back at once, so a group of any size is even after one round of giving back
and one of taking.

A reader with a checkpoint to pass takes nothing, and others do not count on it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping

from runnel.groups.places import SourceSegment
from runnel.groups.state import GroupState


def to_acquire(group: GroupState, reader: str) -> tuple[SourceSegment, ...]:
    """The free segments that a reader should take now."""
    if group.pending(reader):
        return ()
    return tuple(
        one for one, name in _division(group, Counter(group.owners.values())) if name == reader
    )


def to_release(group: GroupState, reader: str) -> tuple[SourceSegment, ...]:
    """The segments that a reader should give back now."""
    loads = Counter(group.owners.values())
    loads.update(name for _, name in _division(group, loads))
    takers = _takers(group)
    count = 0
    while takers:
        least = min(takers, key=lambda name: (loads[name], name))
        most = max(group.readers, key=lambda name: (loads[name], name))
        if loads[most] - loads[least] <= 1:
            break
        loads[most] -= 1
        loads[least] += 1
        count += most == reader
    return tuple(sorted(group.owned(reader))[:count])


def _division(group: GroupState, loads: Mapping[str, int]) -> Iterator[tuple[SourceSegment, str]]:
    """Who should take what is free."""
    heap = [(loads.get(name, 0), name) for name in _takers(group)]
    heapq.heapify(heap)
    for one in sorted(group.free()) if heap else ():
        load, name = heap[0]
        heapq.heapreplace(heap, (load + 1, name))
        yield one, name


def _takers(group: GroupState) -> list[str]:
    return [name for name in group.readers if not group.pending(name)]
