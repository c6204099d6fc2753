"""What an SPU tells Prometheus and probes of itself, as it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from schemas.errors import InvalidRequestError
from spu.config import HttpLimits
from spu.control import SpuControl
from spu.http import start_http_server
from tests.integration.spu.client import Client
from tests.integration.spu.served import Served
from tests.unit.spu.builders import batch_of


@pytest.fixture
async def address(served: Served, tmp_path: Path) -> AsyncIterator[str]:
    control = SpuControl(1, "0.1.0", tmp_path / "secret")
    runner, port = await start_http_server(
        served.spu.host, served.listener, control, "127.0.0.1", 0
    )
    yield f"http://127.0.0.1:{port}"
    await runner.cleanup()


async def read(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        return await response.text()


async def test_given_requests_then_metrics_count_them(served: Served, address: str) -> None:
    async with await Client.connect(served.port) as client:
        await client.produce(batch_of(3))
        with pytest.raises(InvalidRequestError):
            await client.list_offsets(-9)
        text = await read(f"{address}/metrics")
    lines = [line.partition(" ") for line in text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, _, value in lines}
    received, sent = (found.pop(f"runnel_spu_{way}_bytes_total") for way in ("received", "sent"))
    assert received > 200
    assert sent > 50
    assert found == {
        'runnel_spu_requests_total{api="hello"}': 1,
        'runnel_spu_requests_total{api="produce"}': 1,
        'runnel_spu_requests_total{api="list_offsets"}': 1,
        'runnel_spu_errors_total{code="INVALID_REQUEST"}': 1,
        "runnel_spu_connections": 1,
        'runnel_spu_replicas{role="leader"}': 1,
        'runnel_spu_replicas{role="follower"}': 0,
        'runnel_spu_replicas{role="idle"}': 0,
        'runnel_spu_replicas{role="stopped"}': 0,
        "runnel_spu_unfit_replicas": 0,
        "runnel_spu_stalled_replicas": 0,
        "runnel_spu_unreachable_peers": 0,
        "runnel_spu_scrubbed_bytes_total": 0,
        "runnel_spu_scrub_passes_total": 0,
        "runnel_spu_scrub_damaged_replicas_total": 0,
        "runnel_spu_connected": 0,
    }


async def test_given_limits_then_they_hold_at_the_port(served: Served, tmp_path: Path) -> None:
    control = SpuControl(1, "0.1.0", tmp_path / "secret")
    limits = HttpLimits(waiting_connections_per_address=1)
    runner, port = await start_http_server(
        served.spu.host, served.listener, control, "127.0.0.1", 0, limits
    )
    try:
        silent, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await read(f"http://127.0.0.1:{port}/health")
        with suppress(ConnectionError):
            assert await silent.read(1) == b""
        writer.close()
    finally:
        await runner.cleanup()


async def test_given_no_session_then_health_is_ok_and_says_so(address: str) -> None:
    assert await read(f"{address}/health") == '{"status": "ok", "controllerConnected": false}'
