"""Turns of those that send to replicas which are not live, by a clock of the test."""

from __future__ import annotations

import asyncio

import pytest

from spu.replica.catch_up import CatchUpRate, FallingBehind

KIB, MIB = 1 << 10, 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now_s = 5.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def rate_of(clock: Clock, bytes_per_second: int | None) -> CatchUpRate:
    return CatchUpRate(bytes_per_second, now_s=lambda: clock.now_s, sleep=clock.sleep)


@pytest.mark.parametrize(
    ("rate", "size"),
    [
        pytest.param(None, MIB, id="given-no-limit-then-as-much-as-fits"),
        pytest.param(100 * MIB, MIB, id="given-much-then-no-more-than-without-a-limit"),
        pytest.param(MIB, MIB // 4, id="given-some-then-a-quarter-of-a-second"),
        pytest.param(1, 16 * KIB, id="given-little-then-not-less-than-a-few-records"),
    ],
)
def test_size_of_a_push(rate: int | None, size: int) -> None:
    assert CatchUpRate(rate).push_bytes == size


async def test_given_pushes_then_each_waits_for_what_was_sent_before() -> None:
    clock = Clock()
    rate, order = rate_of(clock, 1_000), list[int]()

    async def push(number: int) -> None:
        async with rate.turn():
            order.append(number)
            rate.sent(500 * number)

    await asyncio.gather(*map(push, (1, 2, 3)))
    assert (order, clock.slept) == ([1, 2, 3], [0.5, 1.0])
    # A pause earns nothing.
    clock.now_s += 60
    await asyncio.gather(*map(push, (4, 5)))
    assert clock.slept == [0.5, 1.0, 2.0]


async def test_given_one_that_is_cancelled_or_sends_nothing_then_the_next_one_begins() -> None:
    clock = Clock()
    rate = rate_of(clock, 1_000)
    async with rate.turn():
        waiting = asyncio.create_task(rate.turn().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    async with rate.turn():
        rate.sent(0)
    async with rate.turn():
        pass
    assert clock.slept == []


async def test_given_no_limit_then_nobody_waits() -> None:
    clock = Clock()
    rate = rate_of(clock, None)
    for _ in range(3):
        async with rate.turn():
            rate.sent(100 * MIB)
    assert not rate.is_limited
    assert clock.slept == []


@pytest.mark.parametrize(
    ("lacked", "said"),
    [
        pytest.param([(0, 10), (30, 90), (59, 99)], [False] * 3, id="given-no-minute-then-not-yet"),
        pytest.param([(0, 10), (60, 11)], [False, True], id="given-more-than-before-then-said"),
        pytest.param([(0, 10), (60, 10)], [False, False], id="given-as-many-then-not"),
        pytest.param(
            [(0, 10), (60, 11), (90, 50), (120, 12)],
            [False, True, False, True],
            id="given-said-then-again-only-after-another-minute",
        ),
        pytest.param(
            [(0, 10), (90, 50), (150, 51)],
            [False, False, True],
            id="given-a-longer-pause-then-from-its-end",
        ),
        pytest.param(
            [(0, 90), (60, 50), (120, 20)], [False] * 3, id="given-it-comes-nearer-then-not"
        ),
    ],
)
def test_falling_behind(lacked: list[tuple[float, int]], said: list[bool]) -> None:
    falling = FallingBehind()
    assert [falling.lacks(2, records, now_s) for now_s, records in lacked] == said
    # Another one is looked at from its own beginning.
    assert not falling.lacks(3, 1_000, 1_000)


def test_given_one_that_was_live_in_between_then_looked_at_anew() -> None:
    falling = FallingBehind()
    falling.lacks(2, 10, 0)
    falling.forget(2)
    assert not falling.lacks(2, 90, 60)
    assert falling.lacks(2, 91, 120)
