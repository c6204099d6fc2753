"""When to send an unanswered read a second time, to another replica. Pure.

The slowest of many reads are slow because of the SPU they went to: a pause, a full disk queue, a
lost connection. A reader that waits a little longer than such reads usually take, and then asks
another replica as well, gets most of them much earlier for little extra load (DistributedLog's
speculative reads; hedged requests in Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013).

Two questions are answered here:

- *When?* After a multiple of the 99th percentile of recent reads, within bounds, jittered so that
  readers which wait for the same SPU do not turn to the next one together.
- *Whether?* A token bucket: every read earns a fraction of a token and every second request costs
  one. However slow all SPUs are, second requests are at most that fraction of the reads, and a
  fixed burst more.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SpeculationPolicy:
    """``multiple`` of the 99th percentile, from ``least_ms`` to ``most_ms``; ``first_ms`` until
    ``enough`` reads were measured. ``jitter`` is the largest fraction added.

    Second requests are at most ``percent`` of the reads, and ``burst`` more. The last ``window``
    reads count.
    """

    multiple: float = 2.0
    least_ms: float = 20.0
    most_ms: float = 1_000.0
    first_ms: float = 250.0
    enough: int = 16
    window: int = 256
    jitter: float = 0.25
    percent: float = 10.0
    burst: int = 10


@dataclass(slots=True)
class Speculation:
    """What one consumer knows about its reads; shared by all its partitions."""

    policy: SpeculationPolicy = SpeculationPolicy()
    _latencies_ms: deque[float] = field(init=False)
    _tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self._latencies_ms = deque(maxlen=self.policy.window)
        self._tokens = float(self.policy.burst)

    def asked(self) -> None:
        """A read was begun."""
        self._tokens = min(float(self.policy.burst), self._tokens + self.policy.percent / 100)

    def answered(self, latency_ms: float) -> None:
        """A read of existing records was answered, so long after it was sent."""
        self._latencies_ms.append(latency_ms)

    def delay_ms(self, random: float) -> float:
        """How long an answer may be due before another replica is asked; ``random`` in [0, 1)."""
        policy = self.policy
        usual_ms = policy.first_ms
        if len(self._latencies_ms) >= policy.enough:
            usual_ms = policy.multiple * percentile(self._latencies_ms, 99)
        bounded_ms = max(policy.least_ms, min(policy.most_ms, usual_ms))
        return bounded_ms * (1 + policy.jitter * random)

    def take(self) -> bool:
        """May a second request be sent now? If so, it is paid for."""
        # A little below one: sums of tenths are not exact.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True


def percentile(values: deque[float], percent: int) -> float:
    """The smallest value that at least ``percent`` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
