"""Where "earliest", "latest", an offset, a time or a transaction id is in a partition.

Only `resolve_offset` turns a user's position into an offset: for the start of consumers, the reset
of named consumers and the truncation of logs. `Range` checks the user's positions before any
request. The leader answers: `list_offsets` is one LIST_OFFSETS request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from runnel.net.routing import TopicRoute
from runnel.records.record import as_transaction_id, timestamp_us_of
from schemas.errors import InvalidRequestError, UnsupportedError
from schemas.wire.protocol import Api
from schemas.wire.record_requests import (
    EARLIEST,
    LATEST,
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
#: zone, a timedelta (so long ago), or a `TransactionId`.
Start = (
    Literal["earliest", "latest"] | int | Mapping[int, int] | datetime | timedelta | TransactionId
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
        match self.start:
            case "earliest" | "latest":
                pass
            case datetime() as when:
                _check_time("start", when)
            case bool():
                raise InvalidRequestError(_bad("start", self.start))
            case int() as offset if offset >= 0:
                pass
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


@dataclass(frozen=True, slots=True)
class ResolvedOffset:
    """Where reading begins. ``lac`` is the last add confirmed if the leader's answer included it,
    else -1.

    A time or a transaction id resolves to the first offset of a batch, which may begin with earlier
    records: ``not_before_us`` and ``not_before_id`` say which of its records to leave out.
    """

    offset: int
    lac: int = -1
    not_before_us: int | None = None
    not_before_id: int | None = None


async def resolve_offset(
    route: TopicRoute,
    partition: int,
    start: Start,
    give_up_s: float,
    bounds: ListOffsetsResponse | None = None,
) -> ResolvedOffset:
    """The offset that ``start`` means in a partition; for a time or a transaction id beyond the
    last committed record, the offset after that.

    ``bounds`` is the leader's answer about `LATEST`, if the caller has it: "earliest" and "latest"
    then cost no request. A given offset costs none either, and is not checked. Raises
    DeadlineExceededError after ``give_up_s``, UnsupportedError as `list_offsets`.
    """
    match start:
        case "earliest":
            found = bounds or await list_offsets(route, partition, EARLIEST, give_up_s)
            return ResolvedOffset(found.log_start, found.lac)
        case "latest":
            found = bounds or await list_offsets(route, partition, LATEST, give_up_s)
            return ResolvedOffset(found.offset, found.lac)
        case timedelta() as ago:
            when = _time_ago("start", ago)
            return await resolve_offset(route, partition, when, give_up_s)
        case datetime() as when:
            when_us = max(0, timestamp_us_of(when))
            found = await list_offsets(route, partition, when_us, give_up_s)
            return ResolvedOffset(found.offset, found.lac, not_before_us=when_us)
        case TransactionId(id=least_id):
            found = await list_offsets(
                route, partition, least_id, give_up_s, PositionBy.TRANSACTION_ID
            )
            return ResolvedOffset(found.offset, found.lac, not_before_id=least_id)
        case int() as offset:
            return ResolvedOffset(offset)
        case offsets:
            return ResolvedOffset(offsets[partition])


async def list_offsets(
    route: TopicRoute,
    partition: int,
    position: int,
    give_up_s: float,
    by: PositionBy = PositionBy.TIMESTAMP,
) -> ListOffsetsResponse:
    """Ask the leader for an offset; see `schemas.wire.record_requests.ListOffsetsRequest`.

    Raises UnsupportedError if the leader's version does not know such positions.
    """
    response = await route.retrying(
        partition,
        Api.LIST_OFFSETS,
        lambda uid: ListOffsetsRequest(uid, position, by).pack(),
        give_up_s=give_up_s,
    )
    found = ListOffsetsResponse.unpack(response.fixed)
    if found.by is not by:
        raise UnsupportedError(
            f"the leader of {route.name}/{partition} cannot find a transaction id: its SPU is of"
            " an earlier version; upgrade it"
        )
    return found


def check_offsets(name: str, offsets: Mapping[Any, Any]) -> None:
    """Raise InvalidRequestError unless these are offsets by partition."""
    for partition, offset in offsets.items():
        if not isinstance(partition, int) or not isinstance(offset, int) or offset < 0:
            raise InvalidRequestError(_bad(name, dict(offsets)))


def check_named(
    name: str, offsets: Mapping[int, int], topic: str, partitions: Iterable[int]
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
