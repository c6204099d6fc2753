"""What an SPU tells Prometheus and probes of itself, as it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from schemas.errors import CorruptBatchError, InvalidRequestError
from spu.config import HttpLimits, MetricsConfig
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


def samples(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_given_requests_then_metrics_count_them(served: Served, address: str) -> None:
    async with await Client.connect(served.port) as client:
        await client.produce(batch_of(3))
        with pytest.raises(InvalidRequestError):
            await client.list_offsets(-9)
        text = await read(f"{address}/metrics")
    found = {
        name: value
        for name, value in samples(text).items()
        if name.startswith("runnel_spu_") and "_seconds" not in name and "disk" not in name
    }
    received, sent = (found.pop(f"runnel_spu_{way}_bytes_total") for way in ("received", "sent"))
    assert received > 200
    assert sent > 50
    assert found.pop("runnel_spu_available_bytes") > 0
    written = found.pop("runnel_spu_appended_bytes_total")
    assert received > written > 100
    # The control record of the leadership lies in the log, too.
    assert found.pop("runnel_spu_log_bytes") >= 0
    assert found == {
        'runnel_spu_requests_total{api="hello"}': 1,
        'runnel_spu_requests_total{api="produce"}': 1,
        'runnel_spu_requests_total{api="list_offsets"}': 1,
        'runnel_spu_errors_total{code="INVALID_REQUEST"}': 1,
        "runnel_spu_connections": 1,
        "runnel_spu_accepted_connections_total": 1,
        "runnel_spu_appended_records_total": 3,
        "runnel_spu_replicated_bytes_total": 0,
        "runnel_spu_refuses_records": 0,
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


async def test_given_requests_then_their_latencies_are_in_the_histograms(
    served: Served, address: str
) -> None:
    async with await Client.connect(served.port) as client:
        for _ in range(3):
            await client.produce(batch_of(1))
        with pytest.raises(CorruptBatchError):
            await client.produce(batch_of(1)[:-1])
        await client.fetch(0)
        found = samples(await read(f"{address}/metrics"))
    assert found["runnel_spu_produce_seconds_count"] == 3
    assert found["runnel_spu_append_seconds_count"] == 3
    # Requests share fsyncs; the control record of the leadership had its own.
    assert found["runnel_spu_fsync_seconds_count"] >= 3
    assert found['runnel_spu_fetch_seconds_count{source="cache"}'] == 1
    assert found['runnel_spu_fetch_seconds_count{source="disk"}'] == 0
    for name in ("produce", "append", "fsync"):
        assert found[f'runnel_spu_{name}_seconds_bucket{{le="10.0"}}'] >= 3
        assert 0 < found[f"runnel_spu_{name}_seconds_sum"] < 30
    produce, append = (found[f"runnel_spu_{name}_seconds_sum"] for name in ("produce", "append"))
    assert produce > append


async def test_given_the_switch_then_partitions_have_series_and_not_without(
    served: Served, tmp_path: Path, address: str
) -> None:
    assert "runnel_spu_partition_" not in await read(f"{address}/metrics")
    async with await Client.connect(served.port) as client:
        await client.produce(batch_of(3))
    control = SpuControl(1, "0.1.0", tmp_path / "secret")
    runner, port = await start_http_server(
        *(served.spu.host, served.listener, control, "127.0.0.1", 0),
        shown=MetricsConfig(per_partition=True),
    )
    try:
        found = samples(await read(f"http://127.0.0.1:{port}/metrics"))
    finally:
        await runner.cleanup()
    replica = served.replica
    labels = f'{{partition="{replica.meta.index}",topic="{replica.meta.topic}"}}'
    mine = {name: value for name, value in found.items() if "partition_" in name}
    assert mine.pop(f"runnel_spu_partition_log_bytes{labels}") > 0
    assert mine == {
        f"runnel_spu_partition_leader{labels}": 1,
        f"runnel_spu_partition_start_offset{labels}": 0,
        f"runnel_spu_partition_committed_offset{labels}": replica.leo,
        f"runnel_spu_partition_end_offset{labels}": replica.leo,
    }


async def test_given_a_scrape_then_its_media_type_is_that_of_prometheus(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{address}/metrics") as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


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
