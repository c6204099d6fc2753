"""How long things take: histograms that cost a search and two additions for each observation.

`prometheus_client` takes a lock and makes several calls for an observation, which an SPU cannot
afford for every batch. These histograms only count; `schemas.daemon.metrics` says what Prometheus
gets of them when it scrapes. Every latency of a daemon has the same bounds, so that they can be
added up and compared.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
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

    def cumulative(self) -> list[tuple[str, float]]:
        """Every bound as text, ``+Inf`` the last, and how many observations were at most that."""
        bounds = (*map(str, LATENCY_BOUNDS_S), "+Inf")
        return list(zip(bounds, accumulate(self._counts), strict=True))


class SharedLatencyHistogram(LatencyHistogram):
    """A histogram that several threads observe. It takes a lock: use it for what is slow anyway."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        with self._lock:
            super().observe(seconds)
