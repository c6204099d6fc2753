"""How long things take: histograms that cost a search and two additions for each observation.

`prometheus_client` takes a lock and makes several calls for an observation, which an SPU cannot
afford for every batch. These histograms only count; `schemas.daemon.metrics` says what Prometheus
gets of them when it scrapes. Every latency of a daemon has the same bounds, so that they can be
added up and compared.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

#: Upper bounds of the buckets in seconds, from a write into the page cache to a disk that stalls.
LATENCY_BOUNDS_S: Final = (
    *(0.000_01, 0.000_025, 0.000_05),
    *(0.000_1, 0.000_25, 0.000_5),
    *(0.001, 0.002_5, 0.005),
    *(0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0),
    10.0,
)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Observations: how many there are in each bucket, and their sum in seconds. The last bucket is
    that of observations above all bounds."""

    counts: tuple[int, ...]
    sum_s: float

    @property
    def count(self) -> int:
        """How many observations there are."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float | None:
        """Their mean in seconds; None without any."""
        return self.sum_s / count if (count := self.count) else None

    def quantile_s(self, fraction: float) -> float | None:
        """The latency that this fraction of the observations does not exceed, in seconds; between
        the bounds of a bucket it is an estimate. None without any."""
        return quantile_s(self.counts, fraction)

    def cumulative(self) -> list[tuple[str, float]]:
        """Every bound as text, ``+Inf`` the last, and how many observations were at most that."""
        bounds = (*map(str, LATENCY_BOUNDS_S), "+Inf")
        return list(zip(bounds, accumulate(self.counts), strict=True))


class LatencyHistogram:
    """One histogram with the bounds above. Only one thread may call `observe`; another one that
    reads meanwhile may see an observation in the count and not yet in the sum."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        #: The sum of all observations, in seconds.
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one latency. An observation at a bound belongs to the bucket below it."""
        self._counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self._counts)

    def counts(self) -> tuple[int, ...]:
        """Observations by bucket; the last bucket is that of observations above all bounds."""
        return tuple(self._counts)

    def latencies(self) -> Latencies:
        """What was observed until now."""
        return Latencies(self.counts(), self.sum_s)

    def cumulative(self) -> list[tuple[str, float]]:
        """Every bound as text, ``+Inf`` the last, and how many observations were at most that."""
        return self.latencies().cumulative()


class SharedLatencyHistogram(LatencyHistogram):
    """A histogram that several threads observe. It takes a lock: use it for what is slow anyway."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        with self._lock:
            super().observe(seconds)


class RecentLatencies:
    """What a histogram observed between its last ``readings`` readings and now."""

    def __init__(self, histogram: LatencyHistogram, readings: int) -> None:
        self._histogram = histogram
        self._before = deque([histogram.counts()], maxlen=readings)

    def read(self, fraction: float) -> float | None:
        """`quantile_s` of the observations since the oldest of the last readings."""
        now, oldest = self._histogram.counts(), self._before[0]
        self._before.append(now)
        return quantile_s([new - old for new, old in zip(now, oldest, strict=True)], fraction)


def quantile_s(counts: Sequence[int], fraction: float) -> float | None:
    """The latency that ``fraction`` of the observations do not exceed, in seconds.

    It is interpolated within its bucket, as Prometheus' ``histogram_quantile`` does it; one above
    all bounds counts as the highest bound. None without observations.
    """
    rank = fraction * sum(counts)
    if not rank:
        return None
    passed = 0
    for index, bound in enumerate(LATENCY_BOUNDS_S):
        if passed + counts[index] >= rank:
            below = LATENCY_BOUNDS_S[index - 1] if index else 0.0
            return below + (bound - below) * (rank - passed) / counts[index]
        passed += counts[index]
    return LATENCY_BOUNDS_S[-1]
