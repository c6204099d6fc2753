"""Percentiles by the nearest rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.bench.latency import Latency, nearest_rank, summarise

CASES = {
    "given-one-sample-then-it-is-every-percentile": ([7.0], Latency(7, 7, 7)),
    "given-two-then-the-lower-one-is-the-median": ([9.0, 1.0], Latency(1, 9, 9)),
    "given-a-hundred-then-p99-leaves-one-out": (list(range(1, 101)), Latency(50, 99, 100)),
    "given-two-hundred-then-p99-leaves-two-out": (list(range(1, 201)), Latency(100, 198, 200)),
    "given-less-than-a-hundred-then-p99-is-the-largest": (list(range(99)), Latency(49, 98, 98)),
    "given-any-order-then-the-same": ([3.0, 1.0, 2.0], Latency(2, 3, 3)),
}


@pytest.mark.parametrize(("samples", "expected"), CASES.values(), ids=CASES)
def test_summary(samples: list[float], expected: Latency) -> None:
    assert summarise(np.array(samples, np.float64)) == expected


def test_given_no_samples_then_there_is_no_summary() -> None:
    assert summarise(np.array([])) is None


@given(
    st.lists(st.floats(0, 1e9), min_size=1, max_size=300),
    st.floats(0.1, 100),
)
def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed(
    samples: list[float], percent: float
) -> None:
    ordered = np.sort(np.array(samples))
    found = nearest_rank(ordered, percent)
    assert found in samples
    assert np.sum(ordered <= found) >= percent / 100 * len(samples) - 1e-9
    assert np.sum(ordered < found) < percent / 100 * len(samples) + 1e-9
