"""The page on moving replicas, and a restart of one daemon after the other, on real processes."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.architecture.howto import PAGES
from tests.e2e.conftest import Command
from tests.polling import eventually
from tests.ports import free_base_port


def held(runnel: Command) -> Counter[int]:
    """How many replicas each SPU has."""
    found: Counter[int] = Counter()
    for item in runnel.json("get", "partitions")["items"]:
        found.update(item["spec"]["replicas"])
    return found


def until_explained(runnel: Command, kind: str, name: str) -> None:
    """Until the status says why something does not move."""

    def explained() -> bool:
        return bool(runnel.json("get", kind, name)["status"].get("reason"))

    asyncio.run(eventually(explained, 60))


@pytest.mark.long
def test_the_page_moves_replicas_and_a_restart_loses_nothing(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 3)
    runnel("cluster", "start", "--spus", "3", "--base-port", str(base))
    runnel("create", "topic", "orders", "--partitions", "3", "--replication-factor", "2")
    runnel("wait", "topic", "orders", "--for", "writable")
    runnel("produce", "orders", stdin="".join(f"{n}\n" for n in range(1_000)))
    (page,) = (page for page in PAGES if page.name == "move-replicas")
    said = {str(shown): runnel(*shown.words[1:]) for shown in page.commands}
    assert len(said) == 6
    assert "is drained" in said["runnel spu drain spu-2"]
    assert said["runnel wait topic orders --for settled"] == "topic/orders settled\n"
    # With one replica each, two of them on one SPU and none on the one that was drained.
    assert held(runnel) == {0: 1, 1: 1, 2: 1}
    assert runnel("cluster", "rebalance", "--dry-run") == "all is balanced\n"
    replaced = runnel("spu", "replace", "spu-1", "--with", "spu-2")
    assert replaced.startswith("spu/spu-1 is drained: no partition is on it. SpuGroup spu removes ")
    assert held(runnel) == {0: 1, 2: 2}
    runnel("spu", "drain", "spu-1", "--cancel")
    assert "drainTo" not in runnel.json("get", "spu", "spu-1")["spec"]
    runnel("scale", "topic", "orders", "--replication-factor", "3")
    runnel("wait", "topic", "orders", "--for", "settled")
    runnel("create", "stream", "clicks", "--segments", "2")
    runnel("produce", "clicks", "--stream", stdin="".join(f"{n}\n" for n in range(1_000)))
    runnel("scale", "stream", "clicks", "--replication-factor", "3")
    runnel("wait", "stream", "clicks", "--for", "settled")
    # What is sealed with three replicas asks for two that are live.
    runnel("stream", "seal", "clicks", "--yes")
    for factor in ("1", "3", "2"):
        runnel("scale", "stream", "clicks", "--replication-factor", factor)
        runnel("wait", "stream", "clicks", "--for", "settled")
    partitions = runnel.json("get", "partitions")["items"]
    live = [len(p["status"]["lrs"]) for p in partitions if p["spec"]["owner"]["kind"] == "Stream"]
    assert live == [2, 2]
    assert runnel("cluster", "restart") == "restarted sc-0, spu-0, spu-1, spu-2\n"
    read = runnel("consume", "orders", "--from-beginning", "--no-follow").split()
    assert sorted(map(int, read)) == list(range(1_000))
    read = runnel("consume", "clicks", "--stream", "--from-beginning", "--no-follow").split()
    assert sorted(map(int, read)) == list(range(1_000))


@pytest.mark.long
def test_what_cannot_move_is_said(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 1)
    runnel("cluster", "start", "--base-port", str(base))
    runnel("create", "topic", "orders")
    runnel("wait", "topic", "orders", "--for", "writable")
    runnel("spu", "drain", "spu-0", "--no-wait")
    until_explained(runnel, "spu", "spu-0")
    said = runnel.fails("spu", "drain", "spu-0", "--timeout", "0.5", code=5)
    assert "orders-0 needs 1 SPU, and no other is online: add SPUs" in said
    assert "runnel spu drain spu-0 --cancel" in said
    runnel("spu", "drain", "spu-0", "--cancel")
    runnel("wait", "spu", "spu-0", "--for", "online")
    runnel("scale", "topic", "orders", "--replication-factor", "2")
    until_explained(runnel, "topic", "orders")
    said = runnel.fails("wait", "topic", "orders", "--for", "settled", "--timeout", "1", code=5)
    assert "replicationFactor 2 needs 2 SPUs, and 1 that are online have room" in said
    runnel("scale", "topic", "orders", "--replication-factor", "1")
    runnel("wait", "topic", "orders", "--for", "settled")
    runnel("cluster", "stop")
    assert "does not run" in runnel.fails("cluster", "restart", code=4)
