"""The clock that leases go by."""

from __future__ import annotations

import time

import pytest

from schemas.clock import LEASE_CLOCK, boottime_s


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform has no such clock")
def test_given_a_platform_that_counts_the_time_of_a_suspend_then_its_clock_is_read() -> None:
    assert LEASE_CLOCK == time.CLOCK_BOOTTIME
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before_s <= boottime_s() <= time.clock_gettime(time.CLOCK_BOOTTIME)
