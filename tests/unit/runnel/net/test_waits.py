"""That who cannot send or read says why, and not too often."""

from __future__ import annotations

import asyncio
import logging

import pytest

from runnel.net import waits
from runnel.net.waits import AGAIN_S, PATIENCE_S, Waits
from schemas.errors import OverloadedError, StorageFullError
from tests.unit.runnel.conftest import World


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        pytest.param([(0, 0), (0, PATIENCE_S - 1)], [False, False], id="given-an-election-then-no"),
        pytest.param([(0, PATIENCE_S)], [True], id="given-a-long-wait-then-yes"),
        pytest.param(
            [(0, 10), (9, 20), (0, 10 + AGAIN_S)],
            [True, False, True],
            id="given-others-that-wait-too-then-once-a-minute",
        ),
    ],
)
def test_when_a_warning_is_due(attempts: list[tuple[float, float]], said: list[bool]) -> None:
    found = Waits()
    assert [found.due(began_s, now_s) for began_s, now_s in attempts] == said


async def test_given_an_spu_without_room_then_the_program_hears_what_its_producer_waits_for(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PATIENCE_S", 0.0)
    world.sc.add_topic("orders")
    why = "no room for records: 1 MiB is free"
    world.spu.produce_script.extend([StorageFullError(why)] * 2)
    with caplog.at_level(logging.WARNING, "runnel"):
        async with world.cluster.producer("orders") as producer, asyncio.timeout(10):
            await producer.send(b"x")
    assert [one.message for one in caplog.records] == [
        f"still trying to send to partition orders/0: {why}"
    ]


async def test_given_a_leader_that_nobody_reaches_then_the_program_hears_what_its_reader_waits_for(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PATIENCE_S", 0.0)
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        await producer.send(b"x")
    why = "it is busy"
    world.spu.fetch_script.extend([OverloadedError(why)] * 2)
    with caplog.at_level(logging.WARNING, "runnel"):
        async with world.cluster.consumer("orders", "earliest") as consumer, asyncio.timeout(10):
            async for record in consumer:
                assert record.value == b"x"
                break
    assert [one.message for one in caplog.records] == [
        f"still trying to read partition orders/0: {why}"
    ]
