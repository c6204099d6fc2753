"""Records: producers, consumers, and whole tables written and read."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import (
    AsyncIterator,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, Unpack

import pyarrow as pa

from runnel.client.opening import Opening
from runnel.client.partitions import Partitions
from runnel.consume.consumer import Consumer
from runnel.consume.counts import FetchCounts
from runnel.consume.known_topic import KnownTopic
from runnel.consume.settings import ConsumerSettings, checked_settings
from runnel.consume.table import DEFAULT_READ_BYTES, load_table, too_much
from runnel.consume.tail import find_tail
from runnel.metrics.counts import ClientMetrics, client_metrics
from runnel.net.offsets import (
    Range,
    Start,
    Stop,
    make_range,
)
from runnel.net.routing import check_topic
from runnel.positions.store import Session, check_consumer_name
from runnel.produce.counts import SendCounts
from runnel.produce.producer import Producer, Progress
from runnel.produce.settings import ProducerOptions, ProducerSettings
from runnel.produce.write import WRITE_TIMEOUT_S, Written, write_table
from runnel.records.cursor import READ_SCHEMA
from runnel.records.schema_resolution import read_schema
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import readable_size
from schemas.objects.system_topics import is_system_name


class Records(Partitions):
    """Producers, consumers, and whole tables written and read."""

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
        known: KnownTopic | None = None,
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
        ``known``: what `known_topic` of another client gave; the SC is asked only if that is not
        true any more.

        Reading raises DivergedError if records that were read were lost (in an unclean election, or
        because all disks are old copies), and OffsetOutOfRangeError at an offset that was truncated
        or is above the end of the log.
        """
        check_topic(topic)
        settings, find_range = checked_settings(settings), None
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
            (lambda: self._route(topic)) if known is None else partial(self._known_route, known),
            self._schema if known is None else known.then(self._schema),
            make_range(start, stop, partitions),
            settings,
            self._session(name, topic, settings) if name is not None else None,
            opened=self._open.add,
            closed=self._open.discard,
            timeout=timeout,
            find_range=find_range,
            ask_archive=self._archive if known is None else partial(self._told_archive, known),
            total=self._fetched.setdefault(topic, FetchCounts()),
        )
        self._consumers.add(consumer)
        return consumer

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
            size = sum(found.size_bytes + found.archived_bytes for found in bounds.values())
            if size > max_bytes:
                raise too_much(topic, f"stores {readable_size(size)},", max_bytes)
            if not any(found.archived_bytes for found in bounds.values()):
                # As stored, it is small enough; files of an archive hold more than their size.
                most_bytes = None
            stop, chosen = {p: found.latest for p, found in bounds.items()}, list(bounds)
        # The batches may have a column that was added after the schema was read.
        schema = pa.schema([full.field(name) for name in names])
        settings = ConsumerSettings(columns=None if columns is None else tuple(names))
        async with self.consumer(
            topic, start if last is None else None, stop, chosen, tail=last, settings=settings
        ) as consumer:
            return await load_table(topic, consumer.batches(), schema, most_bytes, on_progress)

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

    @property
    def metrics(self) -> ClientMetrics:
        """Counts of all producers and consumers that this client has opened. For any thread."""
        return client_metrics(self._sent, self._fetched, list(self._open))


def _check_is_of_users(topic: str) -> None:
    check_topic(topic)
    if is_system_name(topic):
        raise InvalidRequestError(f"topic {topic!r} is a system topic: only Runnel writes to it")


def _check_count(name: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise InvalidRequestError(f"{name} is {count!r}; give a number of records")
