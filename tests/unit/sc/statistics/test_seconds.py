"""Those that wait for the end of a second, and what they hear when there is no further one."""

from __future__ import annotations

import asyncio

import pytest

from sc.statistics.seconds import Seconds
from schemas.errors import FencedError


async def test_given_an_sc_that_leads_no_more_then_nobody_waits_for_ever() -> None:
    closed: list[int] = []
    seconds = Seconds(lambda: 7_990, closed.append)
    counting = asyncio.create_task(seconds.run())
    await seconds.end()
    assert closed == [7]
    waiting = asyncio.create_task(seconds.end())
    await asyncio.sleep(0)
    seconds.stop("the lease is over")
    for _ in range(2):
        with pytest.raises(FencedError, match="the lease is over"):
            await waiting
        waiting = asyncio.create_task(seconds.end())
    # A second that ends afterwards changes nothing.
    await asyncio.sleep(0.02)
    with pytest.raises(FencedError):
        await asyncio.gather(waiting, seconds.end())
    counting.cancel()
