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
"""Cuts of a stream that are kept."""
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


def thinned(cuts: tuple[CutEntry, ...]) -> tuple[tuple[CutEntry, ...], CutEntry | None]:
    """At most `MAX_CUTS` of the cuts, and the one that goes, if one does: the one whose neighbours
    are the closest in time, and neither the first nor the last."""
    if len(cuts) <= MAX_CUTS:
        return cuts, None
    at = min(range(1, len(cuts) - 1), key=lambda i: cuts[i + 1].at_ms - cuts[i - 1].at_ms)
    return (*cuts[:at], *cuts[at + 1 :]), cuts[at]
