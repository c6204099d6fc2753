"""Buckets: parts of the streams of a cluster, which SCs can share among each other. Pure.

The number of buckets is fixed when a cluster is made. A stream's bucket follows from its uid.
"""

from __future__ import annotations

import zlib
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

DEFAULT_BUCKETS: Final = 64


def place_of(uid: str) -> float:
    """Where an owner lies among all of them, from 0 to below 1."""
    return zlib.crc32(uid.encode()) / (1 << 32)


@dataclass(frozen=True, slots=True)
class Buckets:
    """``count``: of the cluster; ``held``: the numbers of those whose owners this SC works for,
    None for all."""

    count: int = DEFAULT_BUCKETS
    held: Set[int] | None = None

    def bucket_of(self, uid: str) -> int:
        """The number of an owner's bucket, by the owner's uid."""
        return int(place_of(uid) * self.count)

    def holds(self, uid: str) -> bool:
        """Whether this SC works for an owner."""
        return self.held is None or self.bucket_of(uid) in self.held
