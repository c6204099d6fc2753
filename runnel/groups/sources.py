"""What a group reads: streams and topics, as its readers and its administration need them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from runnel.admin.streams import StreamAdmin
from runnel.consume.consumer import Consumer
from runnel.consume.settings import ConsumerSettings
from runnel.groups.cut import GroupCut, TopicCut
from runnel.groups.places import Places, SourceSegment, Successor
from runnel.groups.unread import Extent
from runnel.net.offsets import Start, Stop
from runnel.net.routing import SegmentGoneError
from runnel.records.offset_and_term import NOTHING_READ, OffsetAndTerm
from runnel.streams.places import StreamQueries
from schemas.control.streams import EpochInfo, segment_of
from schemas.errors import InvalidRequestError, NotFoundError, RetryableError
from schemas.streams.cuts import NOT_BEGUN, Frontier, StreamCut
from schemas.streams.epochs import Segment
from schemas.streams.key_space import WHOLE
from schemas.wire.record_requests import ListOffsetsResponse

EXTENTS_S: Final = 3.0
"""How long what leaders hold may take; then it is done without."""

GroupStart = Literal["earliest", "latest"] | GroupCut
"""Where a group begins, or goes on."""
OpenPartition = Callable[[int, Start, Stop, ConsumerSettings], Consumer]
"""Gives a consumer of one partition, or one segment, by its number."""
AskBounds = Callable[[Sequence[int]], Awaitable[Mapping[int, ListOffsetsResponse]]]
"""Asks the leaders of partitions, by their numbers, where these begin and end."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the retention of a stream knows of a group. ``uid`` tells the stream from earlier ones
    of its name."""

    stream: StreamAdmin
    uid: str
    group: str

    def place_in(self, cut: GroupCut) -> StreamCut:
        """The stream's part of a place of the group. Raises InvalidRequestError if it has none."""
        name = self.stream.name
        if (found := cut.streams.get(name)) is None:
            raise InvalidRequestError(f"the cut says nothing of stream {name}")
        if found.uid != self.uid:
            raise InvalidRequestError(f"the cut is of an earlier stream {name}, which was deleted")
        return found

    async def publish(self, cut: GroupCut) -> None:
        """Have retention keep what lies behind a place. Nothing if it has a later one: a place
        never goes back. Raises InvalidRequestError, NotFoundError."""
        await self.stream.subscribe(self.group, self.place_in(cut))

    async def published(self) -> StreamCut | None:
        """The place that it has, if any. Raises NotFoundError."""
        return (await self.stream.subscribers()).get(self.group)

    async def end(self) -> None:
        """Have retention wait for the group no more. A stream that is gone waits for nobody."""
        with suppress(NotFoundError):
            await self.stream.unsubscribe(self.group)


class Source(Protocol):
    """A stream or a topic."""

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...

    async def places(self, start: GroupStart) -> Places:
        """Where a group begins in it. Raises InvalidRequestError for a cut that is no place in
        it."""
        ...

    async def ending(self, start: GroupStart, end: GroupCut) -> dict[SourceSegment, int]:
        """The offsets of the segments that an end names. Raises InvalidRequestError for a cut that
        is no place in it, or lies before the start."""
        ...

    def open(
        self,
        segment: SourceSegment,
        at: OffsetAndTerm,
        stop: int | None,
        settings: ConsumerSettings,
    ) -> Consumer:
        """A consumer of one segment that begins at a place, and ends before the offset ``stop``, or
        where the segment does."""
        ...

    async def after(self, segment: SourceSegment) -> tuple[Successor, ...]:
        """What follows a segment that has ended."""
        ...

    async def end(self, segment: SourceSegment) -> int | None:
        """Where a segment that was sealed ends; None if that is not known."""
        ...

    async def added(self) -> tuple[SourceSegment, ...]:
        """The partitions that a topic has now; nothing of a stream."""
        ...

    async def extents(self, segments: Sequence[SourceSegment]) -> dict[SourceSegment, Extent]:
        """What the leaders of segments hold of them now."""
        ...

    def subscription(self, group: str) -> Subscription | None:
        """What a stream's retention knows of a group; None for a topic, whose retention waits for
        nobody."""
        ...


