"""Waiting requests are told once, in order, and leave nothing behind."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from schemas.errors import DeadlineExceededError, NotFoundError, RunnelError
from spu.replica.waiters import OffsetWaiters, RecordWaiters
from tests.unit.spu.builders import until


async def test_given_offsets_then_those_reached_are_told_in_order() -> None:
    loop = asyncio.get_running_loop()
    told: list[int] = []
    waiters = OffsetWaiters()

    def tell(offset: int, _error: RunnelError | None) -> None:
        told.append(offset)

    for offset in (5, 2, 9, 2):
        waiters.add(loop, offset, 60_000, partial(tell, offset))
    waiters.release(1)
    assert told == []
    waiters.release(5)
    assert told == [2, 2, 5]
    assert len(waiters) == 1
    waiters.fail(NotFoundError("gone"))
    assert told == [2, 2, 5, 9]


async def test_given_no_commit_in_time_then_the_outcome_is_unknown() -> None:
    told: list[RunnelError | None] = []
    waiters = OffsetWaiters()
    waiters.add(asyncio.get_running_loop(), 5, 1, told.append)
    await until(lambda: bool(told))
    assert isinstance(told[0], DeadlineExceededError)
    waiters.release(9)
    assert len(told) == 1


async def test_given_several_deadlines_then_each_is_told_at_its_own() -> None:
    loop = asyncio.get_running_loop()
    told: list[str] = []
    waiters = OffsetWaiters()

    def tell(name: str, error: RunnelError | None) -> None:
        told.append(f"{name}: {error.message[:24] if error else 'done'}")

    waiters.add(loop, 5, 60_000, partial(tell, "patient"))
    waiters.add(loop, 1, 5, partial(tell, "released"))
    # Nearer than the one that is watched for.
    waiters.add(loop, 6, 10, partial(tell, "second"))
    waiters.add(loop, 7, 2, partial(tell, "first"))
    waiters.release(1)
    await until(lambda: len(told) >= 3)
    assert told == [
        "released: done",
        "first: not committed within 2 m",
        "second: not committed within 10 ",
    ]
    assert len(waiters) == 1
    waiters.release(5)
    assert told[3:] == ["patient: done"]


async def test_given_clients_that_leave_then_their_entries_do_not_pile_up() -> None:
    loop = asyncio.get_running_loop()
    waiters = OffsetWaiters()
    for _ in range(10_000):
        waiters.add(loop, 5, 60_000, lambda _error: pytest.fail("told though cancelled")).cancel()
    assert len(waiters._heap) <= 64
    waiters.release(9)


async def test_given_long_polls_then_offset_and_bytes_both_count() -> None:
    loop = asyncio.get_running_loop()
    told: list[str] = []
    waiters = RecordWaiters()
    waiters.add(loop, 3, 100, 60_000, lambda _error: told.append("near"))
    waiters.add(loop, 9, 100, 60_000, lambda _error: told.append("far"))
    waiters.release(3, 99)
    waiters.release(2, 100)
    assert told == []
    waiters.release(3, 100)
    assert told == ["near"]
    waiters.fail(NotFoundError("gone"))
    assert told == ["near", "far"]
    assert len(waiters) == 0


async def test_given_a_long_poll_that_times_out_then_it_is_told_and_forgotten() -> None:
    told: list[RunnelError | None] = []
    waiters = RecordWaiters()
    waiters.add(asyncio.get_running_loop(), 3, 100, 1, told.append)
    await until(lambda: bool(told))
    assert told == [None]
    assert len(waiters) == 0
    waiters.add(asyncio.get_running_loop(), 3, 100, 60_000, told.append).cancel()
    assert len(waiters) == 0
