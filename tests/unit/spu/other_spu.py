"""Another SPU, which the test plays, and a replica that follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from schemas.ids import PartitionUid, Term, next_election
from schemas.objects.topic import Durability
from schemas.wire.batch import Buffer, set_offset_and_term
from spu.net.peer_connection import PeerConnection
from spu.replication.messages import Append, Attach, Batch, LogEnd, Message
from spu.replication.wire import Damaged
from tests.unit.spu.builders import (
    TERM,
    UID,
    Spu,
    assignment_of,
    batch_of,
    open_spu,
    settings_of,
    until,
)

MessageT = TypeVar("MessageT", bound=Message)
LATER = next_election(TERM)
NEVER = b"never committed"


@dataclass
class OtherSpu(PeerConnection):
    """SPU 0, which the test plays: what the host sends to it is kept, in order."""

    spu: Spu
    sent: list[Message] = field(default_factory=list)
    frames: int = 0
    cold: asyncio.Lock = field(default_factory=asyncio.Lock)

    def send(self, uid: PartitionUid, message: Message) -> None:
        self.sent.append(message)

    def push(self, push: Callable[[], None]) -> None:
        push()

    def write(self, frame: list[Buffer]) -> None:
        self.frames += 1

    async def taken(self) -> None:
        return

    def says(self, message: Message | Damaged) -> None:
        self.spu.host.network.peer_said(0, UID, message)

    async def hears(self, kind: type[MessageT]) -> MessageT:
        """The next message of this kind; those before it are passed over."""
        found: list[MessageT] = []

        def look() -> bool:
            while self.sent and not found:
                message = self.sent.pop(0)
                found.extend([message] if isinstance(message, kind) else [])
            return bool(found)

        await until(look)
        return found[0]

    async def leads(self, term: Term, attach: int = 1) -> LogEnd:
        """Attach the host's replica in a term; gives what it answers."""
        self.says(Attach(term, attach))
        while (place := await self.hears(LogEnd)).attach != attach or place.term != term:
            continue
        return place


async def joined(spu: Spu, monkeypatch: pytest.MonkeyPatch) -> OtherSpu:
    """Connect SPU 0 to the host."""
    other = OtherSpu(spu)
    monkeypatch.setattr(spu.host.network, "connection", lambda peer: other if peer == 0 else None)
    spu.host.network.peer_up(0)
    await until(lambda: spu.replica._runner.state.links == (0,))
    return other


def batches_of(*payloads: bytes, term: Term = TERM) -> tuple[Batch, ...]:
    """One record each, from offset 0 on, as a leader stamped them."""
    found = []
    for offset, payload in enumerate(payloads):
        data = batch_of(1, payload)
        set_offset_and_term(data, offset, term)
        found.append(Batch(offset, offset + 1, term, data))
    return tuple(found)


async def follow(
    path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability = Durability.FSYNC
) -> tuple[Spu, OtherSpu, str]:
    """A follower of SPU 0 with five records, the first two committed; and what its boot is."""
    log = settings_of(durability=durability)
    spu = await open_spu(path, assignment_of(replicas=(0, 1), leader=0, log=log))
    other = await joined(spu, monkeypatch)
    place = await other.leads(TERM)
    records = batches_of(b"first", b"second", NEVER, NEVER, NEVER)
    other.says(Append(TERM, 1, place.boot, records, 1, 0))
    await until(lambda: (spu.replica.leo, spu.replica.lac) == (5, 1))
    return spu, other, place.boot
