"""Which SC should work for which bucket. Pure.

Each SC has a weight for each bucket, by a hash of both, and the heaviest should have it (rendezvous
hashing). Every SC comes to the same result, and where one comes or goes only buckets move that it
gets or had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import lru_cache


def owner_of(bucket: int, names: Collection[str]) -> str:
    """The name of the SC that should work for a bucket, of one or more."""
    return max(names, key=lambda name: (_weight(name, bucket), name))


@lru_cache(maxsize=4)
def buckets_of(me: str, names: frozenset[str], count: int) -> frozenset[int]:
    """The buckets, of so many, that one of these SCs should have."""
    return frozenset(number for number in range(count) if owner_of(number, names) == me)


def _weight(name: str, bucket: int) -> bytes:
    return hashlib.blake2b(f"{name}/{bucket}".encode(), digest_size=8).digest()
