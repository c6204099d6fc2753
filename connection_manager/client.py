"""The SPU's side: stay connected to the SC that leads, through restarts, refusals and elections.

It knows the addresses of several SCs. It tries them in turn, the last good one first, and goes
where a standby sends it. When all have failed it waits a moment. It tries one connection at a time,
and says nothing before the SC has answered the request for it: by that the SC knows an older
connection from a newer one.

It proves to the SC that it knows the SPU's secret, if the SPU has one, and leaves an SC that proves
wrongly that it knows the SPU's. An SC that proves nothing is of an older version, or has no secret
of this SPU (its KV was restored from an older backup): the link goes on, and says so in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

import aiohttp
from pydantic import ValidationError

from connection_manager.heartbeat import Lateness
from connection_manager.session import (
    CLOSE_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    SLOWEST_BYTES_S,
    Session,
)
from connection_manager.turned_away import TurnedAway
from schemas.backoff import Backoff
from schemas.causality import caused_by, new_cause
from schemas.control.messages import (
    PROTOCOLS,
    Challenge,
    Envelope,
    Hello,
    Identify,
    Message,
    Prove,
    Reject,
    Welcome,
    decode_envelope,
)
from schemas.control.older_scs import hello_for
from schemas.control.parts import hello_parts
from schemas.control.proof import Exchange, accepts_sc, spu_proof
from schemas.control.session_end import SessionEnd
from schemas.daemon.logs import get_logger
from schemas.errors import RunnelError, UnauthorizedError, UnreachableError, error_from
from schemas.wire.keepalive import give_up, undelivered

#: For the answer of an SC that has all that it was sent.
ANSWER_TIMEOUT_S = 5.0
#: How long the host of an SC may acknowledge nothing of what it was sent: a line that has been slow
#: and loses much pauses for seconds.
SILENT_S = 8.0
#: So much of the state of an SPU an SC reads in a second, if it is busy.
READ_BYTES_S: Final = 500_000
#: How often it is looked whether the host of the SC has acknowledged more.
LOOK_S: Final = 0.25
#: Connecting has a limit of its own: an attempt that began while the network was cut sleeps on
#: after the cut.
CONNECT_TIMEOUT_S = 1.0
#: How long an SC has to answer the first request while others are known: one that stands still
#: accepts connections all the same.
GREETING_TIMEOUT_S = 1.5
#: Every third round of attempts has more time, by this factor: on some lines an answer takes
#: seconds. Most rounds are short, so that the end of a cut is noticed soon.
PATIENT: Final = 3
#: So many rounds are short where several SCs are known: one that stands still must not keep an SPU
#: from the one that leads now.
SHORT_ROUNDS: Final = 9
#: The end of a session that lasted as long is always logged; others once, then counted.
STEADY_S: Final = 60.0
RETRY_BASE_MS = 50.0
RETRY_CAP_MS = 1_000.0
#: Why a connection ends, as much of it as a close frame takes (RFC 6455, 5.5).
MAX_CLOSE_BYTES: Final = 123
_CUT: Final = "… (its log says more)"
_NONCE_BYTES: Final = 16
T = TypeVar("T")

log = get_logger(__name__)


class _ElsewhereError(RunnelError):
    """Another SC leads, at this address."""

    def __init__(self, message: str, leader: str) -> None:
        super().__init__(message)
        self.leader = leader


class LinkHandler(Protocol):
    """What an SPU does with its session."""

    def hello(self) -> Hello:
        """The first message of a new connection: the state as of now."""

    def secret(self) -> str | None:
        """The SPU's secret as of now; None if it has none. Raises RunnelError if it cannot be
        read."""

    async def welcomed(self, welcome: Welcome, session: Session) -> None:
        """The SC has accepted the SPU; ``session`` can send from now on."""

    async def handle(self, body: Message) -> None:
        """Do what the SC asks."""


class ControllerLink:
    """Connects to the private port of the SC that leads, again and again, until it is cancelled.
    ``addresses`` gives those of all SCs that are known, as of now."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[str]],
        handler: LinkHandler,
        *,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._addresses = addresses
        #: The one that is being tried, or that was the last good one.
        self._address = ""
        self._handler = handler
        self._backoff = Backoff(RETRY_BASE_MS, RETRY_CAP_MS, rng)
        #: Why the last attempt failed, None while connected.
        self.trouble: str | None = "not connected yet"
        self._let_in = False
        #: Whether the last session ended because the SC said nothing more.
        self._fell_silent = False
        #: How late SCs were lately, by address: another session does not change that.
        self._lateness: defaultdict[str, Lateness] = defaultdict(Lateness)
        self._logged = TurnedAway()

    async def run(self) -> None:
        """Keep a session open. Ends only by cancellation."""
        while True:
            began_s = time.monotonic()
            times_as_long = self._times_as_long()
            limits = aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT_S * times_as_long
            )
            async with aiohttp.ClientSession(timeout=limits) as http:
                reason = await self._try_all(http, times_as_long)
            self._log(reason, began_s)
            self.trouble = reason
            await asyncio.sleep(self._backoff.next_ms() / 1000)

    def _times_as_long(self) -> int:
        """By how much the next round of attempts may take longer than most."""
        rounds = self._backoff.attempts
        alone = len({*self._addresses()}) <= 1
        return PATIENT if rounds % 3 == 2 and (alone or rounds >= SHORT_ROUNDS) else 1

    def _log(self, reason: str, began_s: float) -> None:
        """Log why there is no session: once, then how often, unless one had lasted."""
        now_s = time.monotonic()
        times = self._logged.due("", reason, now_s)
        if times is not None:
            log.warning("not connected to the SC", reason=reason, times=times)
        elif self._let_in and now_s - began_s >= STEADY_S:
            log.warning("not connected to the SC", reason=reason)

    async def _try_all(self, http: aiohttp.ClientSession, times_as_long: int = 1) -> str:
        """Try each SC once, and each that one of them names as the leader; why all of them, or the
        one that had let this SPU in, ended the connection."""
        last = [self._address] if self._address else []
        others = [one for one in self._addresses() if one not in last]
        # One that has fallen silent comes last.
        waiting = [*others, *last] if self._fell_silent else [*last, *others]
        tried: dict[str, str] = {}
        patience_s = ANSWER_TIMEOUT_S if len(set(waiting)) == 1 else GREETING_TIMEOUT_S
        patience_s *= times_as_long
        while waiting:
            self._address = waiting.pop(0)
            if self._address in tried:
                continue
            self._let_in = self._fell_silent = False
            try:
                reason = await self._connect_once(http, patience_s)
            except _ElsewhereError as error:
                reason = error.message
                waiting[:0] = [error.leader]
            except RunnelError as error:
                reason = error.message
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = f"cannot reach the SC at {self._address}: {str(error) or 'timed out'}"
            if self._let_in:
                return reason
            tried[self._address] = reason
        return "; ".join(dict.fromkeys(tried.values())) or "no address of an SC is known"

    async def _connect_once(self, http: aiohttp.ClientSession, patience_s: float) -> str:
        hello = self._handler.hello()
        with caused_by(new_cause(f"spu{hello.spu_id}")) as cause:
            async with asyncio.timeout(patience_s):
                try:
                    socket = await http.ws_connect(
                        f"http://{self._address}/session",
                        protocols=PROTOCOLS,
                        max_msg_size=MAX_MESSAGE_BYTES,
                    )
                except RuntimeError as error:
                    raise self._lost(error) from error
            try:
                hello = hello_for(hello, socket.protocol)
                if socket.protocol is not None:
                    welcome = await self._introduce(socket, hello, cause)
                else:
                    # An older SC.
                    sent = await self._send(socket, Envelope(cause=cause, body=hello))
                    welcome = await self._welcome(socket, sent)
                session = Session(
                    socket,
                    self._handler.handle,
                    peer=f"the SC at {self._address}",
                    heartbeat_ms=welcome.heartbeat_ms,
                    misses=welcome.misses,
                    protocol=socket.protocol,
                    lateness=self._lateness[self._address],
                )
                await self._handler.welcomed(welcome, session)
                self._let_in = True
                self._backoff.reset()
                self.trouble = None
                log.info("connected to the SC", address=self._address, cluster=welcome.cluster)
                reason = await session.run()
                self._fell_silent = session.end is SessionEnd.SILENT
                if self._fell_silent:
                    # Leaving an SC decides nothing: if it was only late, the next session lasts.
                    self._lateness[self._address].heard_after(session.silent_ticks)
                return reason
            finally:
                with contextlib.suppress(OSError):
                    # It may have ended already.
                    give_up(socket)
                # What says goodbye may find no room, either.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await socket.close()

    async def _introduce(
        self, socket: aiohttp.ClientWebSocketResponse, hello: Hello, cause: str
    ) -> Welcome:
        """Say who this is, prove it, then send the state.

        The SC hears who this is even if the secret cannot be used, and why it cannot: its status
        of this SPU says so.
        """
        who = Identify(
            min_version=hello.min_version,
            max_version=hello.max_version,
            software=hello.software,
            spu_id=hello.spu_id,
            instance=hello.instance,
            cluster_uid=hello.cluster_uid,
            nonce=secrets.token_hex(_NONCE_BYTES),
        )
        await self._send(socket, Envelope(cause=cause, body=who))
        try:
            secret = self._handler.secret()
        except RunnelError as error:
            await socket.close(message=closing(error.message))
            raise
        challenge = await self._answer(socket)
        if not isinstance(challenge, Challenge):
            raise UnreachableError(f"{self._address} answered {challenge.type} to an identity")
        exchange = Exchange(
            challenge.cluster_uid, who.spu_id, who.instance, who.nonce, challenge.nonce
        )
        proof = None if secret is None else spu_proof(secret, exchange)
        first, later = hello_parts(hello)
        messages: list[Message] = [Prove(proof=proof), first, *later]
        sent = 0
        for message in messages:
            sent += await self._send(socket, Envelope(cause=cause, body=message))
        welcome = await self._welcome(socket, sent)
        if secret is not None:
            if welcome.proof is None:
                log.warning("the SC has no secret for this SPU", address=self._address)
            elif not accepts_sc(secret, exchange, welcome.proof):
                raise UnauthorizedError(
                    f"the SC at {self._address} does not know the secret of this SPU"
                )
        return welcome

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, envelope: Envelope) -> int:
        """Send a message, and give its size. Raises TimeoutError, UnreachableError, and the
        errors of the connection."""
        text = envelope.encode()
        try:
            await _unless_silent(socket, socket.send_str(text), len(text))
        except RuntimeError as error:
            raise self._lost(error) from error
        return len(text)

    def _lost(self, error: RuntimeError) -> UnreachableError:
        """uvloop may have closed its handle in a moment in which it tells nobody."""
        return UnreachableError(f"the connection to {self._address} is lost: {error}")

    async def _welcome(self, socket: aiohttp.ClientWebSocketResponse, sent: int) -> Welcome:
        body = await self._answer(socket, sent)
        if not isinstance(body, Welcome):
            raise UnreachableError(f"{self._address} answered {body.type} to a hello")
        return body

    async def _answer(self, socket: aiohttp.ClientWebSocketResponse, sent: int = 0) -> Message:
        """The next message, which answers ``sent`` bytes. Raises the error of a `Reject`,
        UnreachableError, TimeoutError."""
        message = await _unless_silent(socket, socket.receive(), sent)
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise UnreachableError(f"the SC at {self._address} closed the connection")
        try:
            body = decode_envelope(message.data).body
        except ValidationError as error:
            raise UnreachableError(
                f"{self._address} does not answer like an SC: {error}"
            ) from error
        if isinstance(body, Reject):
            if body.leader is not None:
                raise _ElsewhereError(f"{self._address}: {body.message}", body.leader)
            raise error_from(body.code, body.message)
        return body


