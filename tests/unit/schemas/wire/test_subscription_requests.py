"""The rows of the tails of SUBSCRIBE, CREDIT and UNSUBSCRIBE."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ProtocolError
from schemas.wire.record_requests import FetchFlags
from schemas.wire.subscription_requests import (
    Grant,
    SubscriptionEntry,
    pack_numbers,
    unpack_numbers,
)
from tests.unit.schemas.wire.test_protocol import i64, u32, u64, uids

entries = st.builds(
    SubscriptionEntry, u32, uids, i64, u64, u32, st.integers(0, 255).map(FetchFlags)
)


@given(st.lists(entries, max_size=4), st.binary(max_size=9))
def test_law_subscriptions_round_trip_and_later_fields_are_ignored(
    wanted: list[SubscriptionEntry], more: bytes
) -> None:
    tail = b"".join(entry.pack() + more for entry in wanted)
    length = SubscriptionEntry.LAYOUT.size + len(more)
    assert SubscriptionEntry.unpack_all(memoryview(tail), length) == wanted
    with pytest.raises(ProtocolError, match="are not entries of"):
        SubscriptionEntry.unpack_all(tail + b"x", length)
    with pytest.raises(ProtocolError, match="has at least 48"):
        SubscriptionEntry.unpack_all(tail, 47)


@given(st.lists(st.builds(Grant, u32, u32), max_size=4), st.lists(u32, max_size=4))
def test_law_grants_and_numbers_round_trip(grants: list[Grant], numbers: list[int]) -> None:
    tail = b"".join(grant.pack() for grant in grants)
    assert Grant.unpack_all(memoryview(tail)) == grants
    assert unpack_numbers(memoryview(pack_numbers(numbers))) == numbers
    with pytest.raises(ProtocolError, match="not a whole number of grants"):
        Grant.unpack_all(tail + b"x")
    with pytest.raises(ProtocolError, match="not a whole number of subscriptions"):
        unpack_numbers(pack_numbers(numbers) + b"x")
