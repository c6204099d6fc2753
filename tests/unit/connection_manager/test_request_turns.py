"""Requests take turns: one begins in each turn of the event loop, and addresses take turns."""

from __future__ import annotations

import asyncio

from connection_manager.request_turns import RequestTurns


async def test_given_nobody_waits_then_at_once() -> None:
    turns = RequestTurns()
    for _ in range(3):
        await turns.wait("a")
        await asyncio.sleep(0)


async def test_given_many_then_one_begins_in_each_turn_of_the_loop() -> None:
    turns, begun = RequestTurns(), 0

    async def request() -> None:
        nonlocal begun
        await turns.wait("flood")
        begun += 1

    requests = [asyncio.create_task(request()) for _ in range(50)]
    most = 0
    while not all(one.done() for one in requests):
        before = begun
        await asyncio.sleep(0)
        most = max(most, begun - before)
    assert most == 1
    assert begun == 50


async def test_given_a_flood_from_one_address_then_others_do_not_wait_for_all_of_it() -> None:
    turns, begun = RequestTurns(), []

    async def request(address: str) -> None:
        await turns.wait(address)
        begun.append(address)

    requests = [asyncio.create_task(request("flood")) for _ in range(50)]
    requests += [asyncio.create_task(request(name)) for name in ("monitor", "user")]
    await asyncio.gather(*requests)
    assert set(begun[:4]) == {"flood", "monitor", "user"}
    assert begun.count("flood") == 50


async def test_given_a_client_that_goes_while_it_waits_then_the_next_one_begins() -> None:
    turns = RequestTurns()
    await turns.wait("a")
    gone, next_one = (asyncio.create_task(turns.wait(name)) for name in "ab")
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(5):
        await next_one
        await turns.wait("c")
