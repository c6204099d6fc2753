"""Reading one slice in a task: the records as the consumer has them, in Arrow batches.

The task asks the SPU that leads the partition, as the planner knew it, and the SC only if that is
not so any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import pyarrow as pa

import runnel
from runnel import ConsumerSettings, OffsetAndTerm, TransactionId
from runnel.net.routing import SegmentGoneError
from schemas.errors import (
    LOST_RECORDS,
    DivergedError,
    NotFoundError,
    OffsetOutOfRangeError,
    RetryableError,
)
from spark_io.options.read import ReadOptions
from spark_io.options.table import FAIL_ON_DATA_LOSS
from spark_io.plan.slices import LogSlice
from spark_io.worker.client import task_client

#: All of a slice was committed when it was planned: silence for so long wants an explanation.
_SILENCE_S: Final = 10.0
_INSTEAD: Final = f"{FAIL_ON_DATA_LOSS}=false reads the rest"

log: Final = logging.getLogger("runnel")


def read_slice(
    options: ReadOptions, piece: LogSlice, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a slice. ``columns``: those that are needed of them.

    Raises NotFoundError when the topic is another one than was planned. Where records of the slice
    were deleted meanwhile, by retention or a truncation, or lost in an unclean election, this
    raises OffsetOutOfRangeError or DivergedError, or leaves them out with a warning, as the options
    say.
    """
    cluster = task_client(options.sc, piece.known.cluster)
    begin, begins_at, term = piece.start, piece.begins_at, piece.start_term
    lost = False
    while begin < piece.end:
        try:
            place = OffsetAndTerm(begin, term)
            with _open(cluster, options, piece, place, begins_at, columns) as consumer:
                begins_at = None
                if (found := consumer.position()[piece.partition]) > begin:
                    before, begin = begin, found
                    _skipped(options, piece, before, found)
                while True:
                    # Ends at the end of the slice, and when nothing has come for a while.
                    for batch in consumer.batches():
                        before, begin = begin, consumer.position()[piece.partition]
                        lost = lost or _other_records(options, piece, before, consumer)
                        yield batch
                    if consumer.exhausted and not lost:
                        _other_records(options, piece, begin, consumer)
                    if consumer.exhausted or _ends_early(cluster, options, piece):
                        return
        except SegmentGoneError:
            _skipped(options, piece, begin, piece.end)
            return
        except NotFoundError as error:
            raise NotFoundError(
                f"topic {piece.topic!r} was deleted, or deleted and created again, since this read"
                f" was planned; load it again. {error.message}"
            ) from None
        except OffsetOutOfRangeError as error:
            first = error.details.get("firstAvailable")
            if first is None and not options.fail_on_data_loss:
                log.warning("%s; the rest of the slice is left out", error.message)
                return
            if first is None or first <= begin:
                raise
            _skipped(options, piece, begin, first)
            begin, term = first, 0
        except DivergedError as error:
            if options.fail_on_data_loss:
                raise DivergedError(
                    f"{error.message}. {_INSTEAD}", diverged_at=error.diverged_at
                ) from None
            # What was handed out before stays so.
            log.warning("%s. Reading goes on from offset %d", error.message, begin)
            term, lost = 0, True


def _open(
    cluster: runnel.Cluster,
    options: ReadOptions,
    piece: LogSlice,
    place: OffsetAndTerm,
    begins_at: datetime | TransactionId | None,
    columns: Sequence[str] | None,
) -> runnel.Consumer:
    start: Mapping[int, OffsetAndTerm] | datetime | TransactionId = {piece.partition: place}
    if begins_at is not None:
        start = begins_at
    return cluster.consumer(
        piece.topic,
        start=start,
        stop={piece.partition: piece.end},
        partitions=[piece.partition],
        timeout=_SILENCE_S,
        settings=ConsumerSettings(
            follower_reads=options.follower_reads,
            columns=None if columns is None else tuple(columns),
        ),
        known=piece.known,
    )


def _skipped(options: ReadOptions, piece: LogSlice, begin: int, first: int) -> None:
    """Records from ``begin`` to below ``first`` are not there any more."""
    last = min(first, piece.end) - 1
    text = f"{piece.place}: offsets {begin} to {last} were deleted since this read was planned"
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(
            f"{text}; load it again, or {_INSTEAD}",
            firstAvailable=first,
            partition=piece.partition,
        )
    log.warning("%s; the rest is read", text)


def _other_records(
    options: ReadOptions, piece: LogSlice, before: int, consumer: runnel.Consumer
) -> bool:
    """Are these other records than were planned? Batches of a partition have growing terms, and
    of each term there is one history."""
    place = consumer.position_with_terms()[piece.partition]
    same = place.term <= piece.most_term or not piece.most_term
    if same and place.offset == piece.end and place.term and piece.end_term:
        same = place.term == piece.end_term
    if same:
        return False
    text = (
        f"{piece.place} holds other records below offset {place.offset} than when this read was"
        f" planned: {LOST_RECORDS}"
    )
    if options.fail_on_data_loss:
        raise DivergedError(
            f"{text}; load it again, or begin the query with a new checkpointLocation",
            diverged_at=before,
        )
    log.warning("%s; what is there instead is read", text)
    return True


def _ends_early(cluster: runnel.Cluster, options: ReadOptions, piece: LogSlice) -> bool:
    """Does the log end before the slice, so that it would be waited for in vain?"""
    try:
        end = cluster.offsets(piece.topic, [piece.partition])[piece.partition].latest
    except RetryableError:
        # The consumer is waiting for the same leader, and says so when it gives up.
        return False
    if end >= piece.end:
        return False
    text = f"{piece.place} ends at {end}, and it ended at {piece.end} or above: {LOST_RECORDS}"
    if options.fail_on_data_loss:
        raise DivergedError(text, diverged_at=end)
    log.warning("%s; the rest is read", text)
    return True
