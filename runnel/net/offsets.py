"""Where "earliest", "latest", an offset, a time or a transaction id is in a partition.

Only `resolve_offset` turns a user's position into an offset: for the start of consumers, the reset
of named consumers and the truncation of logs. `Range` checks the user's positions before any
request. The leader answers: `list_offsets` is one LIST_OFFSETS request. It knows the batch of a
time or a transaction id; which record of it is the first, one FETCH of that batch tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from runnel.net.routing import TopicRoute
from runnel.records.cursor import Cursor
from runnel.records.offset_and_term import NOTHING_READ, OffsetAndTerm
from runnel.records.record import as_transaction_id, timestamp_us_of
from runnel.records.schema_resolution import ReadColumns
from schemas.errors import (
    CorruptBatchError,
    DivergedError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnsupportedError,
)
from schemas.ids import PartitionUid
from schemas.wire.batch import MAX_OFFSET
from schemas.wire.protocol import Api
from schemas.wire.record_requests import (
    EARLIEST,
    LATEST,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PositionBy,
)


@dataclass(frozen=True, slots=True)
class TransactionId:
    """A place to start at: the first record with this transaction id or a larger one.

    Raises InvalidRequestError if it is not an id.
    """

    id: int

    def __post_init__(self) -> None:
        as_transaction_id(self.id)


#: Where to begin: "earliest", "latest", an offset, offsets by partition, a datetime with a time
#: zone, a timedelta (so long ago), or a `TransactionId`. An `OffsetAndTerm` for a partition also
#: says what was read before.
Start = (
    Literal["earliest", "latest"]
    | int
    | Mapping[int, int | OffsetAndTerm]
    | datetime
    | timedelta
    | TransactionId
)
#: Where to end: None follows for ever, "latest" is the end of the committed records when reading
#: begins, offsets by partition are the first that are not read. A datetime, or a timedelta (so long
#: ago), ends each partition before the first record with this time or a later one, and at the
#: latest where "latest" does: a time to come is not waited for.
Stop = Literal["latest"] | Mapping[int, int] | datetime | timedelta | None


@dataclass(frozen=True, slots=True)
class Range:
    """What to read: checked, but not yet turned into offsets. `make_range` makes times of
    timedeltas.
    """

    start: Start = "latest"
    stop: Stop = None
    partitions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.partitions is not None and not self.partitions:
            raise InvalidRequestError(
                "no partition is named: partitions (or a map of partitions to offsets) is empty;"
                " name at least one, or give neither for all"
            )
        for partition in self.partitions or ():
            _check_partition("partitions", partition)
        match self.start:
            case "earliest" | "latest":
                pass
            case datetime() as when:
                _check_time("start", when)
            case int() as offset:
                check_offset("start", offset)
            case TransactionId():
                pass
            case Mapping() as offsets:
                check_offsets("start", offsets)
            case _:
                raise InvalidRequestError(_bad("start", self.start))
        match self.stop:
            case None | "latest":
                pass
            case datetime() as when:
                _check_time("stop", when)
            case Mapping() as offsets:
                check_offsets("stop", offsets)
            case _:
                raise InvalidRequestError(_bad("stop", self.stop))

    @property
    def follows_added(self) -> bool:
        """Are partitions that are added to the topic read as well?"""
        return self.partitions is None and self.stop is None

    def chosen(self, topic: str, partition_count: int) -> tuple[int, ...]:
        """The partitions to read. Raises InvalidRequestError if one has no offset."""
        chosen = self.partitions if self.partitions is not None else tuple(range(partition_count))
        for partition in chosen:
            if not 0 <= partition < partition_count:
                raise InvalidRequestError(
                    f"topic {topic!r} has the partitions 0 to {partition_count - 1},"
                    f" not {partition}"
                )
        for name, offsets in (("start", self.start), ("stop", self.stop)):
            if isinstance(offsets, Mapping):
                check_named(name, offsets, topic, chosen)
        return tuple(dict.fromkeys(chosen))


def make_range(start: Start, stop: Stop, partitions: Iterable[int] | None) -> Range:
    """Check the user's positions. Raises InvalidRequestError."""
    return Range(
        _time_ago("start", start) if isinstance(start, timedelta) else start,
        _time_ago("stop", stop) if isinstance(stop, timedelta) else stop,
        None if partitions is None else tuple(partitions),
    )


#: How long to wait before an SC that is behind what was read is asked again.
BEHIND_PAUSE_S: Final = 0.5
#: How often a look-up begins anew because its batch was removed meanwhile.
_MOST_OVERTAKEN: Final = 3


@dataclass(frozen=True, slots=True)
class ResolvedOffset:
    """Where reading begins. ``lac`` is the last add confirmed if the leader's answer included it,
    else -1. ``term``: that of the last batch below the offset, as the reader knows it.

    ``not_before_us`` and ``not_before_id`` are set where the first record of a time or of a
    transaction id is not known yet: at the end of the log, and at a batch that could not be read
    now. They say which of the records that follow to leave out.
    """

    offset: int
    lac: int = -1
    not_before_us: int | None = None
    not_before_id: int | None = None
    term: int = 0


