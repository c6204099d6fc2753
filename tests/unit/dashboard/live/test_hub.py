"""When the tables of browsers are made."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest

import dashboard.live.hub as hub_module
from dashboard.live.hub import Hub, running
from dashboard.live.tables import NOTHING, Changes
from runnel.admin.http import ScClient
from tests.unit.sc.builders import topic_of

OTHERS = ("health", "problems", "spus")

ENOUGH_S = 10.0


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    """A hub that knows a whole cluster, and follows none."""
    sc = ScClient.parse("127.0.0.1:1", "test")
    hub = Hub(sc)
    hub.state.begin()
    hub.state.take("added", topic_of("orders").to_json(), 1)
    hub.state.take("synced", {"revision": 1}, 1)
    yield hub
    await sc.close()


async def first(hub: Hub, name: str) -> Changes:
    """What a browser gets first of a table that it begins to show."""
    with hub.reading([name]):
        async with asyncio.timeout(ENOUGH_S):
            while not (found := hub.changes({name: NOTHING})):
                await hub.wait()
    return found[name]


async def test_given_a_table_that_nobody_showed_then_it_does_not_wait_for_the_next_refresh(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After one refresh the hub rests for minutes.
    monkeypatch.setattr(hub_module, "BUSY_SHARE", 1e-7)
    async with running(hub):
        with hub.reading(["health"]):
            assert (await first(hub, "health")).rows.keys() == {"cluster"}
            assert (await first(hub, "topics")).rows.keys() == {"orders"}
            assert (await first(hub, "problems")).whole
            # One without rows comes, too, so that the screen can say that there is none.
            assert await first(hub, "spus") == Changes(1, {}, whole=True)


async def test_given_a_fault_in_one_table_while_it_rests_then_it_says_so_and_makes_the_others(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RuntimeError("a fault")

    monkeypatch.setattr(hub_module, "BUSY_SHARE", 1e-7)
    monkeypatch.setattr(hub_module, "topic_rows", fail)
    # As if all was well before.
    hub._broken = None
    async with running(hub) as work:
        await first(hub, "health")
        with hub.reading(["topics", *OTHERS]):
            async with asyncio.timeout(ENOUGH_S):
                await hub.wait()
            assert hub.trouble == (
                "internal error, see the dashboard's log: RuntimeError('a fault')"
            )
            # Whichever came first.
            assert hub.changes(dict.fromkeys(OTHERS, NOTHING)).keys() == {*OTHERS}
        assert not work.done()


async def test_given_a_table_that_was_not_made_yet_then_no_browser_gets_it_empty(hub: Hub) -> None:
    with hub.reading(["topics"]):
        assert hub.changes({"topics": NOTHING}) == {}


async def test_given_an_sc_that_stands_still_then_the_hub_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_module, "ANSWER_S", 0.05)
    # The system takes connections for it, as for a stopped process, and nobody answers.
    with socket.create_server(("127.0.0.1", 0)) as still:
        port = still.getsockname()[1]
        sc = ScClient.parse(f"127.0.0.1:{port}", "test")
        hub = Hub(sc)
        # As if all was well before.
        hub._broken = None
        async with running(hub):
            with hub.browser():
                async with asyncio.timeout(ENOUGH_S):
                    await hub.wait()
                assert hub.trouble == f"the SC at 127.0.0.1:{port} has not answered for 0.05 s"
        await sc.close()