def closing(why: str) -> bytes:
    """The reason in a close frame. What is too long is cut between two words, and says so: half of
    a command or a path helps nobody. Pure."""
    whole = why.encode()
    if len(whole) <= MAX_CLOSE_BYTES:
        return whole
    room = MAX_CLOSE_BYTES - len(_CUT.encode())
    # Not cut within a character either, where one word is as long.
    head = whole[:room].decode(errors="ignore")
    return f"{head.rpartition(' ')[0] or head}{_CUT}".encode()


async def _unless_silent(
    socket: aiohttp.ClientWebSocketResponse, work: Coroutine[Any, Any, T], size: int
) -> T:
    """The result of sending ``size`` bytes, or of waiting for their answer. Raises TimeoutError
    when the host of the SC acknowledges none of them for `SILENT_S`, or has all, and its process
    does nothing for as long as it needs to read them. What a line has taken begins the time anew:
    it may be slow. A time without acknowledgements as the kernel counts it would not do: on a line
    that loses much it ends connections that work.

    Where the kernel does not say what is acknowledged, the limit is the time that the slowest line
    needs.
    """

    def patience_s(left: int | None) -> float:
        if left is None:
            return ANSWER_TIMEOUT_S + size / SLOWEST_BYTES_S
        return SILENT_S if left else ANSWER_TIMEOUT_S + size / READ_BYTES_S

    loop = asyncio.get_running_loop()
    left = undelivered(socket)
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(patience_s(left)) as limit:
            while not task.done():
                await asyncio.wait([task], timeout=LOOK_S)
                if left != (left := undelivered(socket)):
                    limit.reschedule(loop.time() + patience_s(left))
        return task.result()
    finally:
        task.cancel()
