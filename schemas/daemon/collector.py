"""Python's garbage collector in a process with very many long-lived objects.

The objects of the mirror form no cycles: reference counting frees them. The collector traverses
all of them nevertheless, again and again while the mirror grows, and nothing else runs meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: The young generation is collected when it has grown by this many objects: some milliseconds.
YOUNG: Final = 1_000
#: The middle generation is collected once per this many collections of the young one.
MIDDLE: Final = 5
#: Everything is collected once per this many collections of the middle one: when four million
#: more objects were created than freed. Less often would let garbage grow; more often would stop
#: an SC that creates very many partitions again and again, each time for longer.
OLD: Final = 800


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


def spare_what_is_there() -> None:
    """Never traverse the objects that exist now again, and rarely others that have become old: for
    a process that has loaded its state. Young garbage is collected as before."""
    # What was frozen after the imports holds garbage of the imports.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
