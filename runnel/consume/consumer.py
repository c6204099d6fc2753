"""The consumer: reads partitions from somewhere to somewhere, all of them at once.

Each partition has a `runnel.consume.reader`; their chunks come together in one queue and are handed
out whole, so records of a partition are in order and partitions are interleaved. Memory is bounded:
every partition holds at most two chunks, and the frames pushed after them, whose size is its share
of ``read_ahead_bytes``. Partitions that are added to the topic are read from their beginning,
unless the user chose partitions or an end (`runnel.consume.readers`).

A *named consumer* begins at the committed position of its name, and commits processed records: at
intervals, when it is closed, and when its user asks (`runnel.positions.store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from runnel.archive.source import ArchiveSource
from runnel.consume.auto_commit import AutoCommit
from runnel.consume.chunk_queue import ChunkQueue
from runnel.consume.counts import ConsumerMetrics, FetchCounts
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.consume.readers import PartitionReaders, ReadChunk
from runnel.consume.settings import ConsumerSettings
from runnel.fork import OpenedIn
from runnel.kept_work import KeptWork
from runnel.net.offsets import Range, Start, check_offsets, with_terms
from runnel.net.partition_count import follow_partition_count, take_up_added
from runnel.net.routing import TopicRoute
from runnel.positions.store import Session
from runnel.records.cursor import READ_TRANSACTION_ID
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import Record
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import FencedError, InvalidRequestError, RunnelError

#: How long the last commit may take after an error: its user waits for the end.
_LEAVE_S: Final = 5.0
#: How long a commit waits for the terms of offsets that were not read.
_TERMS_S: Final = 5.0
#: How often a thread that sleeps until a chunk comes wakes up.
_LOOK_UP_S: Final = 0.2

_log = logging.getLogger("runnel")


class Consumer:
    """An asynchronous iterator of records; see the module's text.

    ``open_route`` finds the topic when reading starts: at the first record asked for, or at
    `start`. The meaning of "latest" is settled at that moment. ``ask_schema`` gives the current
    schema of a route's topic, as far as it is known. ``session``: that of a named consumer.
    ``timeout``: iterating ends when no record has come for so many seconds. ``find_range``: asked
    for the range to read instead of ``wanted``, once the topic is found. ``ask_archive`` gives the
    archive of a route's topic, if it has one. ``opened`` and ``closed``
    are told when there is something to close, and when there is not. ``total``: the counts of all
    consumers, to which its own are added.
    """

    def __init__(
        self,
        topic: str,
        open_route: Callable[[], Awaitable[TopicRoute]],
        ask_schema: Callable[[TopicRoute], Awaitable[TopicSchema | None]],
        wanted: Range,
        settings: ConsumerSettings,
        session: Session | None = None,
        *,
        opened: Callable[[Consumer], None] = lambda _consumer: None,
        closed: Callable[[Consumer], None] = lambda _consumer: None,
        timeout: float | None = None,
        find_range: Callable[[], Awaitable[Range]] | None = None,
        ask_archive: Callable[[TopicRoute], Awaitable[ArchiveSource | None]] | None = None,
        total: FetchCounts | None = None,
    ) -> None:
        self.topic = topic
        self._opened_in = OpenedIn()
        self.state = ReadState(topic, with_ids=settings.transaction_ids)
        self._open_route = open_route
        self._ask_schema = ask_schema
        self._wanted = wanted
        self.timeout = check_timeout(timeout)
        self._find_range = find_range
        self._ask_archive = ask_archive
        self._counts = FetchCounts(total)
        self._settings = settings
        self._on_opened = opened
        self._on_closed = closed
        self._session = session
        self._auto_commit = (
            AutoCommit(topic, session, settings.auto_commit_ms, self.state, self._fenced)
            if session is not None
            else None
        )
        self._queue: ChunkQueue[ReadChunk] = ChunkQueue()
        self._readers: PartitionReaders | None = None
        self._route: TopicRoute | None = None
        self._growth: asyncio.Task[None] | None = None
        self._starting: KeptWork[None] = KeptWork(f"open {topic}")
        self._growing: KeptWork[bool] = KeptWork(f"added partitions of {topic}")
        self._failure: BaseException | None = None
        self._closed = False
        self._exhausted = False
        self._forgotten = False
        self._dropped = False
        self._broken_off = False
        opened(self)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name is not None else ""
        state = ", closed" if self._closed else ""
        return f"<runnel.Consumer{name} of {self.topic!r} at {self.state.position}{state}>"

    @property
    def name(self) -> str | None:
        """The name that it commits under, if it has one."""
        return self._session.name if self._session is not None else None

    @property
    def metrics(self) -> ConsumerMetrics:
        """Counts since the consumer was opened. For any thread."""
        ends = self._readers.ends() if self._readers is not None else {}
        position = self.position()
        return self._counts.metrics(
            {p: max(0, end - position[p]) for p, end in ends.items() if p in position}
        )

    async def start(self) -> None:
        """Find the partitions and their offsets, and begin to fetch. Does so only once.

        Raises NotFoundError for an unknown topic, RetryableErrors when no leader answers.
        """
        if not self._closed and self._readers is None:
            await self._starting.run(self._start)
        if self._closed:
            raise InvalidRequestError(f"the consumer of {self.topic!r} is closed; open another")

    @property
    def closed(self) -> bool:
        """Was it closed, by its user or with its cluster?"""
        return self._closed

    @property
    def exhausted(self) -> bool:
        """Was everything up to ``stop`` handed out, and the end met?"""
        return self._exhausted

    async def next_chunk(
        self, *, waited: bool = False, timeout: float | None = None
    ) -> FetchedChunk | None:
        """The next records, or None when everything up to ``stop`` was handed out, or when none
        came for ``timeout`` seconds.

        ``waited``: the caller has waited since before it was closed; for it, that is the end.
        Raises FencedError once another consumer has taken over the name, InvalidRequestError in a
        fork of the process that opened the consumer.
        """
        self._opened_in.require()
        self.state.asked()
        if self._exhausted:
            return None
        if self._failure is not None:
            raise self._failure
        if waited and self._closed:
            return None
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self.start()
        except TimeoutError:
            return None
        while True:
            if self._queue.empty and not self._reading:
                try:
                    async with asyncio.timeout_at(deadline):
                        if await self._growing.run(self._grows):
                            continue
                except TimeoutError:
                    return None
                self._exhausted = True
                # Wakes the other readers that wait.
                self._queue.put_other(None)
                await self._finish()
                return None
            try:
                async with asyncio.timeout_at(deadline):
                    item = await self._queue.get()
            except TimeoutError:
                return None
            if isinstance(item, BaseException):
                self._failure = item
                raise item
            if item is not None:
                ((reader, chunk),) = item
                reader.taken()
                return chunk

    def next_delivered(
        self, loop: asyncio.AbstractEventLoop, deadline: float | None = None
    ) -> FetchedChunk | None:
        """As `next_chunk`, in another thread than that of ``loop``, the consumer's, and without a
        call to it; None if a call is needed, or ``deadline`` on the monotonic clock has passed.

        Sleeps while nothing comes, but wakes up now and then for Ctrl-C: a signal that arrives just
        before a thread falls asleep is noticed only when it wakes up.
        """
        self.state.asked()
        while self._failure is None and not loop.is_closed():
            if (taken := self._queue.take()) is not None:
                reader, chunk = taken
                reader.taken_elsewhere(loop)
                return chunk
            if not (self._queue.empty and self._reading):
                return None
            left_s = _LOOK_UP_S if deadline is None else min(_LOOK_UP_S, deadline - monotonic())
            if left_s <= 0:
                return None
            self._queue.sleep(left_s)
        return None

    async def batches(self, *, max_records: int | None = None) -> AsyncIterator[pa.RecordBatch]:
        """The records as Arrow record batches with the columns partition, offset, timestamp, key,
        value, headers (for a typed topic: partition, offset, timestamp, and its columns as they
        were when reading began), and transaction_id if the settings ask for it; each batch is of
        one partition, and has at most ``max_records``. With a name, a batch counts as processed
        once the next one is asked for.
        """
        check_max_records(max_records)
        while True:
            while (rest := self.state.rest(max_records)) is not None:
                yield rest
            if (chunk := await self.next_chunk(timeout=self.timeout)) is None:
                return
            self.state.open(chunk)

    async def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None when none came within ``timeout`` seconds, and at the end.

        0 only looks; None waits for ever. `exhausted` tells the end from a timeout. Raises what
        iterating raises.
        """
        check_timeout(timeout)
        while True:
            for record in self.state.records():
                return record
            if (chunk := await self.next_chunk(timeout=timeout)) is None:
                return None
            self.state.open(chunk)

    async def __anext__(self) -> Record:
        if (record := await self.poll(self.timeout)) is None:
            raise StopAsyncIteration
        return record

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            for record in self.state.records():
                yield record
            if (chunk := await self.next_chunk(timeout=self.timeout)) is None:
                return
            self.state.open(chunk)

    def position(self) -> dict[int, int]:
        """Per partition the offset after the last record that was handed out.

        Give it as ``start`` to another consumer to continue from here; better, give that
        `position_with_terms`.
        """
        return dict(self.state.position)

    def position_with_terms(self) -> dict[int, OffsetAndTerm]:
        """As `position`, with what identifies the records below.

        A consumer with this as ``start`` raises DivergedError if they were lost meanwhile.
        """
        return self.state.with_terms(self.position())

    async def seek(self, to: Start, partitions: Iterable[int] | None = None) -> None:
        """Read on from another place: `position` is there when this returns.

        ``to`` takes the values of ``start``, and ``partitions`` defaults to all that are read, or
        to those that ``to`` names. Records that were fetched and not handed out are dropped; the
        ``stop`` stays. Automatic commits still never go back: after seeking back, `commit` moves
        the committed position. No other thread may be reading meanwhile. An offset that is not
        there shows when it is read: OffsetOutOfRangeError then, as well as DivergedError, is raised
        until a seek moves that partition, and reading goes on. It also goes on after the end. If
        this raises, nothing has changed: InvalidRequestError for partitions that are not read and
        once the consumer is closed, DeadlineExceededError, and again any other error that reading
        raised.
        """
        readers = await self._open_readers()
        await readers.seek(to, partitions)
        if self._failure is not None and not readers.is_misplaced(self._failure):
            self._failure = None
        if self._exhausted:
            self._exhausted = False
            self._on_opened(self)

    async def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Hand out no records of these partitions (default: all that are read) until `resume`.

        Others are read on; what was fetched is kept. No other thread may be reading meanwhile.
        Raises InvalidRequestError for partitions that are not read.
        """
        (await self._open_readers()).pause(partitions)

    async def resume(self, partitions: Iterable[int] | None = None) -> None:
        """Go on with paused partitions (default: all), where they were. Raises InvalidRequestError
        for partitions that are not read.
        """
        (await self._open_readers()).resume(partitions)

    def paused(self) -> frozenset[int]:
        """The partitions that are paused."""
        return self._readers.paused if self._readers is not None else frozenset()

    async def _open_readers(self) -> PartitionReaders:
        self._opened_in.require()
        readers = self._readers
        if self._failure is not None and not (readers and readers.is_misplaced(self._failure)):
            raise self._failure
        await self.start()
        if self._readers is None:
            raise AssertionError("a consumer that was started has readers")
        return self._readers

    async def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        """Commit everything handed out (`position`), or these offsets, under the consumer's name.

        An offset is that of the next record to read. Durable when this returns. Automatic commits
        never go back behind it, and may go beyond. Raises FencedError if another consumer has taken
        over the name, InvalidRequestError without a name and for partitions that are not read,
        DeadlineExceededError.
        """
        self._opened_in.require()
        if self._session is None:
            raise InvalidRequestError(
                f"the consumer of {self.topic!r} has no name to commit under; open it with name='…'"
            )
        if offsets is not None:
            check_offsets("commit", offsets)
        await self.start()
        if offsets is not None and (others := offsets.keys() - self.state.position.keys()):
            raise InvalidRequestError(
                f"commit: this consumer does not read the partitions {sorted(others)}"
            )
        wanted = self.position() if offsets is None else offsets
        places = await self._places(wanted)
        try:
            await self._session.commit(places)
        except FencedError as error:
            self._failure = error
            raise

    async def _places(self, offsets: Mapping[int, int]) -> dict[int, OffsetAndTerm]:
        """Offsets with the terms below them. Of offsets that this consumer has not read up to, the
        leaders are asked; without an answer, they are committed without a term."""
        places = self.state.with_terms(offsets)
        unknown = {p: at.offset for p, at in places.items() if at.offset and not at.term}
        if unknown and self._route is not None:
            with suppress(RunnelError):
                places |= await with_terms(self._route, unknown, _TERMS_S)
        return places

    async def close(self, *, commit: bool = True) -> None:
        """Stop fetching. A call that waits for the next records raises that it is closed.

        With a name, everything handed out is committed, unless ``auto_commit_ms`` is None or
        ``commit`` is False; what was in hand when an error ended its ``with`` block is not. Raises
        as `commit`; it is closed all the same.
        """
        done = self.state.processed() if self._broken_off else self.state.handed_out()
        await self._end(done if commit else {}, self._settings.give_up_ms / 1000)

    def break_off(self) -> None:
        """An error ends its ``with`` block: what is in hand will not be processed any more. In any
        thread.
        """
        self._broken_off = True

    async def leave(self, error: BaseException | None) -> None:
        """End of a ``with`` block: `close`. After an error, the record being processed is not
        committed, and a failure to commit only becomes a note on the error.
        """
        if error is None:
            await self.close()
            return
        self.break_off()
        try:
            await self._end(self.state.processed(), _LEAVE_S)
        except RunnelError as failure:
            error.add_note(f"The consumer of {self.topic!r} could not commit: {failure}")

    def forget(self) -> None:
        """Its user has left it: stop fetching. With a name it continues to commit, and its cluster
        closes it.
        """
        if self._session is None:
            self.abandon()
            return
        self._forgotten = True
        self._stop_reading()
        self._queue.clear()

    def drop(self) -> None:
        """As `close`, without waiting, and without a last commit, whoever closes it later."""
        self._dropped = True
        self.abandon()

    def abandon(self) -> list[asyncio.Task[Any]]:
        """Stop fetching and committing, without waiting; gives the tasks that are still ending."""
        tasks = [*self._stop_reading(), *self._starting.cancel()]
        if self._auto_commit is not None:
            tasks += self._auto_commit.cancel()
        if not self._closed:
            self._closed = True
            self._queue.put_other(None)
            self._on_closed(self)
        return tasks

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException as error:
            # Its block, whose end would close it, does not begin.
            await self.leave(error)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave(error)

    @property
    def _reading(self) -> bool:
        return self._readers is not None and self._readers.active

    def _stop_reading(self) -> list[asyncio.Task[Any]]:
        """Gives the tasks that are ending."""
        tasks: list[asyncio.Task[Any]] = self._readers.cancel() if self._readers is not None else []
        tasks += self._growing.cancel()
        if self._growth is not None:
            self._growth.cancel()
            tasks.append(self._growth)
        return tasks

    async def _grows(self) -> bool:
        """Are there partitions to read of which it did not know? It has met the ends of all others:
        those of sealed partitions, if it follows. Then none is added any more."""
        if self._closed or self._growth is None or self._readers is None or self._route is None:
            return False
        if await take_up_added(self._route, self._readers.add):
            return True
        self._growth.cancel()
        return False

    async def _finish(self) -> None:
        """Everything is read: with a name, commit it. It stays open for commits and `seek`."""
        if self._auto_commit is None:
            # Nothing runs any more: a user who leaves it here has nothing to close.
            self._on_closed(self)
        else:
            await self._auto_commit.finish(self.state.handed_out())

    async def _end(self, offsets: Mapping[int, int], give_up_s: float) -> None:
        if not self._opened_in.is_this:
            # The parent still reads, and commits.
            return
        tasks = self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        if (auto_commit := self._auto_commit) is None or self._dropped:
            return
        try:
            await auto_commit.close(offsets, give_up_s)
        except FencedError as error:
            # Not if it never commits by itself, has reported this already, or was left by its user.
            told = self._forgotten or isinstance(self._failure, FencedError)
            if auto_commit.enabled and not told:
                self._failure = error
                raise

    def _fenced(self, error: FencedError) -> None:
        self._failure = error
        self._queue.put_other(error)

    async def _start(self) -> None:
        route = await self._open_route()
        rows = await self._ask_schema(route)
        if rows is not None and self._settings.transaction_ids:
            _require_no_column(self.topic, rows)
        self.state.rows = rows
        if self._find_range is not None:
            self._wanted = await self._find_range()
        archive = None if self._ask_archive is None else await self._ask_archive(route)
        readers = PartitionReaders(
            route, self._settings, self._ask_schema, self.state, self._queue, self._counts, archive
        )
        await readers.open(self._wanted, self._session)
        self._readers, self._route = readers, route
        if self._wanted.follows_added:
            max_age_s = self._settings.metadata_max_age_ms / 1000
            self._growth = asyncio.create_task(
                follow_partition_count(route, max_age_s, readers.add),
                name=f"partitions of {self.topic}",
            )
        if self._auto_commit is not None:
            self._auto_commit.start()


def check_timeout(timeout: float | None) -> float | None:
    """The timeout. Raises InvalidRequestError unless it is None or 0 s or more."""
    given: object = timeout
    if given is not None and not (isinstance(given, int | float) and given >= 0):
        raise InvalidRequestError(
            f"timeout is {timeout!r}; give a number of seconds, or None to wait for ever"
        )
    return timeout


def check_max_records(max_records: int | None) -> None:
    """Raise InvalidRequestError unless it is None or 1 or more."""
    if max_records is not None and max_records < 1:
        raise InvalidRequestError(f"max_records is {max_records}; give at least 1, or None")


def _require_no_column(topic: str, rows: TopicSchema) -> None:
    name = READ_TRANSACTION_ID.name
    if name in (column.name for column in rows.columns):
        raise InvalidRequestError(
            f"topic {topic!r} has a column {name} of its own, so batches cannot have one of"
            " transaction ids; read by record"
        )
