"""How many partitions may move at once. Pure.

A newcomer reads the whole log from its leader, which serves clients at the same time, so that only
a few replicas come to, or go from, one SPU at once. What moves is counted anew for each decision:
nothing has to be given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from sc.store.view import View
from schemas.objects.partition import PartitionSpec

#: Replicas that catch up on one SPU at once, and those that leave one.
MOST_IN: Final = 8
MOST_OUT: Final = 8
#: Partitions that move in the whole cluster.
MOST: Final = 64


class Budget:
    """What may still begin to move, beside what moves."""

    def __init__(self, view: View) -> None:
        self._in: Counter[int] = Counter()
        self._out: Counter[int] = Counter()
        self._count = 0
        #: Replicas that were given to an SPU by `take`, which the store does not show yet.
        self.given: Counter[int] = Counter()
        for partition in view.store.moving():
            self._note(partition.spec.joining or (), partition.spec.leaving or ())

    def take(
        self,
        joining: Collection[int],
        leaving: Collection[int],
        instead_of: PartitionSpec | None = None,
    ) -> bool:
        """Whether one more partition may move so; it counts from then on. Replicas that only leave
        cost nothing. ``instead_of``: how it moves now, if it does; that ends."""
        if instead_of is not None:
            self._forget(instead_of.joining or (), instead_of.leaving or ())
        if self._has_room(joining, leaving):
            self._note(joining, leaving)
            self.given.update(joining)
            return True
        if instead_of is not None:
            self._note(instead_of.joining or (), instead_of.leaving or ())
        return False

    def _has_room(self, joining: Collection[int], leaving: Collection[int]) -> bool:
        return not joining or not (
            self._count >= MOST
            or any(self._in[i] >= MOST_IN for i in joining)
            or any(self._out[i] >= MOST_OUT for i in leaving)
        )

    def _note(self, joining: Collection[int], leaving: Collection[int]) -> None:
        if joining:
            self._count += 1
            self._in.update(joining)
            self._out.update(leaving)

    def _forget(self, joining: Collection[int], leaving: Collection[int]) -> None:
        if joining:
            self._count -= 1
            self._in.subtract(joining)
            self._out.subtract(leaving)
