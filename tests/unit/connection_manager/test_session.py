"""A session over a WebSocket in memory: requests, replies, heartbeats, and every way to end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from connection_manager import session as session_module
from connection_manager.session import Handler, Session
from schemas.causality import caused_by, current_cause
from schemas.control.messages import Heartbeat, Message, Reply, Report
from schemas.control.session_end import CloseCode, SessionEnd
from schemas.errors import (
    CompactedError,
    ConflictError,
    DeadlineExceededError,
    ErrorCode,
    RunnelError,
    UnreachableError,
)
from schemas.wire.keepalive import VANISHED, be_patient
from tests.polling import eventually
from tests.unit.connection_manager.fake_socket import FakeSocket, pair

REPORT = Report()
#: Long enough that no heartbeat is missed within a test that is not about them.
CALM_MS = 60_000
#: So short that heartbeats are missed within a blink.
HASTY_MS = 5


async def nothing(_body: Message) -> None:
    """A handler that has nothing to do."""


def session_over(
    socket: FakeSocket,
    handler: Handler = nothing,
    *,
    heartbeat_ms: int = CALM_MS,
    misses: int = 3,
) -> Session:
    return Session(socket, handler, peer="the peer", heartbeat_ms=heartbeat_ms, misses=misses)


@asynccontextmanager
async def running(*sessions: Session) -> AsyncIterator[list[asyncio.Task[str]]]:
    tasks = [asyncio.create_task(session.run()) for session in sessions]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def end_of(task: asyncio.Task[str]) -> str:
    async with asyncio.timeout(15):
        return await task


async def test_given_request_then_handled_with_its_cause_and_answered() -> None:
    one, two = pair()
    seen: list[tuple[Message, str]] = []

    async def handler(body: Message) -> None:
        seen.append((body, current_cause()))

    asking, answering = session_over(one), session_over(two, handler)
    async with running(asking, answering):
        with caused_by("api-9"):
            await asking.request(REPORT)
    assert seen == [(REPORT, "api-9")]


async def test_given_both_sides_ask_at_once_then_both_are_answered() -> None:
    one, two = pair()
    left, right = session_over(one), session_over(two)
    async with running(left, right):
        await asyncio.gather(*(side.request(REPORT) for side in (left, right) for _ in range(20)))


async def test_given_requests_then_handled_one_after_the_other_in_order() -> None:
    one, two = pair()
    log: list[str] = []

    async def handler(body: Message) -> None:
        assert isinstance(body, Report)
        log.append(f"begin {len(body.deleted)}")
        await asyncio.sleep(0)
        log.append(f"end {len(body.deleted)}")

    from tests.unit.sc.builders import partition_of, tombstone_of

    grave = tombstone_of(partition_of(), 1)
    asking = session_over(one)
    async with running(asking, session_over(two, handler)):
        bodies = [Report(deleted=(grave,) * n) for n in range(4)]
        await asyncio.gather(*(asking.request(body) for body in bodies))
    assert log == [f"{what} {n}" for n in range(4) for what in ("begin", "end")]


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        pytest.param(ConflictError("older"), ErrorCode.CONFLICT, "older", id="given-conflict"),
        pytest.param(
            CompactedError("gone", first_available=7),
            ErrorCode.COMPACTED,
            "gone",
            id="given-error-with-details",
        ),
        pytest.param(
            ValueError("a bug"), ErrorCode.INTERNAL, "ValueError('a bug')", id="given-bug-of-peer"
        ),
    ],
)
async def test_error_of_the_peer_is_rebuilt(raised: Exception, code: int, message: str) -> None:
    one, two = pair()

    async def handler(_body: Message) -> None:
        raise raised

    asking = session_over(one)
    async with running(asking, session_over(two, handler)):
        with pytest.raises(RunnelError) as caught:
            await asking.request(REPORT)
        assert (caught.value.code, caught.value.message) == (code, message)
        if isinstance(raised, RunnelError):
            assert type(caught.value) is type(raised)
            assert caught.value.details == raised.details
        assert not asking.closed


async def test_given_error_code_of_a_newer_release_then_a_plain_error() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session):
        asking = asyncio.create_task(session.request(REPORT))
        await eventually(lambda: bool(socket.requests()))
        error = {"code": "NOT_INVENTED", "message": "?"}
        socket.receives_message(Reply(error=error), reply_to=socket.requests()[0].id)
        with pytest.raises(RunnelError, match="NOT_INVENTED"):
            await asking


async def test_given_session_closed_then_waiting_requests_fail() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session) as (task,):
        asking = [asyncio.create_task(session.request(REPORT)) for _ in range(3)]
        await eventually(lambda: len(socket.requests()) == 3)
        session.close("the SPU was deleted")
        session.close("a later reason")
        for request in asking:
            with pytest.raises(UnreachableError, match="the peer ended: the SPU was deleted"):
                await request
        assert await end_of(task) == "the SPU was deleted"
        assert socket.closed
        with pytest.raises(UnreachableError, match="the SPU was deleted"):
            await session.request(REPORT)


async def test_given_peer_hangs_up_then_the_session_ends_and_requests_fail() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session) as (task,):
        asking = asyncio.create_task(session.request(REPORT))
        await eventually(lambda: bool(socket.requests()))
        socket.hangs_up()
        assert await end_of(task) == "connection closed by the peer"
        with pytest.raises(UnreachableError):
            await asking


async def test_given_cancelled_then_the_socket_is_closed_and_nothing_left_running() -> None:
    socket = FakeSocket()
    before = len(asyncio.all_tasks())
    async with running(session_over(socket)) as (task,):
        await eventually(lambda: socket.heartbeats() > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert socket.closed
        assert len(asyncio.all_tasks()) == before


async def test_given_no_answer_then_deadline_exceeded_and_a_late_answer_is_ignored() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session):
        with pytest.raises(DeadlineExceededError, match="did not answer report within"):
            await session.request(REPORT, timeout_s=0.01)
        socket.receives_message(Reply(), reply_to=1)
        socket.receives_message(Reply(), reply_to=99)
        again = asyncio.create_task(session.request(REPORT))
        await eventually(lambda: len(socket.requests()) == 2)
        socket.receives_message(Reply(), reply_to=2)
        await again
        assert not session.closed


async def test_given_connection_that_takes_nothing_then_requests_have_their_deadline() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session):
        await eventually(lambda: socket.heartbeats() > 0)
        socket.stuck = True
        async with asyncio.timeout(10):
            with pytest.raises(DeadlineExceededError):
                await session.request(REPORT, timeout_s=0.01)


async def test_given_reply_that_is_no_reply_then_ignored() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session):
        asking = asyncio.create_task(session.request(REPORT))
        await eventually(lambda: bool(socket.requests()))
        socket.receives_message(Heartbeat(), reply_to=1)
        socket.receives_message(Reply(), reply_to=1)
        await asking


async def test_given_request_without_id_then_handled_and_not_answered() -> None:
    socket = FakeSocket()
    handled = asyncio.Event()

    async def handler(_body: Message) -> None:
        handled.set()

    async with running(session_over(socket, handler)):
        socket.receives_message(REPORT)
        async with asyncio.timeout(15):
            await handled.wait()
        for _ in range(5):
            await asyncio.sleep(0)
    assert socket.requests() == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cause": "x", "body": {"type": "nonsense"}}'])
async def test_given_message_that_does_not_parse_then_the_session_ends(text: str) -> None:
    socket = FakeSocket()
    async with running(session_over(socket)) as (task,):
        socket.receives(text)
        assert "the peer sent a message that does not parse" in await end_of(task)


async def test_given_silent_peer_then_the_session_ends_with_missed_heartbeats() -> None:
    socket = FakeSocket()
    async with running(session_over(socket, heartbeat_ms=HASTY_MS)) as (task,):
        assert await end_of(task) == "the peer missed 3 heartbeats"
    assert socket.heartbeats() >= 3


async def test_given_peer_that_neither_reads_nor_speaks_then_missed_heartbeats_all_the_same() -> (
    None
):
    """Full buffers towards a dead host: sending blocks, and must not stop the counting."""
    socket = FakeSocket()
    socket.stuck = True
    async with running(session_over(socket, heartbeat_ms=HASTY_MS)) as (task,):
        assert await end_of(task) == "the peer missed 3 heartbeats"


async def test_given_slow_handler_then_heartbeats_and_replies_flow() -> None:
    one, two = pair()
    gate = asyncio.Event()

    async def slow(_body: Message) -> None:
        await gate.wait()

    slow_side, other = session_over(two, slow, heartbeat_ms=20), session_over(one, heartbeat_ms=20)
    async with running(slow_side, other) as tasks:
        asking = asyncio.create_task(other.request(REPORT))
        await eventually(lambda: two.heartbeats() > 6)
        await slow_side.request(REPORT)
        assert not asking.done()
        assert not any(task.done() for task in tasks)
        gate.set()
        await asking


async def test_given_peer_faster_than_it_is_served_then_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "MAX_QUEUED_REQUESTS", 4)
    socket = FakeSocket()
    gate = asyncio.Event()

    async def slow(_body: Message) -> None:
        await gate.wait()

    session = session_over(socket, slow)
    session.on_close = lambda _reason: gate.set()
    async with running(session) as (task,):
        for number in range(4):
            socket.receives_message(REPORT, request_id=number)
        await asyncio.sleep(0.01)
        assert not task.done()
        for number in range(4, 6):
            socket.receives_message(REPORT, request_id=number)
        assert await end_of(task) == "the peer sends requests faster than they are handled"


async def test_given_connection_that_breaks_on_sending_then_the_session_says_so() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session) as (task,):
        await eventually(lambda: socket.heartbeats() > 0)
        socket.broken = True
        with pytest.raises(UnreachableError, match="closing transport"):
            await session.request(REPORT)
        assert await end_of(task) == "send failed: Cannot write to closing transport"


async def test_given_heartbeat_that_cannot_be_sent_then_an_end_and_no_internal_error() -> None:
    socket = FakeSocket()
    socket.broken = True
    async with running(session_over(socket)) as (task,):
        assert await end_of(task) == "send failed: Cannot write to closing transport"


class SlowHandler:
    """A handler that says when it began and what it finished, and ends when told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.began: list[Message] = []
        self.finished: list[Message] = []

    async def __call__(self, body: Message) -> None:
        self.began.append(body)
        self.begun.set()
        await self.gate.wait()
        self.finished.append(body)


