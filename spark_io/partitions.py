"""From requested positions to exact ranges: one Spark partition for each partition of the topic.

The ends are taken once, on the driver, and travel inside the partitions. A DataFrame that is
evaluated again therefore gives the same records, however many were appended meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from runnel import TransactionId
from schemas.errors import LOST_RECORDS, InvalidRequestError, OffsetOutOfRangeError
from schemas.wire.record_requests import EARLIEST, LATEST
from spark_io.offsets import OffsetWish
from spark_io.options import ReadOptions


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of one partition's log: offsets from ``start`` to below ``end``.

    ``first``: the offset of the batch with the first record of the transaction id that reading
    begins at, or at least ``end`` if there was none; None if it does not begin at one.
    """

    start: int
    end: int
    first: int | None = None


@dataclass(frozen=True)
class LogSlice(InputPartition):
    """One task's work: offsets from ``start`` to below ``end`` of one partition.

    ``topic_uid`` tells a topic from one of the same name that was created later. Records before the
    first one with ``transaction_id`` or a larger one, in the batch at ``start``, are left out.
    """

    topic_uid: str
    partition: int
    start: int
    end: int
    transaction_id: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


def plan_slices(
    options: ReadOptions, topic_uid: str, bounds: Sequence[LogBounds]
) -> list[LogSlice]:
    """The slices of a read; ``bounds[i]`` is what partition i held when it was asked. Pure.

    Raises InvalidRequestError or OffsetOutOfRangeError that name the option and the partition.
    """
    for wish in (options.starting, options.ending):
        if isinstance(wish, OffsetWish):
            wish.check_partitions(options.topic, len(bounds))
    return [_slice(options, topic_uid, index, log) for index, log in enumerate(bounds)]


def _slice(options: ReadOptions, topic_uid: str, index: int, log: LogBounds) -> LogSlice:
    end = _resolve(options.ending, options.topic, index, log)
    if isinstance(options.starting, TransactionId):
        # Users cannot know where an id is: one that comes only after the end is no mistake.
        start = end if log.first is None else min(log.first, end)
        return LogSlice(topic_uid, index, start, end, options.starting.id)
    start = _resolve(options.starting, options.topic, index, log)
    if start > end:
        raise InvalidRequestError(
            f"option {options.starting.option}: partition {index} of topic {options.topic!r}"
            f" starts at {start}, after its end {end} ({options.ending.option})"
        )
    return LogSlice(topic_uid, index, start, end)


def _resolve(wish: OffsetWish, topic: str, index: int, log: LogBounds) -> int:
    position = wish.position(index)
    if position == EARLIEST:
        return log.start
    if position == LATEST:
        return log.end
    if not log.start <= position <= log.end:
        why = (
            "earlier records were deleted by retention"
            if position < log.start
            else f"later records are not committed yet; if there were some, {LOST_RECORDS}"
        )
        raise OffsetOutOfRangeError(
            f"option {wish.option}: offset {position} of partition {index} of topic {topic!r} is"
            f" out of range; the log holds {log.start} to {log.end} (end not included): {why}"
        )
    return position
