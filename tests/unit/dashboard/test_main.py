"""When the dashboard process ends."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from dashboard.config import DashboardConfig
from dashboard.live.hub import Hub
from dashboard.main import serve
from schemas.daemon.daemon import Listen

ENOUGH_S = 10.0
CONFIG = DashboardConfig(sc="127.0.0.1:1", http=Listen(port=0))


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.main.raise_limit", lambda: None)


async def test_given_a_hub_that_ends_then_the_process_ends_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_hub: Hub) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Hub, "run", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        async with asyncio.timeout(ENOUGH_S):
            await serve(CONFIG)


async def test_given_a_signal_then_it_ends_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def signalled(_hub: Hub) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(Hub, "run", signalled)
    async with asyncio.timeout(ENOUGH_S):
        await serve(CONFIG)