@pytest.mark.parametrize("how", ["hangs-up", "closed"])
async def test_given_the_end_while_a_request_is_handled_then_it_is_finished_first(
    how: str,
) -> None:
    socket, handler = FakeSocket(), SlowHandler()
    session = session_over(socket, handler)
    ended: list[str] = []
    session.on_close = ended.append
    async with running(session) as (task,):
        for number in range(3):
            socket.receives_message(REPORT, request_id=number)
        await handler.begun.wait()
        if how == "closed":
            session.close("over")
        else:
            socket.hangs_up()
        await eventually(lambda: socket.closed)
        # The end is told at once; only whoever waits for `run` waits for the handler.
        assert len(ended) == 1
        assert not task.done()
        assert handler.finished == []
        handler.gate.set()
        assert await end_of(task) == ended[0]
    assert handler.finished == [REPORT]
    assert handler.began == [REPORT]


async def test_given_cancelled_again_and_again_then_the_request_is_finished_all_the_same() -> None:
    socket, handler = FakeSocket(), SlowHandler()
    async with running(session_over(socket, handler)) as (task,):
        socket.receives_message(REPORT)
        await handler.begun.wait()
        for _ in range(3):
            task.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
        assert not task.done()
        handler.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await end_of(task)
        assert handler.finished == [REPORT]
        assert socket.closed


