"""What is stored for the retention of a stream. Pure.

::

    streams/<uid>/cuts/index              times and sizes of the cuts that are kept
    streams/<uid>/cuts/<n>                one of them; n is 16 hexadecimal digits
    streams/<uid>/subscribers/<group>     how far a reader group is
"""

from __future__ import annotations

from typing import Final

from sc.controllers.streams.records import StreamPaths
from sc.store.records import ListRecords
from schemas.model import Model

MAX_CUTS: Final = 1_000
"""Cuts of a stream that are kept, at most."""
MIN_CUTS: Final = 10
"""Of a stream with very many segments, so many all the same."""
CUT_BYTES: Final = 8 << 20
"""Characters that all cuts of a stream have together, about."""
MAX_SUBSCRIBERS: Final = 100
"""Subscribers of a stream."""


class CutEntry(Model):
    """A cut that is kept: its number, when it was taken (milliseconds since 1970), and how much the
    stream had taken by then, in bytes since its first cut."""

    number: int
    at_ms: int
    size: int


class CutIndex(Model):
    """The cuts that are kept, the oldest first, and the last one that was taken."""

    last: CutEntry
    cuts: tuple[CutEntry, ...] = ()


class StoredCut(Model):
    cut: str


class Subscriber(Model):
    """How far a reader group is, as a cut; what is before it may go."""

    group: str
    cut: str
    at_ms: int


def index_path(paths: StreamPaths) -> str:
    return f"{paths.root}cuts/index"


def cut_path(paths: StreamPaths, number: int) -> str:
    return f"{paths.root}cuts/{number:016x}"


def subscriber_path(paths: StreamPaths, group: str) -> str:
    """``group`` is a name as all objects have them."""
    return f"{paths.root}subscribers/{group}"


def subscribers_want(paths: StreamPaths) -> ListRecords:
    return ListRecords(f"{paths.root}subscribers/", MAX_SUBSCRIBERS)


def most_cuts(text: str) -> int:
    """How many cuts are kept of a stream whose newest has this text."""
    return max(MIN_CUTS, min(MAX_CUTS, CUT_BYTES // max(1, len(text))))


def thinned(
    cuts: tuple[CutEntry, ...], most: int, at_once: int
) -> tuple[tuple[CutEntry, ...], tuple[CutEntry, ...]]:
    """At most ``most`` of the cuts, and those that go, at most ``at_once``: those whose neighbours
    are the closest in time, and neither the first nor the last."""
    kept, gone = list(cuts), list[CutEntry]()
    while len(kept) > max(most, 2) and len(gone) < at_once:
        at = min(range(1, len(kept) - 1), key=lambda i: kept[i + 1].at_ms - kept[i - 1].at_ms)
        gone.append(kept.pop(at))
    return tuple(kept), tuple(gone)
