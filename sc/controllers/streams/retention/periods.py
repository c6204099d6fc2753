"""When the retention of a stream is looked at. Pure.

Streams take turns: the hash of its uid says when in the period a stream is looked at, and the
streams of one bucket follow each other (`sc.store.buckets`).
"""

from __future__ import annotations

from sc.store.buckets import place_of


def due_after(last_ms: int, period_ms: int, uid: str) -> int:
    """The first time after ``last_ms`` at which a stream is looked at again."""
    phase_ms = int(place_of(uid) * period_ms)
    return (last_ms - phase_ms) // period_ms * period_ms + period_ms + phase_ms