@dataclass(frozen=True, slots=True)
class StreamSource:
    """See `Source`. ``ask_bounds`` tells where segments begin and end, by their numbers."""

    uid: str
    queries: StreamQueries
    open_segment: OpenPartition
    ask_bounds: AskBounds
    admin: StreamAdmin

    @property
    def name(self) -> str:
        return self.queries.stream

    async def places(self, start: GroupStart) -> Places:
        begin = await self._frontier(start, await self.queries.epoch(None))
        places = Places()
        for one, segment in begin.segments.items():
            name = self._named(one)
            places.keys[name] = segment.keys
            offset = begin.cut.offsets[one]
            before = await self.queries.predecessors(segment) if offset == NOT_BEGUN else ()
            missing = frozenset(self._named(b.id) for b in before if not begin.is_done(b))
            if missing:
                places.waiting[name] = missing
            else:
                places.open[name] = OffsetAndTerm(max(0, offset))
        return places

    async def ending(self, start: GroupStart, end: GroupCut) -> dict[SourceSegment, int]:
        current = await self.queries.epoch(None)
        begin, stop = await self._frontier(start, current), await self._frontier(end, current)
        if (where := begin.is_after(stop)) is not None:
            raise InvalidRequestError(
                f"the end lies before the start in stream {self.name}: {where}; give an earlier"
                " start or a later end"
            )
        return {self._named(one): offset for one, offset in stop.cut.offsets.items()}

    async def _frontier(self, place: GroupStart, current: EpochInfo) -> Frontier:
        if isinstance(place, GroupCut):
            if self.name not in place.streams:
                raise InvalidRequestError(f"the cut says nothing of stream {self.name}")
            return await self.queries.frontier(place.streams[self.name], current)
        if place == "earliest":
            # A place of the group like others: if what follows it goes, its readers are told.
            return await self.queries.frontier(await self.queries.head(), current)
        return await self.queries.frontier(place, current)

    def open(
        self,
        segment: SourceSegment,
        at: OffsetAndTerm,
        stop: int | None,
        settings: ConsumerSettings,
    ) -> Consumer:
        # Never "earliest": who is at the beginning of a segment is told, too, if that is gone.
        return self.open_segment(*_range(segment, {segment.number: at}, stop), settings)

    async def after(self, segment: SourceSegment) -> tuple[Successor, ...]:
        history = await self.queries.history(segment.id)
        return tuple([await self._following(segment_of(one)) for one in history.successors])

    async def _following(self, one: Segment) -> Successor:
        before = await self.queries.predecessors(one)
        return Successor(
            self._named(one.id),
            one.keys,
            tuple((self._named(each.id), each.keys) for each in before),
        )

    async def end(self, segment: SourceSegment) -> int | None:
        return (await self.queries.history(segment.id)).end

    async def added(self) -> tuple[SourceSegment, ...]:
        return ()

    async def extents(self, segments: Sequence[SourceSegment]) -> dict[SourceSegment, Extent]:
        return await _extents(self.ask_bounds, segments)

    def subscription(self, group: str) -> Subscription | None:
        return Subscription(self.admin, self.uid, group)

    def _named(self, segment: int) -> SourceSegment:
        return SourceSegment(self.name, segment)


