"""Producers and consumers through a change of the leader, against two scripted SPUs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from runnel import aio
from runnel.admin.http import ScClient
from runnel.client import links
from runnel.net import pool, routing
from runnel.net.routing import RetryPolicy
from schemas.control.assignments import Assignments
from schemas.errors import (
    DeadlineExceededError,
    NotEnoughReplicasError,
    NotLeaderError,
    NotReadyError,
    RunnelError,
    StorageFailedError,
    UnreachableError,
)
from schemas.ids import Term
from tests.ports import free_ports
from tests.unit.runnel.conftest import World
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeLog, FakeSpu, Step
from tests.unit.runnel.produce.test_producer import send_batches

TERM = 1 << 16


@dataclass
class Change:
    """``first`` leads, until `elect` says that ``second`` does."""

    sc: FakeSc
    first: FakeSpu
    second: FakeSpu
    cluster: aio.Cluster

    def elect(self) -> None:
        self.sc.term = Term(self.sc.term + TERM)
        self.sc.endpoints = [("127.0.0.1", self.second.port)]
        self.second.leads = True

    def log(self, spu: FakeSpu) -> FakeLog:
        return spu.logs[self.sc.uids["orders"][0]]


@pytest.fixture
async def change(world: World) -> AsyncIterator[Change]:
    second = FakeSpu()
    second.leads = False
    await second.start()
    world.sc.add_topic("orders")
    world.sc.term = Term(TERM)
    yield Change(world.sc, world.spu, second, world.cluster)
    await second.stop()


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any wait between attempts lasts for an hour: a test that needs one does not end."""
    policy = RetryPolicy(backoff_base_ms=3_600_000, backoff_cap_ms=3_600_000)
    monkeypatch.setattr(links, "RetryPolicy", lambda: policy)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are overdue at once."""
    monkeypatch.setattr(routing, "_PATIENCE_S", 0.005)


async def until_in_flight(spu: FakeSpu, count: int) -> None:
    async with asyncio.timeout(10):
        while spu.in_flight < count:  # noqa: ASYNC110 - state of the fake, not an event
            await asyncio.sleep(0)


REFUSALS: list[tuple[RunnelError, ...]] = [
    (),
    (NotLeaderError("not told yet"),) * 2,
    (NotReadyError("the first record is not committed yet"),) * 2,
    (NotLeaderError("not told yet"), NotReadyError("not committed"), StorageFailedError("no")),
]


@pytest.mark.parametrize(
    "refusals",
    [
        pytest.param(steps, id=f"refused-{'-'.join(s.code.name for s in steps) or 'never'}")
        for steps in REFUSALS
    ],
)
@pytest.mark.parametrize(
    "held", range(1, 7), ids=lambda held: f"given-{held}-batches-were-replicated"
)
async def test_given_a_leader_that_dies_before_it_answers_then_all_stand_once_in_order(
    change: Change, held: int, refusals: tuple[RunnelError, ...]
) -> None:
    """Five batches are appended and not answered; the next leader holds some of them."""
    async with change.cluster.producer("orders") as producer:
        await producer.send(b"first", key=b"k")
        change.first.may_answer.clear()
        sent = await send_batches(producer, 8)
        await until_in_flight(change.first, 5)
        old, new = change.log(change.first), change.log(change.second)
        assert len(old.batches) == 6
        # What was acknowledged is there, whoever is elected.
        new.follow(old, held)
        change.elect()
        change.second.produce_script.extend(refusals)
        await change.first.stop()
        async with asyncio.timeout(30):
            await producer.flush()
    assert new.values == [b"first", *sent]
    assert {header.producer_epoch for header in new.headers()} == {0}
    assert producer.metrics.records_failed == 0


async def test_given_a_known_successor_then_the_producer_goes_there_without_a_wait(
    change: Change, no_waits: None
) -> None:
    async with change.cluster.producer("orders") as producer:
        await producer.send(b"1", key=b"k")
        change.log(change.second).follow(change.log(change.first))
        change.first.leads = False
        change.elect()
        async with asyncio.timeout(20):
            await producer.send(b"2", key=b"k")
    assert change.log(change.second).values == [b"1", b"2"]


async def test_given_a_known_successor_then_the_consumer_goes_there_without_a_wait(
    change: Change, no_waits: None
) -> None:
    async with (
        change.cluster.producer("orders") as producer,
        change.cluster.consumer("orders", "earliest") as consumer,
    ):
        records = aiter(consumer)
        await producer.send(b"1")
        assert (await anext(records)).value == b"1"
        change.log(change.second).follow(change.log(change.first))
        change.elect()
        await change.first.stop()
        async with asyncio.timeout(20):
            await producer.send(b"2")
            assert (await anext(records)).value == b"2"


async def test_given_the_sc_names_the_same_leader_then_attempts_are_spaced_and_it_is_asked_again(
    change: Change,
) -> None:
    async with change.cluster.producer("orders") as producer:
        await producer.send(b"1")
        before = change.sc.asked
        change.first.produce_script.extend([NotLeaderError("deposed")] * 3)
        await producer.send(b"2")
        # After each failure, and again after the wait: a new leader is not missed meanwhile.
        assert change.sc.asked - before == 6


@pytest.mark.usefixtures("impatient", "no_waits")
async def test_given_a_silent_leader_then_the_producer_leaves_it_once_another_leads(
    change: Change,
) -> None:
    async with change.cluster.producer("orders") as producer:
        await producer.send(b"1", key=b"k")
        change.first.may_answer.clear()
        sent = await send_batches(producer, 7)
        await until_in_flight(change.first, 5)
        change.log(change.second).follow(change.log(change.first), 3)
        change.elect()
        async with asyncio.timeout(20):
            await producer.flush()
    assert change.log(change.second).values == [b"1", *sent]


@pytest.mark.usefixtures("impatient", "no_waits")
async def test_given_a_leader_that_stood_still_before_the_client_came_then_it_leaves_it_too(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel takes the connection, and nobody answers the greeting."""
    monkeypatch.setattr(pool, "HELLO_TIMEOUT_S", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        change.sc.endpoints = [("127.0.0.1", frozen.getsockname()[1])]
        async with change.cluster.producer("orders") as producer:
            sent = [producer.send(b"%d" % n) for n in range(3)]
            await asyncio.sleep(0.05)
            change.elect()
            async with asyncio.timeout(20):
                for delivery in sent:
                    await delivery
    assert sorted(change.log(change.second).values) == [b"0", b"1", b"2"]


async def test_given_a_leader_that_refused_the_last_attempts_then_the_next_one_is_left_too(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts to connect to an SPU that died wait longer and longer for their turn."""
    monkeypatch.setattr(pool, "_BASE_MS", 3_600_000.0)
    monkeypatch.setattr(pool, "_CAP_MS", 3_600_000.0)
    monkeypatch.setattr(routing, "_PATIENCE_S", 3_600.0)
    (port,) = free_ports(1)
    change.sc.endpoints = [("127.0.0.1", port)]
    async with change.cluster.producer("orders") as producer:
        sent = producer.send(b"1")
        await asyncio.sleep(0.2)
        change.elect()
        async with asyncio.timeout(20):
            await sent
    assert change.log(change.second).values == [b"1"]


@pytest.mark.usefixtures("impatient", "no_waits")
async def test_given_a_silent_leader_then_a_long_poll_leaves_it_once_another_leads(
    change: Change,
) -> None:
    settings = aio.ConsumerSettings(max_wait_ms=1)
    change.first.fetch_script.extend([Step.SILENCE] * 100)
    async with (
        change.cluster.producer("orders") as producer,
        change.cluster.consumer("orders", "earliest", settings=settings) as consumer,
    ):
        await producer.send(b"1")
        change.log(change.second).follow(change.log(change.first))
        change.elect()
        async with asyncio.timeout(20):
            assert (await anext(aiter(consumer))).value == b"1"
    assert change.second.fetches >= 1


@pytest.mark.usefixtures("impatient")
async def test_given_a_silent_leader_and_no_other_then_its_answer_is_waited_for(
    change: Change,
) -> None:
    async with change.cluster.producer("orders") as producer:
        change.first.may_answer.clear()
        asked = change.sc.asked
        delivery = producer.send(b"1")
        async with asyncio.timeout(10):
            while change.sc.asked < asked + 3:  # noqa: ASYNC110 - state of the fake
                await asyncio.sleep(0)
        change.first.may_answer.set()
        assert (await delivery).offset == 0
        assert producer.metrics.retries == 0
    assert change.log(change.first).values == [b"1"]


async def test_given_too_few_live_replicas_then_the_batch_is_sent_until_there_are_enough(
    change: Change,
) -> None:
    short = NotEnoughReplicasError("minInSyncReplicas is 2, and 1 replica is live")
    async with change.cluster.producer("orders") as producer:
        await producer.send(b"1", key=b"k")
        change.first.produce_script.extend([short] * 4)
        sent = await send_batches(producer, 6)
        await producer.flush()
    assert change.log(change.first).values == [b"1", *sent]
    assert producer.metrics.retries >= 1


async def test_given_too_few_live_replicas_to_the_end_then_it_says_so_and_nothing_is_unknown(
    change: Change,
) -> None:
    short = NotEnoughReplicasError("minInSyncReplicas is 2, and 1 replica is live")
    change.first.produce_script.extend([short] * 1_000)
    producer = await change.cluster.producer("orders", delivery_timeout_ms=50)
    deliveries = [producer.send(b"%d" % index, key=b"k") for index in range(3)]
    for delivery in deliveries:
        with pytest.raises(
            NotEnoughReplicasError,
            match=r"orders/0 was not acknowledged within 0\.05 s; it was not written\."
            r" Last error: minInSyncReplicas is 2, and 1 replica is live",
        ) as raised:
            await delivery
        assert raised.value.details["outcomeUnknown"] is False
    with pytest.raises(NotEnoughReplicasError):
        await producer.close()


async def test_given_too_few_live_replicas_after_a_lost_answer_then_the_outcome_is_unknown(
    change: Change,
) -> None:
    short = NotEnoughReplicasError("minInSyncReplicas is 2, and 1 replica is live")
    change.first.produce_script.extend([Step.APPEND_THEN_NOT_READY, *[short] * 1_000])
    producer = await change.cluster.producer("orders", delivery_timeout_ms=50)
    with pytest.raises(
        DeadlineExceededError,
        match=r"orders/0 was not acknowledged within 0\.05 s; their outcome is unknown: the records"
        r" may be in the log, or may still be appended\. .*Read the end of the partition before"
        r" you send them again",
    ) as raised:
        await producer.send(b"v")
    assert raised.value.details["outcomeUnknown"] is True
    await producer.abort()


async def test_given_a_silent_sc_then_those_who_failed_together_wait_for_it_once(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def silent(_sc: ScClient, topic: str) -> Assignments:
        nonlocal asked
        asked += 1
        raise UnreachableError(f"no SC answers about {topic}")

    route = await change.cluster._route("orders")
    monkeypatch.setattr(ScClient, "assignments", silent)
    for _ in range(10):
        route.suspect(0)
    await asyncio.gather(*(route.leader(0) for _ in range(10)))
    assert asked == 1
