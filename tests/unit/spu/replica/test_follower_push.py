"""Pushes to replicas that are not live, where their rate is limited."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spu.net.peer_connection import PeerConnection
from spu.replica.catch_up import CatchUpRate
from spu.replica.follower_push import PUSH_BYTES, FollowerPushes
from spu.replication.events import Input, Push, Pushed
from spu.replication.state import Leading, Member, Progress
from tests.unit.spu.builders import TERM, UID, until

NEWCOMER = Member(2, "new")


@dataclass
class FakeLog:
    """A log of 100 records of a KiB; keeps how much was asked for."""

    asked: list[int] = field(default_factory=list)
    leo: int = 100

    def read(self, start: int, most: int, end: int, *, wait: bool) -> SimpleNamespace:
        self.asked.append(most)
        count = min(end - start, most >> 10)
        return SimpleNamespace(data=bytes(count << 10), next_offset=start + count)


class FakeReplica:
    """Leads with two followers: SPU 1 is live, and the newcomer is not."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.pushed: list[tuple[int, int]] = []
        self.state = SimpleNamespace(
            leading=Leading(TERM, 0, 0, 0, followers=(Progress(1, 7), Progress(2, 8))),
            required=frozenset({Member(0, "me"), Member(1, "live")}),
        )

    def step(self, event: Input) -> None:
        assert isinstance(event, Pushed)
        self.pushed.append((event.follower, event.upto))

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        raise AssertionError(reason)


class FakeConnection:
    def __init__(self) -> None:
        self.cold = asyncio.Lock()
        self.frames = 0
        self.takes = asyncio.Event()
        self.takes.set()

    def write(self, _frame: object) -> None:
        self.frames += 1

    @property
    def is_drained(self) -> bool:
        return self.takes.is_set()

    async def drained(self) -> None:
        await self.takes.wait()


@dataclass
class Bench:
    replica: FakeReplica
    pushes: FollowerPushes
    connection: FakeConnection
    turn: asyncio.Event

    def push(self, to: int, start: int = 0) -> None:
        order = Push(to, TERM, {1: 7, 2: 8}[to], "b0" * 8, start, -1, 0)
        self.pushes.push(order, cast(PeerConnection, self.connection))


@pytest.fixture
async def bench() -> Any:
    turn = asyncio.Event()

    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        await turn.wait()
        # Long after what was sent first.
        now_s = max(now_s + seconds, 60.0)

    rate = CatchUpRate(40 << 10, now_s=lambda: now_s, sleep=sleep)
    replica = FakeReplica()
    with ThreadPoolExecutor(1) as threads:
        pushes = FollowerPushes(cast(Any, replica), UID, "orders-0", threads, threads, rate)
        yield Bench(replica, pushes, FakeConnection(), turn)


async def test_given_a_rate_then_a_newcomer_waits_and_a_live_one_does_not(bench: Bench) -> None:
    bench.push(2)
    await until(lambda: len(bench.replica.pushed) == 1)
    bench.push(2, 16)
    bench.push(1)
    assert bench.replica.pushed == [(2, 16), (1, 100)]
    bench.turn.set()
    await until(lambda: len(bench.replica.pushed) == 3)
    assert bench.replica.pushed[-1] == (2, 32)
    assert bench.replica.log.asked == [16 << 10, PUSH_BYTES, 16 << 10]


async def test_given_a_newcomer_that_becomes_live_then_it_waits_for_no_turn(bench: Bench) -> None:
    bench.push(2)
    await until(lambda: len(bench.replica.pushed) == 1)
    bench.push(2, 16)
    bench.pushes.hurry()
    await asyncio.sleep(0)
    assert len(bench.replica.pushed) == 1
    bench.replica.state.required |= {NEWCOMER}
    bench.pushes.hurry()
    await until(lambda: len(bench.replica.pushed) == 2)
    assert bench.replica.pushed[-1] == (2, 100)
    # The turn it gave up is nobody's now, and nothing is sent twice.
    bench.turn.set()
    bench.pushes.hurry()
    await asyncio.sleep(0.01)
    assert bench.connection.frames == 2


