"""Where a stream may be truncated: the rule. Pure.

Its values are what would be kept if the stream were truncated at a cut: an age in milliseconds, or
a size in bytes. The rule is Pravega's:

- Without subscribers, truncate at the newest cut that keeps the minimum.
- With subscribers, truncate where the slowest of them is, if that keeps at least the minimum and
  less than the maximum. If it keeps less than the minimum, truncate at the newest cut that keeps
  the minimum and lies before it. If it keeps the maximum or more, truncate at the oldest cut that
  keeps no more than the maximum: the subscriber loses what it has not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Choice(Enum):
    """Not at a cut, but where the slowest subscriber is."""

    SUBSCRIBER = "subscriber"


@dataclass(frozen=True, slots=True)
class Slowest:
    """Where the slowest subscriber is: ``after`` so many cuts, and what it ``keeps``."""

    after: int
    keeps: int


def chosen(
    keeps: Sequence[int], minimum: int, maximum: int | None, slowest: Slowest | None = None
) -> int | Choice | None:
    """The number of the cut to truncate at, or the subscriber; None to keep everything.

    ``keeps`` is what each cut would keep, the oldest first.
    """
    enough = [number for number, kept in enumerate(keeps) if kept >= minimum]
    newest = enough[-1] if enough else None
    if slowest is None:
        return newest
    if slowest.keeps < minimum:
        before = [number for number in enough if number < slowest.after]
        return before[-1] if before else None
    if maximum is None or slowest.keeps < maximum:
        return Choice.SUBSCRIBER
    within = [number for number in enough if keeps[number] <= maximum]
    largest = within[0] if within else newest
    if largest is not None and keeps[largest] < slowest.keeps:
        return largest
    return Choice.SUBSCRIBER
