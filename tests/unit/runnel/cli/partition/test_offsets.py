"""``runnel topic offsets`` of a partition whose leader has committed nothing."""

from __future__ import annotations

import pytest

from runnel.cli.failure import EXIT_NOT_NOW
from runnel.cli.partition import offsets
from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.fake_spu import FakeSpu

WHY = "1 of 2 replicas are live, without SPU 1: nothing is committed until 2 are live"


@pytest.fixture(autouse=True)
def uncommitted(command: CommandLine, spu: FakeSpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "_CANNOT_COMMIT_S", 0.05)
    command.sc.endpoints = [("127.0.0.1", spu.port)]
    command.sc.add_topic("orders")
    spu.commits = False


def test_given_an_sc_that_knows_why_then_it_says_so_soon(command: CommandLine) -> None:
    command.sc.led_reason = WHY
    command.sc.add_partition("orders", writable=False, reason=WHY)
    done = command("topic", "offsets", "orders")
    assert (done.code, done.out) == (EXIT_NOT_NOW, "")
    assert "gave up on orders/0 after 0.05 s" in done.err
    assert done.err.endswith(f"The SC says of the partition: {WHY}\n")


def test_given_an_sc_that_knows_of_nothing_then_it_waits_for_the_leader(
    command: CommandLine, spu: FakeSpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.sc.add_partition("orders", lrs=[{"spuId": 0, "storageId": "s"}])
    asked = []

    def cannot_commit(*arguments: object) -> bool:
        asked.append(looked := look(*arguments))  # type: ignore[arg-type]
        spu.commits = True
        return looked

    look = offsets._cannot_commit
    monkeypatch.setattr(offsets, "_cannot_commit", cannot_commit)
    done = command("topic", "offsets", "orders", "-p", "0")
    assert (done.code, asked) == (0, [False])
    assert done.out.splitlines()[1].startswith("orders-0")
