"""Work that outlives the call that waits for it."""

from __future__ import annotations

import asyncio
import gc

import pytest

from runnel.kept_work import KeptWork


async def out_of_time(kept: KeptWork[int], gate: asyncio.Event, *, fails: bool = False) -> None:
    """A call whose time is over before the work is done."""

    async def work() -> int:
        await gate.wait()
        if fails:
            raise ValueError("it failed")
        return 1

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await kept.run(work)


async def other() -> int:
    return 2


async def test_given_a_call_that_waits_no_more_then_the_next_one_gets_the_result() -> None:
    kept: KeptWork[int] = KeptWork("work")
    gate = asyncio.Event()
    await out_of_time(kept, gate)
    await out_of_time(kept, gate)
    (task,) = (one for one in asyncio.all_tasks() if one.get_name() == "work")
    gate.set()
    await asyncio.wait([task])
    async with asyncio.timeout(0):
        assert await kept.run(other) == 1
    assert await kept.run(other) == 2


async def test_given_work_that_failed_while_nobody_waited_then_the_next_call_raises_it() -> None:
    kept: KeptWork[int] = KeptWork("work")
    gate = asyncio.Event()
    gate.set()
    await out_of_time(kept, gate, fails=True)
    with pytest.raises(ValueError, match="it failed"):
        await kept.run(other)
    assert await kept.run(other) == 2


async def test_given_work_that_failed_and_that_nobody_asks_for_then_no_complaint() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: complaints.append(found))
    kept: KeptWork[int] = KeptWork("work")
    gate = asyncio.Event()
    gate.set()
    await out_of_time(kept, gate, fails=True)
    await asyncio.sleep(0)
    del kept
    gc.collect()
    assert not complaints


async def test_given_work_that_is_cancelled_then_who_waits_gets_none() -> None:
    kept: KeptWork[int] = KeptWork("work")
    await out_of_time(kept, asyncio.Event())
    waiting = asyncio.create_task(kept.run(other))
    await asyncio.sleep(0)
    (task,) = kept.cancel()
    assert await waiting is None
    assert task.cancelled()
    assert kept.cancel() == []
