"""Bodies that are large or slow: refused in bounds, while the SC goes on serving everybody else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import aiohttp
import pytest

from sc.api import bodies
from tests.integration.sc.calls import call, send
from tests.integration.sc.conftest import RunningSc, manifest
from tests.polling import eventually

#: SPUs leave an SC that is silent for this long (`HEARTBEAT_MS` and `MISSES`).
SILENCE_S = 0.75
JSON = {"Content-Type": "application/json"}


@dataclass
class Gap:
    worst_s: float = 0.0


@asynccontextmanager
async def measured() -> AsyncIterator[Gap]:
    """The longest time for which the event loop did nothing else."""
    gap = Gap()

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            gap.worst_s = max(gap.worst_s, time.perf_counter() - before)

    ticking = asyncio.create_task(tick())
    try:
        yield gap
        await asyncio.sleep(0.02)
    finally:
        ticking.cancel()


def body(spec: dict[str, Any]) -> bytes:
    return json.dumps(manifest("Topic", "t", spec)).encode()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            body({f"partitionss{i}": 1 for i in range(10_000)}), id="given-unknown-fields"
        ),
        pytest.param(body({"assignment": [{"id": "x"}] * 60_000}), id="given-wrong-rows"),
        pytest.param(body({"assignment": list(range(140_000))}), id="given-numbers"),
        pytest.param(b"[" * 1_000_000, id="given-nesting"),
    ],
)
async def test_given_wrong_bodies_then_the_loop_goes_on(sc: RunningSc, data: bytes) -> None:
    """Ten thousand unknown fields once held the loop for four seconds."""
    async with measured() as gap:
        answers = await asyncio.gather(
            *(send(sc, "POST", "/v1/topics", data, JSON) for _ in range(4))
        )
    assert [status for status, _ in answers] == [400] * 4
    assert all(len(error["message"]) < 10_000 for _, error in answers)
    assert gap.worst_s < SILENCE_S


async def test_given_a_large_good_patch_then_done_off_the_loop(sc: RunningSc) -> None:
    assert (await sc.create("Topic", "t", {}))[0] == 201
    labels = {f"k{i}": "v" * 50 for i in range(12_000)}
    async with measured() as gap:
        status, answer = await call(sc, "PATCH", "/v1/topics/t", {"metadata": {"labels": labels}})
    assert (status, len(answer["metadata"]["labels"])) == (200, len(labels))
    assert gap.worst_s < SILENCE_S


async def test_given_a_body_that_drips_then_refused_in_time(sc: RunningSc) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    with mock.patch.object(bodies, "BODY_TIMEOUT_S", 0.2):
        async with sc.http.post(f"{sc.public}/v1/topics", data=drip(), headers=JSON) as response:
            error = await response.json()
    assert (response.status, error["message"]) == (408, "the body did not arrive within 0.2 s")


async def test_given_bodies_that_fill_the_room_then_more_are_refused(sc: RunningSc) -> None:
    """Memory is bounded for all bodies together; room is there again when they are gone."""
    went_on = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield b" " * 900_000
        await went_on.wait()

    url = f"{sc.public}/v1/topics"
    with mock.patch.object(bodies, "HELD_BODIES", 2):
        async with aiohttp.ClientSession() as other:
            waiting = [
                asyncio.create_task(other.post(url, data=half(), headers=JSON)) for _ in range(2)
            ]
            await eventually(lambda: sc.server.held_body_bytes == 1_800_000)
            status, error = await send(sc, "POST", "/v1/topics", b" " * 300_000, JSON)
            assert (status, error["code"]) == (503, "OVERLOADED")
            went_on.set()
            answers = await asyncio.gather(*waiting)
    assert [answer.status for answer in answers] == [400, 400]
    assert sc.server.held_body_bytes == 0
