"""Where a start is in a partition: what the leader is asked, and what is made of the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.net import offsets
from runnel.net.offsets import (
    Range,
    ResolvedOffset,
    Start,
    TransactionId,
    list_offsets,
    make_range,
    resolve_offset,
)
from runnel.records.offset_and_term import NOTHING_READ, OffsetAndTerm
from runnel.records.record import time_of
from schemas.errors import DivergedError, InvalidRequestError, OffsetOutOfRangeError
from schemas.ids import PartitionUid
from schemas.wire.batch import read_header
from schemas.wire.protocol import Api
from schemas.wire.record_requests import (
    EARLIEST,
    LATEST,
    FetchRequest,
    FetchResponse,
    ListOffsetsResponse,
    PositionBy,
)
from tests.unit.runnel.records.test_cursor import batch, control

BOUNDS = ListOffsetsResponse(offset=90, log_start=10, lac=89, size_bytes=1)
TIME = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
BEFORE_EPOCH = datetime(1960, 1, 1, tzinfo=UTC)
BY_TIME, BY_ID = PositionBy.TIMESTAMP, PositionBy.TRANSACTION_ID

CASES: dict[str, tuple[Start, list[tuple[int, PositionBy]], ResolvedOffset]] = {
    "given-earliest-then-the-log-start": (
        "earliest",
        [(EARLIEST, BY_TIME)],
        ResolvedOffset(10, 89),
    ),
    "given-latest-then-the-end": ("latest", [(LATEST, BY_TIME)], ResolvedOffset(90, 89)),
    "given-a-time-after-the-last-record-then-the-end": (
        TIME,
        [(1_000_000, BY_TIME)],
        ResolvedOffset(90, 89, not_before_us=1_000_000),
    ),
    "given-a-time-before-1970-then-that-of-1970": (
        BEFORE_EPOCH,
        [(0, BY_TIME)],
        ResolvedOffset(90, 89, not_before_us=0),
    ),
    "given-an-id-above-the-last-then-the-end": (
        TransactionId(7),
        [(7, BY_ID)],
        ResolvedOffset(90, 89, not_before_id=7),
    ),
    "given-an-offset-then-nobody-is-asked": (42, [], ResolvedOffset(42)),
    "given-offsets-then-that-of-the-partition": ({3: 5, 4: 6}, [], ResolvedOffset(5)),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, PositionBy]]:
    requests: list[tuple[int, PositionBy]] = []

    async def list_offsets(
        _route: Any, partition: int, position: int, give_up_s: float, by: PositionBy = BY_TIME
    ) -> ListOffsetsResponse:
        assert (partition, give_up_s) == (3, 30.0)
        requests.append((position, by))
        return BOUNDS

    monkeypatch.setattr(offsets, "list_offsets", list_offsets)
    return requests


@pytest.mark.parametrize(("start", "requests", "found"), CASES.values(), ids=CASES)
async def test_resolve_offset(
    asked: list[tuple[int, PositionBy]],
    start: Start,
    requests: list[tuple[int, PositionBy]],
    found: ResolvedOffset,
) -> None:
    route: Any = SimpleNamespace(name="orders")
    assert await resolve_offset(route, 3, start, 30.0) == found
    assert asked == requests


@pytest.mark.parametrize(("start", "offset"), [("earliest", 10), ("latest", 90)])
async def test_given_the_bounds_then_nobody_is_asked(
    asked: list[tuple[int, PositionBy]], start: Start, offset: int
) -> None:
    route: Any = None
    assert (await resolve_offset(route, 3, start, 30.0, BOUNDS)).offset == offset
    assert asked == []


def damaged(data: bytearray) -> bytearray:
    data[-1] ^= 1
    return data


#: Control at 10, then records whose times are 100 more than their offsets, up to 16.
LOG = [control(10), batch(11, 4, time_us=111), batch(15, 2, time_us=115)]
DAMAGED = [LOG[0], damaged(batch(11, 4, time_us=111)), LOG[2]]
GONE = OffsetOutOfRangeError("it was removed meanwhile")

#: The log, errors of its first fetches, the offsets that the leader names, a time, and what that
#: is: an offset, and whether records that come from there on may be too early.
BATCHES: dict[str, tuple[list[bytearray], int, list[int], int, tuple[int, bool]]] = {
    "given-the-first-record-of-a-batch": (LOG, 0, [11], 111, (11, False)),
    "given-a-record-within-a-batch": (LOG, 0, [11], 113, (13, False)),
    "given-a-time-between-records-of-two-batches": (LOG, 0, [15], 115, (15, False)),
    "given-a-control-batch-before-it": (LOG, 0, [10], 113, (13, False)),
    "given-a-log-that-begins-within-the-batch": (LOG, 0, [13], 111, (13, False)),
    "given-no-record-that-late": (LOG, 0, [17], 118, (17, True)),
    "given-only-control-batches-that-late": ([control(16)], 0, [16], 118, (17, True)),
    "given-a-damaged-batch-then-its-beginning": (DAMAGED, 0, [11], 113, (11, True)),
    "given-a-batch-that-was-removed-then-the-next": (LOG, 1, [11, 15], 113, (15, False)),
    "given-batches-that-are-always-removed": (LOG, 3, [11, 12, 13], 113, (13, True)),
    "given-a-leader-that-sends-nothing-now": ([], 0, [11], 113, (11, True)),
}


@pytest.mark.parametrize(
    ("log", "errors", "named", "time_us", "expected"), BATCHES.values(), ids=BATCHES
)
async def test_resolve_a_time_within_a_batch(
    monkeypatch: pytest.MonkeyPatch,
    log: Sequence[bytearray],
    errors: int,
    named: list[int],
    time_us: int,
    expected: tuple[int, bool],
) -> None:
    answers = iter(named)
    failures = iter([GONE] * errors)

    async def list_offsets(*_: object) -> ListOffsetsResponse:
        return ListOffsetsResponse(next(answers), log_start=10, lac=16, size_bytes=1)

    async def retrying(
        partition: int, api: Api, request: Callable[[PartitionUid], bytes], *, give_up_s: float
    ) -> Any:
        assert (partition, api, give_up_s) == (3, Api.FETCH, 30.0)
        if (failure := next(failures, None)) is not None:
            raise failure
        asked = FetchRequest.unpack(memoryview(request(PartitionUid("00" * 16))))
        assert asked.max_wait_ms == 0
        found = [each for each in log if read_header(each).next_offset > asked.offset][:1]
        fixed = memoryview(FetchResponse(10, 16).pack())
        return SimpleNamespace(fixed=fixed, tail=memoryview(b"".join(found)))

    monkeypatch.setattr(offsets, "list_offsets", list_offsets)
    route: Any = SimpleNamespace(name="orders", retrying=retrying)
    found = await resolve_offset(route, 3, time_of(time_us), 30.0)
    offset, early = expected
    assert found == ResolvedOffset(offset, 16, not_before_us=time_us if early else None)
    assert next(answers, None) is None


NOT_NAMED = {
    "given-one-then-it-can-be-chosen": ({1: 5}, "name it, or choose with partitions=[1]"),
    "given-none-that-there-is-then-nothing-to-choose": (
        {9: 1},
        "name it (it names [9], which this does not read)",
    ),
    "given-both-then-the-one-that-there-is": (
        {1: 5, 9: 1},
        "name it, or choose with partitions=[1] (it names [9], which this does not read)",
    ),
    "given-an-empty-map-then-only-that": ({}, "name it"),
}


@pytest.mark.parametrize("name", ["start", "stop"])
@pytest.mark.parametrize(("offsets", "advice"), NOT_NAMED.values(), ids=NOT_NAMED)
def test_partition_without_an_offset(name: str, offsets: dict[int, int], advice: str) -> None:
    wanted = Range(offsets) if name == "start" else Range("earliest", offsets)
    with pytest.raises(InvalidRequestError) as raised:
        wanted.chosen("orders", 3)
    assert raised.value.message == (f"{name} names no offset for partition 0 of 'orders'; {advice}")


def test_given_no_partition_at_all_then_it_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^no partition is named: .*; name at least one"):
        make_range("earliest", None, [])


class Deposed:
    """A leader that lacks what was read, until the SC, which is behind, has named its successor."""

    name = "orders"

    def __init__(self, behind_for: int) -> None:
        self.behind_for = behind_for

    async def retrying(
        self,
        partition: int,
        api: Api,
        request: Callable[[PartitionUid], bytes],
        *,
        give_up_s: float,
    ) -> Any:
        if self.behind_for >= 0:
            raise DivergedError("it lacks what its successor committed", diverged_at=1)
        return SimpleNamespace(fixed=memoryview(BOUNDS.pack()))

    async def another_leads(self, partition: int) -> bool:
        self.behind_for -= 1
        return self.behind_for == -1

    async def leads_below(self, partition: int, term: int) -> bool:
        assert term == 7
        return True


@pytest.mark.parametrize(
    ("read", "behind_for", "give_up_s", "is_found"),
    [
        pytest.param(OffsetAndTerm(5, 7), 0, 0.0, True, id="given-a-successor-then-it-is-asked"),
        pytest.param(OffsetAndTerm(5, 7), 3, 30.0, True, id="given-an-sc-behind-then-it-waits"),
        pytest.param(OffsetAndTerm(5, 7), 3, 0.0, False, id="given-no-time-then-it-is-believed"),
        pytest.param(OffsetAndTerm(5), 3, 30.0, False, id="given-no-term-then-it-is-believed"),
        pytest.param(NOTHING_READ, 3, 30.0, False, id="given-nothing-read-then-it-is-believed"),
    ],
)
async def test_a_leader_that_may_be_deposed(
    monkeypatch: pytest.MonkeyPatch,
    read: OffsetAndTerm,
    behind_for: int,
    give_up_s: float,
    is_found: bool,
) -> None:
    monkeypatch.setattr(offsets, "BEHIND_PAUSE_S", 0.0)
    route: Any = Deposed(behind_for)
    if is_found:
        assert await list_offsets(route, 3, LATEST, give_up_s, read=read) == BOUNDS
        return
    with pytest.raises(DivergedError):
        await list_offsets(route, 3, LATEST, give_up_s, read=read)
