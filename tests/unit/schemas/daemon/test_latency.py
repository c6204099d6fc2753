"""Histograms of latencies: their buckets are those of prometheus_client."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, Histogram

from schemas.daemon.latency import LATENCY_BOUNDS_S, LatencyHistogram, SharedLatencyHistogram

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
