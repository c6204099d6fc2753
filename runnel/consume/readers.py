"""The partitions that a consumer reads: one `runnel.consume.reader` for each, as a task.

Their chunks come together in the consumer's queue. Partitions that are added to the topic join
while the consumer is open; each begins at its beginning, so no record of it is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from runnel.archive.resolving import resolve_place
from runnel.archive.source import ArchiveSource
from runnel.consume.archived import ArchivedRecords
from runnel.consume.chunk_queue import ChunkQueue
from runnel.consume.counts import FetchCounts
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.consume.fetcher import FetchSettings, PartitionFetcher
from runnel.consume.reader import PartitionReader
from runnel.consume.schema_follower import SchemaFollower
from runnel.consume.settings import ConsumerSettings
from runnel.consume.speculation import Speculation
from runnel.consume.start import PartitionStart, find_starts
from runnel.net.offsets import Range, ResolvedOffset, Start, make_range
from runnel.net.routing import TopicRoute, may_retry
from runnel.positions.store import Session
from runnel.records.cursor import Cursor
from runnel.records.schema_resolution import ReadColumns
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import (
    DivergedError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RunnelError,
)

_MIN_FETCH_BYTES: Final = 64 << 10
_MAX_FETCH_BYTES: Final = 8 << 20
#: How long after a failure an added partition is tried again.
_AGAIN_S: Final = 1.0

_log = logging.getLogger("runnel")


class ReadChunk(NamedTuple):
    """A chunk in the queue, and the reader that waits until it is taken."""

    reader: PartitionReader
    chunk: FetchedChunk


class PartitionReaders:
    """Call `open`, then `cancel` at the end. The `ReadState` learns the positions to begin at."""

    def __init__(
        self,
        route: TopicRoute,
        settings: ConsumerSettings,
        ask_schema: Callable[[TopicRoute], Awaitable[TopicSchema | None]],
        state: ReadState,
        queue: ChunkQueue[ReadChunk],
        counts: FetchCounts,
        archive: ArchiveSource | None = None,
    ) -> None:
        self._route = route
        self._archive = archive
        self._settings = settings
        self._ask_schema = ask_schema
        self._state = state
        self._queue = queue
        self._counts = counts
        self._speculation = Speculation()
        self._columns = ReadColumns(state.rows) if state.rows is not None else None
        self._partitions: set[int] = set()
        self._readers: dict[int, PartitionReader] = {}
        # The chunks that came while their partition was paused.
        self._paused: dict[int, list[ReadChunk]] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        # Why partitions cannot be read on from where they are; a seek ends that.
        self._misplaced: dict[int, BaseException] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def active(self) -> bool:
        """May more chunks come? They may once a paused partition is resumed."""
        return bool(self._tasks) or bool(self._paused)

    def is_misplaced(self, failure: BaseException) -> bool:
        """Is it the error of a partition that can be read again after a seek?"""
        return any(failure is error for error in self._misplaced.values())

    @property
    def paused(self) -> frozenset[int]:
        """The partitions that are paused."""
        return frozenset(self._paused)

    async def open(self, wanted: Range, session: Session | None) -> None:
        """Begin to read; ``session``: that of a named consumer. Raises as `find_starts`."""
        route = self._route
        partitions = wanted.chosen(route.name, route.count_with(wanted.partitions))
        starts = await find_starts(
            route, partitions, wanted, self._give_up_s, session, self._columns, self._archive
        )
        self._partitions.update(partitions)
        for start in starts:
            self._run(self._reader(start).run(), start.cursor.partition)

    def add(self, partition_count: int) -> None:
        """The topic has so many partitions now: read those that are not read yet.

        Without a commit in its name, a named consumer that is opened again begins there, too.
        """
        for partition in range(partition_count):
            if partition not in self._partitions:
                self._partitions.add(partition)
                self._run(self._read_added(partition), partition)

    def ends(self) -> dict[int, int]:
        """Where the partitions end that are read, as of their last answers. For any thread."""
        found = {
            partition: reader.cursor.stop if reader.cursor.sealed else reader.fetcher.end
            for partition, reader in list(self._readers.items())
        }
        return {partition: end for partition, end in found.items() if end is not None}

    def cancel(self) -> list[asyncio.Task[None]]:
        """Stop reading; gives the tasks that are ending."""
        self._paused.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    async def seek(self, to: Start, partitions: Iterable[int] | None) -> None:
        """Read on from another place; None: in all partitions. Paused ones stay paused, and those
        that could not be read on from where they were are read again.

        Nothing has changed if this raises: InvalidRequestError for a partition that is not read,
        and what `resolve_place` raises.
        """
        if isinstance(to, Mapping):
            partitions = to.keys() if partitions is None else partitions
        wanted = make_range(to, None, partitions)
        wanted.chosen(self._route.name, self._route.partition_count)
        chosen = self._chosen("seek", wanted.partitions)
        places = await asyncio.gather(
            *(
                resolve_place(
                    self._route,
                    p,
                    wanted.start,
                    self._give_up_s,
                    self._archive,
                    columns=self._columns,
                )
                for p in chosen
            )
        )
        # Nothing waits from here on, so no chunk comes in between.
        for partition, place in zip(chosen, places, strict=True):
            self._move(partition, place, from_earliest=to == "earliest")

    def pause(self, partitions: Iterable[int] | None) -> None:
        """Hand out nothing of these partitions, and fetch no more; None: all. What was fetched is
        kept. Raises InvalidRequestError for a partition that is not read.
        """
        for partition in self._chosen("pause", partitions):
            if partition in self._paused:
                continue
            reader = self._readers[partition]
            reader.pause()
            kept = self._queue.extract(lambda item, reader=reader: item.reader is reader)  # type: ignore[misc]
            if (rest := self._state.take_rest(partition)) is not None:
                reader.hold()
                kept.insert(0, ReadChunk(reader, rest))
            self._paused[partition] = kept

    def resume(self, partitions: Iterable[int] | None) -> None:
        """Hand out records of these partitions again; None: all that are paused. Raises
        InvalidRequestError for a partition that is not read.
        """
        for partition in self._chosen("resume", partitions):
            kept = self._paused.pop(partition, None)
            if kept is None:
                continue
            for item in kept:
                self._queue.put(item)
            reader = self._readers[partition]
            reader.paused = False
            reader.wake()
        # There may be nothing left to wait for.
        self._queue.put_other(None)

    def _chosen(self, name: str, partitions: Iterable[int] | None) -> list[int]:
        if partitions is None:
            return sorted(self._readers)
        chosen = list(dict.fromkeys(partitions))
        if others := set(chosen) - self._readers.keys():
            raise InvalidRequestError(
                f"{name}: this consumer of {self._route.name!r} does not read the partitions"
                f" {sorted(others)}; it reads {sorted(self._readers)}"
            )
        return chosen

    def _move(self, partition: int, place: ResolvedOffset, *, from_earliest: bool) -> None:
        old = self._readers[partition]
        if (running := self._running.get(partition)) is not None:
            running.cancel()
        self._queue.extract(lambda item: item.reader is old)
        if (error := self._misplaced.pop(partition, None)) is not None:
            self._queue.withdraw(error)
        self._state.seek(partition)
        cursor = Cursor(
            self._route.name,
            partition,
            place.offset,
            old.cursor.stop,
            place.not_before_us,
            place.term,
            not_before_id=place.not_before_id,
            before_us=old.cursor.before_us,
        )
        reader = self._reader(PartitionStart(cursor, place.lac, from_earliest))
        if partition in self._paused:
            self._paused[partition] = []
            reader.pause()
        self._run(reader.run(), partition)

    @property
    def _give_up_s(self) -> float:
        return self._settings.give_up_ms / 1000

    async def _read_added(self, partition: int) -> None:
        wanted = Range("earliest")
        while True:
            try:
                starts = await find_starts(
                    self._route, [partition], wanted, self._give_up_s, None, None, self._archive
                )
            except RunnelError as error:
                if not may_retry(error):
                    raise
                # The other partitions can be read all the while.
                _log.warning(
                    "%s/%d was added and cannot be read yet: %s",
                    self._route.name,
                    partition,
                    error.message,
                )
                await asyncio.sleep(_AGAIN_S)
                continue
            for start in starts:
                await self._reader(start).run()
            return

    def _reader(self, start: PartitionStart) -> PartitionReader:
        cursor = start.cursor
        self._state.begin(
            cursor.partition, cursor.position, cursor.term, searching=cursor.searching
        )
        cursor.columns = self._columns
        if self._settings.columns is not None:
            cursor.wanted = frozenset(self._settings.columns)
        fetcher = self._fetcher(start)
        fetcher.counts = self._counts
        reader = PartitionReader(
            cursor,
            self._route,
            fetcher,
            self._give_up_s,
            lambda _chunk: None,
            from_earliest=start.from_earliest,
            steps_over_truncated=self._settings.on_truncated == "earliest",
            archived=self._archived(cursor),
        )
        reader.deliver = lambda chunk: self._deliver(ReadChunk(reader, chunk))
        self._readers[cursor.partition] = reader
        return reader

    def _deliver(self, item: ReadChunk) -> None:
        partition = item.chunk.partition
        if self._readers[partition] is not item.reader:
            # It was moved meanwhile.
            return
        if (kept := self._paused.get(partition)) is not None:
            kept.append(item)
        else:
            self._queue.put(item)

    def _fetcher(self, start: PartitionStart) -> PartitionFetcher:
        route, cursor = self._route, start.cursor
        settings, speculation = self._fetch_settings(), self._speculation
        expected_end = cursor.stop or 0
        if cursor.columns is None:
            return PartitionFetcher(
                route,
                cursor.partition,
                settings,
                speculation,
                route.random,
                start.lac,
                expected_end,
            )
        return SchemaFollower(
            cursor.columns,
            lambda: self._ask_schema(route),
            route,
            cursor.partition,
            settings,
            speculation,
            start.lac,
            expected_end,
        )

    def _archived(self, cursor: Cursor) -> ArchivedRecords | None:
        if self._archive is None:
            return None
        return ArchivedRecords(self._archive, cursor, self._fetch_settings().fetch_bytes)

    def _fetch_settings(self) -> FetchSettings:
        """Every partition gets its share of the memory, as many as there are when it is opened."""
        settings = self._settings
        share = settings.read_ahead_bytes // (2 * max(1, len(self._partitions)))
        return FetchSettings(
            fetch_bytes=max(_MIN_FETCH_BYTES, min(_MAX_FETCH_BYTES, share)),
            max_wait_ms=settings.max_wait_ms,
            give_up_s=self._give_up_s,
            follower_reads=settings.follower_reads,
            speculative_reads=settings.speculative_reads,
            push=settings.push,
            short_circuit=settings.short_circuit,
        )

    def _run(self, work: Coroutine[None, None, None], partition: int) -> None:
        task = asyncio.create_task(work, name=f"read {self._route.name}/{partition}")
        self._tasks.add(task)
        self._running[partition] = task
        task.add_done_callback(partial(self._ended, partition))

    def _ended(self, partition: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._running[partition] is not task:
            # It was moved meanwhile: this is about its former place.
            error = None
        elif isinstance(error, OffsetOutOfRangeError | DivergedError):
            self._misplaced[partition] = error
        # None wakes readers of the queue: this may have been the last task.
        self._queue.put_other(error)
