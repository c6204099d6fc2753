"""Ctrl-C in the thread of a caller: what it leaves, and what it does not leave open."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

import pytest

import runnel
from tests.unit.runnel.interrupts import interrupted_everywhere
from tests.unit.runnel.served import Served

#: The modules that a call passes through in the thread of its caller.
CLOSING = ("runnel.loop_thread", "runnel.waiters", "runnel.consume.blocking", "runnel.fork")
OPENING = ("runnel.loop_thread", "runnel.waiters", "runnel.blocking")
#: Python says so of a call that Ctrl-C met before it began.
NOT_BEGUN = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def test_given_an_interrupt_then_the_block_is_left_without_waiting(served: Served) -> None:
    deliveries: list[runnel.Delivery] = []

    def work() -> None:
        with runnel.connect(served.sc.address) as cluster:
            cluster.apply(runnel.Topic("orders"))
            served.spu.may_answer.clear()
            with cluster.producer("orders", delivery_timeout_ms=60_000) as producer:
                deliveries.append(producer.send(b"v"))
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    with pytest.raises(runnel.DeadlineExceededError):
        deliveries[0].result(0)


def test_given_ctrl_c_while_waiting_for_records_then_the_loop_is_left(served: Served) -> None:
    def follow() -> None:
        with runnel.connect(served.sc.address) as cluster:
            cluster.apply(runnel.Topic("orders"))
            consumer = cluster.consumer("orders")
            threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
            for record in consumer:
                raise AssertionError(record)

    with pytest.raises(KeyboardInterrupt):
        follow()


@NOT_BEGUN
def test_given_ctrl_c_anywhere_in_the_end_of_a_consumer_then_it_ends_all_the_same(
    served: Served,
) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        current = [cluster.consumer("orders")]
        points = 0
        for raised in interrupted_everywhere(lambda: current[0].close(), CLOSING):
            assert isinstance(raised, KeyboardInterrupt)
            # Where it had not begun to close it, its user has left it now.
            del raised
            current.clear()
            assert still_open(cluster, wanted=0) == set(), points
            current.append(cluster.consumer("orders"))
            points += 1
        assert points > 20


@contextmanager
def busy(cluster: runnel.Cluster) -> Iterator[None]:
    """The client's loop begins nothing meanwhile, and then Ctrl-C comes."""
    free = threading.Event()
    cluster._thread.soon(free.wait)
    threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        yield
    free.set()


def test_given_ctrl_c_before_a_named_consumer_begins_to_close_then_it_ends_without_a_commit(
    served: Served,
) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        with cluster.producer("orders") as producer:
            producer.send(b"v")
        consumer = cluster.consumer("orders", "earliest", name="reader")
        assert consumer.poll() is not None
        with busy(cluster):
            consumer.close()
        assert still_open(cluster, wanted=0) == set()
        consumer.close()
        (found,) = cluster.consumers("reader")
        assert [one.committed for one in found.partitions] == [0]


def test_given_ctrl_c_before_the_block_of_a_consumer_ends_then_it_ends(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        consumer = cluster.consumer("orders")
        with busy(cluster), consumer:
            pass
        assert still_open(cluster, wanted=0) == set()


@pytest.mark.parametrize("of_group", [False, True], ids=["reader", "group"])
def test_given_ctrl_c_before_readers_of_a_group_begin_to_close_then_they_leave_it(
    served: Served, *, of_group: bool
) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        group = cluster.reader_group("g", topics=["orders"])
        readers = [group.reader("a"), group.reader("b")]
        for reader in readers:
            reader.poll(0.1)
        assert len(group.describe().readers) == 2
        closing = group if of_group else readers.pop()
        with busy(cluster):
            closing.close()
        deadline = monotonic() + 5
        left = 0 if of_group else 1
        while len(group.describe().readers) > left and monotonic() < deadline:
            sleep(0.01)
        assert len(group.describe().readers) == left


def test_given_ctrl_c_before_a_watch_begins_to_close_then_it_ends(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        watch = cluster.watch("topics")
        watch.state()
        with busy(cluster):
            watch.close()
        assert not cluster._thread.call(is_open(watch))


async def is_open(watch: runnel.Watch) -> bool:
    return watch._inner._batches is not None


@NOT_BEGUN
def test_given_ctrl_c_anywhere_while_a_named_consumer_opens_then_the_end_tells_of_none(
    served: Served,
) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        opened: list[runnel.Consumer] = []

        def open_one() -> None:
            opened.append(cluster.consumer("orders", name="reader"))

        # Each takes the name from the one before.
        raised = list(interrupted_everywhere(open_one, OPENING))
        assert len(raised) > 20


def still_open(cluster: runnel.Cluster, wanted: int) -> set[object]:
    """What is open after a while, at the latest once only so many are."""
    deadline = monotonic() + 5
    while len(found := set[object](cluster._inner._open)) > wanted and monotonic() < deadline:
        sleep(0.001)
    return found
