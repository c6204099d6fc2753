"""The next step of a stream's retention, if one is due. Pure.

Once in a period a cut of the stream's end is added to those that are kept, and the rule of
`choice` says whether the stream is truncated, which begins in the same step.

All functions raise NotReadError for records that they need.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from sc.controllers.streams.records import decode, encode
from sc.controllers.streams.retention.choice import Slowest, chosen
from sc.controllers.streams.retention.periods import due_after
from sc.controllers.streams.retention.records import (
    CutEntry,
    CutIndex,
    StoredCut,
    Subscriber,
    cut_path,
    index_path,
    most_cuts,
    subscribers_want,
    thinned,
)
from sc.controllers.streams.retention.tails import tail, taken_since
from sc.controllers.streams.steps import AT_ONCE, Pass
from sc.controllers.streams.truncation import beginning, check, placed
from sc.store.records import get, listed
from schemas.errors import RunnelError
from schemas.objects.stream import StreamRetention
from schemas.streams.cuts import Frontier, StreamCut

UNKNOWN_AGAIN_MS: Final = 10_000
"""How soon it is tried again, where SPUs have not told yet where segments end."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of the retention stores, and the cut that the stream is truncated at."""

    puts: tuple[tuple[str, bytes], ...]
    deletes: tuple[str, ...]
    truncate: StreamCut | None


def turn(of: Pass, epoch: int, retention: StreamRetention) -> Turn | int:
    """What is due now, or when to look again, in the milliseconds of ``now_ms``."""
    stored = get(of.view.records, index_path(of.paths))
    index = None if stored is None else decode(CutIndex, stored)
    if index is not None and (wait_ms := _wait_ms(of, index, retention.period)) > 0:
        return of.now_ms + wait_ms
    last = None if index is None else _cut(of, index.last.number)
    end, taken = tail(of, of.epoch()), taken_since(of, last)
    if end is None or taken is None:
        return of.now_ms + UNKNOWN_AGAIN_MS
    before = () if index is None else index.cuts
    entry = CutEntry(
        number=0 if index is None else index.last.number + 1,
        at_ms=of.at_ms,
        size=taken + (0 if index is None else index.last.size),
    )
    text = str(end)
    cuts, gone = thinned((*before, entry), most_cuts(text), AT_ONCE // 2)
    cut, purged = _truncated_at(of, epoch, retention, cuts, entry, end)
    deletes = tuple(cut_path(of.paths, one.number) for one in (*cuts[:purged], *gone))
    puts = (
        (index_path(of.paths), encode(CutIndex(last=entry, cuts=cuts[purged:]))),
        (cut_path(of.paths, entry.number), encode(StoredCut(cut=text))),
    )
    return Turn(puts, deletes, cut)


def _wait_ms(of: Pass, index: CutIndex, period_ms: int) -> int:
    """How long to wait for the next turn; 0 or less: it is due."""
    if index.last.at_ms > of.at_ms + period_ms:
        # The clock was set back.
        return 0
    return due_after(index.last.at_ms, period_ms, of.stream.uid) - of.at_ms


def _cut(of: Pass, number: int) -> StreamCut | None:
    stored = get(of.view.records, cut_path(of.paths, number))
    return None if stored is None else StreamCut.parse(decode(StoredCut, stored).cut)


def _truncated_at(
    of: Pass,
    epoch: int,
    retention: StreamRetention,
    cuts: tuple[CutEntry, ...],
    newest: CutEntry,
    end: StreamCut,
) -> tuple[StreamCut | None, int]:
    """Where the stream is truncated now, and how many of the oldest cuts are before that."""
    if retention.by_size:
        keeps = [newest.size - one.size for one in cuts]
    else:
        keeps = [max(0, newest.at_ms - one.at_ms) for one in cuts]

    begins = beginning(of.view.records, of.stream)

    def cut_of(number: int) -> StreamCut:
        one = cuts[number]
        found = end if one is newest else _cut(of, one.number)
        # Nothing is removed because of a record that somebody removed.
        return begins if found is None else found

    where = _slowest(of, epoch, begins)
    slowest = None
    if where is not None:
        after = bisect_left(
            range(len(cuts)),
            True,
            key=lambda number: _is_after(of, epoch, cut_of(number), where),
        )
        # It is known to one period, and no more than that is taken from it.
        least = keeps[after] if after < len(cuts) else 0
        on_cut = after > 0 and cut_of(after - 1) == where.cut
        slowest = Slowest(after, keeps[after - 1] if on_cut else least)
    choice = chosen(keeps, retention.minimum, retention.maximum, slowest)
    if isinstance(choice, int):
        found, older = cut_of(choice), choice
    elif choice is None or where is None or slowest is None:
        return None, 0
    else:
        found, older = where.cut, max(0, slowest.after - 1)
    found = _within(found, end)
    purged = min(older, AT_ONCE // 2)
    try:
        check(of.view.records, of.stream, epoch, found)
    except RunnelError:
        # It lies before the place where somebody truncated the stream, and is of no use any more.
        return None, purged
    return (None if found == begins else found), purged


def _slowest(of: Pass, epoch: int, begins: StreamCut) -> Frontier | None:
    """Where all subscribers have been; None without any. What is gone already counts as read."""
    found: Frontier | None = None
    records = of.view.records
    for record in listed(records, subscribers_want(of.paths)):
        cut = StreamCut.parse(decode(Subscriber, record).cut)
        place = placed(records, of.paths, epoch, cut)
        found = place if found is None else found.met(place)
    if found is None:
        return None
    return found.joined(placed(records, of.paths, epoch, begins))


def _within(cut: StreamCut, end: StreamCut) -> StreamCut:
    """A cut, not beyond the end of an open segment: an unclean election may have made a log
    shorter, and what is written to it then must not be removed."""
    offsets = {
        one: min(offset, end.offsets.get(one, offset)) for one, offset in cut.offsets.items()
    }
    return StreamCut(cut.stream, cut.uid, offsets)


def _is_after(of: Pass, epoch: int, cut: StreamCut, place: Frontier) -> bool:
    return placed(of.view.records, of.paths, epoch, cut).is_after(place) is not None
