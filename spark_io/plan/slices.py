"""From requested places to exact ranges, which tasks read. Pure.

The ends are taken once, on the driver, and travel inside the slices. A DataFrame that is evaluated
again therefore gives the same records, however many were appended meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from runnel import KnownTopic, OffsetAndTerm, TransactionId
from schemas.errors import (
    LOST_RECORDS,
    DivergedError,
    InvalidRequestError,
    OffsetOutOfRangeError,
)
from schemas.wire.record_requests import EARLIEST, LATEST
from spark_io.options.places import Place, Wish
from spark_io.options.read import ReadOptions
from spark_io.options.table import BY_TIMESTAMP_STRATEGY, FAIL_ON_DATA_LOSS


@dataclass(frozen=True, slots=True)
class LogBounds:
    """One partition's log: offsets from ``start`` to below ``end``, which take ``size_bytes``.

    ``first``, ``last``: where the time or transaction id is at which reading begins or ends, at
    least ``end`` if no record has it yet; None if it begins or ends elsewhere. ``term``: that of
    the last batch, 0 if it is not known. ``diverged_at``: from this offset on, the log may hold
    other records than were read before; None if it holds the same.
    """

    start: int
    end: int
    first: int | None = None
    last: int | None = None
    size_bytes: int = 0
    term: int = 0
    diverged_at: int | None = None


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

    Terms tell whether these are still the records that were planned, 0 is one that is not known:
    ``start_term`` and ``end_term`` are those of the last batches below ``start`` and ``end``, and
    no batch has one above ``most_term``.
    """

    topic: str
    topic_uid: str
    partition: int
    start: int
    end: int
    begins_at: datetime | TransactionId | None = None
    start_term: int = 0
    end_term: int = 0
    most_term: int = 0
    told: KnownTopic | None = field(default=None, repr=False, compare=False)

    @property
    def known(self) -> KnownTopic:
        """What the planner told of the topic; it tells all slices that it sends to tasks."""
        if self.told is None:
            raise AssertionError(f"nobody told the task of {self.place}")
        return self.told

    @property
    def key(self) -> tuple[str, int]:
        """Its topic and partition."""
        return self.topic, self.partition

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

    Raises InvalidRequestError, OffsetOutOfRangeError or DivergedError that name the option and the
    partition.
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
    begins_at: datetime | TransactionId | None = None
    match wanted:
        case TransactionId():
            # Users cannot know where an id is: one that comes only after the end is no mistake.
            start = end if log.first is None else min(log.first, end)
            begins_at = wanted
        case datetime():
            first = log.end if log.first is None else log.first
            if first >= log.end and not options.latest_if_none:
                raise OffsetOutOfRangeError(
                    f"option {options.starting.option}: {where} has no record of"
                    f" {wanted.isoformat()} or a later time; {BY_TIMESTAMP_STRATEGY}=latest begins"
                    " at its end"
                )
            start, begins_at = min(first, end), wanted
        case _ if log.diverged_at is not None:
            start = _diverged(options, where, log, wanted, warnings)
        case _:
            start = offset(options.starting)
    if start > end:
        raise InvalidRequestError(
            f"option {options.starting.option}: {where} starts at {start}, after its end {end}"
            f" ({options.ending.option})"
        )
    start_term = _term_at(start, log, options.starting.read_before(topic.name).get(index))
    end_term = _term_at(end, log, options.ending.read_before(topic.name).get(index))
    return LogSlice(
        topic.name,
        topic.uid,
        index,
        start,
        end,
        begins_at,
        start_term=start_term,
        end_term=end_term,
        most_term=end_term or log.term,
    )


def _term_at(offset: int, log: LogBounds, told: OffsetAndTerm | None) -> int:
    """The term of the last batch below an offset, as the log or the options tell it."""
    if told is not None and told.offset == offset:
        return told.term
    return log.term if offset == log.end else 0


def _diverged(
    options: ReadOptions, where: str, log: LogBounds, place: int, warnings: list[str]
) -> int:
    """Where to begin instead of a place below which other records are now."""
    start = max(log.start, log.diverged_at or 0)
    text = f"{where} holds other records below offset {place}, from {log.diverged_at} on"
    if options.fail_on_data_loss:
        raise DivergedError(
            f"option {options.starting.option}: {text}: {LOST_RECORDS};"
            f" {FAIL_ON_DATA_LOSS}=false begins at {start}",
            diverged_at=start,
        )
    warnings.append(f"{text}: {LOST_RECORDS}; reading begins at {start}")
    return start


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
