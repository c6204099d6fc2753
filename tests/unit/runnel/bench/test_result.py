"""Figures, ratios, and what limits them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runnel.bench.settings import Mode
from tests.unit.runnel.bench.builders import result


def test_figures_of_produce() -> None:
    found = result().to_json()
    settings = found.pop("settings")
    assert found == {
        "mb_per_s": 100.0,
        "records_per_s": 100_000.0,
        "latency_ms": {"p50": 8.0, "p99": 30.0, "max": 41.5},
        "cpu_s_per_million": 8.0,
        "floor": {"write_mb_per_s": 400.0, "loopback_mb_per_s": 1000.0, "fsync_ms": 2.0},
        "of_floor": {"write_mb_per_s": 0.25, "loopback_mb_per_s": 0.1, "fsync_ms": None},
    }
    assert settings["mode"] == "produce"
    assert settings["floor_directory"] == "/data"
    json.dumps(settings)


RATIOS = {
    "given-produce-then-no-latency-in-fsyncs": (Mode.PRODUCE, (0.25, 0.1, None)),
    "given-consume-then-nothing-of-the-disk": (Mode.CONSUME, (None, 0.1, None)),
    "given-e2e-then-all": (Mode.E2E, (0.25, 0.1, 4.0)),
}


@pytest.mark.parametrize(("mode", "expected"), RATIOS.values(), ids=RATIOS)
def test_ratios(mode: Mode, expected: tuple[float | None, ...]) -> None:
    assert tuple(result(mode).to_json()["of_floor"].values()) == expected


def test_given_daemons_elsewhere_then_no_processor_time() -> None:
    assert result(daemons=None).to_json()["cpu_s_per_million"] is None


def test_given_no_latency_then_it_is_null() -> None:
    found = result(Mode.E2E, latency=None).to_json()
    assert found["latency_ms"] == {"p50": None, "p99": None, "max": None}
    assert found["of_floor"]["fsync_ms"] is None


LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "given-idle-everything-then-it-cannot-be-told": ({}, "nothing that was measured here"),
    "given-a-busy-client-then-the-client": (
        {"client_s": 9.0, "machine": 0.8},
        "the client, which is busy 90% of one core",
    ),
    "given-a-busy-daemon-then-its-name": (
        {"daemons": {"sc-0": 0.1, "spu-0": 9.5}, "machine": 0.8},
        "spu-0, which is busy 95% of one core",
    ),
    "given-a-full-machine-then-the-processors": (
        {"client_s": 8.0, "daemons": {"spu-0": 8.0}, "machine": 0.95},
        "the processors: 2 cores are 95% busy",
    ),
    "given-a-machine-full-of-others-then-they-are-named": (
        {"client_s": 2.0, "machine": 1.0},
        "other work on this machine: its 2 cores are 100% busy, 30% for this",
    ),
    "given-others-beside-a-busy-client-then-the-others": (
        {"client_s": 9.0, "daemons": {"spu-0": 0.1}, "machine": 1.0},
        "other work on this machine",
    ),
    "given-daemons-elsewhere-then-by-the-client": (
        {"client_s": 9.0, "daemons": None, "machine": 0.5},
        "the client, which is busy 90%",
    ),
    "given-the-speed-of-the-disk-then-the-disk": (
        {"records": 3_000_000},
        "the disk: a bare write is not much faster",
    ),
    "given-the-speed-of-the-socket-then-the-network": (
        {"mode": Mode.CONSUME, "records": 8_000_000},
        "the network: a bare socket is not much faster",
    ),
    "given-a-rate-that-was-kept-then-the-rate": (
        {"mode": Mode.E2E, "client_s": 9.9},
        "the rate that was asked for, which was kept",
    ),
    "given-a-rate-that-was-missed-then-why": (
        {"mode": Mode.E2E, "rate": 200_000, "client_s": 9.0, "machine": 0.8},
        "the rate of 200,000/s was not kept; the client",
    ),
}


@pytest.mark.parametrize(("given", "said"), LIMITS.values(), ids=LIMITS)
def test_limit(given: dict[str, Any], said: str) -> None:
    assert result(**given).limit().startswith(said)
