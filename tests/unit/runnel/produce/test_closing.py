"""The end of a producer: what was sent is delivered or said to have failed, and nothing follows."""

from __future__ import annotations

import asyncio

import pytest

from runnel.records.record import RecordMetadata
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    RunnelError,
)
from tests.polling import eventually
from tests.unit.runnel.conftest import World


async def test_given_an_error_in_the_block_then_what_was_sent_is_still_flushed(
    world: World,
) -> None:
    world.sc.add_topic("orders")

    async def fail_after_sending() -> None:
        async with world.cluster.producer("orders", linger_ms=60_000) as producer:
            producer.send(b"v")
            raise KeyError

    with pytest.raises(KeyError):
        await fail_after_sending()
    assert world.log().values == [b"v"]


async def test_given_a_closed_producer_then_send_is_refused(world: World) -> None:
    world.sc.add_topic("orders")
    producer = await world.cluster.producer("orders")
    await producer.close()
    await producer.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        producer.send(b"v")


async def test_given_records_sent_while_a_producer_closes_then_each_is_refused(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.spu.may_answer.clear()
    producer = await world.cluster.producer("orders")
    refused: list[str] = []

    def send_another(_error: RunnelError | None, _located: RecordMetadata | None) -> None:
        with pytest.raises(InvalidRequestError, match="closed") as error:
            producer.send(b"another")
        refused.append(error.value.message)

    delivery = producer.send(b"v", on_delivery=send_another)
    closing = asyncio.create_task(producer.close())
    await eventually(lambda: world.spu.in_flight == 1)
    send_another(None, None)
    # Whoever closes it again waits as well.
    again = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    assert not again.done()
    world.spu.may_answer.set()
    await closing
    await again
    assert (await delivery).offset == 0
    assert world.log().values == [b"v"]
    assert len(refused) == 2


async def test_given_a_close_that_is_cancelled_twice_then_open_deliveries_fail(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.spu.may_answer.clear()
    producer = await world.cluster.producer("orders")
    delivery = producer.send(b"v")
    closing = asyncio.create_task(producer.close())
    await eventually(lambda: world.spu.in_flight == 1)
    closing.cancel()
    # One turn of the loop: it waits for its senders now.
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert delivery.done()
    with pytest.raises(DeadlineExceededError, match="closed before"):
        await delivery
    with pytest.raises(InvalidRequestError, match="closed"):
        producer.send(b"another")


async def test_given_an_aborted_producer_then_open_deliveries_fail(world: World) -> None:
    world.sc.add_topic("orders")
    world.spu.may_answer.clear()
    producer = await world.cluster.producer("orders")
    delivery = producer.send(b"v")
    await producer.abort()
    with pytest.raises(DeadlineExceededError, match="closed before"):
        await delivery
