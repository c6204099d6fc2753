"""Histograms of latencies: their buckets are those of prometheus_client."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, Histogram

from schemas.daemon.latency import (
    LATENCY_BOUNDS_S,
    LatencyHistogram,
    RecentLatencies,
    SharedLatencyHistogram,
    quantile_s,
)

CASES = {
    "nothing": (),
    "below the first bound": (0.0, 0.000_005),
    "at each bound": LATENCY_BOUNDS_S,
    "between": (0.000_03, 0.3, 0.3),
    "above the last bound": (10.1, 1_000.0),
}


@pytest.mark.parametrize("seconds", CASES.values(), ids=CASES)
def test_given_observations_then_it_counts_as_prometheus_does(seconds: tuple[float, ...]) -> None:
    registry = CollectorRegistry()
    theirs = Histogram("x", "x", registry=registry, buckets=LATENCY_BOUNDS_S)
    ours = LatencyHistogram()
    for one in seconds:
        theirs.observe(one)
        ours.observe(one)
    expected = {
        sample.labels["le"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "x_bucket"
    }
    assert {le if le == "+Inf" else str(float(le)): n for le, n in ours.cumulative()} == expected
    assert ours.sum_s == sum(seconds)
    assert ours.count == len(seconds)


def test_given_several_threads_then_a_shared_one_loses_nothing() -> None:
    histogram = SharedLatencyHistogram()

    def observe(_: int) -> None:
        for _ in range(2_000):
            histogram.observe(1.0)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(observe, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert histogram.count == histogram.sum_s == 8_000


def in_buckets(**counts: int) -> list[int]:
    """Counts by the number of the bucket, as in ``b3=2``."""
    return [counts.get(f"b{index}", 0) for index in range(len(LATENCY_BOUNDS_S) + 1)]


@pytest.mark.parametrize(
    ("counts", "fraction", "expected"),
    [
        pytest.param(in_buckets(), 0.99, None, id="given-nothing-then-none"),
        pytest.param(in_buckets(b0=1), 1.0, 0.000_01, id="given-the-first-bucket-then-its-bound"),
        pytest.param(in_buckets(b6=100), 0.5, 0.000_75, id="given-one-bucket-then-inside-of-it"),
        pytest.param(in_buckets(b6=99, b12=1), 0.99, 0.001, id="given-1-of-100-slow-then-fast"),
        pytest.param(in_buckets(b6=98, b12=2), 0.99, 0.075, id="given-2-of-100-slow-then-slow"),
        pytest.param(in_buckets(b19=1), 0.99, 10.0, id="given-above-all-bounds-then-the-last-one"),
    ],
)
def test_quantile(counts: list[int], fraction: float, expected: float | None) -> None:
    assert quantile_s(counts, fraction) == (None if expected is None else pytest.approx(expected))


def test_recent_latencies_forget_what_is_older_than_their_readings() -> None:
    histogram = LatencyHistogram()
    histogram.observe(5.0)
    recent = RecentLatencies(histogram, 3)
    assert recent.read(0.99) is None, "what was there before is not recent"
    histogram.observe(0.001)
    found = [recent.read(1.0) for _ in range(4)]
    assert found == [*[pytest.approx(0.001)] * 3, None]
