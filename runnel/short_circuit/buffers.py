"""Memory that is used again once nobody looks at it any more.

Fresh memory costs more than the bytes that are read into it: the kernel maps it page by page, and
fills each page with zeros. Arrow's arrays point into the bytes that were read, and their users keep
them for as long as they like, so nobody can say when a buffer is free, but Python's count of its
references does.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from schemas.wire.memory import unfilled

#: The most buffers that are kept.
_MOST: Final = 6


def _references(kept: list[Any]) -> list[int]:
    return [sys.getrefcount(one) for one in kept]


#: The count of what only a list refers to. It is measured, because how many references the counting
#: itself adds is a matter of the version of Python.
_UNUSED: Final = _references([bytearray()])[0]


class Buffers:
    """Buffers of one reader. Not for several threads at once; anybody may let go of a buffer in any
    thread."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def take(self, size: int) -> memoryview:
        """``size`` writable bytes of any content, at which nobody else looks."""
        for kept, count in zip(self._kept, _references(self._kept), strict=True):
            if count == _UNUSED and len(kept) >= size:
                return memoryview(kept)[:size]
        fresh = unfilled(size)
        if len(self._kept) >= _MOST:
            self._kept.pop(0)
        self._kept.append(fresh.obj)
        return fresh
