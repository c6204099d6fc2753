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

    def take(self, joining: Collection[int], leaving: Collection[int]) -> bool:
        """Whether one more partition may move so; it counts from then on. Replicas that only leave
        cost nothing."""
        if joining and (
            self._count >= MOST
            or any(self._in[i] >= MOST_IN for i in joining)
            or any(self._out[i] >= MOST_OUT for i in leaving)
        ):
            return False
        self._note(joining, leaving)
        self.given.update(joining)
        return True

    def _note(self, joining: Collection[int], leaving: Collection[int]) -> None:
        if joining:
            self._count += 1
            self._in.update(joining)
            self._out.update(leaving)
