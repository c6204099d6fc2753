"""Percentiles of latencies. Pure.

By the nearest rank: the smallest sample that at least ``percent`` of all do not exceed. It is
always one that was measured, and never flatters: of few samples, a high percentile is the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution in three numbers, in milliseconds."""

    p50: float
    p99: float
    max: float


def nearest_rank(ordered: Samples, percent: float) -> float:
    """A percentile of samples in ascending order, of which there is at least one."""
    rank = max(1, math.ceil(percent / 100 * len(ordered)))
    return float(ordered[rank - 1])


def summarise(samples_ms: Samples) -> Latency | None:
    """The distribution of samples in any order; None where there are none."""
    if not len(samples_ms):
        return None
    ordered = np.sort(samples_ms)
    return Latency(nearest_rank(ordered, 50), nearest_rank(ordered, 99), float(ordered[-1]))
