"""The window of a partition: how many bytes may be in flight or unread. Pure.

The window starts small. It doubles when the reader waits for records that are known to exist: then
it is too small for the delay from the disk to here. It is halved when it was full of unread bytes
several times in a row: then records wait for the reader and only cost memory. A partition at its
end, where nothing is due, does not change the window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

FIRST_BYTES: Final = 256 << 10
LEAST_BYTES: Final = 64 << 10
#: This many full windows in a row halve it.
_PATIENCE: Final = 8


@dataclass(frozen=True, slots=True)
class Window:
    """``size`` and its bounds in bytes; ``full`` counts how often in a row all of it was unread."""

    size: int
    most: int
    full: int = 0

    @classmethod
    def first(cls, most: int) -> Window:
        """The window of a reader that may hold ``most`` bytes."""
        return cls(min(FIRST_BYTES, most), most)

    def waited(self) -> Window:
        """The reader waits for existing records."""
        return replace(self, size=min(2 * self.size, self.most), full=0)

    def took(self, unread_bytes: int) -> Window:
        """The reader took the first frame; so many bytes were unread."""
        if unread_bytes < self.size * 3 // 4:
            return replace(self, full=0) if self.full else self
        if self.full + 1 < _PATIENCE:
            return replace(self, full=self.full + 1)
        return replace(self, size=max(self.size // 2, min(LEAST_BYTES, self.most)), full=0)

    def grant(self, outstanding_bytes: int) -> int:
        """Bytes to grant if so many are granted and not taken yet; 0 for less than half a window,
        so that grants are few.
        """
        missing = self.size - outstanding_bytes
        return missing if missing >= max(1, self.size // 2) else 0
