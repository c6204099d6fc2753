"""What an SPU tells of its disk, that it says much in small messages, and nothing in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from connection_manager.session import Session
from schemas.control.messages import (
    MAX_REASON,
    MAX_STALLED,
    MAX_UNREACHABLE,
    OBSTACLES_PROTOCOL,
    PARTS_PROTOCOL,
    AssignPartitions,
    Controllers,
    Envelope,
    Message,
    Obstacles,
    ReplicaReport,
    Report,
    SpuRequest,
    UnreachablePeer,
)
from schemas.control.parts import MAX_PART_BYTES
from schemas.errors import UnsupportedError
from schemas.ids import PartitionUid, StorageId
from spu.control import SpuControl, free_changed
from spu.host.host import ReplicaHost
from spu.known_controllers import KnownControllers
from spu.replication.events import RequestLrsChange
from spu.replication.state import Member
from tests.polling import eventually
from tests.unit.spu.builders import assign, assignment_of


@pytest.mark.parametrize(
    ("told", "free", "news"),
    [
        (800, 800, False),
        (800, 701, False),
        (800, 700, True),
        (700, 800, True),
        (800, 0, True),
        (0, 1, True),
        (0, 0, False),
    ],
)
def test_a_change_by_an_eighth_is_news(told: int, free: int, news: bool) -> None:
    assert free_changed(told, free) == news


@dataclass
class Disk:
    """A host of which nothing but its free space and its obstacles is asked."""

    free_bytes: int = 0
    obstacles: Obstacles = field(default_factory=Obstacles)
    cluster_uid: str | None = None
    seen: None = None

    def reports(self) -> tuple[ReplicaReport, ...]:
        return ()

    async def assign(self, body: AssignPartitions) -> None:
        pass


@dataclass
class Requests:
    """A session that writes down what it should send."""

    sent: list[Message] = field(default_factory=list)
    closed: bool = False
    protocol: str = OBSTACLES_PROTOCOL
    refuses: bool = False

    async def request(self, body: Message) -> None:
        self.sent.append(body)
        if self.refuses:
            raise UnsupportedError("no")


async def test_given_many_changed_replicas_then_no_message_is_large(tmp_path: Path) -> None:
    control, session = SpuControl(1, "0.1.0", tmp_path / "secret"), Requests()
    control.attach(cast(ReplicaHost, Disk()))
    control._session = cast(Session, session)
    sending = asyncio.create_task(control.send())
    uids = [PartitionUid(f"{n:032}") for n in range(300)]
    for uid in uids:
        control.report(ReplicaReport(uid=uid, storage_id=StorageId("s"), reason="r" * 10_000))
    await eventually(lambda: sum(len(one.replicas) for one in reports(session)) == len(uids))
    sending.cancel()
    assert [replica.uid for one in reports(session) for replica in one.replicas] == uids
    assert all(len(Envelope(cause="c", body=m).encode()) < MAX_PART_BYTES for m in session.sent)


SEEN = Obstacles(
    unreachable=(UnreachablePeer(spu_id=2, host="edge-2", port=9006, reason="no answer"),),
    stalled=(PartitionUid("p"),),
)


@pytest.mark.parametrize(("protocol", "told"), [(OBSTACLES_PROTOCOL, [SEEN]), (PARTS_PROTOCOL, [])])
async def test_obstacles_are_told_once_and_only_to_an_sc_that_knows_them(
    tmp_path: Path, protocol: str, told: list[Obstacles]
) -> None:
    control, session = SpuControl(1, "0.1.0", tmp_path / "secret"), Requests(protocol=protocol)
    disk = Disk()
    control.attach(cast(ReplicaHost, disk))
    control._session = cast(Session, session)
    sending = asyncio.create_task(control.send())
    disk.obstacles = SEEN
    for number in range(3):
        control.obstacles_changed()
        control.report(ReplicaReport(uid=PartitionUid(f"{number}"), storage_id=StorageId("s")))
        await eventually(lambda: len(reports(session)) > number)  # noqa: B023 - awaited here
    sending.cancel()
    assert [one.obstacles for one in reports(session) if one.obstacles is not None] == told


async def test_given_scs_that_started_during_the_session_then_they_are_known(
    tmp_path: Path,
) -> None:
    known = KnownControllers(["a:1"], tmp_path)
    control = SpuControl(1, "0.1.0", tmp_path / "secret", known)
    control.attach(cast(ReplicaHost, Disk()))
    await control.handle(Controllers(addresses=("a:1", "b:1")))
    assert known.addresses() == ("a:1", "b:1")
    assert KnownControllers([], tmp_path).addresses() == ("a:1", "b:1")


def test_the_most_obstacles_fit_into_one_message() -> None:
    peer = UnreachablePeer(spu_id=1 << 30, host="h" * 255, port=65_535, reason="é" * MAX_REASON)
    most = Obstacles(
        unreachable=(peer,) * MAX_UNREACHABLE, stalled=(PartitionUid("u" * 36),) * MAX_STALLED
    )
    assert len(Envelope(cause="c", body=Report(obstacles=most)).encode()) < MAX_PART_BYTES


@dataclass
class AskedTwice:
    """A leader that asked for another live replica set, waits, and asks again."""

    control: SpuControl
    session: Requests

    async def asks(self, revision: int = 7, then: int = 1) -> None:
        """It asks; the SC has had ``then`` requests a moment later."""
        lrs = (Member(1, "s1"), Member(2, "s2"))
        self.control.ask(PartitionUid("p"), RequestLrsChange(revision, 3, lrs, "SPU 2 joins"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert sum(len(one.lrs) for one in self.lrs_requests) == then

    @property
    def lrs_requests(self) -> list[SpuRequest]:
        return [message for message in self.session.sent if isinstance(message, SpuRequest)]


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[AskedTwice]:
    control, session = SpuControl(1, "0.1.0", tmp_path / "secret"), Requests()
    control.attach(cast(ReplicaHost, Disk()))
    control._session = cast(Session, session)
    sending = asyncio.create_task(control.send())
    yield AskedTwice(control, session)
    sending.cancel()


async def test_given_the_same_request_again_then_the_sc_has_it_already(leader: AskedTwice) -> None:
    await leader.asks(then=1)
    await leader.asks(then=1)


async def test_given_a_later_revision_then_another_request(leader: AskedTwice) -> None:
    await leader.asks(revision=7, then=1)
    await leader.asks(revision=8, then=2)


async def test_given_no_answer_for_long_then_sent_again(
    leader: AskedTwice, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leader.asks(then=1)
    monkeypatch.setattr("spu.control.REPEAT_S", 0.0)
    await leader.asks(then=2)


async def test_given_an_answer_then_the_same_request_is_another_one(leader: AskedTwice) -> None:
    await leader.asks(then=1)
    await leader.control.handle(assign(assignment_of(PartitionUid("p"))))
    await leader.asks(then=2)


async def test_given_another_session_then_sent_again(leader: AskedTwice) -> None:
    await leader.asks(then=1)
    leader.control.hello()
    leader.control._session = cast(Session, leader.session)
    await leader.asks(then=2)


async def test_given_a_refused_message_then_sent_again(leader: AskedTwice) -> None:
    leader.session.refuses = True
    await leader.asks(then=1)
    await leader.asks(then=2)


def reports(session: Requests) -> list[Report]:
    return [message for message in session.sent if isinstance(message, Report)]
