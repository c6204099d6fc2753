"""Places in a stream, with the segments that they name: its beginning, its end, and cuts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from schemas.control.streams import EpochInfo, SegmentHistory, segment_of
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.streams.cuts import Frontier, StreamCut
from schemas.streams.epochs import Segment, creation_epoch, segment_text

StreamStart = Literal["earliest", "latest"] | StreamCut
"""Where to begin."""


@dataclass(frozen=True, slots=True)
class StreamQueries:
    """What the SC and leaders say of a stream. ``epoch`` gives an epoch by its number, or the
    current one; ``segment`` a segment with those before and after it; ``head`` where the stream
    begins; ``ends`` where segments end now, by their numbers."""

    stream: str
    epoch: Callable[[int | None], Awaitable[EpochInfo]]
    segment: Callable[[str], Awaitable[SegmentHistory]]
    head: Callable[[], Awaitable[StreamCut]]
    ends: Callable[[Sequence[int]], Awaitable[dict[int, int]]]

    async def history(self, segment: int) -> SegmentHistory:
        """Of a segment by its id."""
        return await self.segment(segment_text(segment))

    async def predecessors(self, segment: Segment) -> tuple[Segment, ...]:
        """The segments that had its keys before."""
        return tuple(map(segment_of, (await self.history(segment.id)).predecessors))

    async def frontier(self, place: StreamStart, current: EpochInfo) -> Frontier:
        """A place with the segments that it names. Raises InvalidRequestError for a cut that is no
        place in this stream."""
        if isinstance(place, StreamCut):
            return Frontier(place, await self._named_in(place, current))
        if place == "earliest":
            head = await self.head()
            # Where their logs begin: a truncation may come in between.
            offsets = {one: min(offset, 0) for one, offset in head.offsets.items()}
            begin = replace(head, offsets=offsets)
            return Frontier(begin, await self._named_in(begin, current))
        segments = tuple(map(segment_of, current.segments))
        ends = await self.ends([one.number for one in segments])
        offsets = {one.id: ends[one.number] for one in segments}
        return Frontier(StreamCut(self.stream, current.uid, offsets), segments)

    async def _named_in(self, cut: StreamCut, current: EpochInfo) -> Iterable[Segment]:
        """The segments of a cut. Raises InvalidRequestError if they are not of this stream."""
        if cut.uid != current.uid:
            raise InvalidRequestError(
                f"the cut is of an earlier stream {self.stream}, which was deleted"
            )
        wanted = set(cut.offsets)
        newest = max(map(creation_epoch, wanted), default=0)
        try:
            epoch = await self.epoch(newest)
            found = {one.id: one for one in map(segment_of, epoch.segments) if one.id in wanted}
            for one in sorted(wanted - found.keys()):
                found[one] = segment_of(await self.history(one))
        except NotFoundError as error:
            raise InvalidRequestError(
                f"the cut is no place in stream {self.stream}: {error}"
            ) from error
        return found.values()
