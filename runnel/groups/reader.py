"""A reader of a group: it hands out the records of the segments that it has.

`runnel.groups.member` shares the segments of the group's sources with the other readers, and
`runnel.groups.opened` reads them ahead. A record counts as processed once the user asks for the
next one. At that moment, and only then, the reader passes checkpoints and gives back a segment
whose records are in the user's hands. It hands out nothing while its lease may be over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import pyarrow as pa

from runnel.consume.consumer import check_max_records, check_timeout
from runnel.groups.cut import GroupCut
from runnel.groups.member import Member
from runnel.groups.opened import Item
from runnel.groups.places import Places
from runnel.records.record import Record


class GroupReader:
    """An asynchronous iterator of records; see the module's text. Use it with ``async with``, whose
    end gives its segments to others at once."""

    def __init__(self, member: Member, timeout: float | None = None) -> None:
        self.group = member.group
        self.name = member.name
        self.timeout = check_timeout(timeout)
        self.member = member
        #: A chunk that was taken from the queue and is not handed out yet.
        self._held: Item | None = None

    def __repr__(self) -> str:
        count = len(self.member.segments.by_segment)
        state = ", closed" if self.member.closed else f" with {count} segments"
        return f"<runnel.GroupReader {self.name!r} of group {self.group!r}{state}>"

    def segments(self) -> tuple[str, ...]:
        """The segments that it reads now."""
        return tuple(str(one) for one in sorted(self.member.segments.by_segment))

    def position(self) -> GroupCut:
        """Up to where it has handed out records of the segments that it reads now, for display: a
        place of the whole group is a checkpoint."""
        opened = self.member.segments.by_segment
        places = Places(open={one: each.processed() for one, each in opened.items()})
        sources = {one.source for one in opened}
        return GroupCut.of(places, {name: self.member.sources[name].uid for name in sources})

    async def start(self) -> None:
        """Join the group. Raises InvalidRequestError if it is closed, NotFoundError,
        DeadlineExceededError."""
        await self.member.start()

    async def commit(self) -> None:
        """Commit everything that was handed out, the record or batch in hand too. Durable when this
        returns. Raises FencedError if another process reads under its name, and, once, if the
        reader was called dead or the group was reset since the last commit, also where the reader
        has joined again; DeadlineExceededError."""
        await self.start()
        await self.member.commit()

    async def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None when none came within ``timeout`` seconds, and at the end."""
        check_timeout(timeout)
        member = self.member
        while True:
            if (current := member.current) is not None:
                records = current.state.records()
                if member.is_due:
                    current.state.has_processed()
                    try:
                        async with asyncio.timeout(timeout):
                            await member.attend()
                    except TimeoutError:
                        return None
                if current.live and (record := next(records, None)) is not None:
                    return record
            if not await self.open_next(timeout):
                return None

    async def batches(self, *, max_records: int | None = None) -> AsyncIterator[pa.RecordBatch]:
        """The records as Arrow record batches, as `Consumer.batches`; each is of one segment."""
        check_max_records(max_records)
        member = self.member
        while True:
            while (current := member.current) is not None:
                current.state.has_processed()
                if member.is_due:
                    await member.attend()
                if not current.live or (rest := current.state.rest(max_records)) is None:
                    break
                yield rest
            if not await self.open_next(self.timeout):
                return

    async def __aiter__(self) -> AsyncIterator[Record]:
        member = self.member
        while True:
            if (current := member.current) is not None:
                records = current.state.records()
                while True:
                    # Before the record is taken: whoever is cancelled here loses none.
                    if member.is_due:
                        current.state.has_processed()
                        await member.attend()
                    if not current.live or (record := next(records, None)) is None:
                        break
                    yield record
            if not await self.open_next(self.timeout):
                return

    async def open_next(self, timeout: float | None) -> bool:
        """Take the next chunk; False at the end of all, or when none came in time. Raises
        FencedError if another process reads under the name."""
        member, segments = self.member, self.member.segments
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        if member.current is not None:
            member.current.state.has_processed()
            member.current = None
        member.asking = True
        try:
            async with asyncio.timeout_at(deadline):
                await self.start()
                while True:
                    if member.failure is not None:
                        raise member.failure
                    if member.closed:
                        return False
                    if member.is_due:
                        await member.attend()
                    if member.exhausted:
                        return False
                    # A timeout that comes from here on must not lose it.
                    item = self._held = self._held or await segments.queue.get()
                    if item is None or not (opened := item.opened).live:
                        self._held = None
                        continue
                    if isinstance(item.found, BaseException):
                        member.failure = item.found
                        raise item.found
                    if item.found is None:
                        self._held = None
                        member.end(opened)
                        continue
                    if member.is_due:
                        await member.attend()
                    self._held = None
                    if not segments.has(opened):
                        continue
                    opened.state.rows = opened.consumer.state.rows
                    # By it the consumer counts how far it is behind. Not before a chunk is handed
                    # out: where the log begins is no place that a user has processed.
                    opened.consumer.state.position = opened.state.position
                    opened.state.open(item.found)
                    member.current = opened
                    return True
        except TimeoutError:
            return False
        finally:
            member.asking = False

    async def close(self, *, commit: bool = True) -> None:
        """Leave the group: others take its segments, where everything handed out counts as
        processed. Without ``commit``, what was in hand does not. May be called again."""
        await self.member.close(commit=commit)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # Its block, whose end would close it, does not begin.
            await self.close(commit=False)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(commit=error is None)
