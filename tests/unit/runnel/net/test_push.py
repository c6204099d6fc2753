"""The subscriptions of a connection: what is said when, and what is gathered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from runnel.net.push import Subscriptions
from schemas.errors import NotReadyError, RunnelError, UnsupportedError
from schemas.wire.protocol import MAX_SUBSCRIPTION_BYTES, Api
from schemas.wire.subscription_requests import (
    Grant,
    PushResponse,
    SubscriptionEntry,
    unpack_numbers,
)
from tests.unit.schemas.wire.test_protocol import UID


@dataclass
class FakeChannel:
    """Keeps what is sent; a SUBSCRIBE is answered when the test says so."""

    asked: list[list[int]] = field(default_factory=list)
    told: list[tuple[Api, list[int]]] = field(default_factory=list)
    answers: list[asyncio.Future[None]] = field(default_factory=list)
    name: str = "the SPU"
    heard_at: float = 0.0

    async def ask(self, api: Api, fixed: bytes, tail: bytes, timeout_s: float) -> None:
        assert api is Api.SUBSCRIBE
        entries = SubscriptionEntry.unpack_all(tail, SubscriptionEntry.LAYOUT.size)
        self.asked.append([entry.number for entry in entries])
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]

    def tell(self, api: Api, tail: bytes) -> None:
        numbers = (
            unpack_numbers(tail)
            if api is Api.UNSUBSCRIBE
            else [grant.number for grant in Grant.unpack_all(tail)]
        )
        self.told.append((api, sorted(numbers)))


@pytest.fixture
async def channel() -> FakeChannel:
    return FakeChannel()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def push(home: Subscriptions, number: int, length: int, next_offset: int) -> None:
    fixed = PushResponse(0, 99, next_offset).pack()
    home.received(number, memoryview(fixed), memoryview(bytes(length)))


async def test_given_a_request_under_way_then_others_wait_and_go_together(
    channel: FakeChannel,
) -> None:
    home = Subscriptions(channel)
    for offset in range(3):
        home.open(UID, offset, 0, 1 << 20)
        await settle()
    home.open(UID, 9, 0, 1 << 20)
    assert channel.asked == [[1]]
    channel.answers[0].set_result(None)
    await settle()
    assert channel.asked == [[1], [2, 3, 4]]


async def test_given_more_than_one_request_may_name_then_the_rest_is_asked_for_after_it(
    channel: FakeChannel,
) -> None:
    home = Subscriptions(channel)
    most = MAX_SUBSCRIPTION_BYTES // SubscriptionEntry.LAYOUT.size
    for _ in range(most + 2):
        home.open(UID, 0, 0, 1 << 20)
    await settle()
    channel.answers[0].set_result(None)
    await settle()
    assert list(map(len, channel.asked)) == [most, 2]
    assert channel.asked[1] == [most + 1, most + 2]


async def test_given_a_request_under_way_then_nothing_is_said_of_what_it_asks_for(
    channel: FakeChannel,
) -> None:
    """A request waits while the socket takes nothing, and these would overtake it."""
    home = Subscriptions(channel)
    one, two = home.open(UID, 0, 0, 8 << 20), home.open(UID, 0, 0, 8 << 20)
    await settle()
    one.expect(known=True)
    two.close()
    await settle()
    assert channel.asked == [[1, 2]]
    assert channel.told == []
    channel.answers[0].set_result(None)
    await settle()
    assert channel.told == [(Api.UNSUBSCRIBE, [2]), (Api.CREDIT, [1])]


async def test_given_one_that_ends_before_it_is_asked_for_then_nobody_hears_of_it(
    channel: FakeChannel,
) -> None:
    home = Subscriptions(channel)
    home.open(UID, 0, 0, 1 << 20).close()
    await settle()
    assert (channel.asked, channel.told) == ([], [])


async def test_given_frames_that_are_taken_then_as_much_is_granted_again(
    channel: FakeChannel,
) -> None:
    home = Subscriptions(channel)
    both = [home.open(UID, 0, 0, 100) for _ in range(2)]
    await settle()
    channel.answers[0].set_result(None)
    for number in (1, 2):
        push(home, number, 40, 5)
        push(home, number, 40, 7)
    await settle()
    assert not channel.told, "nobody has taken anything"
    for one in both:
        assert (one.take().next_offset, one.offset) == (5, 5)
    await settle()
    assert not channel.told, "less than half of the window"
    for one in both:
        assert (one.take().next_offset, one.offset) == (7, 7)
    await settle()
    assert channel.told == [(Api.CREDIT, [1, 2])]


async def test_given_an_error_then_what_came_before_is_taken_first(channel: FakeChannel) -> None:
    home = Subscriptions(channel)
    one = home.open(UID, 0, 0, 100)
    push(home, 1, 40, 5)
    home.refused(1, NotReadyError("cut"))
    push(home, 1, 40, 7)
    assert (one.ready, one.ended) == (True, False)
    assert one.take().next_offset == 5
    assert (one.ready, one.ended) == (True, True)
    with pytest.raises(NotReadyError, match="cut"):
        one.take()


@pytest.mark.parametrize(
    ("error", "supported"),
    [(UnsupportedError("what?"), False), (NotReadyError("not yet"), True)],
    ids=["given-an-earlier-version-then-never-again", "given-another-error-then-perhaps-later"],
)
async def test_requests_that_fail(
    channel: FakeChannel, error: RunnelError, supported: bool
) -> None:
    home = Subscriptions(channel)
    one = home.open(UID, 0, 0, 100)
    expected = one.expect(known=False)
    await settle()
    assert not expected.done()
    channel.answers[0].set_exception(error)
    await expected
    with pytest.raises(type(error)):
        one.take()
    assert home.supported is supported
