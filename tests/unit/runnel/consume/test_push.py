"""Reading by push: what the client asks for, how it keeps its pace, and that nothing is skipped."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel import aio
from runnel.consume import fetcher, race, readers
from runnel.consume.fetcher import PartitionFetcher
from runnel.consume.speculation import Speculation
from runnel.net import push
from runnel.net.push import Subscription
from schemas.errors import (
    DivergedError,
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    OverloadedError,
    RunnelError,
)
from schemas.ids import Term
from tests.laws import examples
from tests.unit.runnel.conftest import World
from tests.unit.runnel.consume.test_follower_reads import HASTY, Replicated
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeLog, FakeSpu, Step
from tests.unit.runnel.records.test_cursor import batch

TERM = 1 << 16


@pytest.fixture
def pushing(world: World) -> World:
    """An SPU that pushes, and an empty topic ``orders``."""
    world.sc.add_topic("orders")
    world.spu.pushes = True
    return world


def fill(log: FakeLog, count: int, *, padding: int = 0) -> None:
    """Batches of one record each."""
    for index in range(log.end, log.end + count):
        log.put(batch(index, 1, padding=padding), TERM)


async def offsets(reading: aio.Consumer, count: int | None = None) -> list[int]:
    """The first so many records; all where the consumer ends by itself."""
    found: list[int] = []
    async with asyncio.timeout(20):
        async for record in reading:
            found.append(record.offset)
            if len(found) == count:
                break
    return found


async def until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - state of the fake, not an event
            await asyncio.sleep(0)


async def test_given_an_spu_that_pushes_then_nothing_is_fetched(pushing: World) -> None:
    log = pushing.log()
    fill(log, 5)
    async with pushing.cluster.consumer("orders", "earliest") as reading:
        assert await offsets(reading, 5) == [0, 1, 2, 3, 4]
        await until(lambda: pushing.spu.pushed == 5)
        fill(log, 2)
        await pushing.spu.grown()
        assert await offsets(reading, 2) == [5, 6]
        (entries,) = pushing.spu.subscribed
        assert [(entry.offset, entry.term) for entry in entries] == [(0, 0)]
    assert pushing.spu.fetches == 0
    await until(lambda: pushing.spu.unsubscribed == [1])


async def test_given_it_is_switched_off_or_reads_followers_then_everything_is_fetched(
    pushing: World,
) -> None:
    fill(pushing.log(), 3)
    for choice in (aio.ConsumerSettings(push=False), aio.ConsumerSettings(follower_reads=True)):
        reading = pushing.cluster.consumer("orders", "earliest", "latest", settings=choice)
        assert await offsets(reading) == [0, 1, 2]
    assert not pushing.spu.subscribed


async def test_given_an_spu_of_an_earlier_version_then_it_is_asked_once_and_sent_fetches(
    pushing: World,
) -> None:
    pushing.spu.pushes = False
    fill(pushing.log(), 3)
    for _ in range(2):
        reading = pushing.cluster.consumer("orders", "earliest", "latest")
        assert await offsets(reading) == [0, 1, 2]
    assert pushing.spu.fetches == 2
    assert pushing.spu.refused == 1


async def test_given_many_partitions_then_few_requests_ask_for_all(world: World) -> None:
    world.sc.add_topic("orders", 300)
    world.spu.pushes = True
    for index in range(300):
        fill(world.log(index=index), 1)
    reading = world.cluster.consumer("orders", "earliest", "latest")
    assert await offsets(reading) == [0] * 300
    assert sum(map(len, world.spu.subscribed)) == 300
    assert len(world.spu.subscribed) <= 3


async def test_given_a_reader_that_stops_then_no_more_than_its_window_comes(
    pushing: World,
) -> None:
    size = 40_000
    fill(pushing.log(), 60, padding=size)
    # A share of 64 KiB: one batch, and what a second one has beyond it.
    small = aio.ConsumerSettings(read_ahead_bytes=1)
    async with pushing.cluster.consumer("orders", "earliest", settings=small) as reading:
        assert await offsets(reading, 1) == [0]
        spu = pushing.spu
        await until(lambda: spu.credits[1] <= 0)
        before = spu.pushed
        # One record in hand, two chunks waiting for it, and the window.
        assert before <= 3 + 2
        assert await offsets(reading, 10) == list(range(1, 11))
        await until(lambda: spu.credits[1] <= 0)
        assert spu.pushed <= before + 10
        assert await offsets(reading, 49) == list(range(11, 60))
        assert spu.most_credit <= 64 << 10


async def test_given_frames_that_come_by_themselves_then_no_round_is_begun_for_them(
    pushing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[race.Wanted] = []

    class Counted(race.Race):
        async def run(self) -> race.Fetched:
            rounds.append(self._wanted)
            return await super().run()

    monkeypatch.setattr(fetcher, "Race", Counted)
    monkeypatch.setattr(fetcher, "_SOON_S", 20.0)
    fill(pushing.log(), 40, padding=40_000)
    # Less than two batches ahead, so that the reader waits for most of them.
    small = aio.ConsumerSettings(read_ahead_bytes=1)
    reading = pushing.cluster.consumer("orders", "earliest", "latest", settings=small)
    assert await offsets(reading) == list(range(40))
    assert [wanted.offset for wanted in rounds] == [0]


FAILURES: list[Step | RunnelError] = [
    Step.DROP,
    NotLeaderError("moved"),
    NotReadyError("being cut"),
    OverloadedError("too many"),
]


@settings(
    max_examples=examples(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    script=st.lists(
        st.sampled_from([Step.OK, Step.OK, Step.OK, *FAILURES]), min_size=1, max_size=12
    ),
    fetches=st.lists(st.sampled_from([Step.OK, *FAILURES]), max_size=3),
)
async def test_law_whatever_ends_subscriptions_every_record_is_read_once(
    pushing: World, script: list[Step | RunnelError], fetches: list[Step | RunnelError]
) -> None:
    log = pushing.log()
    if not log.batches:
        fill(log, 8)
    pushing.spu.push_script = deque(script)
    pushing.spu.fetch_script = deque(fetches)
    quick = aio.ConsumerSettings(max_wait_ms=1)
    reading = pushing.cluster.consumer("orders", "earliest", {0: 8}, settings=quick)
    assert await offsets(reading) == list(range(8))


@pytest.mark.parametrize(
    "error",
    [DivergedError("lost", diverged_at=2), OffsetOutOfRangeError("truncated")],
    ids=["given-logs-that-diverged-then-said", "given-a-truncated-offset-then-said"],
)
async def test_what_the_leader_refuses_for_good(pushing: World, error: RunnelError) -> None:
    fill(pushing.log(), 8)
    pushing.spu.push_script = deque([Step.OK, Step.OK, error])
    pushing.sc.term = Term(9 * TERM)
    reading = pushing.cluster.consumer("orders", {0: 1})
    assert await offsets(reading, 2) == [1, 2]
    with pytest.raises(type(error), match=r"orders/0") as raised:
        await offsets(reading, 1)
    if isinstance(raised.value, DivergedError):
        assert raised.value.diverged_at == 2
    await reading.close()


async def test_given_a_subscription_that_lasted_then_its_end_is_not_a_time_out(
    pushing: World,
) -> None:
    """What a partition is given to recover counts from its end, not from the last record."""
    log = pushing.log()
    fill(log, 1)
    brief = aio.ConsumerSettings(give_up_ms=1, max_wait_ms=1)
    async with pushing.cluster.consumer("orders", "earliest", settings=brief) as reading:
        assert await offsets(reading, 1) == [0]
        waiting = asyncio.create_task(offsets(reading, 1))
        loop = asyncio.get_running_loop()
        over = loop.time() + 0.005
        await until(lambda: loop.time() > over)
        pushing.spu.push_script = deque([NotReadyError("being cut")])
        fill(log, 2)
        await pushing.spu.grown()
        assert await waiting == [1]
        assert await offsets(reading, 1) == [2]


# An SPU that says nothing


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "_QUIET_S", 0.001)
    monkeypatch.setattr(push, "_PATIENCE_S", 0.02)


async def test_given_nothing_new_then_one_question_for_all_partitions_asks_for_a_sign(
    world: World, impatient: None
) -> None:
    world.sc.add_topic("orders", 20)
    world.spu.pushes = True
    async with world.cluster.consumer("orders", "earliest"):
        await until(lambda: sum(map(len, world.spu.subscribed)) == 20)
        asked = len(world.spu.subscribed)
        await until(lambda: len(world.spu.subscribed) >= asked + 3)
        assert not any(world.spu.subscribed[asked:]), "without entries"
        assert world.spu.pushed == 20
    assert world.spu.fetches == 0


async def test_given_an_spu_that_is_frozen_then_fetches_go_on_and_the_end_is_pushed_again(
    pushing: World, impatient: None
) -> None:
    log, spu = pushing.log(), pushing.spu
    fill(log, 2)
    async with pushing.cluster.consumer("orders", "earliest") as reading:
        assert await offsets(reading, 2) == [0, 1]
        spu.frozen = True
        waiting = asyncio.create_task(offsets(reading, 1))
        await until(spu.unread_fetches)
        (fetch,) = spu.unread_fetches()
        assert (fetch.offset, fetch.max_wait_ms) == (2, 0), "due at once"
        fill(log, 1)
        spu.thaw()
        assert await waiting == [2]
        fill(log, 1)
        await spu.grown()
        assert await offsets(reading, 1) == [3]
        assert spu.unsubscribed == [1]


# Beside followers


@pytest.fixture
async def replicated(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicated]:
    monkeypatch.setattr(readers, "Speculation", lambda: Speculation(HASTY))
    follower = FakeSpu()
    follower.leads = False
    world.spu.pushes = True
    await follower.start()
    world.sc.add_topic("orders")
    world.sc.term = Term(TERM)
    world.sc.replicas = [
        (1, ("127.0.0.1", world.spu.port), True),
        (2, ("127.0.0.1", follower.port), True),
    ]
    yield Replicated(world.sc, world.spu, follower, world.cluster)
    await follower.stop()


async def test_given_a_leader_that_pushes_nothing_then_a_follower_is_read_until_it_does(
    replicated: Replicated,
) -> None:
    leader, follower = replicated.leader, replicated.follower
    replicated.fill(6)
    leader.push_script = deque([Step.OK, Step.OK, Step.SILENCE])
    async with replicated.consumer() as reading:
        assert await offsets(reading, 6) == list(range(6))
        assert follower.fetches > 0
        assert leader.fetches == 0
        leader.may_speak.set()
        await until(lambda: leader.pushed > 2)
        replicated.fill(3)
        await leader.grown()
        assert await offsets(reading, 3) == [6, 7, 8]
        await until(lambda: sum(map(len, leader.subscribed)) == 2)
        assert leader.subscribed[-1][0].offset >= 6, "from where the follower has brought it"
        assert leader.unsubscribed == [1]


async def test_given_nothing_that_is_due_then_no_follower_is_asked(
    replicated: Replicated, impatient: None
) -> None:
    leader, follower = replicated.leader, replicated.follower
    replicated.fill(4)
    async with replicated.consumer() as reading:
        assert await offsets(reading, 4) == [0, 1, 2, 3]
        waiting = asyncio.create_task(offsets(reading, 1))
        await until(lambda: leader.pushed == 4)
        asked, signs = follower.fetches, len(leader.subscribed)
        # By then a fetch would be long overdue.
        await until(lambda: len(leader.subscribed) >= signs + 3)
        assert follower.fetches == asked
        replicated.fill(1)
        await leader.grown()
        assert await waiting == [4]


async def test_given_another_leader_then_it_pushes_from_where_the_reader_stands(
    replicated: Replicated,
) -> None:
    leader, follower, sc = replicated.leader, replicated.follower, replicated.sc
    replicated.fill(4)
    async with replicated.consumer() as reading:
        assert await offsets(reading, 4) == [0, 1, 2, 3]
        move(sc, follower)
        leader.leads, follower.leads, follower.pushes = False, True, True
        # One more of the old leader's is on its way.
        leader.push_script = deque([NotLeaderError("moved")])
        replicated.fill(1)
        replicated.log(follower).put(batch(5, 1), 6 * TERM)
        await leader.grown()
        assert await offsets(reading, 2) == [4, 5]
        (entry,) = follower.subscribed[-1]
        assert (entry.offset, entry.term) == (5, 5 * TERM), "of the last batch that was read"


def test_given_a_call_that_was_silent_for_long_then_it_closes_its_own_subscription_alone() -> None:
    closed: list[str] = []
    own, newer = (
        cast(Subscription, SimpleNamespace(close=partial(closed.append, name)))
        for name in ("own", "newer")
    )
    one = object.__new__(PartitionFetcher)
    one._subscription = Term(2), newer
    one._unsubscribe(own)
    assert (closed, one._subscription) == (["own"], (Term(2), newer))
    one._unsubscribe(newer)
    one._unsubscribe()
    assert closed == ["own", "newer"]


@pytest.mark.parametrize("push", [True, False], ids=["pushed", "fetched"])
async def test_given_a_leader_that_does_not_hear_of_its_end_then_the_sc_is_asked(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch, push: bool
) -> None:
    monkeypatch.setattr(fetcher, "_LOOK_S", 0.01)
    leader, follower, sc = replicated.leader, replicated.follower, replicated.sc
    follower.pushes = True
    replicated.fill(4)
    # Nor does a follower tell, as one does where a fetch is overdue.
    async with replicated.consumer(push=push, speculative_reads=False) as reading:
        assert await offsets(reading, 4) == [0, 1, 2, 3]
        # Cut off from all but its readers: it goes on saying that there is nothing.
        move(sc, follower)
        follower.leads = True
        replicated.log(follower).put(batch(4, 1), 6 * TERM)
        assert await offsets(reading, 1) == [4]
        assert leader.leads


def move(sc: FakeSc, leader: FakeSpu) -> None:
    sc.endpoints = [("127.0.0.1", leader.port)]
    sc.term = Term(2 * TERM)
