"""The asyncio client of one cluster; `runnel.aio` opens it, `runnel.blocking` wraps it."""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar, Unpack

import pyarrow as pa

from runnel.admin.answers import ClusterInfo, PartitionOffsets, text_or_none
from runnel.admin.calls import understood
from runnel.admin.client import Admin
from runnel.admin.health import health_rows
from runnel.admin.http import ScClient
from runnel.consume.consumer import Consumer
from runnel.consume.counts import FetchCounts
from runnel.consume.settings import ConsumerSettings
from runnel.consume.table import load_table, too_much
from runnel.consume.tail import find_tail
from runnel.logs.daemons import LogLines, Wanted, read_logs
from runnel.logs.events import ObjectEvent, list_events
from runnel.logs.trace import Trace, trace
from runnel.metrics.counts import ClientMetrics, client_metrics
from runnel.net.metadata import LeaderCache
from runnel.net.offsets import (
    Range,
    Start,
    Stop,
    TransactionId,
    list_offsets,
    make_range,
    resolve_offset,
)
from runnel.net.pool import ConnectionPool
from runnel.net.routing import RetryPolicy, TopicRoute
from runnel.partition.segments import Segments, list_segments, watch_segments
from runnel.partition.truncate import Before, Truncated, truncate
from runnel.positions.admin import (
    ConsumerReset,
    NamedConsumer,
    delete_consumer,
    list_consumers,
    reset_consumer,
)
from runnel.positions.store import PositionStore, Session, check_consumer_name
from runnel.produce.counts import SendCounts
from runnel.produce.producer import Producer, Progress
from runnel.produce.settings import ProducerOptions, ProducerSettings
from runnel.produce.write import WRITE_TIMEOUT_S, Written, write_table
from runnel.records.cursor import READ_SCHEMA
from runnel.records.schema_resolution import ReadColumns, read_schema
from schemas.columns.topic_schema import TopicSchema
from schemas.control.assignments import TopicAssignment
from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_ring import MAX_ANSWER_LINES
from schemas.errors import InvalidRequestError, NotFoundError, UnreachableError
from schemas.objects.html import Row, html_table
from schemas.objects.quantities import readable_size
from schemas.objects.system_topics import POSITIONS, is_system_name
from schemas.objects.topic import Topic
from schemas.wire.record_requests import LATEST

DEFAULT_READ_BYTES: Final = 1 << 30
OFFSETS_TIMEOUT_S: Final = 30.0


class _Leavable(Protocol):
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


T = TypeVar("T", bound=_Leavable)


class Opening(Generic[T]):
    """Something that opens when it is awaited, or entered with ``async with``."""

    def __init__(self, open_it: Callable[[], Awaitable[T]]) -> None:
        self._open = open_it
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)


