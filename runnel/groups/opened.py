"""The segments that a reader has open: each has a consumer, and their chunks come together in one
queue, in which they wait until the user asks for them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from runnel.consume.consumer import Consumer
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.consume.settings import ConsumerSettings
from runnel.groups.places import SourceSegment
from runnel.groups.sources import Source, single
from runnel.net.routing import SegmentGoneError
from runnel.records.offset_and_term import OffsetAndTerm
from schemas.backoff import Backoff
from schemas.errors import OffsetOutOfRangeError, RetryableError, RunnelError

#: Chunks that wait for the user, of all segments together.
_CHUNKS: Final = 4
_AGAIN_MS: Final = 100.0
_MOST_AGAIN_MS: Final = 5_000.0

_log = logging.getLogger("runnel")


@dataclass(slots=True, eq=False)
class OpenSegment:
    """A segment that this reader reads. ``state`` is of what was handed out of it."""

    segment: SourceSegment
    source: Source
    at: OffsetAndTerm
    #: The first offset that the group does not read; None if it reads all.
    stop: int | None
    consumer: Consumer
    state: ReadState
    #: Up to where the last commit went.
    committed: OffsetAndTerm
    task: asyncio.Task[None] | None = None
    #: Whether this reader still has it: if not, nothing more of it is handed out.
    live: bool = True

    @property
    def number(self) -> int:
        """Of the partition that holds it."""
        return self.segment.number

    def processed(self) -> OffsetAndTerm:
        """What lies below this was handed out, and the user asked for more."""
        return self._with_term(self.state.processed().get(self.number, self.at.offset))

    def handed_out(self) -> OffsetAndTerm:
        """What lies below this was handed out, what is in the user's hands included."""
        return self._with_term(self.state.handed_out().get(self.number, self.at.offset))

    def _with_term(self, offset: int) -> OffsetAndTerm:
        if offset <= self.at.offset:
            return self.at
        return self.state.with_terms({self.number: offset})[self.number]


@dataclass(frozen=True, slots=True)
class Item:
    """A chunk of a segment, why it cannot be read, or None: its end."""

    opened: OpenSegment
    found: FetchedChunk | BaseException | None


class OpenSegments:
    """Those of one reader; see the module's text. ``queue``: what was read ahead of the user, and
    None for a call that shall look again."""

    def __init__(self, group: str, settings: ConsumerSettings) -> None:
        self.queue: asyncio.Queue[Item | None] = asyncio.Queue(_CHUNKS)
        self.by_segment: dict[SourceSegment, OpenSegment] = {}
        self._group = group
        self._settings = settings

    def has(self, opened: OpenSegment) -> bool:
        """Is this still what is read of its segment?"""
        return self.by_segment.get(opened.segment) is opened

    @property
    def commits_by_itself(self) -> bool:
        """Does what was processed count as committed without a word of the user?"""
        return self._settings.auto_commit_ms is not None

    @property
    def any_uncommitted(self) -> bool:
        """Were records handed out since the last commit?"""
        return any(one.handed_out() != one.committed for one in self.by_segment.values())

    def committed(self, places: Mapping[SourceSegment, OffsetAndTerm]) -> None:
        """Note what was committed of segments."""
        for segment, at in places.items():
            if (one := self.by_segment.get(segment)) is not None:
                one.committed = at

    def begin(
        self,
        segment: SourceSegment,
        source: Source,
        at: OffsetAndTerm,
        stop: int | None,
        segments: int,
    ) -> None:
        """Read a segment from a place to before an offset, or its end; one of so many that are
        read."""
        open_it = partial(source.open, segment, at, stop, single(self._settings, segments))
        state = ReadState(source.name, with_ids=self._settings.transaction_ids)
        state.begin(segment.number, at.offset, at.term, searching=False)
        opened = OpenSegment(segment, source, at, stop, open_it(), state, at)
        self.by_segment[segment] = opened
        reading = self._read(opened, open_it)
        opened.task = asyncio.create_task(reading, name=f"read {segment}")

    async def _read(self, opened: OpenSegment, open_it: Callable[[], Consumer]) -> None:
        fetched = opened.at.offset
        try:
            chunk = await self._first_chunk(opened, open_it)
            while chunk is not None:
                fetched = chunk.position_after
                await self.queue.put(Item(opened, chunk))
                chunk = await opened.consumer.next_chunk()
            await self.queue.put(Item(opened, None))
        except asyncio.CancelledError:
            raise
        except SegmentGoneError as error:
            try:
                await self._check_gone(opened, fetched, error)
            except RunnelError as lost:
                await self.queue.put(Item(opened, lost))
            else:
                await self.queue.put(Item(opened, None))
        except BaseException as error:
            await self.queue.put(Item(opened, error))

    async def _first_chunk(
        self, opened: OpenSegment, open_it: Callable[[], Consumer]
    ) -> FetchedChunk | None:
        """Begin to read, however long nobody answers: another reader would fare no better, and this
        one has the segment for as long as it can say so."""
        again = Backoff(_AGAIN_MS, _MOST_AGAIN_MS, random.random)
        while True:
            try:
                return await opened.consumer.next_chunk()
            except SegmentGoneError:
                raise
            except RetryableError as error:
                if not again.attempts:
                    _log.warning(
                        "group %s: segment %s cannot be read yet, which is tried again: %s",
                        self._group,
                        opened.segment,
                        error.message,
                    )
                await opened.consumer.close()
                await asyncio.sleep(again.next_ms() / 1000)
                opened.consumer = open_it()

    async def _check_gone(self, opened: OpenSegment, at: int, error: SegmentGoneError) -> None:
        """A segment was truncated away: nothing is lost to who has fetched all of it, which is
        what lies below ``at``. Raises OffsetOutOfRangeError unless the user goes on all the
        same."""
        end = await self._end_of(opened)
        # Its first record is a leader's control record.
        if (end is not None and max(at, 1) >= end) or self._settings.on_truncated == "earliest":
            return
        raise OffsetOutOfRangeError(
            f"group {self._group}: {error.message}; the records from {at} on are lost to it. Go on"
            " with what is there: on_truncated 'earliest', in the command --on-truncated earliest"
        ) from error

    async def _end_of(self, opened: OpenSegment) -> int | None:
        """Where a sealed segment ends, however long nobody answers."""
        again = Backoff(_AGAIN_MS, _MOST_AGAIN_MS, random.random)
        while True:
            try:
                return await opened.source.end(opened.segment)
            except RetryableError:
                await asyncio.sleep(again.next_ms() / 1000)

    def wake(self) -> None:
        """Have a call that waits for records look again."""
        with suppress(asyncio.QueueFull):
            self.queue.put_nowait(None)

    def places(self) -> dict[SourceSegment, OffsetAndTerm]:
        """Up to where others need not read the segments again."""
        return {one: self.reached(opened) for one, opened in self.by_segment.items()}

    def reached(self, opened: OpenSegment) -> OffsetAndTerm:
        """Up to where others need not read a segment again."""
        return opened.processed() if self.commits_by_itself else opened.committed

    async def close(self, segments: Iterable[SourceSegment]) -> list[OpenSegment]:
        """Stop reading those of these segments that are open, and give them."""
        closing = [self.by_segment.pop(one) for one in segments if one in self.by_segment]
        await _stopped(closing)
        return closing

    async def close_all(self) -> None:
        """Stop reading."""
        await self.close(list(self.by_segment))


async def _stopped(opened: list[OpenSegment]) -> None:
    for one in opened:
        one.live = False
    tasks = [one.task for one in opened if one.task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for one in opened:
        await one.consumer.close()
