"""Where a start is in a partition: what the leader is asked, and what is made of the answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from runnel.net import offsets
from runnel.net.offsets import (
    Range,
    ResolvedOffset,
    Start,
    TransactionId,
    make_range,
    resolve_offset,
)
from schemas.errors import InvalidRequestError
from schemas.wire.record_requests import EARLIEST, LATEST, ListOffsetsResponse, PositionBy

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
    "given-a-time-then-its-batch": (
        TIME,
        [(1_000_000, BY_TIME)],
        ResolvedOffset(90, 89, not_before_us=1_000_000),
    ),
    "given-a-time-before-1970-then-that-of-1970": (
        BEFORE_EPOCH,
        [(0, BY_TIME)],
        ResolvedOffset(90, 89, not_before_us=0),
    ),
    "given-an-id-then-its-batch": (
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
    route: Any = None
    assert await resolve_offset(route, 3, start, 30.0) == found
    assert asked == requests


@pytest.mark.parametrize(("start", "offset"), [("earliest", 10), ("latest", 90)])
async def test_given_the_bounds_then_nobody_is_asked(
    asked: list[tuple[int, PositionBy]], start: Start, offset: int
) -> None:
    route: Any = None
    assert (await resolve_offset(route, 3, start, 30.0, BOUNDS)).offset == offset
    assert asked == []


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
