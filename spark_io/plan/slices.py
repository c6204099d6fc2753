"""From requested places to exact ranges, which tasks read. Pure.

The ends are taken once, on the driver, and travel inside the slices. A DataFrame that is evaluated
again therefore gives the same records, however many were appended meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from runnel import KnownTopic, TransactionId
from schemas.errors import LOST_RECORDS, InvalidRequestError, OffsetOutOfRangeError
from schemas.wire.record_requests import EARLIEST, LATEST
from spark_io.options.places import Place, Wish
from spark_io.options.read import ReadOptions
from spark_io.options.table import BY_TIMESTAMP_STRATEGY, FAIL_ON_DATA_LOSS


@dataclass(frozen=True, slots=True)
class LogBounds:
    """One partition's log: offsets from ``start`` to below ``end``, which take ``size_bytes``.

    ``first``, ``last``: where the time or transaction id is at which reading begins or ends, at
    least ``end`` if no record has it yet; None if it begins or ends elsewhere.
    """

    start: int
    end: int
    first: int | None = None
    last: int | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """A topic, and the logs of those of its partitions that are read, by index."""

    name: str
    uid: str
    logs: tuple[tuple[int, LogBounds], ...]


@dataclass(frozen=True)
class LogSlice:
    """Offsets from ``start`` to below ``end`` of one partition, which one task reads.

    ``topic_uid`` tells a topic from one of the same name that was created later. Records before the
    first one of ``begins_at``, in the batch at ``start``, are left out. ``told``: what the planner
    learned of the topic, so that a task need not ask the SC.
    """

    topic: str
    topic_uid: str
    partition: int
    start: int
    end: int
    begins_at: datetime | TransactionId | None = None
    told: KnownTopic | None = field(default=None, repr=False, compare=False)

    @property
    def known(self) -> KnownTopic:
        """What the planner told of the topic; it tells all slices that it sends to tasks."""
        if self.told is None:
            raise AssertionError(f"nobody told the task of {self.place}")
        return self.told

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end

    @property
    def place(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r}"


@dataclass(slots=True)
class Plan:
    """Slices in the order of topics and partitions, empty ones included, the bytes of each, about,
    and what users should hear of."""

    slices: list[LogSlice] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def plan_slices(options: ReadOptions, topics: Sequence[TopicBounds]) -> Plan:
    """One slice for each partition that is read; the places of the options are of those.

    Raises InvalidRequestError or OffsetOutOfRangeError that name the option and the partition.
    """
    plan = Plan()
    for topic in topics:
        for index, log in topic.logs:
            piece = _slice(options, topic, index, log, plan.warnings)
            plan.slices.append(piece)
            held = max(1, log.end - log.start)
            plan.sizes.append(log.size_bytes * max(0, piece.end - piece.start) // held)
    return plan


def _slice(
    options: ReadOptions, topic: TopicBounds, index: int, log: LogBounds, warnings: list[str]
) -> LogSlice:
    def offset(wish: Wish) -> int:
        return _resolve(wish.option, wish.place(topic.name, index), where, log, options, warnings)

    where = f"partition {index} of topic {topic.name!r}"
    if isinstance(options.ending.place(topic.name, index), datetime):
        end = min(log.end if log.last is None else log.last, log.end)
    else:
        end = offset(options.ending)
    wanted = options.starting.place(topic.name, index)
    match wanted:
        case TransactionId():
            # Users cannot know where an id is: one that comes only after the end is no mistake.
            start = end if log.first is None else min(log.first, end)
            return LogSlice(topic.name, topic.uid, index, start, end, wanted)
        case datetime():
            first = log.end if log.first is None else log.first
            if first >= log.end and not options.latest_if_none:
                raise OffsetOutOfRangeError(
                    f"option {options.starting.option}: {where} has no record of"
                    f" {wanted.isoformat()} or a later time; {BY_TIMESTAMP_STRATEGY}=latest begins"
                    " at its end"
                )
            start = min(first, end)
            return LogSlice(topic.name, topic.uid, index, start, end, wanted)
        case _:
            start = offset(options.starting)
    if start > end:
        raise InvalidRequestError(
            f"option {options.starting.option}: {where} starts at {start}, after its end {end}"
            f" ({options.ending.option})"
        )
    return LogSlice(topic.name, topic.uid, index, start, end)


def _resolve(
    option: str,
    place: Place,
    where: str,
    log: LogBounds,
    options: ReadOptions,
    warnings: list[str],
) -> int:
    if not isinstance(place, int):
        raise InvalidRequestError(f"option {option}: {where} cannot end at {place!r}")
    if place == EARLIEST:
        return log.start
    if place == LATEST:
        return log.end
    if log.start <= place <= log.end:
        return place
    why = (
        "earlier records were deleted by retention"
        if place < log.start
        else f"later records are not committed yet; if there were some, {LOST_RECORDS}"
    )
    nearest = log.start if place < log.start else log.end
    if not options.fail_on_data_loss:
        warnings.append(f"{where}: offset {place} is not there, so {nearest} is taken: {why}")
        return nearest
    raise OffsetOutOfRangeError(
        f"option {option}: offset {place} of {where} is out of range; the log holds {log.start} to"
        f" {log.end} (end not included): {why}; {FAIL_ON_DATA_LOSS}=false takes {nearest}"
    )
