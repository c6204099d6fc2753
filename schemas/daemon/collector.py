"""Python's garbage collector beside very many objects that live long.

What the mirror holds makes no cycles: counting references frees it. The collector looks at all of
it nevertheless, again and again while it grows, and nothing else runs meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: A young generation is collected when it has grown by so many objects: some milliseconds.
YOUNG: Final = 1_000
#: The one above it, every so many times.
MIDDLE: Final = 5
#: All, every so many times of that: when four million objects more have stayed than went. Less
#: often would let garbage grow, more often would stop an SC again and again that creates very
#: many partitions, each time for longer.
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


def spare_what_is_there() -> None:
    """Never look at the objects there are now again, and seldom at others that have become old:
    for a process that has loaded its state. Young garbage is collected as ever."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
