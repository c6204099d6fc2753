"""How long to wait before trying again: exponential, jittered, pure. Randomness is an argument."""

from __future__ import annotations


def backoff_s(attempt: int, base_ms: float, cap_ms: float, random: float) -> float:
    """Seconds before retry number ``attempt`` (from 0): doubling from ``base_ms`` to ``cap_ms``.

    ``random`` in [0, 1) picks a point in the upper half of the step, so that clients which
    failed together do not come back together.
    """
    ceiling: float = min(cap_ms, base_ms * 2.0 ** min(attempt, 32))
    return ceiling * (0.5 + 0.5 * random) / 1000