async def resolve_offset(
    route: TopicRoute,
    partition: int,
    start: Start,
    give_up_s: float,
    bounds: ListOffsetsResponse | None = None,
    *,
    columns: ReadColumns | None = None,
) -> ResolvedOffset:
    """The offset that ``start`` means in a partition; for a time or a transaction id beyond the
    last committed record, the offset after that.

    ``bounds`` is the leader's answer about `LATEST`, if the caller has it: "earliest" and "latest"
    then cost no request. A given offset costs none either, and is not checked. ``columns``: how
    batches of a typed topic are decoded. Raises DeadlineExceededError after ``give_up_s``,
    UnsupportedError as `list_offsets`.
    """
    match start:
        case "earliest":
            found = bounds or await list_offsets(route, partition, EARLIEST, give_up_s)
            return ResolvedOffset(found.log_start, found.lac, term=found.term)
        case "latest":
            found = bounds or await list_offsets(route, partition, LATEST, give_up_s)
            return ResolvedOffset(found.offset, found.lac, term=found.term)
        case timedelta() as ago:
            when = _time_ago("start", ago)
            return await resolve_offset(route, partition, when, give_up_s, columns=columns)
        case datetime() as when:
            when_us = max(0, timestamp_us_of(when))
            return await _find_record(route, partition, when_us, give_up_s, columns)
        case TransactionId(id=least_id):
            by = PositionBy.TRANSACTION_ID
            return await _find_record(route, partition, least_id, give_up_s, columns, by)
        case int() as offset:
            return ResolvedOffset(offset)
        case offsets:
            place = offsets[partition]
            if isinstance(place, OffsetAndTerm):
                return ResolvedOffset(place.offset, term=place.term)
            return ResolvedOffset(place)


async def list_offsets(
    route: TopicRoute,
    partition: int,
    position: int,
    give_up_s: float,
    by: PositionBy = PositionBy.TIMESTAMP,
    read: OffsetAndTerm = NOTHING_READ,
) -> ListOffsetsResponse:
    """Ask the leader for an offset; see `schemas.wire.record_requests.ListOffsetsRequest`.

    Raises UnsupportedError if the leader's version does not know such positions, DivergedError if
    the log no longer holds what was ``read``. While the SC names a leader of a lower term than what
    was ``read``, it is behind, and this asks again until ``give_up_s`` have passed.
    """

    loop = asyncio.get_running_loop()
    deadline = loop.time() + give_up_s
    while True:
        try:
            response = await route.retrying(
                partition,
                Api.LIST_OFFSETS,
                lambda uid: ListOffsetsRequest(uid, position, by, *read).pack(),
                give_up_s=give_up_s,
            )
            break
        except DivergedError:
            # It may be a deposed leader that does not know it yet.
            if await route.another_leads(partition):
                continue
            is_behind = read.term and await route.leads_below(partition, read.term)
            if not is_behind or loop.time() >= deadline:
                raise
            await asyncio.sleep(BEHIND_PAUSE_S)
    found = ListOffsetsResponse.unpack(response.fixed)
    if found.by is not by:
        raise UnsupportedError(
            f"the leader of {route.name}/{partition} cannot find a transaction id: its SPU is of"
            " an earlier version; upgrade it"
        )
    return found


async def term_below(route: TopicRoute, partition: int, offset: int, give_up_s: float) -> int:
    """The term of the last batch below an offset; 0 if the log does not tell it any more.

    Only an SPU whose answers have terms knows this question. Raises as `list_offsets`.
    """
    found = await list_offsets(route, partition, offset, give_up_s, PositionBy.OFFSET)
    return found.term


async def with_terms(
    route: TopicRoute, offsets: Mapping[int, int], give_up_s: float
) -> dict[int, OffsetAndTerm]:
    """Offsets by partition with the terms of the batches below them, as their leaders know these.

    Raises as `list_offsets`.
    """

    async def one(partition: int, offset: int) -> OffsetAndTerm:
        if not offset:
            return OffsetAndTerm(offset)
        found = await list_offsets(route, partition, LATEST, give_up_s)
        if found.term and offset < found.offset:
            return OffsetAndTerm(offset, await term_below(route, partition, offset, give_up_s))
        return OffsetAndTerm(offset, found.term if found.offset == offset else 0)

    found = await asyncio.gather(*(one(p, offset) for p, offset in offsets.items()))
    return dict(zip(offsets, found, strict=True))


