"""Spark's requests to a cluster through the client: bounds on the driver, records in tasks.

Every call opens a client of its own and closes it: a planner and a task live in processes that
Spark starts, reuses and ends as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

import runnel
from runnel import TransactionId
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import NotFoundError, OffsetOutOfRangeError
from schemas.objects.topic import Topic
from spark_io.options import ReadOptions
from spark_io.partitions import LogBounds, LogSlice, plan_slices


def topic_schema(options: ReadOptions) -> TopicSchema | None:
    """The columns of a typed topic, as of now; None for a topic without a schema.

    Raises NotFoundError for a topic that does not exist, UnreachableError.
    """
    with runnel.connect(options.sc) as cluster:
        # If there is no such topic, the error says how to create it.
        cluster.topic(options.topic)
        found = cluster.get("topic", options.topic)
    return found.spec.row_schema if isinstance(found, Topic) else None


def plan_read(options: ReadOptions) -> list[LogSlice]:
    """The slices of a read, as of now. Asks for offsets and nothing else.

    Raises NotFoundError for a topic that does not exist, UnreachableError, and what
    `spark_io.partitions.plan_slices` raises.
    """
    with runnel.connect(options.sc) as cluster:
        uid = cluster.topic(options.topic).uid
        found = cluster.offsets(options.topic)
        first: Mapping[int, int] = {}
        if isinstance(options.starting, TransactionId):
            # Asked after the ends: an id that is not found before them can only come later.
            first = cluster.offsets_at(options.topic, options.starting)
    bounds = [LogBounds(found[i].earliest, found[i].latest, first.get(i)) for i in sorted(found)]
    return plan_slices(options, uid, bounds)


def read_slice(options: ReadOptions, piece: LogSlice) -> Iterator[pa.RecordBatch]:
    """The records of a slice as the consumer returns them, straight from the partition's leader.

    Raises NotFoundError when the topic is another one than was planned, OffsetOutOfRangeError
    when retention deleted records of the slice meanwhile.
    """
    with runnel.connect(options.sc) as cluster:
        if cluster.topic(options.topic).uid != piece.topic_uid:
            raise NotFoundError(
                f"topic {options.topic!r} was deleted and created again since this read was"
                " planned; load it again"
            )
        start: Mapping[int, int] | TransactionId = {piece.partition: piece.start}
        if piece.transaction_id is not None:
            start = TransactionId(piece.transaction_id)
        consumer = cluster.consumer(
            options.topic,
            start=start,
            stop={piece.partition: piece.end},
            partitions=[piece.partition],
        )
        with consumer:
            begins = consumer.position()[piece.partition]
            if begins > piece.start:
                raise OffsetOutOfRangeError(
                    f"{options.topic}/{piece.partition}: offsets {piece.start} to {begins - 1} were"
                    " deleted since this read was planned; load it again",
                    firstAvailable=begins,
                    partition=piece.partition,
                )
            yield from consumer.batches()
