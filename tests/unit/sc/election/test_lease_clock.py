"""Until when the holder of a lease relies on it."""

from __future__ import annotations

import pytest

from sc.election.lease_clock import LeaseClock


@pytest.mark.parametrize(
    ("now_ms", "holds"),
    [
        pytest.param(10_000, True, id="given-the-moment-of-the-renewal"),
        pytest.param(14_999, True, id="given-just-before-the-margin"),
        pytest.param(15_000, False, id="given-the-margin-then-no-more"),
        pytest.param(16_000, False, id="given-the-end-in-the-kv-at-the-earliest"),
        pytest.param(99_000, False, id="given-a-process-that-was-stopped"),
    ],
)
def test_a_lease_of_six_seconds_sent_at_ten(now_ms: int, holds: bool) -> None:
    assert LeaseClock(ttl_ms=6_000, sent_ms=10_000).holds(now_ms) is holds


@pytest.mark.parametrize(
    ("sent_ms", "ttl_ms", "until_ms"),
    [
        pytest.param(12_000, 6_000, 17_000, id="given-a-renewal-then-from-when-it-was-sent"),
        pytest.param(
            12_000, 3_000, 15_000, id="given-a-shorter-one-that-ends-earlier-then-as-before"
        ),
        pytest.param(9_000, 6_000, 15_000, id="given-an-answer-that-came-late-then-as-before"),
        pytest.param(12_000, 9_000, 20_000, id="given-a-longer-time-granted"),
    ],
)
def test_renewals(sent_ms: int, ttl_ms: int, until_ms: int) -> None:
    lease = LeaseClock(ttl_ms=6_000, sent_ms=10_000)
    lease.renewed(sent_ms, ttl_ms)
    assert lease.until_ms == until_ms


def test_it_is_renewed_three_times_in_its_time() -> None:
    assert LeaseClock(ttl_ms=6_000, sent_ms=10_000).due_ms == 12_000


def test_given_a_short_lease_then_half_of_it_is_the_margin() -> None:
    assert LeaseClock(ttl_ms=1_000, sent_ms=0).until_ms == 500