async def _find_record(
    route: TopicRoute,
    partition: int,
    position: int,
    give_up_s: float,
    columns: ReadColumns | None,
    by: PositionBy = PositionBy.TIMESTAMP,
) -> ResolvedOffset:
    """The first record of a time or of a transaction id; see `ResolvedOffset` if it is not known.

    Raises as `list_offsets`.
    """
    by_id = by is PositionBy.TRANSACTION_ID
    for _ in range(_MOST_OVERTAKEN):
        found = await list_offsets(route, partition, position, give_up_s, by)
        cursor = Cursor(
            route.name,
            partition,
            found.offset,
            stop=found.lac + 1,
            not_before_us=None if by_id else position,
            not_before_id=position if by_id else None,
            columns=columns,
        )
        try:
            first = await _first_due(route, cursor, give_up_s)
        except OffsetOutOfRangeError:
            # Retention or a truncation has removed the batch meanwhile.
            continue
        except (CorruptBatchError, UnsupportedError):
            # Its reader asks other replicas for it, or the SC for a newer schema.
            break
        if first is not None:
            return ResolvedOffset(first, found.lac)
        break
    return ResolvedOffset(cursor.position, found.lac, cursor.not_before_us, cursor.not_before_id)


async def _first_due(route: TopicRoute, cursor: Cursor, give_up_s: float) -> int | None:
    """The offset of the first record that the cursor is due; None if none came.

    Usually it is in the first batch; control batches may precede it. Raises CorruptBatchError,
    UnsupportedError, OffsetOutOfRangeError, DeadlineExceededError.
    """

    def request(uid: PartitionUid) -> bytes:
        # One byte: the answer is one whole batch.
        return FetchRequest(uid, cursor.position, max_bytes=1, min_bytes=1, max_wait_ms=0).pack()

    while not cursor.finished:
        before = cursor.position
        answer = await route.retrying(cursor.partition, Api.FETCH, request, give_up_s=give_up_s)
        if due := cursor.take(answer.tail, FetchResponse.unpack(answer.fixed).lac):
            first: int = due[0].column("offset")[0].as_py()
            return first
        if cursor.position == before:
            break
    return None


def check_offset(name: str, offset: int) -> None:
    """Raise InvalidRequestError unless a log can hold such an offset."""
    # Python takes True for 1; what keeps offsets does not.
    if isinstance(offset, bool) or not 0 <= offset <= MAX_OFFSET:
        raise InvalidRequestError(
            f"{name} is {offset!r}; an offset is a whole number from 0 to {MAX_OFFSET}"
        )


def check_offsets(name: str, offsets: Mapping[Any, Any]) -> None:
    """Raise InvalidRequestError unless these are offsets by partition, with terms or without."""
    for partition, given in offsets.items():
        numbers: tuple[Any, Any] = given if isinstance(given, OffsetAndTerm) else (given, 0)
        offset, term = numbers
        if not isinstance(partition, int) or not isinstance(offset, int):
            raise InvalidRequestError(_bad(name, dict(offsets)))
        _check_partition(name, partition)
        check_offset(f"{name} of partition {partition}", offset)
        if type(term) is not int or not 0 <= term <= MAX_OFFSET:
            raise InvalidRequestError(
                f"{name}: the term of partition {partition} is {term!r}; give one that"
                " position_with_terms gave, or the offset alone"
            )


def check_named(
    name: str, offsets: Mapping[int, object], topic: str, partitions: Iterable[int]
) -> None:
    """Raise InvalidRequestError unless there is an offset for each of the partitions."""
    wanted = dict.fromkeys(partitions)
    for partition in wanted:
        if partition not in offsets:
            named = sorted(offsets.keys() & wanted.keys())
            others = sorted(offsets.keys() - wanted.keys())
            choose = f", or choose with partitions={named}" if named else ""
            not_read = f" (it names {others}, which this does not read)" if others else ""
            raise InvalidRequestError(
                f"{name} names no offset for partition {partition} of {topic!r}; name"
                f" it{choose}{not_read}"
            )


def _check_partition(name: str, partition: object) -> None:
    if isinstance(partition, bool):
        raise InvalidRequestError(f"{name}: {partition!r} is not the number of a partition")


def _check_time(name: str, when: datetime) -> None:
    try:
        timestamp_us_of(when)
    except ValueError as error:
        raise InvalidRequestError(f"{name}: {error}") from error


def _time_ago(name: str, ago: timedelta) -> datetime:
    if ago < timedelta(0):
        raise InvalidRequestError(
            f"{name} is {ago!r}; give how long ago it was, for example timedelta(hours=1)"
        )
    try:
        return datetime.now(UTC) - ago
    except OverflowError:
        raise InvalidRequestError(f"{name} is {ago!r}, before the year 1") from None


def _bad(name: str, given: object) -> str:
    accepted = (
        "'earliest', 'latest', an offset, a map of partitions to offsets, a datetime, a timedelta"
        " (so long ago), or a TransactionId"
        if name == "start"
        else "None (follow), 'latest', a map of partitions to offsets, a datetime, or a timedelta"
        " (so long ago)"
    )
    return f"{name} is {given!r}; give {accepted}"
