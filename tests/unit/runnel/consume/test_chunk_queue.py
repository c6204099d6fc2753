"""The way of chunks out of the loop: order, who sleeps and is woken, and what is no chunk."""

from __future__ import annotations

import asyncio
import threading
from itertools import chain

import pytest

from runnel.consume.chunk_queue import ChunkQueue
from runnel.loop_thread import LoopThread

#: Of what has to be woken long before.
LONG_S = 20.0


async def test_given_what_is_no_chunk_then_takers_stop_before_it_and_getters_see_it() -> None:
    queue: ChunkQueue[str] = ChunkQueue()
    error = ValueError("no chunk")
    queue.put("a")
    queue.put("b")
    queue.put_other(error)
    queue.put("c")
    assert [queue.take(), queue.take(), queue.take()] == ["a", "b", None]
    assert await queue.get() is error
    assert await queue.get() == ("c",)
    assert queue.empty


async def test_given_nothing_then_getters_wait_and_each_gets_its_own() -> None:
    queue: ChunkQueue[str] = ChunkQueue()
    async with asyncio.timeout(LONG_S), asyncio.TaskGroup() as group:
        gone = group.create_task(queue.get())
        getters = [group.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(0)
        gone.cancel()
        queue.put("a")
        await asyncio.wait(getters, return_when=asyncio.FIRST_COMPLETED)
        queue.put_other(None)
    assert sorted(str(getter.result()) for getter in getters) == ["('a',)", "None"]


def test_given_something_then_nobody_falls_asleep() -> None:
    queue: ChunkQueue[str] = ChunkQueue()
    queue.put_other(None)
    queue.sleep(threading.TIMEOUT_MAX)
    assert queue.take() is None


@pytest.mark.parametrize("other", [False, True], ids=["given-a-chunk", "given-what-is-none"])
def test_given_sleepers_then_whatever_is_put_wakes_all_of_them(other: bool) -> None:
    queue: ChunkQueue[str] = ChunkQueue()
    sleepers = [threading.Thread(target=queue.sleep, args=(3_600,), daemon=True) for _ in "ab"]
    for sleeper in sleepers:
        sleeper.start()
    while len(queue._sleepers) < len(sleepers):
        pass
    if other:
        queue.put_other(None)
    else:
        queue.put("a")
    for sleeper in sleepers:
        sleeper.join(LONG_S)
    assert not any(sleeper.is_alive() for sleeper in sleepers)


def test_given_a_sleeper_that_gives_up_then_it_is_forgotten() -> None:
    queue: ChunkQueue[str] = ChunkQueue()
    queue.sleep(0.001)
    assert not queue._sleepers


def test_law_threads_take_each_chunk_once_and_in_order() -> None:
    queue: ChunkQueue[int] = ChunkQueue()
    count = 3_000
    found: list[list[int]] = [[], [], []]

    def take(mine: list[int]) -> None:
        while True:
            chunk = queue.take()
            if chunk is None:
                queue.sleep(LONG_S)
            elif chunk == count:
                queue.put(count)
                return
            else:
                mine.append(chunk)

    takers = [threading.Thread(target=take, args=(mine,), daemon=True) for mine in found]
    for taker in takers:
        taker.start()
    thread = LoopThread("puts")

    async def put() -> None:
        for number in range(count + 1):
            queue.put(number)
            if not number % 7:
                await asyncio.sleep(0)

    thread.call(put())
    for taker in takers:
        taker.join(LONG_S)
    thread.stop()
    assert all(mine == sorted(mine) for mine in found)
    assert sorted(chain.from_iterable(found)) == list(range(count))
