"""A flipped byte in a segment: found while the SPUs run and mended, and found on the disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SQLITE_ALONE, Command
from tests.polling import eventually
from tests.ports import free_base_port

pytestmark = SQLITE_ALONE


def until(condition: Callable[[], bool]) -> None:
    asyncio.run(eventually(condition, 60))


@pytest.fixture
def base(runnel: Command) -> int:
    """A cluster of two SPUs with a topic of one partition on both, and some records in it."""
    base = free_base_port(runnel.home / "local", 2)
    runnel("cluster", "start", "--spus", "2", "--base-port", str(base))
    runnel("create", "topic", "orders", "--partitions", "1", "--replication-factor", "2")
    until(lambda: len(partition(runnel)["status"]["lrs"]) == 2)
    runnel("produce", "orders", "--key-separator", ":", stdin="a:1\nb:2\nc:3\n")
    return base


def partition(runnel: Command) -> dict[str, Any]:
    found: dict[str, Any] = runnel.json("get", "partition", "orders-0")
    return found


def spu_directory(runnel: Command, spu: int) -> Path:
    return runnel.home / "local" / "spus" / f"spu-{spu}"


def segment(runnel: Command, uid: str, spu: int) -> Path:
    """The segment with the records, of which some byte of the last batch is to be flipped."""
    return max(
        (spu_directory(runnel, spu) / "partitions" / uid).glob("*.log"),
        key=lambda path: path.stat().st_size,
    )


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    with path.open("r+b") as file:
        file.seek(len(data) - 200)
        file.write(data[-200:-199])


def verify(runnel: Command, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = runnel.run("partition", "verify", *arguments, "-o", "json")
    return done.returncode, json.loads(done.stdout)["items"]


@pytest.mark.long
def test_damage_is_found_and_mended_online_and_found_offline(base: int, runnel: Command) -> None:
    uid, leader = partition(runnel)["metadata"]["uid"], partition(runnel)["status"]["leader"]
    follower = 1 - leader

    code, (found,) = verify(runnel, "orders")
    assert (code, found["result"], sorted(found["alike"])) == (0, "ok", [0, 1])
    assert {replica["records"] for replica in found["replicas"]} == {3}

    flip(segment(runnel, uid, follower))
    code, (found,) = verify(runnel, "--all")
    results = {replica["spu"]: replica for replica in found["replicas"]}
    assert (code, results[leader]["result"], results[follower]["result"]) == (1, "ok", "damaged")
    assert "CRC32C" in results[follower]["problems"][0]["reason"]
    until(lambda: verify(runnel, "orders-0")[0] == 0)

    lines = [
        json.loads(line)
        for line in runnel("partition", "dump", "orders-0", "--records", "-o", "json").splitlines()
    ]
    assert lines[0]["control"] == "term"
    assert [item["value"] for line in lines for item in line.get("items", ())] == ["1", "2", "3"]
    assert {line["crc"] for line in lines} == {"ok"}
    table = runnel("partition", "dump", "orders-0", "--tail", "1").splitlines()
    assert len(table) == 2

    running = spu_directory(runnel, leader)
    assert "stop that SPU first" in runnel.fails(
        "partition", "verify", "--dir", str(running), code=4
    )

    runnel("cluster", "stop")
    assert runnel.fails("partition", "verify", "orders", code=5)
    directory = running / "partitions" / uid
    code, (found,) = verify(runnel, "--dir", str(running))
    assert (code, found["result"], found["records"]) == (0, "ok", 3)

    damaged = segment(runnel, uid, leader)
    flip(damaged)
    code, (found,) = verify(runnel, "--dir", str(directory))
    (problem,) = found["problems"]
    assert (code, found["result"], problem["file"]) == (1, "damaged", damaged.name)
    said = runnel("partition", "dump", "--dir", str(directory), "--records")
    assert "log start 0" in said
    assert "BAD" in said
    assert damaged.name in said
    head, *batches = map(
        json.loads,
        runnel("partition", "dump", "orders-0", "--dir", str(running), "-o", "json").splitlines(),
    )
    assert head["log"]["checkpoint"]["lac"] >= 0
    assert [one["position"] for one in batches if one["crc"] != "ok"] == [problem["position"]]
