"""When is a record committed? The rule, and nothing else.

A leader commits what every member of the live replica set has persisted, only while the set is
not smaller than the minimum, and only once that includes the control record with which it began
its own term: records of earlier terms are committed by a record of the own term behind them,
never by counting them (the mistake of figure 8 in the Raft paper). A member counts with what
is persisted as the topic's durability understands it; the caller says how far that is. The
last add confirmed never goes back. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

MemberT = TypeVar("MemberT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CommitRule(Generic[MemberT]):
    """One leadership: whom a commit needs, at least how many, and the own-term control record.

    ``members`` identify live replicas (SPU and storage). ``control_offset`` is the offset of
    the control record.
    """

    members: frozenset[MemberT]
    min_in_sync: int
    control_offset: int

    def last_add_confirmed(self, positions: Mapping[MemberT, int], known: int) -> int:
        """The last committed offset. ``positions`` are next offsets; a missing one counts as 0.

        ``known`` is the last add confirmed so far, -1 for none; the result is never below it.
        """
        if not self.members or len(self.members) < self.min_in_sync:
            return known
        everywhere = min(positions.get(member, 0) for member in self.members)
        if everywhere <= self.control_offset:
            return known
        return max(known, everywhere - 1)
