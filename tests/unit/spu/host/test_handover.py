"""A clean stop has others lead first, and waits no longer than that helps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from schemas.control.messages import STOPS, ReplicaReport, ReplicaRole
from schemas.ids import PartitionUid, StorageId, Term
from schemas.objects.partition import LiveReplica
from spu.host import handover
from spu.host.handover import hand_over
from spu.replication.events import RequestElection


@dataclass
class Held:
    """A replica as its report shows it."""

    name: str
    others: int
    role: ReplicaRole = ReplicaRole.LEADER
    #: Whether its successor has committed a record.
    succeeded: bool = False

    def report(self) -> ReplicaReport:
        members = range(1, 2 + self.others)
        lrs = tuple(LiveReplica(spu_id=i, storage_id=StorageId(f"s{i}")) for i in members)
        return ReplicaReport(
            uid=PartitionUid(self.name),
            storage_id=StorageId("s1"),
            role=self.role,
            term=Term(65537),
            lrs=lrs,
        )

    def follows_since(self, term: int) -> bool:
        return self.succeeded and term == 65537


@dataclass
class Controller:
    """Elects others for those that it can; of those, some never serve."""

    replicas: dict[str, Held]
    refused: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def ask(self, uid: str, request: Any) -> None:
        self.asked.append((uid, request))
        if uid not in self.refused:
            loop, held = asyncio.get_running_loop(), self.replicas[uid]
            loop.call_later(0.05, setattr, held, "role", ReplicaRole.FOLLOWER)
            if uid not in self.stuck:
                loop.call_later(0.1, setattr, held, "succeeded", True)


async def stop(
    *replicas: Held,
    refused: tuple[str, ...] = (),
    stuck: tuple[str, ...] = (),
    connected: bool = True,
) -> Controller:
    held = {one.name: one for one in replicas}
    controller = Controller(held, frozenset(refused), frozenset(stuck))
    link: Any = controller
    there: Any = list(held.values())
    await hand_over(lambda: there, link, lambda: connected)
    return controller


async def test_given_leaders_with_others_then_each_is_asked_for_and_its_successor_serves() -> None:
    replicas = [Held("a", 2), Held("b", 1)]
    controller = await stop(*replicas)
    request = RequestElection(65537, STOPS)
    assert controller.asked == [("a", request), ("b", request)]
    assert all(one.succeeded for one in replicas)


async def test_given_a_successor_that_does_not_serve_then_the_rest_still_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "PATIENCE_S", 0.2)
    replicas = [Held("a", 2), Held("b", 1)]
    await asyncio.wait_for(stop(*replicas, stuck=("a",)), 2)
    assert [one.succeeded for one in replicas] == [False, True]


async def test_given_nobody_else_or_no_leader_then_nothing_is_asked_for() -> None:
    controller = await stop(Held("a", 0), Held("b", 2, ReplicaRole.FOLLOWER))
    assert controller.asked == []


async def test_given_one_that_nobody_may_take_then_the_rest_still_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "PATIENCE_S", 0.2)
    replicas = [Held("a", 2), Held("b", 1)]
    await asyncio.wait_for(stop(*replicas, refused=("a",)), 2)
    assert [one.role for one in replicas] == [ReplicaRole.LEADER, ReplicaRole.FOLLOWER]


async def test_given_no_sc_then_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "PATIENCE_S", 3_600.0)
    await asyncio.wait_for(stop(Held("a", 2), refused=("a",), connected=False), 1)
