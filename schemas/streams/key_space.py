"""Ranges of the hashes of keys. Pure.

A key's place is its 32-bit hash (`schemas.wire.partitioner.hash_key`). Ranges are half open, in
whole numbers: ``[0, 2**32)`` is all of them. Manifests and JSON show ``place / 2**32``, which a
double holds exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

SPACE: Final = 1 << 32
"""One above the highest hash."""


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """Hashes from ``low`` to below ``high``; never empty. Raises ValueError outside of the key
    space."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= SPACE:
            raise ValueError(f"{self.low} to {self.high} is no range within 0 to {SPACE}")

    def __str__(self) -> str:
        return f"{fraction(self.low):g} to {fraction(self.high):g}"

    @property
    def width(self) -> int:
        return self.high - self.low

    def overlaps(self, other: KeyRange) -> bool:
        return self.low < other.high and other.low < self.high

    def contains(self, place: int) -> bool:
        return self.low <= place < self.high

    def split(self, count: int) -> tuple[KeyRange, ...]:
        """``count`` ranges as equal as whole numbers allow. Raises ValueError if there are fewer
        hashes than that."""
        if not 1 <= count <= self.width:
            raise ValueError(f"{self.width} hashes cannot be split into {count} ranges")
        bounds = [self.low + self.width * i // count for i in range(count + 1)]
        return tuple(KeyRange(low, high) for low, high in pairwise(bounds))


WHOLE: Final = KeyRange(0, SPACE)
"""The range of all keys."""


def fraction(place: int) -> float:
    """A bound of a range as users see it, from 0 to 1; exact."""
    return place / SPACE


def place_of(value: float) -> int:
    """The bound that a user wrote as a number from 0 to 1, rounded to a whole hash. Raises
    ValueError outside of that."""
    if not 0 <= value <= 1:
        raise ValueError(f"{value:g} is not between 0 and 1")
    return round(value * SPACE)


def merged(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """The same hashes in as few ranges as possible, in order. Raises ValueError if two overlap."""
    found: list[KeyRange] = []
    for one in sorted(ranges):
        if found and one.low < found[-1].high:
            raise ValueError(f"the ranges {found[-1]} and {one} overlap")
        if found and one.low == found[-1].high:
            found[-1] = KeyRange(found[-1].low, one.high)
        else:
            found.append(one)
    return tuple(found)


def shown(ranges: Iterable[KeyRange]) -> str:
    """Ranges for a message: ``0 to 0.25, 0.5 to 1``."""
    return ", ".join(map(str, ranges)) or "nothing"
