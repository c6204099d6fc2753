"""What changed about the numbers of replicas since the SC was told them. Pure.

Neighbours: `spu.host.host` notes the numbers of a replica when it has ticked, and `spu.statistics`
takes those that changed.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import islice

from schemas.control.statistics import ReplicaNumbers
from schemas.ids import PartitionUid


class ChangedNumbers:
    """Numbers by replica: those that were told, and those that are to be told next, in the order
    in which they changed."""

    def __init__(self) -> None:
        self._told: dict[PartitionUid, ReplicaNumbers] = {}
        self._changed: dict[PartitionUid, ReplicaNumbers] = {}

    def note(self, numbers: ReplicaNumbers) -> None:
        """These are the numbers of a replica now."""
        if self._told.get(numbers.uid) != numbers:
            # One that waits keeps its place: busy replicas do not push it back.
            self._changed[numbers.uid] = numbers

    def take(self, at_most: int, held: Container[PartitionUid]) -> tuple[ReplicaNumbers, ...]:
        """Numbers to tell now, of replicas that the SPU still holds; they count as told."""
        taken = []
        for uid in tuple(islice(self._changed, at_most)):
            numbers = self._changed.pop(uid)
            if uid in held:
                self._told[uid] = numbers
                taken.append(numbers)
            else:
                self._told.pop(uid, None)
        return tuple(taken)

    def forget(self) -> None:
        """Nothing is told: there is another SC, or it has lost what it knew. All that is known is
        to be told again: idle replicas would note their numbers only seconds later."""
        self._changed = self._told | self._changed
        self._told = {}
