"""What a leader sends before this SPU knows of the partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from schemas.ids import PartitionUid
from spu.host import links
from spu.host.links import ReplicaNetwork, ScLink
from spu.net.peer_connection import PeerConnection
from spu.replica.replica import Replica
from spu.replication.messages import Attach, LogEnd, Message

A, B = PartitionUid("a"), PartitionUid("b")


class Held:
    """A replica that notes what it is told."""

    def __init__(self, uid: PartitionUid) -> None:
        self.meta = SimpleNamespace(uid=uid)
        self.peers = {2}
        self.told: list[Message | str] = []

    def linked(self, peer: int) -> None:
        self.told.append(f"linked {peer}")

    def said(self, _peer: int, message: Message) -> None:
        self.told.append(message)


class Network(ReplicaNetwork):
    """With one peer, SPU 2, whose connection tests replace."""

    def __init__(self) -> None:
        self.held: dict[PartitionUid, Any] = {}
        super().__init__(1, self.held, cast(ScLink, None), lambda: "c")
        self.to_2: object | None = object()
        self.peers._connections[2] = cast(PeerConnection, self.to_2)

    def connection(self, peer: int) -> PeerConnection | None:
        return cast(PeerConnection, self.to_2) if peer == 2 else None

    def make(self, uid: PartitionUid) -> Held:
        replica = Held(uid)
        self.held[uid] = replica
        self.tell_connected(cast(Replica, replica))
        return replica


def end() -> LogEnd:
    return LogEnd(1, 1, "boot", "s", 0, 0)


def test_given_an_attachment_before_the_replica_then_it_gets_the_latest_once() -> None:
    network = Network()
    for number in (1, 2):
        network.peer_said(2, A, Attach(5, number))
    network.peer_said(2, B, end())
    assert network.make(A).told == ["linked 2", Attach(5, 2)]
    assert network.make(B).told == ["linked 2"], "only attachments begin anything"
    assert network.make(A).told == ["linked 2"]


def test_given_another_connection_since_then_nothing_of_the_old_one_arrives() -> None:
    network = Network()
    network.peer_said(2, A, Attach(5, 1))
    network.to_2 = object()
    assert network.make(A).told == ["linked 2"]
    network.peer_said(2, B, Attach(5, 1))
    network.to_2 = None
    assert network.make(B).told == ["linked 2"]


def test_given_very_many_then_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_EARLY", 3)
    network = Network()
    uids = [PartitionUid(f"p{n}") for n in range(5)]
    for uid in uids:
        network.peer_said(2, uid, Attach(1, 1))
    assert [len(network.make(uid).told) for uid in uids] == [1, 1, 2, 2, 2]
