"""Whom an SPU tells what it counts, and when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from connection_manager.session import Session
from schemas.control.messages import (
    LATENCIES_PROTOCOL,
    STATISTICS_PROTOCOL,
    Envelope,
    Message,
)
from schemas.control.statistics import ReplicaNumbers, Statistics
from schemas.errors import UnreachableError
from schemas.ids import PartitionUid
from spu import statistics
from spu.control import SpuControl
from spu.host.host import ReplicaHost
from spu.host.numbers import ChangedNumbers
from spu.replica.counters import ReplicaCounters
from spu.server.counters import ListenerCounters
from spu.server.listener import Listener
from spu.storage.disk_space import Space
from tests.polling import eventually


@dataclass
class Watch:
    seen: Space = field(default_factory=lambda: Space(used=7, limit=None, free=5_000, total=10_000))


@dataclass
class Host:
    """A host with one replica, of which nothing but numbers is asked."""

    held: set[PartitionUid] = field(default_factory=lambda: {PartitionUid("p")})
    numbers: ChangedNumbers = field(default_factory=ChangedNumbers)
    space: Watch = field(default_factory=Watch)
    counters: ReplicaCounters = field(default_factory=ReplicaCounters)

    def note(self, end: int) -> None:
        self.numbers.note(ReplicaNumbers(PartitionUid("p"), 0, end, end, end))

    def changed_numbers(self, at_most: int) -> tuple[ReplicaNumbers, ...]:
        assert at_most == statistics.AT_ONCE
        # As every tick does.
        found = self.numbers.take(at_most, self.held)
        self.note(3)
        return found


@dataclass
class Ear:
    """A session that writes down what it is told, or has ended."""

    heard: list[Statistics] = field(default_factory=list)
    ended: bool = False
    protocol: str | None = LATENCIES_PROTOCOL

    async def notify(self, body: Message) -> None:
        if self.ended:
            raise UnreachableError("it has ended")
        assert isinstance(body, Statistics)
        self.heard.append(body)


@dataclass
class Control:
    ear: Ear | None = None
    asked: list[str] = field(default_factory=list)

    def session_with(self, protocol: str) -> Session | None:
        self.asked.append(protocol)
        return cast(Session | None, self.ear)


@dataclass
class Port:
    counters: ListenerCounters = field(default_factory=ListenerCounters)


async def test_each_session_is_told_everything_once_and_then_what_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistics, "INTERVAL_S", 0.001)
    host, port, control = Host(), Port(), Control()
    host.note(3)
    telling = asyncio.create_task(
        statistics.tell_statistics(
            cast(ReplicaHost, host), cast(Listener, port), cast(SpuControl, control)
        )
    )
    await eventually(lambda: len(control.asked) > 3)
    assert set(control.asked) == {STATISTICS_PROTOCOL}

    first = control.ear = Ear()
    await eventually(lambda: any(told.replicas for told in first.heard))
    asked = len(control.asked)
    await eventually(lambda: len(control.asked) > asked + 5)
    ends = [numbers.log_end for told in first.heard for numbers in told.replicas]
    assert ends == [3]
    assert first.heard[-1].spu.log_bytes == 7
    assert len(first.heard) <= 2, "nothing has changed since"

    port.counters.requests["PRODUCE"] = 2
    await eventually(lambda: first.heard[-1].spu.requests == 2)

    control.ear = Ear(ended=True)
    await eventually(lambda: len(control.asked) > asked + 20)
    second = control.ear = Ear()
    await eventually(lambda: any(told.replicas for told in second.heard))
    assert not telling.done()
    telling.cancel()


@pytest.mark.parametrize(
    ("protocol", "knows"), [(LATENCIES_PROTOCOL, True), (STATISTICS_PROTOCOL, False)]
)
async def test_recent_latencies_are_told_to_an_sc_that_knows_them(
    monkeypatch: pytest.MonkeyPatch, protocol: str, knows: bool
) -> None:
    monkeypatch.setattr(statistics, "INTERVAL_S", 0.001)
    ear = Ear(protocol=protocol)
    host, port, control = Host(), Port(), Control(ear)
    telling = asyncio.create_task(
        statistics.tell_statistics(
            cast(ReplicaHost, host), cast(Listener, port), cast(SpuControl, control)
        )
    )
    await eventually(lambda: bool(ear.heard))
    host.counters.append.observe(0.001)
    host.counters.fsync.observe(0.01)
    port.counters.requests["PRODUCE"] = 1
    await eventually(lambda: ear.heard[-1].spu.requests == 1)
    # They are recent for ten intervals, and then there is one message without them.
    await eventually(lambda: len(control.asked) > 40)
    telling.cancel()
    told = {(one.spu.append_p99_us, one.spu.fsync_p99_us) for one in ear.heard}
    assert told == ({(None, None), (995, 9_950)} if knows else {(None, None)})
    assert (ear.heard[-1].spu.append_p99_us, ear.heard[-1].spu.fsync_p99_us) == (None, None)
    plain = Envelope(cause="c", body=ear.heard[-1]).encode()
    assert "P99" not in plain, "an older SC refuses fields that it does not know"


async def test_many_changed_replicas_are_told_in_small_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistics, "INTERVAL_S", 0.01)
    count = 25 * statistics.AT_ONCE
    uids = [PartitionUid(f"p{number}") for number in range(count)]
    ear, host = Ear(), Host(held=set(uids))
    telling = asyncio.create_task(
        statistics.tell_statistics(
            cast(ReplicaHost, host), cast(Listener, Port()), cast(SpuControl, Control(ear))
        )
    )
    for uid in uids:
        host.numbers.note(ReplicaNumbers(uid, 0, 1, 1, 1))
    await eventually(lambda: sum(len(told.replicas) for told in ear.heard) >= count)
    telling.cancel()
    sizes = [len(told.replicas) for told in ear.heard if told.replicas]
    assert sizes == [statistics.AT_ONCE] * 25
    assert [numbers.uid for told in ear.heard for numbers in told.replicas] == uids
