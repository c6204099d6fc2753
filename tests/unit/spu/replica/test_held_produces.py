"""Produce requests that wait for a leader: in order, for a time, in bounded room."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from schemas.errors import ErrorCode, FencedError, NotLeaderError, NotReadyError, RunnelError
from schemas.wire.record_requests import ProduceRequest, ProduceResponse
from spu.replica.held_produces import Answer, HeldBytes, HeldProduce, HeldProduces
from tests.unit.spu.builders import produce_request, until

REFUSAL = NotReadyError("not yet")


@dataclass
class Waiting:
    """What a request that was carried out waits for."""

    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Leader:
    """Takes batches, but none that begins with an ``x``; a ``?`` is a bug."""

    took: list[bytes] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)

    def produce(self, request: ProduceRequest, batch: memoryview, answer: Answer) -> Waiting:
        if bytes(batch[:1]) == b"x":
            raise FencedError("no")
        if bytes(batch[:1]) == b"?":
            raise ValueError("odd")
        self.took.append(bytes(batch))
        self.waiting.append(Waiting())
        answer(ProduceResponse(len(self.took), 0))
        return self.waiting[-1]


def held_of(leader: Leader, room: int = 100) -> tuple[HeldProduces, HeldBytes]:
    shared = HeldBytes(room)
    return HeldProduces(shared, leader.produce), shared


async def test_given_one_that_waits_for_its_commit_then_it_keeps_no_memory() -> None:
    leader, answers = Leader(), list[ProduceResponse | RunnelError]()
    one = HeldProduce(produce_request(), memoryview(b"one"), answers.append, REFUSAL)
    one.begin(leader.produce)
    assert (leader.took, one.size) == ([b"one"], 0)


async def test_given_a_release_then_all_are_carried_out_in_their_order() -> None:
    leader, answers = Leader(), list[ProduceResponse | RunnelError]()
    held, room = held_of(leader, 7)
    memory = bytearray(b"one")
    held.hold(produce_request(), memoryview(memory), answers.append, REFUSAL)
    memory[:] = b"???"
    held.hold(produce_request(), memoryview(b"x"), answers.append, REFUSAL)
    held.hold(produce_request(), memoryview(b"two"), answers.append, REFUSAL)
    assert (len(held), answers) == (3, [])
    held.release()
    assert leader.took == [b"one", b"two"]
    first, refused, second = answers
    assert (first, second) == (ProduceResponse(1, 0), ProduceResponse(2, 0))
    assert isinstance(refused, FencedError)
    assert not held
    assert room.take(7)


async def test_given_one_that_runs_into_a_bug_then_it_is_told_and_the_others_go_on() -> None:
    leader, answers = Leader(), list[ProduceResponse | RunnelError]()
    held, _ = held_of(leader)
    for batch in (b"?", b"one"):
        held.hold(produce_request(), memoryview(batch), answers.append, REFUSAL)
    held.release()
    bug, taken = answers
    assert isinstance(bug, RunnelError)
    assert bug.code is ErrorCode.INTERNAL
    assert "a bug: ValueError('odd')" in str(bug)
    assert (taken, leader.took) == (ProduceResponse(1, 0), [b"one"])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(None, REFUSAL, id="given-no-error-then-its-own"),
        pytest.param(NotLeaderError("another"), NotLeaderError("another"), id="given-one-then-it"),
    ],
)
async def test_given_a_failure_then_all_hear_of_it(
    error: RunnelError | None, told: RunnelError
) -> None:
    leader, answers = Leader(), list[ProduceResponse | RunnelError]()
    held, room = held_of(leader, 2)
    for _ in range(2):
        held.hold(produce_request(), memoryview(b"a"), answers.append, REFUSAL)
    held.fail(error)
    held.release()
    assert [(type(one), str(one)) for one in answers] == [(type(told), str(told))] * 2
    assert leader.took == []
    assert room.take(2)


async def test_given_no_room_then_refused_and_a_smaller_one_does_not_overtake() -> None:
    leader = Leader()
    held, _ = held_of(leader, 4)
    held.hold(produce_request(), memoryview(b"one"), lambda _: None, REFUSAL)
    for batch in (b"two", b"3"):
        with pytest.raises(NotReadyError, match="not yet"):
            held.hold(produce_request(), memoryview(batch), lambda _: None, REFUSAL)
    held.release()
    held.hold(produce_request(), memoryview(b"four"), lambda _: None, REFUSAL)
    held.release()
    assert leader.took == [b"one", b"four"]


async def test_given_replicas_of_one_spu_then_they_share_the_room_and_give_it_back() -> None:
    leader, shared = Leader(), HeldBytes(3)
    one, other = (HeldProduces(shared, leader.produce) for _ in range(2))
    one.hold(produce_request(), memoryview(b"one"), lambda _: None, REFUSAL)
    with pytest.raises(NotReadyError):
        other.hold(produce_request(), memoryview(b"2"), lambda _: None, REFUSAL)
    one.fail()
    # It holds nothing that a smaller one could overtake.
    other.hold(produce_request(), memoryview(b"two"), lambda _: None, REFUSAL)


async def test_given_the_shortest_time_of_all_is_over_then_each_is_refused() -> None:
    leader, answers = Leader(), list[ProduceResponse | RunnelError]()
    held, _ = held_of(leader)
    held.hold(produce_request(timeout_ms=600_000), memoryview(b"a"), answers.append, REFUSAL)
    held.hold(produce_request(timeout_ms=1), memoryview(b"b"), answers.append, REFUSAL)
    held.hold(produce_request(timeout_ms=600_000), memoryview(b"c"), answers.append, REFUSAL)
    await until(lambda: len(answers) == 3)
    assert answers == [REFUSAL] * 3
    assert not held


@pytest.mark.parametrize("after", [False, True], ids=["while-it-waits-here", "after-its-release"])
async def test_given_a_client_that_has_gone_then_nothing_waits_for_it(*, after: bool) -> None:
    leader, answers = Leader(), list[ProduceResponse | RunnelError]()
    held, room = held_of(leader, 1)
    waiter = held.hold(produce_request(), memoryview(b"a"), answers.append, REFUSAL)
    if after:
        held.release()
        waiter.cancel()
        assert [one.cancelled for one in leader.waiting] == [True]
        return
    waiter.cancel()
    held.release()
    assert (leader.took, answers) == ([], [])
    await asyncio.sleep(0)
    assert room.take(1)
