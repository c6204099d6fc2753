"""An SC that listens to the one that leads, and does not understand what that says."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from sc.sharing import listening
from sc.sharing.listening import DEAF_MS, FactsListener, Heard
from schemas.control.facts import PATH, Facts
from tests.polling import eventually
from tests.unit.sc.builders import SC


async def test_given_words_that_it_does_not_understand_then_it_counts_as_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.001)
    now_ms = asked = 0

    async def told(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(body=Facts(spus=(), waits=False).encode() + b'{"segments": 5}\n')

    app = web.Application()
    app.router.add_get(PATH, told)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    leader = SC.model_copy(update={"private": f"{host}:{port}"})
    heard = cast(Heard, SimpleNamespace(lost=lambda _: None, hear=lambda *_: None))
    listener = FactsListener(heard, lambda: leader, lambda: now_ms)
    running = asyncio.create_task(listener.run())
    await eventually(lambda: asked >= 2)
    assert [listener.is_deaf] == [False]
    now_ms, asked = DEAF_MS, 0
    await eventually(lambda: asked >= 3)
    assert listener.is_deaf
    assert "ValidationError" in listener.trouble
    assert listener.trouble.endswith(f"let this SC reach its private port, {leader.private}")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await runner.cleanup()
