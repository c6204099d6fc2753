"""One thread at a time reads from a blocking consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from runnel.consume import blocking as topics
from runnel.consume.one_reader import OneReader
from runnel.groups import blocking as groups
from runnel.loop_thread import LoopThread
from runnel.streams import blocking as streams
from schemas.errors import InvalidRequestError
from tests.unit.runnel.conftest import World
from tests.unit.runnel.records.test_cursor import batch
from tests.unit.runnel.streams.test_consumer import one_split

REFUSED = "another thread is using .* open one for each thread"


@pytest.fixture
def other() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Calls a function in another thread, always the same."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


@contextmanager
def blocking_loop() -> Iterator[LoopThread]:
    thread = LoopThread("reads")
    try:
        yield thread
    finally:
        thread.stop()


def test_given_a_thread_in_it_then_another_is_refused_until_it_is_left(
    other: Callable[[Callable[[], Any]], Future[Any]],
) -> None:
    one = OneReader("this")

    def enter() -> None:
        with one:
            pass

    with one:
        with one:
            pass
        with pytest.raises(InvalidRequestError, match=REFUSED):
            other(enter).result()
    other(enter).result()


def test_given_a_loop_then_another_thread_may_read_on_only_after_it(
    other: Callable[[Callable[[], Any]], Future[Any]],
) -> None:
    with blocking_loop() as thread:
        consumer = streams.StreamConsumer(thread, one_split().consumer("earliest"))
        for record in consumer:
            assert record.offset == 0
            for call in (
                consumer.poll,
                lambda: next(iter(consumer)),
                lambda: [*consumer.batches()],
            ):
                with pytest.raises(InvalidRequestError, match=REFUSED):
                    other(call).result()
            again = consumer.poll()
            assert again is not None
            assert again.offset == 1, "the thread itself may"
            break
        following = other(consumer.poll).result()
        assert following.offset == 2
        consumer.close()


async def test_given_a_consumer_and_a_group_reader_then_another_thread_is_refused(
    world: World, other: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    world.sc.add_topic("orders")
    world.log().put(bytearray(batch(0, 6)))
    consumer = world.cluster.consumer("orders", "earliest")
    thread = LoopThread("not called")
    try:
        facade = topics.Consumer(thread, consumer)
        async with world.cluster.reader_group("g", topics=["orders"]) as group:
            reader = groups.GroupReader(thread, group.reader("a"))
            calls: list[Callable[[], object]] = [
                *(facade.poll, facade.commit, facade.pause, facade.resume),
                *(lambda: facade.seek("earliest"), lambda: list(facade.batches())),
                *(lambda: list(facade), lambda: next(facade)),
                *(reader.poll, reader.commit),
                *(lambda: list(reader), lambda: list(reader.batches())),
            ]
            with facade._one, reader._one:
                for call in calls:
                    with pytest.raises(InvalidRequestError, match=REFUSED):
                        await asyncio.wrap_future(other(call))
                # It says itself what is processed, whatever the other thread has in hand.
                with pytest.raises(InvalidRequestError, match="has no name"):
                    await asyncio.wrap_future(other(lambda: facade.commit({0: 1})))
    finally:
        thread.stop()
