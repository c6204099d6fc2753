"""``runnel bench`` on a running cluster: the shape of what it says, and what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runnel.admin.blocking import administer
from tests.e2e.conftest import SQLITE_ALONE, TIMEOUT_S, Command
from tests.polling import eventually

pytestmark = SQLITE_ALONE

TINY: dict[str, tuple[str, ...]] = {
    "given-produce-by-table": (
        *("produce", "--records", "3000", "--record-size", "100"),
        *("--partitions", "2", "--replication-factor", "2"),
    ),
    "given-produce-one-by-one": (
        *("produce", "--per-record", "--seconds", "0.2", "--compression", "lz4"),
        *("--partitions", "3", "--batch-bytes", "8Ki", "--acks", "leader"),
    ),
    "given-consume-of-what-nobody-acknowledged": (
        "consume",
        "--records",
        "2000",
        "--record-size",
        "100",
        "--acks",
        "none",
    ),
    "given-consume-by-batch-over-and-over": (
        "consume",
        "--record-size",
        "64Ki",
        "--seconds",
        "0.2",
    ),
    "given-e2e-one-by-one": ("e2e", "--rate", "2000", "--records", "400", "--acks", "none"),
    "given-e2e-by-table": (
        *("e2e", "--columnar", "--rate", "2000", "--seconds", "0.2", "--partitions", "3"),
        *("--durability", "replicated"),
    ),
}


def topics(cluster: Command) -> list[str]:
    """Names of all topics; without starting another process, which takes longer than the rest."""
    with administer(cluster.sc) as objects:
        return [topic.name for topic in objects.list("topics")]


def bench(cluster: Command, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster("bench", *arguments, "--json"))
    return found


@pytest.mark.parametrize("arguments", TINY.values(), ids=TINY)
def test_figures_and_no_topic_left(cluster: Command, arguments: tuple[str, ...]) -> None:
    before = topics(cluster)
    found = bench(cluster, *arguments)
    assert topics(cluster) == before
    assert list(found) == [
        "mb_per_s", "records_per_s", "latency_ms", "cpu_s_per_million",
        "floor", "of_floor", "settings",
    ]  # fmt: skip
    assert list(found["latency_ms"]) == ["p50", "p99", "max"]
    assert list(found["floor"]) == ["write_mb_per_s", "loopback_mb_per_s", "fsync_ms"]
    assert list(found["of_floor"]) == list(found["floor"])
    assert found["mb_per_s"] > 0
    assert found["records_per_s"] > 0
    assert 0 <= found["latency_ms"]["p50"] <= found["latency_ms"]["p99"]
    assert found["latency_ms"]["p99"] <= found["latency_ms"]["max"]
    # The cluster is on this host, with all its daemons.
    assert found["cpu_s_per_million"] > 0
    assert min(found["floor"].values()) > 0
    settings = found["settings"]
    assert settings["mode"] == arguments[0]
    assert settings["topic"] is None
    assert settings["floor_directory"] == str(cluster.home / "local")
    assert list((cluster.home / "local").glob("bench-*")) == []


def test_given_a_topic_then_it_is_used_and_stays(cluster: Command) -> None:
    cluster("create", "topic", "measured", "--partitions", "2", "--compression", "zstd")
    cluster("produce", "measured", stdin="already here\n")
    found = bench(cluster, "consume", "--per-record", "--topic", "measured", "--records", "50")
    settings = found["settings"]
    assert (settings["partitions"], settings["compression"]) == (2, "zstd")
    assert "measured" in topics(cluster)
    assert len(cluster("consume", "measured", "-B", "--no-follow").splitlines()) == 51


def test_text_says_what_is_measured_and_against_what(cluster: Command) -> None:
    text = cluster("bench", "produce", "--records", "500")
    assert "produced 500 records of 1,024 bytes" in text
    assert f"floor: files in {cluster.home / 'local'}" in text
    assert text.splitlines()[-1].startswith("limit: ")


def test_given_an_sc_by_address_in_another_home_then_daemons_are_not_known(
    cluster: Command, tmp_path: Path
) -> None:
    assert cluster.sc is not None
    stranger = Command(tmp_path / "home")
    found = bench(stranger, "produce", "--records", "500", "--sc", cluster.sc)
    assert found["cpu_s_per_million"] is None
    assert not found["settings"]["floor_directory"].startswith(str(cluster.home))


RUNNING = {
    "produce": ("produce", "--seconds", "60", "--record-size", "10", "--per-record"),
    "e2e": ("e2e", "--seconds", "60", "--rate", "100"),
}


@pytest.mark.parametrize("arguments", RUNNING.values(), ids=RUNNING)
@pytest.mark.parametrize(
    ("signal_sent", "code", "lines"),
    [
        pytest.param(signal.SIGINT, 130, ["interrupted"], id="given-ctrl-c"),
        pytest.param(signal.SIGTERM, 143, ["terminated"], id="given-sigterm"),
    ],
)
async def test_given_a_signal_then_its_topic_is_gone(
    cluster: Command,
    arguments: tuple[str, ...],
    signal_sent: signal.Signals,
    code: int,
    lines: list[str],
) -> None:
    before = topics(cluster)
    process = cluster.start("bench", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await eventually(lambda: topics(cluster) != before, timeout_s=60)
    process.send_signal(signal_sent)
    out, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (code, b"")
    assert said.decode().splitlines() == lines
    assert topics(cluster) == before
