"""A fork of a process in which another thread held a lock of the client at that moment."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from select import select

import pytest

from runnel.groups import blocking as groups
from runnel.loop_thread import LoopThread
from runnel.produce.delivery import Delivery
from runnel.produce.settings import ProducerSettings
from runnel.short_circuit import segment_file
from runnel.streams import blocking
from runnel.streams.producer import StreamProducer
from runnel.streams.segment_table import SegmentTable
from schemas.control.streams import SegmentHistory
from schemas.streams.epochs import Segment, parse_segment
from schemas.streams.key_space import WHOLE
from tests.unit.runnel.conftest import World
from tests.unit.runnel.streams.test_consumer import one_split

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")

#: A child that has not answered then hangs.
HANGS_S = 20.0


def in_fork(ask: Callable[[], object]) -> str:
    """What a call gives in a forked process: the name and text of its error, or its result."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Later versions of Python warn of threads, which are what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            said = repr(ask())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    try:
        answered, _, _ = select([reading], [], [], HANGS_S)
        return os.read(reading, 1 << 16).decode() if answered else "it hangs"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)


@contextmanager
def held(lock: threading.Lock | threading.Condition) -> Iterator[None]:
    """By a thread of its own."""
    with ThreadPoolExecutor(1) as other:
        other.submit(lock.acquire).result()
        try:
            yield
        finally:
            other.submit(lock.release).result()


async def test_given_send_holds_the_lock_then_send_of_the_child_raises(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        with held(producer._send_buffer._lock):
            said = in_fork(lambda: producer.send(b"v"))
            assert said.startswith("InvalidRequestError: this client was opened in process")


async def test_given_send_to_a_stream_holds_its_lock_then_send_of_the_child_raises(
    world: World,
) -> None:
    async def ask(segment: str) -> SegmentHistory:
        raise AssertionError(segment)

    world.sc.add_topic("orders")
    route = await world.cluster._route("orders")
    table = SegmentTable.of([Segment(parse_segment("0.0"), WHOLE)])
    async with StreamProducer(route, ProducerSettings(), table, ask) as producer:
        for lock in (producer._routing, producer._send_buffer._lock):
            with held(lock):
                said = in_fork(lambda: producer.send(b"v", key=b"k"))
                assert said.startswith("InvalidRequestError: this client was opened in process")
        assert (await producer.send(b"v", key=b"k")).offset == 0, "the parent goes on"


async def test_given_an_outcome_that_is_being_set_then_the_child_is_told_what_is_known(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        known = producer.send(b"v")
        await known
        world.spu.may_answer.clear()
        unknown = producer.send(b"w", partition=0)
        refused = "InvalidRequestError: this client was opened in process"
        asked: list[tuple[Delivery, Callable[[], object], str]] = [
            (known, known.done, "True"),
            (known, known.result, "offset=0"),
            (unknown, unknown.done, "False"),
            (unknown, unknown.result, refused),
            (unknown, lambda: next(unknown.__await__()), refused),
        ]
        for delivery, ask, expected in asked:
            with held(delivery._batch.outcome._condition):
                assert expected in in_fork(ask)
        world.spu.may_answer.set()


def test_given_a_file_that_is_being_opened_then_the_child_opens_files_of_its_own() -> None:
    with held(segment_file._open_files._lock):
        assert in_fork(segment_file._open_files.remove) == "None"


async def test_given_a_stream_consumer_then_the_child_cannot_read_and_may_close_it() -> None:
    thread = LoopThread("reads")
    consumer = one_split().consumer("latest")
    try:
        facade = blocking.StreamConsumer(thread, consumer)
        assert in_fork(facade.close) == "None"
        assert "is a fork" in in_fork(facade.poll)
        assert "is a fork" in in_fork(lambda: asyncio.run(consumer.poll()))
        assert in_fork(lambda: asyncio.run(consumer.close())) == "None"
    finally:
        thread.stop()


async def test_given_a_group_reader_then_the_child_cannot_read_and_may_close_it(
    world: World,
) -> None:
    thread = LoopThread("reads")
    world.sc.add_topic("orders")
    try:
        async with world.cluster.reader_group("g", topics=["orders"]) as group:
            reader = group.reader("a")
            facade = groups.GroupReader(thread, reader)
            assert in_fork(facade.close) == "None"
            assert "is a fork" in in_fork(facade.poll)
            assert "is a fork" in in_fork(lambda: asyncio.run(reader.poll()))
            assert in_fork(lambda: asyncio.run(reader.close())) == "None"
    finally:
        thread.stop()
