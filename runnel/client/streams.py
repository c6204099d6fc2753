"""Streams: the handle of one, with its producers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, Unpack

import pyarrow as pa

from runnel.admin.streams import StreamAdmin, stream_name
from runnel.client.opening import Opening
from runnel.client.partitions import OFFSETS_TIMEOUT_S, Partitions
from runnel.consume.consumer import Consumer
from runnel.consume.counts import FetchCounts
from runnel.consume.settings import ConsumerSettings, checked_settings
from runnel.consume.table import DEFAULT_READ_BYTES, load_table
from runnel.net.offsets import Start, Stop, list_offsets, make_range
from runnel.net.routing import TopicRoute
from runnel.produce.counts import SendCounts
from runnel.produce.settings import ProducerOptions, ProducerSettings
from runnel.records.cursor import READ_SCHEMA
from runnel.streams.consumer import StreamConsumer, StreamStop
from runnel.streams.places import StreamQueries, StreamStart
from runnel.streams.producer import StreamProducer
from runnel.streams.segment_table import SegmentTable
from schemas.control.streams import EpochInfo, StreamRequest, epoch_of
from schemas.errors import DeadlineExceededError, InvalidRequestError, NotReadyError
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import number_of, parse_segment, segment_text
from schemas.wire.record_requests import LATEST, ListOffsetsResponse


class StreamHandle(StreamAdmin):
    """One stream: its segments, requests to change them, and its records."""

    def __init__(self, cluster: Streams, name: str) -> None:
        super().__init__(cluster._sc, name)
        self._cluster = cluster

    def producer(self, **options: Unpack[ProducerOptions]) -> Opening[StreamProducer]:
        """A producer: ``async with stream.producer() as producer``, or await it.

        Options: `ProducerSettings`; ``acks`` are ``committed`` or ``leader``. The key of a record
        decides its segment; records of one key keep their order while the stream is scaled. Raises
        NotFoundError, NotReadyError while the stream is being created.
        """
        settings = ProducerSettings(**options)
        return Opening(lambda: self.open_producer(settings))

    async def open_producer(
        self, settings: ProducerSettings, *, wait_for_room: bool = False
    ) -> StreamProducer:
        """The coroutine behind `producer`; see `runnel.produce.producer.Producer` for
        ``wait_for_room``."""
        cluster = self._cluster
        # See `runnel.client.records.Records.open_producer`.
        await asyncio.to_thread(pa.array, [])
        table = SegmentTable.of(epoch_of(await self.epoch()).segments)
        opened = StreamProducer(
            await cluster._route(self.name),
            settings,
            table,
            self.segment,
            wait_for_room=wait_for_room,
            closed=cluster._open.discard,
            total=cluster._sent.setdefault(self.name, SendCounts()),
        )
        cluster._open.add(opened)
        return opened

    def consumer(
        self,
        start: StreamStart = "latest",
        stop: StreamStop = None,
        *,
        timeout: float | None = None,
        settings: ConsumerSettings | None = None,
    ) -> StreamConsumer:
        """A consumer: ``async for record in stream.consumer("earliest")``.

        ``start``: the beginning of the stream, its end at the time when reading begins, or a cut,
        such as the `StreamConsumer.position` of an earlier consumer. ``stop``: None follows until
        the stream is sealed, "latest" ends where the stream ended when reading began, a cut is the
        place of the first records that are not read. Records of one key come in the order of their
        writes; ``record.partition`` is the number of their segment. ``timeout``: iterating ends
        when no record has come for so many seconds.
        """
        opened = StreamConsumer(
            self.queries(min(OFFSETS_TIMEOUT_S, timeout or OFFSETS_TIMEOUT_S)),
            self.open_segment,
            start,
            stop,
            checked_settings(settings),
            self._cluster._random,
            timeout,
        )
        self._cluster._stream_consumers.add(opened)
        return opened

    async def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        start: StreamStart = "earliest",
        stop: Literal["latest"] | StreamCut = "latest",
        max_bytes: int = DEFAULT_READ_BYTES,
    ) -> pa.Table:
        """Committed records between two places as a table of partition, offset, timestamp, key,
        value, headers, or of ``columns``.

        Ordered by partition, which is the number of a segment, and offset: so the records of each
        key are in the order of their writes. Raises InvalidRequestError for unknown columns, and
        when the records take more than ``max_bytes``; and as `consumer` does.
        """
        if stop is None:
            raise InvalidRequestError("stop is None; read() needs an end, such as 'latest'")
        names = list(columns) if columns is not None else READ_SCHEMA.names
        if unknown := [name for name in names if name not in READ_SCHEMA.names]:
            raise InvalidRequestError(
                f"there is no column {', '.join(unknown)}; there are {', '.join(READ_SCHEMA.names)}"
            )
        schema = pa.schema([READ_SCHEMA.field(name) for name in names])
        settings = ConsumerSettings(columns=None if columns is None else tuple(names))
        async with self.consumer(start, stop, settings=settings) as consumer:
            return await load_table(self.name, consumer.batches(), schema, max_bytes, None)

    async def tail(self, *, timeout: float = OFFSETS_TIMEOUT_S) -> StreamCut:
        """The end of the stream now, as a cut: everything that was committed is before it. Raises
        NotFoundError, NotReadyError; DeadlineExceededError if the leader of a segment has not
        answered after ``timeout`` seconds."""
        current = await self.epoch()
        return _cut(current, await self._ends(_numbers(current), timeout))

    async def truncate(self, before: StreamCut, *, timeout: float = 60.0) -> StreamRequest:
        """Remove everything before a cut, on every replica and for good, and wait until that is
        done. An offline replica truncates when it returns.

        Raises InvalidRequestError if the cut is no place in this stream, or lies beyond its end;
        ConflictError if the stream begins behind it already, or is sealed; NotReadyError if the
        leader of a segment does not answer, so that nothing is requested; DeadlineExceededError
        after ``timeout`` seconds: it goes on by itself.
        """
        if not isinstance(before, StreamCut):
            raise InvalidRequestError(
                f"before is {before!r}; give a StreamCut, such as a consumer's position() or the"
                " stream's tail()"
            )
        if before.stream != self.name:
            raise InvalidRequestError(f"before is a cut of stream {before.stream}, not {self.name}")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            await self._check_ends(before, timeout)
        except DeadlineExceededError as error:
            raise NotReadyError(
                f"nothing was requested: the cut could not be compared with the end of stream"
                f" {self.name}: {error.message}"
            ) from error
        return await self._truncate(before, deadline - loop.time())

    async def _check_ends(self, cut: StreamCut, timeout: float) -> None:
        """Raise InvalidRequestError for a cut beyond the ends of segments: the SC does not know
        where those of the current epoch end. Raises DeadlineExceededError."""
        current = await self.epoch()
        segments = [parse_segment(one.id) for one in current.segments]
        named = [one for one in segments if cut.offsets.get(one, 0) > 0]
        if cut.uid != current.uid or not named:
            # The SC refuses a cut of another stream.
            return
        ends = await self._ends([number_of(one) for one in named], timeout)
        for one in named:
            if cut.offsets[one] > (end := ends[number_of(one)]):
                raise InvalidRequestError(
                    f"the cut lies beyond the end of stream {self.name}: offset {cut.offsets[one]}"
                    f" of segment {segment_text(one)}, which ends at {end}; take one from the"
                    " stream's tail()"
                )

    async def _ends(
        self, numbers: Sequence[int], timeout: float = OFFSETS_TIMEOUT_S
    ) -> dict[int, int]:
        """The offsets after the last committed records of segments, by their numbers."""
        return {
            number: one.offset for number, one in (await self._bounds(numbers, timeout)).items()
        }

    async def _bounds(
        self, numbers: Sequence[int], timeout: float
    ) -> dict[int, ListOffsetsResponse]:
        """Where segments begin and end, as their leaders tell it now. Raises
        DeadlineExceededError that says what is in the way."""
        return await bounds_of(await self._cluster._route(self.name), numbers, timeout)

    def queries(self, timeout: float) -> StreamQueries:
        """What the SC and leaders say of the stream; leaders within ``timeout`` seconds."""
        return StreamQueries(
            self.name, self.epoch, self.segment, self.head, partial(self._ends, timeout=timeout)
        )

    def open_segment(
        self, number: int, start: Start, stop: Stop, settings: ConsumerSettings
    ) -> Consumer:
        """A consumer of one segment, by its number."""
        cluster = self._cluster
        opened = Consumer(
            self.name,
            lambda: cluster._route(self.name),
            cluster._schema,
            make_range(start, stop, [number]),
            settings,
            opened=cluster._open.add,
            closed=cluster._open.discard,
            total=cluster._fetched.setdefault(self.name, FetchCounts()),
        )
        cluster._consumers.add(opened)
        return opened


class Streams(Partitions):
    """Streams of a cluster."""

    def stream(self, name: str) -> StreamHandle:
        """One stream, by SCOPE/NAME, or NAME for one in the scope ``default``; asks nobody yet.
        Raises InvalidRequestError for what is no name."""
        return StreamHandle(self, stream_name(name))


async def bounds_of(
    route: TopicRoute, partitions: Sequence[int], timeout: float
) -> dict[int, ListOffsetsResponse]:
    """Where partitions begin and end, as their leaders tell it now. Raises DeadlineExceededError
    that says what is in the way."""
    found = await asyncio.gather(
        *(list_offsets(route, partition, LATEST, timeout) for partition in partitions)
    )
    return dict(zip(partitions, found, strict=True))


def _numbers(epoch: EpochInfo) -> list[int]:
    return [number_of(parse_segment(one.id)) for one in epoch.segments]


def _cut(epoch: EpochInfo, offsets: Mapping[int, int]) -> StreamCut:
    """A cut of all segments of an epoch, from their offsets by number."""
    ids = [parse_segment(one.id) for one in epoch.segments]
    return StreamCut(epoch.stream, epoch.uid, {one: offsets[number_of(one)] for one in ids})