class Cluster(Admin):
    """A client of one cluster; close it, or use it with ``async with``.

    `Cluster.apply`, `Cluster.get`, `Cluster.watch` and their neighbours work on its objects.
    """

    def __init__(self, sc: ScClient, info: ClusterInfo) -> None:
        random = secrets.SystemRandom().random
        loop = asyncio.get_running_loop()
        self.info = info
        self._random = random
        self._leaders = LeaderCache(sc, loop.time)
        super().__init__(sc, self._leaders.forget)
        self._connections = ConnectionPool(info.cluster_uid, random)
        self._open: set[Producer | Consumer] = set()
        # By topic: what all producers and consumers counted, those that are closed included.
        self._sent: dict[str, SendCounts] = {}
        self._fetched: dict[str, FetchCounts] = {}
        # A consumer at its end may be read on after a seek; its user need not close it.
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        # By the topic's uid: the schema that the SC sent last.
        self._schemas: dict[str, TopicSchema | None] = {}
        self._positions = PositionStore(
            lambda: self._route(POSITIONS),
            self._make_positions,
            self.truncate_partition,
            lambda: secrets.token_hex(8),
        )

    @classmethod
    async def connect(cls, address: str, by: str | None = None) -> Self:
        """Connect to the SC at ``host:port`` (or to any of several, separated by commas).

        ``by`` is the name that the history of objects shows for changes; ``runnel-python`` by
        default.

        Raises InvalidRequestError if it is not an address, UnreachableError that names it.
        """
        sc = ScClient.parse(address, by)
        try:
            answer = await sc.call("GET", "/v1/cluster")
            with understood("its name"):
                info = ClusterInfo(
                    str(answer["cluster"]),
                    str(answer["clusterUid"]),
                    str(answer["version"]),
                    text_or_none(answer.get("dashboard")),
                )
            return cls(sc, info)
        except BaseException:
            await sc.close()
            raise

    def __repr__(self) -> str:
        return f"<runnel.Cluster {self.info.cluster!r} at {self._sc.address}>"

    def _repr_html_(self) -> str:
        # A notebook asks in its own event loop, which must not wait for an SC.
        return html_table(*self._identity())

    def _identity(self) -> tuple[str, list[Row]]:
        rows: list[Row] = [
            ("address", str(self._sc.address)),
            ("version", self.info.version),
        ]
        if self.info.dashboard is not None:
            rows.append(("dashboard", self.info.dashboard))
        return f"Runnel cluster {self.info.cluster}", rows

    async def close(self) -> None:
        """Close all producers (flushing them) and consumers, then the connections.

        Raises the first thing that could not be delivered; everything is closed all the same.
        """
        try:
            failures = await asyncio.gather(
                *(opened.close() for opened in {*self._open, *self._consumers}),
                return_exceptions=True,
            )
        finally:
            await self._end()
        for failure in failures:
            if isinstance(failure, BaseException):
                raise failure

    async def leave(self, error: BaseException | None) -> None:
        """End of a ``with`` block: `close`. After an error, flush for a short time only; if
        interrupted, do not flush.
        """
        if error is None:
            await self.close()
            return
        try:
            await asyncio.gather(
                *(opened.leave(error) for opened in {*self._open, *self._consumers}),
                return_exceptions=True,
            )
        finally:
            await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave(error)

    @property
    def metrics(self) -> ClientMetrics:
        """Counts of all producers and consumers that this client has opened. For any thread."""
        return client_metrics(self._sent, self._fetched, list(self._open))

    # What happened

    async def events(
        self,
        about: str | None = None,
        *,
        since: datetime | timedelta | None = None,
        cause: str | None = None,
        limit: int | None = None,
    ) -> tuple[ObjectEvent, ...]:
        """The last changes of all objects, or of one (``about="topic/orders"``), the newest last:
        who made them, when, and why.

        ``since``: from that time on, or the time so long ago. ``cause``: a causality id. ``limit``:
        the newest so many, 200 unless given. Raises InvalidRequestError, and NotFoundError from an
        SC of an earlier version.
        """
        return await list_events(
            self._sc, about=about, since=_time_of(since), cause=cause, limit=limit
        )

    async def logs(
        self,
        *,
        since: datetime | timedelta | None = None,
        level: str = "debug",
        cause: str | None = None,
        spus: Sequence[str] = (),
        limit: int = MAX_ANSWER_LINES,
    ) -> LogLines:
        """The last log lines of the SC and all SPUs, or of ``spus`` by name or id, the oldest
        first.

        ``since`` and ``cause`` as in `events`. ``level``: lines of this level and more severe ones.
        ``limit``: the newest so many of each daemon. A daemon that does not answer is named in
        ``away``. Raises NotFoundError for an unknown SPU, InvalidRequestError.
        """
        return await read_logs(self._sc, Wanted(_time_of(since), _level(level), cause, limit), spus)

    async def trace(self, cause: str) -> Trace:
        """What one causality id led to: log lines of all daemons and changes of objects, in the
        order of time. Empty if no daemon knows it any more."""
        return await trace(self._sc, cause)

    # Records

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> Opening[Producer]:
        """A producer: ``async with cluster.producer("orders") as producer``, or await it.

        Options: `ProducerSettings`. Raises NotFoundError for an unknown topic. A delivery raises
        DivergedError if records that were acknowledged before it were lost.
        """
        settings = ProducerSettings(**options)
        return Opening(lambda: self.open_producer(topic, settings))

    async def open_producer(
        self, topic: str, settings: ProducerSettings, *, wait_for_room: bool = False
    ) -> Producer:
        """The coroutine behind `producer`; see `runnel.produce.producer.Producer` for
        ``wait_for_room``.
        """
        _check_is_of_users(topic)
        # pyarrow imports pandas before it makes its first array of Python's objects, which can take
        # a second: neither a batch nor the event loop should wait for it.
        await asyncio.to_thread(pa.array, [])
        route = await self._route(topic)
        opened = Producer(
            route,
            settings,
            rows=await self._schema(route),
            random_id=secrets.randbits(64) or 1,
            wait_for_room=wait_for_room,
            closed=self._open.discard,
            total=self._sent.setdefault(topic, SendCounts()),
        )
        self._open.add(opened)
        return opened

    async def write(
        self,
        topic: str,
        table: Any,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        key_column: str | None = None,
        timestamp_column: str | None = None,
        transaction_ids: Any = None,
        timeout: float = WRITE_TIMEOUT_S,
        on_progress: Progress | None = None,
    ) -> Written:
        """Append a table to a topic, and wait until all of it is committed.

        ``table`` is what `Producer.send_table` takes: a table of pyarrow, pandas, polars or duckdb,
        a dict of columns, or rows (dicts, dataclass instances). If the topic is not there, it is
        made with the columns of the table, typed as `runnel.Topic` does for ``schema=table``, with
        one partition and one replica unless ``partitions`` and ``replication_factor`` say
        otherwise; for other settings, `apply` a topic first. Its columns may be null, except the
        ``timestamp_column``. To a topic that is there, the rows are added if they fit, and what
        is said of it must be so. Writing the same table again adds the same rows again.

        The index of a pandas frame is a column if it has a name, is left out if it only counts the
        rows, and refused otherwise. Times without a zone are refused where the column has one.

        Raises MisfitError if rows do not fit the columns of the topic, ConflictError if it has
        other settings, RecordTooLargeError, InvalidRequestError that names the columns for which
        there is no type: nothing was created or sent then. DeadlineExceededError if a new topic has
        no place after ``timeout`` seconds. If records cannot be delivered, an error says how many;
        the others are committed.
        """
        _check_is_of_users(topic)
        return await write_table(
            self,
            self.open_producer,
            topic,
            table,
            {
                "partitions": partitions,
                "replication_factor": replication_factor,
                "key_column": key_column,
                "timestamp_column": timestamp_column,
            },
            transaction_ids=transaction_ids,
            timeout=timeout,
            on_progress=on_progress,
        )

    def consumer(
        self,
        topic: str,
        start: Start | None = None,
        stop: Stop = None,
        partitions: Iterable[int] | None = None,
        *,
        name: str | None = None,
        tail: int | None = None,
        timeout: float | None = None,
        settings: ConsumerSettings | None = None,
    ) -> Consumer:
        """A consumer: ``async for record in cluster.consumer("orders", start="earliest")``.

        With a ``name`` it begins at the committed position of that name, and commits processed
        records: see `runnel.consume.consumer.Consumer.commit`. A second consumer of the same name
        and topic takes over, and the first one gets FencedError.

        ``start``: where to begin (earliest, latest, an offset, offsets by partition, a datetime:
        records from that time on, or a `TransactionId`: from the first record with this id or a
        larger one); for a named consumer, only in partitions without a committed position. The
        default is the latest; for a named consumer, the earliest. ``tail``: begin so that the last
        so many records are read, of all partitions together, by time; with neither ``start`` nor
        ``name``. ``stop``: None follows for ever, "latest" ends at the last record that is
        committed when reading starts, offsets by partition are the first not read, and a datetime
        ends each partition before its first record with this time or a later one (a time to come
        is not waited for). A timedelta is the time so long ago. ``timeout``: iterating ends when
        no record has come for so many seconds, and may be begun again. A consumer that follows,
        without chosen ``partitions``, also reads partitions that are added later, from their
        beginning. ``settings``: bounds of memory and time, and whether followers are read.

        Reading raises DivergedError if records that were read were lost (in an unclean election, or
        because all disks are old copies), and OffsetOutOfRangeError at an offset that was truncated
        or is above the end of the log.
        """
        settings = settings or ConsumerSettings()
        find_range = None
        if tail is not None:
            if start is not None or name is not None:
                raise InvalidRequestError("tail: give it with neither start nor name")
            _check_count("tail", tail)
            partitions = None if partitions is None else list(partitions)
            find_range = partial(self._tail_range, topic, stop, partitions, tail)
        if start is None:
            start = "latest" if name is None else "earliest"
        consumer = Consumer(
            topic,
            lambda: self._route(topic),
            self._schema,
            make_range(start, stop, partitions),
            settings,
            self._session(name, topic, settings) if name is not None else None,
            opened=self._open.add,
            closed=self._open.discard,
            timeout=timeout,
            find_range=find_range,
            total=self._fetched.setdefault(topic, FetchCounts()),
        )
        self._consumers.add(consumer)
        return consumer

    async def consumers(
        self, name: str | None = None, *, bounds: bool = True
    ) -> tuple[NamedConsumer, ...]:
        """Named consumers and their positions in each topic: all, or those of one name.

        Without ``bounds`` the ends and the lag of partitions are None, and no SPU is asked for
        them. Raises NotFoundError for an unknown name. Creates nothing.
        """
        return await list_consumers(self._positions, self._route, name, bounds=bounds)

    async def reset_consumer(
        self, name: str, topic: str, to: Start, partitions: Iterable[int] | None = None
    ) -> ConsumerReset:
        """Move a named consumer to another position. ``to`` takes the values of ``start``; for a
        time or a transaction id, the position is what `offsets_at` gives.

        A process that reads under the name is fenced. Raises NotFoundError for an unknown name,
        InvalidRequestError for offsets outside of the log.
        """
        if isinstance(to, Mapping):
            partitions = to.keys() if partitions is None else partitions
        wanted = make_range(to, None, partitions)
        route = await self._route(topic)
        columns = await self._columns(route, wanted.start)
        return await reset_consumer(self._positions, route, name, wanted, self.by, columns)

    async def delete_consumer(self, name: str, topic: str | None = None) -> tuple[str, ...]:
        """Delete the positions of a consumer, in one topic or in all. Gives the topics.

        A process that reads under the name is fenced. Raises NotFoundError if there are none.
        """
        return await delete_consumer(self._positions, name, topic)

    async def offsets(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        timeout: float = OFFSETS_TIMEOUT_S,
    ) -> dict[int, PartitionOffsets]:
        """The bounds of a topic's partitions, as committed now.

        Raises an error that says what is wrong when a leader has not answered after ``timeout``
        seconds.
        """
        route = await self._route(topic)
        chosen = make_range("earliest", None, partitions).chosen(topic, route.partition_count)

        async def bounds(index: int) -> PartitionOffsets:
            found = await list_offsets(route, index, LATEST, timeout)
            return PartitionOffsets(index, found.log_start, found.offset, found.size_bytes)

        return {found.partition: found for found in await asyncio.gather(*map(bounds, chosen))}

    async def offsets_at(
        self,
        topic: str,
        at: datetime | timedelta | TransactionId,
        partitions: Iterable[int] | None = None,
    ) -> dict[int, int]:
        """Per partition the offset of the first record at or after a time or a transaction id; the
        end of the partition if there is none. A timedelta is the time so long ago.

        If the batch of that record is damaged, or of a typed topic whose schema no SC tells now, it
        is the offset of the batch.
        """
        wanted = make_range(at, None, partitions)
        route = await self._route(topic)
        chosen = wanted.chosen(topic, route.partition_count)
        place = wanted.start
        if not isinstance(place, datetime | TransactionId):
            raise InvalidRequestError(
                f"at is {at!r}; give a datetime, a timedelta or a TransactionId"
            )
        columns = await self._columns(route, place)
        found = await asyncio.gather(
            *(
                resolve_offset(route, index, place, OFFSETS_TIMEOUT_S, columns=columns)
                for index in chosen
            )
        )
        return dict(zip(chosen, (each.offset for each in found), strict=True))

    async def truncate(
        self,
        topic: str,
        before: Before,
        partitions: Iterable[int] | None = None,
        timeout: float = 60.0,
    ) -> tuple[Truncated, ...]:
        """Remove the oldest records of a topic, on every replica and for good.

        ``before`` is the first offset that stays: one for all partitions, one for each, a time, or
        "latest" to remove everything. Returns when the leaders show no earlier record any more; an
        offline replica truncates when it returns. Raises InvalidRequestError for an offset beyond
        the end of a partition, before anything is truncated; DeadlineExceededError after
        ``timeout`` seconds.
        """
        if is_system_name(topic):
            raise InvalidRequestError(
                f"topic {topic!r} is a system topic: only Runnel truncates it"
            )
        route = await self._route(topic)
        if isinstance(before, Mapping):
            partitions = before.keys() if partitions is None else partitions
        chosen = make_range("earliest", None, partitions).chosen(topic, route.partition_count)
        columns = await self._columns(route, before)
        return await truncate(self, route, tuple(chosen), before, timeout, columns)

    async def segments(self, topic: str, partition: int) -> Segments:
        """The segments of a partition's log, as its leader has them now."""
        return await list_segments(await self._route(topic), partition)

    async def watch_segments(self, topic: str, partition: int) -> AsyncIterator[Segments]:
        """The segments now, then after every change, without end."""
        route = await self._route(topic)
        async for found in watch_segments(route, partition):
            yield found

    async def read(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        start: Start = "earliest",
        stop: Stop = "latest",
        last: int | None = None,
        partitions: Iterable[int] | None = None,
        max_bytes: int = DEFAULT_READ_BYTES,
        on_progress: Progress | None = None,
    ) -> pa.Table:
        """Committed records as a table of partition, offset, timestamp, key, value, headers; for a
        typed topic, of partition, offset, timestamp and its columns.

        All of them, or those from ``start`` to ``stop``, which take the values that `consumer`
        takes, or the ``last`` so many of all partitions together, by time.

        Ordered by partition and offset. Raises InvalidRequestError when they take more than
        ``max_bytes``: for the whole topic before anything is loaded, else once so much is.
        ``on_progress`` is given the records and bytes read so far.
        """
        if stop is None:
            raise InvalidRequestError("stop is None; read() needs an end, such as 'latest'")
        if last is not None and start != "earliest":
            raise InvalidRequestError("give one of start and last")
        if last is not None:
            _check_count("last", last)
        rows = await self._schema(await self._route(topic))
        full = READ_SCHEMA if rows is None else read_schema(rows)
        names = list(columns) if columns is not None else full.names
        if unknown := [name for name in names if name not in full.names]:
            raise InvalidRequestError(
                f"there is no column {', '.join(unknown)}; there are {', '.join(full.names)}"
            )
        chosen = None if partitions is None else list(partitions)
        most_bytes: int | None = max_bytes
        if start == "earliest" and stop == "latest" and last is None:
            bounds = await self.offsets(topic, chosen)
            size = sum(found.size_bytes for found in bounds.values())
            if size > max_bytes:
                raise too_much(topic, f"stores {readable_size(size)},", max_bytes)
            # As stored, it is small enough.
            most_bytes = None
            stop, chosen = {p: found.latest for p, found in bounds.items()}, list(bounds)
        # The batches may have a column that was added after the schema was read.
        schema = pa.schema([full.field(name) for name in names])
        async with self.consumer(
            topic, start if last is None else None, stop, chosen, tail=last
        ) as consumer:
            return await load_table(topic, consumer.batches(), schema, most_bytes, on_progress)

    async def topic(self, name: str) -> TopicAssignment:
        """Partitions and leaders of a topic, as the SC knows them now."""
        return await self._leaders.topic(name, asyncio.get_running_loop().time())

    async def _route(self, topic: str) -> TopicRoute:
        assignment = await self.topic(topic)
        return TopicRoute(assignment, self._leaders, self._connections, self._random, RetryPolicy())

    async def _tail_range(
        self, topic: str, stop: Stop, partitions: Iterable[int] | None, count: int
    ) -> Range:
        wanted = make_range("latest", stop, partitions)
        bounds = await self.offsets(topic, wanted.partitions)

        async def read(start: Mapping[int, int], stop: Stop) -> AsyncIterator[pa.RecordBatch]:
            async with self.consumer(topic, start, stop, list(start)) as consumer:
                async for batch in consumer.batches():
                    yield batch

        return await find_tail(
            topic, wanted, count, bounds, lambda at: self.offsets_at(topic, at, list(bounds)), read
        )

    def _session(self, name: str, topic: str, settings: ConsumerSettings) -> Session:
        give_up_s = settings.give_up_ms / 1000
        return Session(self._positions, check_consumer_name(name), topic, self.by, give_up_s)

    async def _make_positions(self) -> None:
        await self._sc.call("PUT", "/v1/system-topics/positions")
        self._leaders.forget(POSITIONS)

    async def _schema(self, route: TopicRoute) -> TopicSchema | None:
        """The schema of the topic of a route. While no SC answers, the last one that it sent.

        Raises NotFoundError if the topic was deleted, even if it was created again.
        """
        uid = route.topic.uid
        try:
            found = await self.get("topic", route.name)
        except UnreachableError:
            if uid in self._schemas:
                return self._schemas[uid]
            raise
        if not isinstance(found, Topic) or found.uid != uid:
            raise NotFoundError(
                f"topic {route.name!r} was deleted and created again meanwhile; open it again"
            )
        self._schemas[uid] = found.spec.row_schema
        return self._schemas[uid]

    async def _columns(self, route: TopicRoute, start: Start) -> ReadColumns | None:
        """How batches of a typed topic are decoded, if that is needed to find ``start``.

        None while no SC answers: then the batch is found, and not the record in it.
        """
        if not isinstance(start, datetime | TransactionId):
            return None
        try:
            rows = await self._schema(route)
        except UnreachableError:
            return None
        return None if rows is None else ReadColumns(rows)

    async def _end(self) -> None:
        # The last one first. Each is closed, even if this is cancelled.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._sc.close)
            closing.push_async_callback(self._connections.close)
            closing.push_async_callback(self._positions.close)


async def health_html(cluster: Cluster) -> str:
    """What a notebook shows of a cluster; takes `runnel.admin.health.HEALTH_TIMEOUT_S` at most."""
    caption, rows = cluster._identity()
    return html_table(caption, [*rows, *await health_rows(cluster)])


def _check_is_of_users(topic: str) -> None:
    if is_system_name(topic):
        raise InvalidRequestError(f"topic {topic!r} is a system topic: only Runnel writes to it")


def _check_count(name: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise InvalidRequestError(f"{name} is {count!r}; give a number of records")


def _time_of(since: datetime | timedelta | None) -> datetime | None:
    return datetime.now(UTC) - since if isinstance(since, timedelta) else since


def _level(name: str) -> LogLevel:
    try:
        return LogLevel(name)
    except ValueError:
        raise InvalidRequestError(f"level: {name!r} is none of {', '.join(LogLevel)}") from None
