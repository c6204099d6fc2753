"""Which SC should work for which bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.sharing.wanted import buckets_of, owner_of

NAMES = st.frozensets(st.text("abc:0123456789", min_size=1, max_size=8), min_size=1, max_size=6)


@given(NAMES, st.integers(0, 200))
def test_law_each_bucket_has_one_owner(names: frozenset[str], count: int) -> None:
    found = [number for name in names for number in buckets_of(name, names, count)]
    assert sorted(found) == list(range(count))


@given(NAMES, st.text("xyz", min_size=1), st.integers(0, 100))
def test_law_only_the_newcomers_buckets_move(names: frozenset[str], new: str, bucket: int) -> None:
    before, after = owner_of(bucket, names), owner_of(bucket, names | {new})
    assert after in (before, new)


@pytest.mark.parametrize("scs", [2, 3, 5])
def test_all_get_about_as_many(scs: int) -> None:
    names = frozenset(f"10.0.0.{number}:9003" for number in range(scs))
    shares = [len(buckets_of(name, names, 64)) for name in names]
    assert min(shares) >= 64 / scs / 3
    assert max(shares) <= 64 / scs * 2
