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
            self._count_moves(partition.spec, 1)

    @property
    def is_spent(self) -> bool:
        """Whether no other partition may get a replica now, whichever it is."""
        return self._count >= MOST

    def take(
        self, added: Collection[int], spec: PartitionSpec, *, instead_of: PartitionSpec
    ) -> bool:
        """Whether one more partition may move by ``spec``, for which the SPUs ``added`` get a
        replica; it counts from then on. Without them, it costs nothing. ``instead_of``: how it
        moves now, if it does; that ends."""
        self._count_moves(instead_of, -1)
        if self._has_room(added, spec.leaving or ()):
            self._count_moves(spec, 1)
            self.given.update(added)
            return True
        self._count_moves(instead_of, 1)
        return False

    def _has_room(self, added: Collection[int], leaving: Collection[int]) -> bool:
        return not added or not (
            self.is_spent
            or any(self._in[i] >= MOST_IN for i in added)
            or any(self._out[i] >= MOST_OUT for i in leaving)
        )

    def _count_moves(self, spec: PartitionSpec, times: int) -> None:
        if spec.joining:
            self._count += times
            for spu_id in spec.joining:
                self._in[spu_id] += times
            for spu_id in spec.leaving or ():
                self._out[spu_id] += times