async def test_given_a_failing_request_after_the_end_then_the_end_stays_what_it_was() -> None:
    socket = FakeSocket()
    begun, gate = asyncio.Event(), asyncio.Event()

    async def fails(_body: Message) -> None:
        begun.set()
        await gate.wait()
        raise ConflictError("older")

    session = session_over(socket, fails)
    async with running(session) as (task,):
        socket.receives_message(REPORT, request_id=1)
        await begun.wait()
        session.close("over")
        gate.set()
        assert await end_of(task) == "over"


async def test_given_a_reply_that_is_stuck_then_the_session_still_ends() -> None:
    socket, handler = FakeSocket(), SlowHandler()
    async with running(session_over(socket, handler)) as (task,):
        await eventually(lambda: socket.heartbeats() > 0)
        socket.stuck = True
        handler.gate.set()
        socket.receives_message(REPORT, request_id=1)
        await handler.begun.wait()
        socket.hangs_up()
        assert await end_of(task) == "connection closed by the peer"
    assert handler.finished == [REPORT]


@pytest.mark.parametrize(
    ("code", "end"),
    [
        pytest.param(None, SessionEnd.LOST, id="given-no-code-then-the-peer-is-gone"),
        pytest.param(CloseCode.GOODBYE, SessionEnd.GOODBYE, id="given-goodbye-then-it-stops"),
        pytest.param(CloseCode.SILENT, SessionEnd.CLOSED, id="given-we-were-silent-then-closed"),
        pytest.param(CloseCode.NORMAL, SessionEnd.CLOSED, id="given-earlier-release-then-closed"),
        pytest.param(4999, SessionEnd.CLOSED, id="given-unknown-code-then-closed"),
    ],
)
async def test_how_the_peer_ends_it(code: int | None, end: SessionEnd) -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session) as (task,):
        if code is None:
            socket.hangs_up()
        else:
            socket.closes(code)
        await end_of(task)
    assert session.end is end


