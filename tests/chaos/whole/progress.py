"""How long nothing was acknowledged, or read, after a heal. Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PATIENCE_S: Final = 10.0
"""After a heal, a partition must have acknowledged something within this time, and go on."""
READ_PATIENCE_S: Final = PATIENCE_S + 1.0
"""And a reader that follows it must have read something of it: that comes after."""


@dataclass(frozen=True, slots=True)
class Calm:
    """A time in which nothing was broken: it begins with the last repair. Until a daemon that was
    started again works, and until a drain that was called off is over, time counts."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which nothing happened during a calm: in a partition, or there with one reader."""

    where: str
    begin_s: float
    took_s: float


def longest_silence(
    calms: Iterable[Calm], happened: Mapping[str, Sequence[float]]
) -> Silence | None:
    """The longest stretch of any calm in which nothing happened somewhere. ``happened`` has the
    times for each place, in order."""
    silences = [
        Silence(where, before, after - before)
        for calm in calms
        for where, times in happened.items()
        for before, after in _stretches(calm, times)
    ]
    return max(silences, key=lambda silence: silence.took_s, default=None)


def _stretches(calm: Calm, times: Sequence[float]) -> Iterable[tuple[float, float]]:
    within = times[bisect_left(times, calm.begin_s) : bisect_right(times, calm.end_s)]
    edges = [calm.begin_s, *within, calm.end_s]
    return itertools.pairwise(edges)
