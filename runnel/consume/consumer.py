"""The consumer: reads partitions from somewhere to somewhere, all of them at once.

Each partition has a `runnel.consume.reader`; their chunks come together in one queue and are
handed out whole, so records of a partition are in order and partitions are interleaved. Memory
is bounded: every partition holds at most two chunks, and what is pushed ahead of them, whose size
is its share of ``read_ahead_bytes``.

A consumer with a *name* begins where that name has committed, and commits what is processed: now
and then, when it is closed, and when its user says so (`runnel.positions.store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

import pyarrow as pa

from runnel.consume.chunk_queue import ChunkQueue
from runnel.consume.delivered import Chunk, ReadState
from runnel.consume.fetcher import FetchSettings, PartitionFetcher
from runnel.consume.reader import PartitionReader, list_offsets
from runnel.consume.speculation import Speculation
from runnel.net.routing import TopicRoute
from runnel.positions.store import Session
from runnel.records.cursor import READ_TRANSACTION_ID, Cursor
from runnel.records.record import Record, as_transaction_id, timestamp_us_of
from runnel.records.schema_resolution import ReadColumns, SchemaFollower
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import DivergedError, FencedError, InvalidRequestError, RunnelError
from schemas.wire.record_requests import EARLIEST, LATEST, ListOffsetsResponse, PositionBy


@dataclass(frozen=True, slots=True)
class TransactionId:
    """A place to start at: the first record with this transaction id or a larger one.

    Raises InvalidRequestError for what is no id.
    """

    id: int

    def __post_init__(self) -> None:
        as_transaction_id(self.id)


Start = Literal["earliest", "latest"] | int | Mapping[int, int] | datetime | TransactionId
Stop = Literal["latest"] | Mapping[int, int] | None
OnTruncated = Literal["error", "earliest"]

_MIN_FETCH_BYTES: Final = 64 << 10
_MAX_FETCH_BYTES: Final = 8 << 20
#: How long the last commit may take after an error: its user waits for the end.
_LEAVE_S: Final = 5.0
#: How often a thread that sleeps until a chunk comes looks up.
_LOOK_UP_S: Final = 0.2

_log = logging.getLogger("runnel")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """``give_up_ms``: how long to bear a partition whose leader does not answer.

    ``max_wait_ms``: how long an SPU that is sent fetches holds one when there is nothing new.
    ``speculative_reads``: where a partition has followers, send a fetch that is overdue to one
    of them as well, and take the first answer; this adds a tenth to the requests at most.
    ``follower_reads``: read from followers in general, which unburdens leaders. Records come a
    little later then, and are the same.
    ``push``: have leaders push records as they come, instead of asking for each answer.
    ``transaction_ids``: Arrow batches have a column ``transaction_id``, null where a record has
    none; records have theirs in any case.
    """

    read_ahead_bytes: int = 64 << 20
    max_wait_ms: int = 1_000
    give_up_ms: int = 120_000
    speculative_reads: bool = True
    follower_reads: bool = False
    push: bool = True
    transaction_ids: bool = False
    on_truncated: OnTruncated = "error"
    auto_commit_ms: int | None = 5_000

    def __post_init__(self) -> None:
        if self.on_truncated not in get_args(OnTruncated):
            raise InvalidRequestError(
                f"on_truncated is {self.on_truncated!r}; give 'error' or 'earliest'"
            )
        if self.auto_commit_ms is not None and self.auto_commit_ms <= 0:
            raise InvalidRequestError(
                f"auto_commit_ms is {self.auto_commit_ms}; give a number above 0, or None"
            )


@dataclass(frozen=True, slots=True)
class Range:
    """What to read: checked, but not yet turned into offsets."""

    start: Start = "latest"
    stop: Stop = None
    partitions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        match self.start:
            case "earliest" | "latest":
                pass
            case datetime() as when:
                try:
                    timestamp_us_of(when)
                except ValueError as error:
                    raise InvalidRequestError(f"start: {error}") from error
            case bool():
                raise InvalidRequestError(_bad("start", self.start))
            case int() as offset if offset >= 0:
                pass
            case TransactionId():
                pass
            case Mapping() as offsets:
                _check_offsets("start", offsets)
            case _:
                raise InvalidRequestError(_bad("start", self.start))
        match self.stop:
            case None | "latest":
                pass
            case Mapping() as offsets:
                _check_offsets("stop", offsets)
            case _:
                raise InvalidRequestError(_bad("stop", self.stop))

    def chosen(self, topic: str, partition_count: int) -> tuple[int, ...]:
        """The partitions to read. Raises InvalidRequestError where something is not named."""
        chosen = self.partitions if self.partitions is not None else tuple(range(partition_count))
        for partition in chosen:
            if not 0 <= partition < partition_count:
                raise InvalidRequestError(
                    f"topic {topic!r} has the partitions 0 to {partition_count - 1},"
                    f" not {partition}"
                )
            for name, offsets in (("start", self.start), ("stop", self.stop)):
                if isinstance(offsets, Mapping) and partition not in offsets:
                    raise InvalidRequestError(
                        f"{name} names no offset for partition {partition} of {topic!r}; name it,"
                        f" or choose with partitions={sorted(offsets)}"
                    )
        return tuple(dict.fromkeys(chosen))


def make_range(start: Start, stop: Stop, partitions: Iterable[int] | None) -> Range:
    """Check what a user asked for. Raises InvalidRequestError."""
    return Range(start, stop, None if partitions is None else tuple(partitions))


class Consumer:
    """An asynchronous iterator of records; see the module's text.

    ``open_route`` finds the topic when reading starts: at the first record asked for, or at
    `start`. What "latest" means is settled at that moment. ``ask_schema`` tells the schema that the
    topic of a route has now, as far as is known. ``session``: that of a consumer with a name.
    """

    def __init__(
        self,
        topic: str,
        open_route: Callable[[], Awaitable[TopicRoute]],
        ask_schema: Callable[[TopicRoute], Awaitable[TopicSchema | None]],
        wanted: Range,
        settings: ConsumerSettings,
        closed: Callable[[Consumer], None] = lambda _consumer: None,
        session: Session | None = None,
    ) -> None:
        self.topic = topic
        self.state = ReadState(topic, with_ids=settings.transaction_ids)
        self._open_route = open_route
        self._ask_schema = ask_schema
        self._wanted = wanted
        self._settings = settings
        self._on_closed = closed
        self._session = session
        self._committing: asyncio.Task[None] | None = None
        self._queue: ChunkQueue[tuple[PartitionReader, Chunk]] = ChunkQueue()
        self._tasks: dict[asyncio.Task[None], PartitionReader] = {}
        self._starting: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._exhausted = False
        self._forgotten = False

    @property
    def name(self) -> str | None:
        """The name that it commits under, if it has one."""
        return self._session.name if self._session is not None else None

    async def start(self) -> None:
        """Find the partitions and their offsets, and begin to fetch. Does so only once.

        Raises NotFoundError for an unknown topic, RetryableErrors when no leader answers.
        """
        if self._closed:
            raise InvalidRequestError(f"the consumer of {self.topic!r} is closed; open another")
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"open {self.topic}")
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._starting = None
            raise

    @property
    def closed(self) -> bool:
        """Was it closed, by whoever has it or with its cluster?"""
        return self._closed

    async def next_chunk(self, *, waited: bool = False) -> Chunk | None:
        """The next records, or None when everything up to ``stop`` was handed out.

        ``waited``: who asks has waited since before it was closed, and is told of that as of the
        end. Raises FencedError once the name of this consumer is somebody else's.
        """
        self.state.asked()
        if self._exhausted:
            return None
        if self._failure is not None:
            raise self._failure
        if waited and self._closed:
            return None
        await self.start()
        while True:
            if self._queue.empty and not self._tasks:
                self._exhausted = True
                # For others who wait.
                self._queue.put_other(None)
                await self._finish()
                return None
            item = await self._queue.get()
            if isinstance(item, BaseException):
                self._failure = item
                raise item
            if item is not None:
                ((reader, chunk),) = item
                reader.taken()
                return chunk

    def next_delivered(self, loop: asyncio.AbstractEventLoop) -> Chunk | None:
        """As `next_chunk`, in another thread than that of ``loop``, the consumer's, and without
        asking it; None where it has to be asked.

        Sleeps while nothing comes, but looks up now and then, so that Ctrl-C is heard: a signal
        that comes right before a thread falls asleep is seen only when it wakes up.
        """
        self.state.asked()
        while self._failure is None and not loop.is_closed():
            if (taken := self._queue.take()) is not None:
                reader, chunk = taken
                reader.taken_elsewhere(loop)
                return chunk
            if not (self._queue.empty and self._tasks):
                return None
            self._queue.sleep(_LOOK_UP_S)
        return None

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The records as Arrow record batches with the columns partition, offset, timestamp,
        key, value, headers (of a typed topic: partition, offset, timestamp, and its columns as they
        were when reading began), and transaction_id if the settings say so; each batch is of one
        partition."""
        while True:
            while (rest := self.state.rest()) is not None:
                yield rest
            if (chunk := await self.next_chunk()) is None:
                return
            self.state.open(chunk)

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            for record in self.state.records():
                yield record
            if (chunk := await self.next_chunk()) is None:
                return
            self.state.open(chunk)

    def position(self) -> dict[int, int]:
        """Per partition the offset after the last record that was handed out.

        Give it as ``start`` to another consumer to read on from here.
        """
        return dict(self.state.position)

    async def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        """Commit all that was handed out (`position`), or these offsets, under the consumer's name.

        An offset is that of the next record to read. Durable when this returns. What the consumer
        commits by itself never goes back behind it, and may go beyond. Raises FencedError
        where the name is somebody else's by now, InvalidRequestError without a name and for
        partitions that are not read, DeadlineExceededError.
        """
        if self._session is None:
            raise InvalidRequestError(
                f"the consumer of {self.topic!r} has no name to commit under; open it with name='…'"
            )
        if offsets is not None:
            _check_offsets("commit", offsets)
        await self.start()
        if offsets is not None and (others := offsets.keys() - self.state.position.keys()):
            raise InvalidRequestError(
                f"commit: this consumer does not read the partitions {sorted(others)}"
            )
        wanted = self.position() if offsets is None else offsets
        try:
            await self._session.commit(wanted)
        except FencedError as error:
            self._failure = error
            raise

    async def close(self, *, commit: bool = True) -> None:
        """Stop fetching. Who waits for the next records is told that it is closed.

        With a name, all that was handed out is committed, unless ``auto_commit_ms`` is None or
        ``commit`` says no. Raises as `commit`; it is closed all the same.
        """
        await self._end(self.position() if commit else {}, self._settings.give_up_ms / 1000)

    async def leave(self, error: BaseException | None) -> None:
        """End of a ``with`` block: `close`; after an error what was in hand is not committed, and
        what fails now is only noted on the error."""
        if error is None:
            await self.close()
            return
        try:
            await self._end(self.state.processed(), _LEAVE_S)
        except RunnelError as failure:
            error.add_note(f"The consumer of {self.topic!r} could not commit: {failure}")

    def forget(self) -> None:
        """Nobody will ask for more: stop fetching. With a name it commits on, and its cluster
        closes it."""
        if self._session is None:
            self.abandon()
            return
        self._forgotten = True
        for task in list(self._tasks):
            task.cancel()
        self._queue.clear()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Stop fetching and committing, without waiting; gives what is still ending."""
        others = (self._starting, self._committing)
        tasks = [*self._tasks, *(task for task in others if task is not None)]
        for task in tasks:
            task.cancel()
        if not self._closed:
            self._closed = True
            self._queue.put_other(None)
            self._on_closed(self)
        return tasks

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave(error)

    async def _finish(self) -> None:
        """All is read: with a name commit it, and stay open for commits of the user's."""
        if self._session is None:
            await self.close()
        elif self._settings.auto_commit_ms is not None:
            await self._session.advance(self.position())

    async def _end(self, offsets: Mapping[int, int], give_up_s: float) -> None:
        tasks = self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is None:
            return
        commits = self._settings.auto_commit_ms is not None
        try:
            await self._session.close(offsets if commits else {}, give_up_s)
        except FencedError as error:
            # Who never commits by itself, or was told, or is not there, has nothing to hear.
            if commits and not (self._forgotten or isinstance(self._failure, FencedError)):
                self._failure = error
                raise

    async def _commit_now_and_then(self, session: Session, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await session.advance(self.state.processed())
            except FencedError as error:
                # Whoever reads on would process what another one does.
                self._failure = error
                self._queue.put_other(error)
                return
            except RunnelError as error:
                _log.warning("%s: not committed, tried again later: %s", self.topic, error.message)

    async def _start(self) -> None:
        route = await self._open_route()
        rows = await self._ask_schema(route)
        if rows is not None and self._settings.transaction_ids:
            _require_no_column(self.topic, rows)
        columns = ReadColumns(rows) if rows is not None else None
        self.state.rows = rows
        partitions = self._wanted.chosen(self.topic, route.partition_count)
        cursors = await self._cursors(route, partitions)
        share = self._settings.read_ahead_bytes // (2 * max(1, len(cursors)))
        settings = FetchSettings(
            fetch_bytes=max(_MIN_FETCH_BYTES, min(_MAX_FETCH_BYTES, share)),
            max_wait_ms=self._settings.max_wait_ms,
            give_up_s=self._settings.give_up_ms / 1000,
            follower_reads=self._settings.follower_reads,
            speculative_reads=self._settings.speculative_reads,
            push=self._settings.push,
        )
        speculation = Speculation()
        for cursor, lac, from_earliest in cursors:
            self.state.position[cursor.partition] = cursor.position
            cursor.columns = columns
            reader = PartitionReader(
                cursor,
                route,
                self._fetcher(route, cursor, settings, speculation, lac),
                settings.give_up_s,
                lambda _chunk: None,
                from_earliest=from_earliest,
                steps_over_truncated=self._settings.on_truncated == "earliest",
            )
            reader.deliver = self._deliver_from(reader)
            task = asyncio.create_task(reader.run(), name=f"read {self.topic}/{cursor.partition}")
            self._tasks[task] = reader
            task.add_done_callback(self._ended)
        if self._session is not None and (every_ms := self._settings.auto_commit_ms) is not None:
            self._committing = asyncio.create_task(
                self._commit_now_and_then(self._session, every_ms / 1000),
                name=f"commit {self.topic}",
            )

    async def _cursors(
        self, route: TopicRoute, partitions: Sequence[int]
    ) -> list[tuple[Cursor, int, bool]]:
        """As `_cursor`, of several partitions; with a name, where that was."""
        if self._session is None:
            wanted = [self._cursor(route, index, self._wanted.start) for index in partitions]
            return await asyncio.gather(*wanted)
        found: dict[int, tuple[Cursor, int, bool]] = {}

        async def starts(there: Sequence[int], since: Sequence[int]) -> dict[int, int]:
            cursors = await asyncio.gather(
                *(self._cursor(route, index, self._wanted.start) for index in there),
                # Records came before anybody could read the new partition: none is left out.
                *(self._cursor(route, index, "earliest") for index in since),
            )
            found.update({each[0].partition: each for each in cursors})
            # From a time on is found again; its offset alone begins with earlier records.
            return {c.partition: c.position for c, *_ in cursors if c.not_before_us is None}

        committed = await self._session.open(
            route.topic.uid, route.partition_count, partitions, starts
        )

        async def placed(index: int) -> tuple[Cursor, int, bool]:
            known = found.get(index)
            # Somebody may have committed while the start was looked for.
            if known is not None and committed.get(index) in (None, known[0].position):
                return known
            return await self._committed_cursor(route, index, committed[index])

        return await asyncio.gather(*map(placed, partitions))

    async def _committed_cursor(
        self, route: TopicRoute, partition: int, committed: int
    ) -> tuple[Cursor, int, bool]:
        """As `_cursor`, where a name has committed. Raises DivergedError where the log ends before:
        a reader would wait there, and step over what comes meanwhile."""
        wait_s = self._settings.give_up_ms / 1000
        for _ in range(2):
            found = await list_offsets(route, partition, LATEST, wait_s)
            if found.offset >= committed:
                return await self._cursor(route, partition, committed)
            # It may be a leader that does not know yet that it is none: ask who leads now.
            route.suspect(partition)
        raise DivergedError(
            f"{self.topic}/{partition}: consumer {self.name!r} has read up to offset {committed},"
            f" and the log ends at {found.offset}. An unclean election has lost records; decide"
            " what becomes of those that were used, and then: runnel consumer reset"
            f" {self.name} --topic {self.topic} --offset {found.offset} -p {partition}",
            diverged_at=found.offset,
        )

    def _fetcher(
        self,
        route: TopicRoute,
        cursor: Cursor,
        settings: FetchSettings,
        speculation: Speculation,
        lac: int,
    ) -> PartitionFetcher:
        index = cursor.partition
        if cursor.columns is None:
            return PartitionFetcher(route, index, settings, speculation, route.random, lac)
        return SchemaFollower(
            cursor.columns,
            lambda: self._ask_schema(route),
            route,
            index,
            settings,
            speculation,
            lac,
        )

    def _deliver_from(self, reader: PartitionReader) -> Callable[[Chunk], None]:
        return lambda chunk: self._queue.put((reader, chunk))

    async def _cursor(
        self, route: TopicRoute, partition: int, start: Start
    ) -> tuple[Cursor, int, bool]:
        """Where reading starts and ends, the last add confirmed if it was told on the way, and
        whether retention may overtake the start."""
        lac = -1
        not_before_us = not_before_id = None

        async def ask(position: int, by: PositionBy = PositionBy.TIMESTAMP) -> ListOffsetsResponse:
            nonlocal lac
            wait_s = self._settings.give_up_ms / 1000
            found = await list_offsets(route, partition, position, wait_s, by)
            lac = max(lac, found.lac)
            return found

        match start:
            case "earliest":
                position = (await ask(EARLIEST)).log_start
            case "latest":
                position = (await ask(LATEST)).offset
            case datetime() as when:
                not_before_us = max(0, timestamp_us_of(when))
                position = (await ask(not_before_us)).offset
            case TransactionId() as wanted:
                not_before_id = wanted.id
                position = (await ask(not_before_id, PositionBy.TRANSACTION_ID)).offset
            case int() as offset:
                position = offset
            case offsets:
                position = offsets[partition]
        match self._wanted.stop:
            case None:
                stop = None
            case "latest":
                stop = (await ask(LATEST)).offset
            case offsets:
                stop = offsets[partition]
        cursor = Cursor(
            self.topic, partition, position, stop, not_before_us, not_before_id=not_before_id
        )
        return cursor, lac, start == "earliest"

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        # None wakes who waits for the queue: it may have been the last task.
        self._queue.put_other(None if task.cancelled() else task.exception())


def _check_offsets(name: str, offsets: Mapping[Any, Any]) -> None:
    for partition, offset in offsets.items():
        if not isinstance(partition, int) or not isinstance(offset, int) or offset < 0:
            raise InvalidRequestError(_bad(name, dict(offsets)))


def _require_no_column(topic: str, rows: TopicSchema) -> None:
    name = READ_TRANSACTION_ID.name
    if name in (column.name for column in rows.columns):
        raise InvalidRequestError(
            f"topic {topic!r} has a column {name} of its own, so batches cannot have one of"
            " transaction ids; read by record"
        )


def _bad(name: str, given: object) -> str:
    accepted = (
        "'earliest', 'latest', an offset, a map of partitions to offsets, a datetime, or a"
        " TransactionId"
        if name == "start"
        else "None (follow), 'latest', or a map of partitions to offsets"
    )
    return f"{name} is {given!r}; give {accepted}"