async def test_given_silent_peer_then_the_code_says_so() -> None:
    socket = FakeSocket()
    session = session_over(socket, heartbeat_ms=HASTY_MS)
    async with running(session) as (task,):
        await end_of(task)
    assert (session.end, socket.code) == (SessionEnd.SILENT, CloseCode.SILENT)
    assert session.quiet


async def test_given_own_stop_then_goodbye() -> None:
    socket = FakeSocket()
    async with running(session_over(socket)):
        await eventually(lambda: socket.heartbeats() > 0)
    assert socket.code == CloseCode.GOODBYE


async def test_given_own_close_then_no_goodbye() -> None:
    socket = FakeSocket()
    session = session_over(socket)
    async with running(session) as (task,):
        session.close("replaced by a newer connection")
        await end_of(task)
    assert (session.end, socket.code) == (SessionEnd.CLOSED, CloseCode.NORMAL)
    assert not session.quiet


async def test_given_broken_connection_then_the_peer_is_gone() -> None:
    socket = FakeSocket()
    socket.broken = True
    session = session_over(socket)
    async with running(session) as (task,):
        await end_of(task)
    assert session.end is SessionEnd.LOST


@pytest.mark.parametrize("sent", ["heartbeat", "request"])
async def test_given_sending_fails_before_the_code_is_read_then_the_code_counts(sent: str) -> None:
    socket = FakeSocket()
    session = session_over(socket, heartbeat_ms=20 if sent == "heartbeat" else CALM_MS)
    async with running(session) as (task,):
        await eventually(lambda: socket.heartbeats() > 0)
        socket.broken = True
        if sent == "request":
            with pytest.raises(UnreachableError):
                await session.request(REPORT)
        else:
            await eventually(lambda: socket.refused > 0)
        socket.closes(CloseCode.SILENT)
        await end_of(task)
    assert session.end is SessionEnd.CLOSED


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has it")
async def test_given_a_session_then_the_kernel_leaves_its_end_to_it() -> None:
    one, _ = pair()
    with socket.socket() as found:
        be_patient(found, VANISHED)
        one.under = found
        async with running(session_over(one)):
            await eventually(
                lambda: found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
            )


async def test_given_a_long_message_then_its_answer_may_take_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "SLOWEST_BYTES_S", 1)
    asked = session_over(FakeSocket())
    async with running(asked):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asked.request(REPORT, timeout_s=0.01)
