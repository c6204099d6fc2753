"""Replicas hear of connections to other SPUs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schemas.ids import PartitionUid
from spu.replica.replica import Replica
from tests.unit.spu.builders import UID, assignment_of, new_uid, open_spu, until


async def test_given_a_replica_that_fails_then_the_others_hear_of_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, PartitionUid]] = []

    def failing(what: str, replica: Replica, _: int) -> None:
        told.append((what, replica.meta.uid))
        if replica.meta.uid == UID:
            raise ValueError("a bug")

    monkeypatch.setattr(Replica, "linked", lambda *args: failing("up", *args))
    monkeypatch.setattr(Replica, "unlinked", lambda *args: failing("down", *args))
    other = new_uid()
    spu = await open_spu(tmp_path, *(assignment_of(uid, replicas=(0, 1)) for uid in (UID, other)))
    spu.host.network.peer_up(0)
    spu.host.network.peer_down(0)
    await until(lambda: len(told) == 4)
    assert told == [("up", UID), ("up", other), ("down", UID), ("down", other)]
    await spu.host.close()


async def test_given_many_replicas_then_others_have_their_turn_while_they_hear_of_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Heartbeats are due while thousands of replicas are told.
    monkeypatch.setattr("spu.host.links.SLICE", 2)
    order: list[str] = []
    loop = asyncio.get_running_loop()

    def linked(replica: Replica, peer: int) -> None:
        order.append("told")
        loop.call_soon(order.append, "other")

    monkeypatch.setattr(Replica, "linked", linked)
    spu = await open_spu(tmp_path, *(assignment_of(new_uid()) for _ in range(6)))
    spu.host.network.peer_up(0)
    await until(lambda: order.count("other") == 6)
    assert order == ["told", "told", "other", "other"] * 3
    await spu.host.close()
