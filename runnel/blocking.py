"""The blocking facade: the client for scripts, threads and notebooks.

Everything asynchronous runs in one `runnel.loop_thread`; the classes here wait for it, and those of
`runnel.produce.blocking` and `runnel.consume.blocking`, which a `Cluster` opens. All methods may be
called from several threads, but one at a time reads from a consumer (`runnel.consume.one_reader`).
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import pyarrow as pa

from runnel import client
from runnel.admin.answers import ClusterInfo, PartitionOffsets
from runnel.admin.blocking import BlockingAdmin, BlockingStreamAdmin
from runnel.archive.manifest import ArchivedFile
from runnel.archive.source import ArchivedTopic
from runnel.archiving.run import ArchiveRun, Execute, OnFile
from runnel.archiving.verify import FileProblem
from runnel.client import DEFAULT_READ_BYTES
from runnel.consume.blocking import Consumer, drop
from runnel.consume.known_topic import KnownTopic
from runnel.consume.settings import ConsumerSettings
from runnel.contexts import default_sc
from runnel.groups.blocking import ReaderGroup
from runnel.groups.cut import GroupCut
from runnel.groups.group import DEFAULT_CHECKPOINT_S, DEFAULT_LEASE_S, GroupInfo, NewGroup
from runnel.groups.sources import GroupStart
from runnel.groups.state import GroupRetention
from runnel.logs.daemons import LogLines
from runnel.logs.events import ObjectEvent
from runnel.logs.trace import Trace
from runnel.loop_thread import ClosedError, LoopThread, blocking_form_of
from runnel.metrics.counts import ClientMetrics
from runnel.net.offsets import Start, Stop, TransactionId
from runnel.partition.sealing import Sealed
from runnel.partition.segments import Segments
from runnel.partition.truncate import Before, Truncated
from runnel.positions.admin import ConsumerReset, NamedConsumer
from runnel.produce.blocking import Producer
from runnel.produce.producer import Progress
from runnel.produce.settings import ProducerOptions, ProducerSettings
from runnel.produce.write import WRITE_TIMEOUT_S, Written
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.shared_state.blocking import SharedState
from runnel.streams.blocking import StreamConsumer, StreamProducer
from runnel.streams.consumer import StreamConsumer as AsyncStreamConsumer
from runnel.streams.consumer import StreamStop
from runnel.streams.places import StreamStart
from schemas.control.assignments import TopicAssignment
from schemas.control.streams import StreamRequest
from schemas.daemon.log_ring import MAX_ANSWER_LINES
from schemas.errors import RunnelError
from schemas.streams.cuts import StreamCut


def connect(
    address: str | None = None, *, by: str | None = None, known: ClusterInfo | None = None
) -> Cluster:
    """A client of the cluster whose SC listens at ``host:port``; use it with ``with``.

    Several SCs are separated by commas; None means the address that the command uses:
    ``RUNNEL_SC``, else the cluster that was started last. ``by`` is the name that the history of
    objects shows for changes; ``runnel-python`` by default. ``known``: the `Cluster.info` of
    another client of this cluster; the SC is then not asked. Raises InvalidRequestError if it is
    not an address, UnreachableError that names it.

    A client belongs to the process that opened it: in a fork of it, calls raise
    InvalidRequestError, and closing does nothing. Call this in each process.
    """
    address = default_sc() if address is None else address
    thread = LoopThread(f"runnel {address}")
    try:
        return Cluster(thread, thread.call(client.Cluster.connect(address, by, known)))
    except BaseException:
        thread.stop()
        raise


class Cluster(BlockingAdmin):
    """A client of one cluster. Leaving its ``with`` block closes everything opened from it.

    `Cluster.apply`, `Cluster.get`, `Cluster.watch` and their neighbours work on its objects.
    """

    def __init__(self, thread: LoopThread, inner: client.Cluster) -> None:
        super().__init__(thread, inner)
        self._inner: client.Cluster = inner
        atexit.register(self._at_exit)

    def __repr__(self) -> str:
        return repr(self._inner) if self._thread.running else "<runnel.Cluster, closed>"

    def _repr_html_(self) -> str:
        """What a notebook shows: address and counts of what is well. Never fails, and takes about
        two seconds at most if the SC does not answer."""
        if not self._thread.running or self._thread.is_current:
            return f"<code>{escape(repr(self))}</code>"
        try:
            return self._thread.call(client.health_html(self._inner))
        except ClosedError:
            return f"<code>{escape(repr(self))}</code>"

    @property
    def info(self) -> ClusterInfo:
        """Name, uid and version of the cluster."""
        return self._inner.info

    def close(self) -> None:
        """Flush and close producers, close consumers and connections. May be called twice.

        Raises the first thing that could not be delivered; everything is closed all the same.
        """
        self._leave(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        if not self._thread.running:
            return
        atexit.unregister(self._at_exit)
        try:
            self._thread.call(self._inner.leave(error))
        finally:
            self._thread.stop()

    def _at_exit(self) -> None:
        # If the user forgot to close, there is still a short attempt to deliver everything.
        self._leave(RunnelError("the process ended without closing the client"))

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer. Options: `ProducerSettings`.

        Raises NotFoundError for an unknown topic, InvalidRequestError for a wrong option.
        """
        opened = self._thread.call(
            self._inner.open_producer(topic, ProducerSettings(**options), wait_for_room=True)
        )
        return Producer(self._thread, opened)

    def stream(self, name: str) -> StreamHandle:
        """One stream, by SCOPE/NAME, or NAME for one in the scope ``default``; asks nobody yet."""
        return StreamHandle(self._thread, self._inner.stream(name))

    @blocking_form_of(client.Cluster.state)
    def state(self, name: str) -> SharedState:
        """A small value that many clients read and change: ``cluster.state("settings")``; asks
        nobody yet."""
        return SharedState(self._thread, self._inner.state(name))

    @blocking_form_of(client.Cluster.reader_group)
    def reader_group(
        self,
        name: str,
        *,
        streams: Sequence[str] = (),
        topics: Sequence[str] = (),
        start: GroupStart = "earliest",
        lease: float = DEFAULT_LEASE_S,
        checkpoint_every: float | None = DEFAULT_CHECKPOINT_S,
        retention: GroupRetention = "none",
        end: GroupCut | None = None,
    ) -> ReaderGroup:
        """A reader group: ``cluster.reader_group("billing", topics=["orders"])``."""
        wanted = NewGroup(streams, topics, start, lease, checkpoint_every, retention, end)
        opened = self._inner.open_reader_group(name, wanted)
        return ReaderGroup(self._thread, self._thread.call(opened))

    @blocking_form_of(client.Cluster.reader_groups)
    def reader_groups(self) -> tuple[GroupInfo, ...]:
        """All reader groups, by name."""
        return self._thread.call(self._inner.reader_groups())

    @blocking_form_of(client.Cluster.write)
    def write(
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
        """Append a table to a topic, made where it is not there, and wait until all of it is
        committed: ``cluster.write("orders", frame)``.

        ``on_progress`` is called in the client's thread.
        """
        return self._thread.call(
            self._inner.write(
                topic,
                table,
                partitions=partitions,
                replication_factor=replication_factor,
                key_column=key_column,
                timestamp_column=timestamp_column,
                transaction_ids=transaction_ids,
                timeout=timeout,
                on_progress=on_progress,
            )
        )

    @blocking_form_of(client.Cluster.consumer)
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
        """An iterator of records: ``for record in cluster.consumer("orders", start="earliest")``.

        Reading starts now: "latest" means what is committed at this moment.
        """

        async def open_it() -> Consumer:
            opened = self._inner.consumer(
                topic,
                start,
                stop,
                partitions,
                name=name,
                tail=tail,
                timeout=timeout,
                settings=settings,
                known=known,
            )
            try:
                await opened.start()
            except BaseException as error:
                await opened.leave(error)
                raise
            # Made here: if Ctrl-C keeps it from the caller, it is collected, and that ends it.
            return Consumer(self._thread, opened)

        return self._thread.call(open_it(), drop)

    @blocking_form_of(client.Cluster.consumers)
    def consumers(
        self, name: str | None = None, *, bounds: bool = True
    ) -> tuple[NamedConsumer, ...]:
        """Named consumers and their positions in each topic: all, or those of one name."""
        return self._thread.call(self._inner.consumers(name, bounds=bounds))

    @blocking_form_of(client.Cluster.events)
    def events(
        self,
        about: str | None = None,
        *,
        since: datetime | timedelta | None = None,
        cause: str | None = None,
        limit: int | None = None,
    ) -> tuple[ObjectEvent, ...]:
        """The last changes of all objects, or of one (``about="topic/orders"``), the newest last:
        who made them, when, and why.
        """
        return self._thread.call(self._inner.events(about, since=since, cause=cause, limit=limit))

    @blocking_form_of(client.Cluster.logs)
    def logs(
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
        """
        return self._thread.call(
            self._inner.logs(since=since, level=level, cause=cause, spus=spus, limit=limit)
        )

    @blocking_form_of(client.Cluster.trace)
    def trace(self, cause: str) -> Trace:
        """What one causality id led to: log lines of all daemons and changes of objects, in the
        order of time.
        """
        return self._thread.call(self._inner.trace(cause))

    @property
    def metrics(self) -> ClientMetrics:
        """Counts of all producers and consumers that this client has opened."""
        return self._inner.metrics

    @blocking_form_of(client.Cluster.reset_consumer)
    def reset_consumer(
        self, name: str, topic: str, to: Start, partitions: Iterable[int] | None = None
    ) -> ConsumerReset:
        """Move a named consumer to another position. ``to`` takes the values of ``start``; for a
        time or a transaction id, the position is what `offsets_at` gives.
        """
        return self._thread.call(self._inner.reset_consumer(name, topic, to, partitions))

    @blocking_form_of(client.Cluster.delete_consumer)
    def delete_consumer(self, name: str, topic: str | None = None) -> tuple[str, ...]:
        """Delete the positions of a consumer, in one topic or in all. Gives the topics."""
        return self._thread.call(self._inner.delete_consumer(name, topic))

    @blocking_form_of(client.Cluster.offsets)
    def offsets(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        timeout: float = client.OFFSETS_TIMEOUT_S,
        read: Mapping[int, OffsetAndTerm] | None = None,
    ) -> dict[int, PartitionOffsets]:
        """The bounds of a topic's partitions, as committed now."""
        return self._thread.call(self._inner.offsets(topic, partitions, timeout=timeout, read=read))

    @blocking_form_of(client.Cluster.terms_below)
    def terms_below(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """The terms of the last batches below offsets of a topic, by partition."""
        return self._thread.call(self._inner.terms_below(topic, offsets))

    @blocking_form_of(client.Cluster.offsets_at)
    def offsets_at(
        self,
        topic: str,
        at: datetime | timedelta | TransactionId,
        partitions: Iterable[int] | None = None,
    ) -> dict[int, int]:
        """Per partition the offset of the batch with the first record at or after a time or a
        transaction id; the end of the partition if there is none.
        """
        return self._thread.call(self._inner.offsets_at(topic, at, partitions))

    @blocking_form_of(client.Cluster.truncate)
    def truncate(
        self,
        topic: str,
        before: Before,
        partitions: Iterable[int] | None = None,
        timeout: float = 60.0,
        *,
        force: bool = False,
    ) -> tuple[Truncated, ...]:
        """Remove the oldest records of a topic, on every replica and for good."""
        return self._thread.call(
            self._inner.truncate(topic, before, partitions, timeout, force=force)
        )

    @blocking_form_of(client.Cluster.seal)
    def seal(self, topic: str, timeout: float = 60.0) -> tuple[Sealed, ...]:
        """Seal a topic: it takes no more records, for good. Gives the ends of its partitions."""
        return self._thread.call(self._inner.seal(topic, timeout))

    @blocking_form_of(client.Cluster.archive)
    def archive(
        self,
        topic: str,
        *,
        everything: bool = False,
        workers: int = client.ARCHIVE_WORKERS,
        on_file: OnFile | None = None,
        execute: Execute | None = None,
    ) -> ArchiveRun:
        """Take what is due of a topic into its archive, or all that is committed now.

        ``on_file`` is called in the client's thread.
        """
        return self._thread.call(
            self._inner.archive(
                topic, everything=everything, workers=workers, on_file=on_file, execute=execute
            )
        )

    @blocking_form_of(client.Cluster.archived)
    def archived(self, topic: str) -> ArchivedTopic:
        """The files in the archive of a topic, as listed now."""
        return self._thread.call(self._inner.archived(topic))

    @blocking_form_of(client.Cluster.verify_archive)
    def verify_archive(
        self,
        topic: str,
        on_file: Callable[[int, ArchivedFile], None] | None = None,
    ) -> tuple[FileProblem, ...]:
        """Read every file in the archive of a topic, and give what is wrong.

        ``on_file`` is called in the client's thread.
        """
        return self._thread.call(self._inner.verify_archive(topic, on_file))

    @blocking_form_of(client.Cluster.segments)
    def segments(self, topic: str, partition: int) -> Segments:
        """The segments of a partition's log, as its leader has them now."""
        return self._thread.call(self._inner.segments(topic, partition))

    def watch_segments(self, topic: str, partition: int) -> Iterator[Segments]:
        """The segments now, then after every change, without end."""
        found = self._inner.watch_segments(topic, partition)

        async def another() -> Segments:
            return await anext(found)

        while True:
            yield self._thread.call(another())

    @blocking_form_of(client.Cluster.read)
    def read(
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
        """Committed records as a `pyarrow.Table` of partition, offset, timestamp, key, value,
        headers; of a typed topic, of partition, offset, timestamp and its columns.

        ``on_progress`` is called in the client's thread.
        """
        return self._thread.call(
            self._inner.read(
                topic,
                columns,
                start=start,
                stop=stop,
                last=last,
                partitions=partitions,
                max_bytes=max_bytes,
                on_progress=on_progress,
            )
        )

    @blocking_form_of(client.Cluster.known_topic)
    def known_topic(self, name: str) -> KnownTopic:
        """What a consumer must know of a topic, for `consumer` of another client."""
        return self._thread.call(self._inner.known_topic(name))

    def topic(self, name: str) -> TopicAssignment:
        """Partitions and leaders of a topic, as the SC knows them now."""
        return self._thread.call(self._inner.topic(name))


class StreamHandle(BlockingStreamAdmin):
    """One stream: its segments, requests to change them, and its records."""

    def __init__(self, thread: LoopThread, inner: client.StreamHandle) -> None:
        super().__init__(thread, inner)
        self._handle = inner

    def producer(self, **options: Unpack[ProducerOptions]) -> StreamProducer:
        """A producer. Options: `ProducerSettings`; ``acks`` are ``committed`` or ``leader``.

        The key of a record decides its segment; records of one key keep their order while the
        stream is scaled. Raises NotFoundError, NotReadyError while the stream is being created.
        """
        settings = ProducerSettings(**options)
        opened = self._thread.call(self._handle.open_producer(settings, wait_for_room=True))
        return StreamProducer(self._thread, opened)

    def consumer(
        self,
        start: StreamStart = "latest",
        stop: StreamStop = None,
        *,
        timeout: float | None = None,
        settings: ConsumerSettings | None = None,
    ) -> StreamConsumer:
        """A consumer from the beginning of the stream, from its end, or from a cut, such as the
        `StreamConsumer.position` of an earlier consumer.

        ``stop``: None follows until the stream is sealed, "latest" ends where the stream ended when
        reading began, a cut is the place of the first records that are not read. Records of one
        key come in the order of their writes; ``record.partition`` is the number of their segment.
        """

        async def opened() -> AsyncStreamConsumer:
            return self._handle.consumer(start, stop, timeout=timeout, settings=settings)

        return StreamConsumer(self._thread, self._thread.call(opened()))

    @blocking_form_of(client.StreamHandle.read)
    def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        start: StreamStart = "earliest",
        stop: Literal["latest"] | StreamCut = "latest",
        max_bytes: int = DEFAULT_READ_BYTES,
    ) -> pa.Table:
        """Committed records between two places as a `pyarrow.Table`."""
        return self._thread.call(
            self._handle.read(columns, start=start, stop=stop, max_bytes=max_bytes)
        )

    @blocking_form_of(client.StreamHandle.tail)
    def tail(self, *, timeout: float = client.OFFSETS_TIMEOUT_S) -> StreamCut:
        """The end of the stream now, as a cut: everything that was committed is before it."""
        return self._thread.call(self._handle.tail(timeout=timeout))

    @blocking_form_of(client.StreamHandle.truncate)
    def truncate(self, before: StreamCut, *, timeout: float = 60.0) -> StreamRequest:
        """Remove everything before a cut, on every replica and for good, and wait until that is
        done. An offline replica truncates when it returns."""
        return self._thread.call(self._handle.truncate(before, timeout=timeout))
