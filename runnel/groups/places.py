"""Where a group is in its sources: a place in each segment that can be read, and what waits. Pure.

A *segment* is one of a stream, or a partition of a topic, which is a segment without successors.
Each segment of the sources from the group's start on is *open* (it has a place), *waiting* (some of
its predecessors are not done), *last* (it ended, and nothing follows it, or the group ends in it)
or done. What waits for a segment in which the group ends waits for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from runnel.records.offset_and_term import NOTHING_READ, OffsetAndTerm
from schemas.streams.epochs import number_of, segment_text
from schemas.streams.key_space import WHOLE, KeyRange


class SourceSegment(NamedTuple):
    """A segment by its source, which is SCOPE/NAME of a stream or the name of a topic, and its id,
    or the number of the partition."""

    source: str
    id: int

    def __str__(self) -> str:
        return f"{self.source}{' ' if self.is_of_stream else '/'}{self.text}"

    @property
    def is_of_stream(self) -> bool:
        return "/" in self.source

    @property
    def text(self) -> str:
        """The segment or partition as users see it within its source."""
        return segment_text(self.id) if self.is_of_stream else str(self.id)

    @property
    def number(self) -> int:
        """Of the partition that holds it."""
        return number_of(self.id) if self.is_of_stream else self.id


@dataclass(frozen=True, slots=True)
class Successor:
    """A segment that follows another one: the keys it has, and its predecessors with theirs."""

    segment: SourceSegment
    keys: KeyRange
    predecessors: tuple[tuple[SourceSegment, KeyRange], ...]


@dataclass(slots=True)
class Places:
    """See the module's text. ``keys`` of all segments that are open, waiting or last."""

    open: dict[SourceSegment, OffsetAndTerm] = field(default_factory=dict)
    waiting: dict[SourceSegment, frozenset[SourceSegment]] = field(default_factory=dict)
    last: dict[SourceSegment, OffsetAndTerm] = field(default_factory=dict)
    keys: dict[SourceSegment, KeyRange] = field(default_factory=dict)

    def copy(self) -> Places:
        return Places(dict(self.open), dict(self.waiting), dict(self.last), dict(self.keys))

    def all(self) -> Iterator[SourceSegment]:
        """All segments that are not done."""
        yield from self.open
        yield from self.waiting
        yield from self.last

    def add(self, segment: SourceSegment, keys: KeyRange = WHOLE) -> None:
        """A partition was added to a topic: it is open at its beginning."""
        self.open[segment] = NOTHING_READ
        self.keys[segment] = keys

    def move(self, places: Mapping[SourceSegment, OffsetAndTerm]) -> None:
        """Set the places of open segments."""
        self.open.update((one, at) for one, at in places.items() if one in self.open)

    def end(
        self, segment: SourceSegment, at: OffsetAndTerm, successors: Iterable[Successor]
    ) -> None:
        """A segment was read to its end. Its successors wait, or are open at their beginning if no
        other predecessor is left."""
        if self.open.pop(segment, None) is None:
            return
        following = tuple(successors)
        if following:
            del self.keys[segment]
        else:
            self.last[segment] = at
        for one in following:
            if one.segment not in self.keys:
                self.waiting[one.segment] = frozenset(
                    before for before, keys in one.predecessors if not self.is_done(before, keys)
                )
                self.keys[one.segment] = one.keys
        for later, missing in list(self.waiting.items()):
            left = missing - {segment}
            if left:
                self.waiting[later] = left
            else:
                del self.waiting[later]
                self.open[later] = NOTHING_READ

    def stop(self, segment: SourceSegment, at: OffsetAndTerm) -> None:
        """A segment was read to where the group ends in it: what follows it is not read."""
        if self.open.pop(segment, None) is not None:
            self.last[segment] = at

    def without(self, segments: Iterable[SourceSegment]) -> Places:
        """These places as if some partitions were not there."""
        gone = set(segments)
        return Places(
            {one: at for one, at in self.open.items() if one not in gone},
            dict(self.waiting),
            dict(self.last),
            {one: keys for one, keys in self.keys.items() if one not in gone},
        )

    def is_done(self, segment: SourceSegment, keys: KeyRange) -> bool:
        """Is all of a stream's segment before these places? Everything older than the first segment
        of its keys is."""
        return all(
            one.id > segment.id
            for one in self.all()
            if one.source == segment.source and self.keys[one].overlaps(keys)
        )
