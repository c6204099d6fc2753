"""What an SPU tells of its disk, and that it says much in small messages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from connection_manager.session import Session
from schemas.control.messages import Envelope, Message, ReplicaReport, Report
from schemas.control.parts import MAX_PART_BYTES
from schemas.ids import PartitionUid, StorageId
from spu.control import SpuControl, free_changed
from spu.host.host import ReplicaHost
from tests.polling import eventually


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
    """A host of which nothing but its free space is asked."""

    free_bytes: int = 0


@dataclass
class Requests:
    """A session that writes down what it should send."""

    sent: list[Message] = field(default_factory=list)
    closed: bool = False

    async def request(self, body: Message) -> None:
        self.sent.append(body)


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


def reports(session: Requests) -> list[Report]:
    return [message for message in session.sent if isinstance(message, Report)]
