"""The order in which a sender sends what was put, and what was put first."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from runnel.produce.counts import SendCounts
from runnel.produce.delivery import Batch, Outcome
from runnel.produce.sender import PartitionSender, SenderSettings
from runnel.records.tables import record_table
from schemas.errors import DeadlineExceededError
from schemas.wire.payload import decode_records
from schemas.wire.record_requests import Acks
from tests.unit.runnel.conftest import World

SETTINGS = SenderSettings(
    producer_id=7,
    acks=Acks.COMMITTED,
    codec="none",
    max_in_flight=5,
    delivery_timeout_ms=10_000,
    request_timeout_ms=5_000,
)


def batch_of(value: str) -> Batch:
    (records,) = record_table({"value": [value]}, 0).to_batches()
    return Batch(0, Outcome("orders"), monotonic(), records, 100)


async def sender_of(world: World) -> PartitionSender:
    """A sender that is held, with two batches as usual and two lots that go first."""
    world.sc.add_topic("orders")
    route = await world.cluster._route("orders")
    sender = PartitionSender(0, route, SETTINGS, SendCounts(), lambda _batch: None, monotonic)
    sender.held = True
    sender.put(batch_of("usual 1"))
    sender.put_first([batch_of("first 1"), batch_of("first 2")])
    sender.put(batch_of("usual 2"))
    sender.put_first([batch_of("first 3")])
    return sender


async def test_given_lots_that_go_first_then_they_keep_their_order_before_what_waits(
    world: World,
) -> None:
    sender = await sender_of(world)
    last = batch_of("usual 3")
    sender.put(last)
    sender.release()
    task = asyncio.create_task(sender.run())
    async with asyncio.timeout(10):
        await asyncio.wrap_future(last.outcome)
    assert sender.idle
    task.cancel()
    values = [
        value.decode()
        for batch in world.log().batches
        for value in decode_records(batch).column("value").to_pylist()
    ]
    assert values == ["first 1", "first 2", "first 3", "usual 1", "usual 2", "usual 3"]


async def test_given_an_end_then_all_that_waits_fails(world: World) -> None:
    sender = await sender_of(world)
    waiting = [*sender._first, *sender._queue]
    assert len(waiting) == 5
    sender.end("it was closed")
    assert sender.idle
    for batch in waiting:
        with pytest.raises(DeadlineExceededError, match="it was closed"):
            batch.outcome.result(0)