@dataclass(frozen=True, slots=True)
class TopicSource:
    """See `Source`. ``count`` gives the number of partitions now, ``ask_bounds`` where partitions
    begin and end."""

    name: str
    uid: str
    count: Callable[[], Awaitable[int]]
    ask_bounds: AskBounds
    open_partition: OpenPartition

    async def places(self, start: GroupStart) -> Places:
        partitions = range(await self.count())
        if isinstance(start, GroupCut):
            cut = self._cut(start)
            # Those that were added since are read from their beginning.
            found = {p: cut.places.get(p, NOTHING_READ) for p in partitions}
        elif start == "latest":
            bounds = await self.ask_bounds(partitions)
            found = {p: OffsetAndTerm(one.offset, one.term) for p, one in bounds.items()}
        else:
            found = dict.fromkeys(partitions, NOTHING_READ)
        opened = {SourceSegment(self.name, p): at for p, at in found.items()}
        return Places(open=opened, keys=dict.fromkeys(opened, WHOLE))

    async def ending(self, start: GroupStart, end: GroupCut) -> dict[SourceSegment, int]:
        begin, cut = (await self.places(start)).open, self._cut(end)
        found = {SourceSegment(self.name, p): at.offset for p, at in cut.places.items()}
        for one, offset in found.items():
            if one not in begin:
                raise InvalidRequestError(f"the end names {one}, which is not there")
            if offset < begin[one].offset:
                raise InvalidRequestError(
                    f"the end lies before the start: {one} begins at {begin[one].offset} and ends"
                    f" at {offset}; give an earlier start or a later end"
                )
        return found

    def _cut(self, place: GroupCut) -> TopicCut:
        if (cut := place.topics.get(self.name)) is None:
            raise InvalidRequestError(f"the cut says nothing of topic {self.name}")
        if cut.uid != self.uid:
            raise InvalidRequestError(
                f"the cut is of an earlier topic {self.name}, which was deleted"
            )
        return cut

    def open(
        self,
        segment: SourceSegment,
        at: OffsetAndTerm,
        stop: int | None,
        settings: ConsumerSettings,
    ) -> Consumer:
        # Who has read nothing yet begins with what there is: retention may have removed the first
        # records.
        start: Start = {segment.number: at} if at.offset else "earliest"
        return self.open_partition(*_range(segment, start, stop), settings)

    async def after(self, segment: SourceSegment) -> tuple[Successor, ...]:
        return ()

    async def end(self, segment: SourceSegment) -> int | None:
        return None

    async def added(self) -> tuple[SourceSegment, ...]:
        return tuple(SourceSegment(self.name, p) for p in range(await self.count()))

    async def extents(self, segments: Sequence[SourceSegment]) -> dict[SourceSegment, Extent]:
        return await _extents(self.ask_bounds, segments)

    def subscription(self, group: str) -> Subscription | None:
        return None


async def _extents(
    ask: AskBounds, segments: Sequence[SourceSegment]
) -> dict[SourceSegment, Extent]:
    found = await ask([one.number for one in segments])
    bounds = {one: found[one.number] for one in segments}
    return {one: Extent(b.log_start, b.offset, b.size_bytes) for one, b in bounds.items()}


async def places_within(source: Source, start: GroupStart) -> Places:
    """Where a source begins, as `Source.places`. Raises InvalidRequestError for a cut beyond the
    end of one of its segments, as far as their leaders answer."""
    places = await source.places(start)
    if not isinstance(start, GroupCut):
        return places
    begun = {one: at.offset for one, at in places.open.items() if at.offset > 0}
    try:
        async with asyncio.timeout(EXTENTS_S):
            extents = await source.extents(list(begun))
    except (SegmentGoneError, RetryableError, TimeoutError):
        return places
    for one, offset in begun.items():
        if offset > (end := extents[one].end):
            raise InvalidRequestError(
                f"the cut lies beyond the end of {one}: offset {offset}, and it ends at {end}; take"
                " cuts from checkpoints of a group"
            )
    return places


def check_start(what: str, start: object) -> None:
    """Raise InvalidRequestError for what is no place to begin at."""
    if start not in ("earliest", "latest") and not isinstance(start, GroupCut):
        text = "; of its text, give runnel.GroupCut.parse(text)" if isinstance(start, str) else ""
        raise InvalidRequestError(
            f"{what} is {start!r:.60}; give 'earliest', 'latest', or a GroupCut{text}"
        )


def _range(segment: SourceSegment, start: Start, stop: int | None) -> tuple[int, Start, Stop]:
    number = segment.number
    return number, start, None if stop is None else {number: stop}


def joined(places: Sequence[Places]) -> Places:
    """Places of several sources."""
    found = Places()
    for one in places:
        found.open.update(one.open)
        found.waiting.update(one.waiting)
        found.last.update(one.last)
        found.keys.update(one.keys)
    return found


def single(settings: ConsumerSettings, segments: int) -> ConsumerSettings:
    """The settings of one of so many consumers that share what may be read ahead."""
    share = max(1 << 20, settings.read_ahead_bytes // max(1, segments))
    return replace(settings, read_ahead_bytes=share)
