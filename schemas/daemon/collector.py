"""Python's garbage collector in a process with very many long-lived objects.

The objects of the mirror form no cycles: reference counting frees them. The collector traverses
all of them nevertheless, again and again while the mirror grows, and nothing else runs meanwhile:
longer than an SPU waits for a silent SC. So what is old is frozen, and not traversed again until
there is much more of it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: The young generation is collected when it has grown by this many objects: some milliseconds.
YOUNG: Final = 1_000
#: The middle generation is collected once per this many collections of the young one.
MIDDLE: Final = 5
#: What is old and not frozen is collected once per this many collections of the middle one: when
#: 200,000 more objects were created than freed, some 30 milliseconds.
OLD: Final = 40
#: What is frozen is not traversed again while there are fewer objects than this.
FEW: Final = 1_000_000
#: Nor sooner than so long after the last time: while a cluster grows, nothing is garbage, and the
#: other ends are busy, too.
PAUSE_S: Final = 600.0
_OLDEST: Final = 2


@contextmanager
def held() -> Iterator[None]:
    """Collect nothing during a block that makes many objects and no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def held_for_imports() -> Iterator[None]:
    """Collect nothing during a block of imports, and do not traverse later what exists at its end:
    modules stay for good, and little of what importing them makes is garbage."""
    with held():
        yield
        gc.freeze()


class FrozenHeap:
    """Freezes what survives each collection of the old generation. When twice as much may be
    frozen as when all was last traversed, it counts, and thaws everything for one collection if it
    has grown by half: so garbage that was frozen is freed in the end.

    `on_collection` is called before and after each collection, as `gc.callbacks` are. ``each`` is
    about how many objects one collection freezes; ``clock`` gives seconds.
    """

    def __init__(
        self,
        few: int = FEW,
        each: int = YOUNG * MIDDLE * OLD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._few, self._each, self._clock = few, each, clock
        self._whole, self._whole_s = gc.get_freeze_count(), clock()
        self._collections = 0
        self._thawed = False

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Thaw before, or freeze after, a collection of the old generation."""
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            self._collections += 1
            self._thawed = self._has_grown()
            if self._thawed:
                gc.unfreeze()
            return
        gc.freeze()
        if self._thawed:
            self._whole, self._whole_s = gc.get_freeze_count(), self._clock()

    def _has_grown(self) -> bool:
        # Counting takes a seventh of the time that a collection takes: seldom.
        if self._collections * self._each < max(self._whole, self._few):
            return False
        if self._clock() - self._whole_s < PAUSE_S:
            return False
        self._collections = 0
        return gc.get_freeze_count() >= max(1.5 * self._whole, self._few)


def spare_what_is_there() -> None:
    """Do not traverse the objects that exist now again, nor others that become old, until there
    are many more: for a process that has loaded its state. Young garbage is collected as before."""
    # What was frozen after the imports holds garbage of the imports.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    before = (c for c in gc.callbacks if not isinstance(getattr(c, "__self__", None), FrozenHeap))
    gc.callbacks[:] = [*before, FrozenHeap().on_collection]
