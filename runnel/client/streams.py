"""Streams: the handle of one, with its producers and consumers."""

from __future__ import annotations

import asyncio
from typing import Unpack

import pyarrow as pa

from runnel.admin.streams import StreamAdmin, epoch_of, stream_name
from runnel.client.opening import Opening
from runnel.client.partitions import Partitions
from runnel.consume.consumer import Consumer
from runnel.consume.counts import FetchCounts
from runnel.consume.settings import ConsumerSettings, checked_settings
from runnel.net.offsets import make_range
from runnel.net.routing import TopicRoute
from runnel.produce.counts import SendCounts
from runnel.produce.settings import ProducerOptions, ProducerSettings
from runnel.streams.consumer import StreamConsumer, StreamStart, StreamStop
from runnel.streams.producer import StreamProducer
from runnel.streams.segment_table import SegmentTable
from schemas.columns.topic_schema import TopicSchema


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

        ``start``: the beginning of the stream, or its end at the time when reading begins.
        ``stop``: None follows until the stream is sealed, "latest" ends where the stream ended when
        reading began. Records of one key come in the order of their writes; ``record.partition``
        is the number of their segment. ``timeout``: iterating ends when no record has come for so
        many seconds.
        """
        opened = StreamConsumer(
            self.name,
            self._open_segment,
            self.epoch,
            self.segment,
            start,
            stop,
            checked_settings(settings),
            self._cluster._random,
            timeout,
        )
        self._cluster._stream_consumers.add(opened)
        return opened

    def _open_segment(
        self, number: int, start: StreamStart, stop: StreamStop, settings: ConsumerSettings
    ) -> Consumer:
        cluster = self._cluster
        opened = Consumer(
            self.name,
            lambda: cluster._route(self.name),
            _untyped,
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


async def _untyped(_route: TopicRoute) -> TopicSchema | None:
    """Streams have no schema in this version."""
    return None