async def test_given_a_peer_that_takes_nothing_then_another_one_has_its_turn(bench: Bench) -> None:
    bench.replica.state.required = frozenset({Member(0, "me")})
    bench.turn.set()
    bench.connection.takes.clear()
    bench.push(2)
    await asyncio.sleep(0.01)
    bench.connection = FakeConnection()
    bench.push(1)
    await until(lambda: bench.replica.pushed == [(1, 16)])


async def test_given_a_peer_that_takes_nothing_by_its_turn_then_another_one_has_that(
    bench: Bench,
) -> None:
    bench.replica.state.required = frozenset({Member(0, "me")})
    bench.push(2)
    await until(lambda: len(bench.replica.pushed) == 1)
    slow, bench.connection = bench.connection, FakeConnection()
    bench.connection, other = slow, bench.connection
    bench.push(2, 16)
    await asyncio.sleep(0.01)
    bench.connection = other
    bench.push(1)
    slow.takes.clear()
    bench.turn.set()
    await until(lambda: len(bench.replica.pushed) == 2)
    assert bench.replica.pushed[-1] == (1, 16)
    assert slow.frames == 1
    slow.takes.set()
    await until(lambda: len(bench.replica.pushed) == 3)
    assert bench.replica.pushed[-1] == (2, 32)


async def test_given_a_follower_that_is_attached_anew_then_it_keeps_its_place(bench: Bench) -> None:
    bench.replica.state.required = frozenset({Member(0, "me")})
    bench.push(2)
    await until(lambda: len(bench.replica.pushed) == 1)
    bench.push(2, 16)
    await asyncio.sleep(0.01)
    bench.push(1)
    await asyncio.sleep(0.01)
    bench.push(2, 32)
    bench.turn.set()
    await until(lambda: len(bench.replica.pushed) == 3)
    assert bench.replica.pushed == [(2, 16), (2, 48), (1, 16)]
    await until(lambda: not bench.pushes._waiting)
    assert bench.connection.frames == 3


async def test_given_an_attachment_that_is_over_then_its_turn_is_for_the_next(bench: Bench) -> None:
    bench.push(2)
    await until(lambda: len(bench.replica.pushed) == 1)
    bench.push(2, 16)
    bench.replica.state.leading = None
    bench.turn.set()
    await until(lambda: not bench.pushes._waiting)
    assert bench.replica.pushed == [(2, 16)]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is warned of."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "spu.replica.follower_push._log",
        SimpleNamespace(warning=lambda text, **more: found.append({"text": text, **more})),
    )
    return found


async def test_given_more_is_written_than_sent_then_the_log_says_what_is_too_low(
    bench: Bench, said: list[dict[str, Any]]
) -> None:
    bench.push(2)
    await until(lambda: len(bench.replica.pushed) == 1)
    bench.replica.log.leo = 200
    # Long after: it lacks more than before.
    bench.turn.set()
    bench.push(2, 16)
    await until(lambda: len(bench.replica.pushed) == 2)
    (one,) = said
    assert "catchUpRate" in one.pop("text")
    assert one == {
        "partition": "orders-0",
        "peer": 2,
        "records": 168,
        "bytes_per_second": 40 << 10,
    }


async def test_given_one_that_was_live_in_between_then_it_is_looked_at_anew(
    bench: Bench, said: list[dict[str, Any]]
) -> None:
    bench.push(2)
    await until(lambda: len(bench.replica.pushed) == 1)
    bench.replica.state.required |= {NEWCOMER}
    bench.push(2, 16)
    assert len(bench.replica.pushed) == 2
    bench.replica.state.required -= {NEWCOMER}
    bench.replica.log.leo = 300
    bench.turn.set()
    bench.push(2, 100)
    await until(lambda: len(bench.replica.pushed) == 3)
    assert said == []
