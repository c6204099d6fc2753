"""How an SPU introduces itself on a new connection, before the SC lets it in. The SC's side.

An SPU says who it is before it says what it holds, in a message of at most `MAX_IDENTITY_BYTES`:
registration, the other process and the proof are looked at first. SPUs of older versions begin with
their whole state; of a large one the SC reads only the id until it has let the SPU in.

Neighbours: `connection_manager.manager` decides who is let in, and serves the session.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp
from aiohttp import hdrs, web
from pydantic import ValidationError

from connection_manager.guarded_site import GuardedConnection
from connection_manager.session import (
    MAX_IDENTITY_BYTES,
    MAX_OLDER_SPU_MESSAGE_BYTES,
    SLOWEST_BYTES_S,
)
from schemas.causality import new_cause
from schemas.control.messages import (
    PARTS_PROTOCOL,
    Challenge,
    Envelope,
    Hello,
    HelloPart,
    Identify,
    Prove,
    ReplicaReport,
    decode_envelope,
    misread,
    understands,
)
from schemas.control.parts import MAX_PART_BYTES
from schemas.control.proof import Exchange
from schemas.errors import UnauthorizedError, UnsupportedError
from schemas.model import Model

#: For each message by which an SPU says who it is.
HELLO_TIMEOUT_S = 5.0
#: More parts than any SPU has: each holds hundreds of replicas.
MAX_HELLO_PARTS: Final = 1_000
#: How long a connection stays after it was told that it is too late.
LAST_WORD_S: Final = 5.0
#: A close frame has room for as much.
MAX_SAID_CHARACTERS: Final = 123
_ENDED: Final = (
    aiohttp.WSMsgType.CLOSE,
    aiohttp.WSMsgType.CLOSING,
    aiohttp.WSMsgType.CLOSED,
    aiohttp.WSMsgType.ERROR,
)
_NONCE_BYTES: Final = 16
#: The id at the beginning of a hello of an older version.
_HELLO_OF: Final = re.compile(r'"type":"hello"[^{}\[\]]{0,512}?"spuId":([0-9]{1,10})[,}]')
MessageT = TypeVar("MessageT", bound=Model)


@dataclass(slots=True)
class Claim:
    """The id that the other end of a connection has claimed so far, and for how long it may wait
    there (`connection_manager.guarded_site`). ``arrival`` counts connections as they come."""

    connection: GuardedConnection | None
    arrival: int
    spu_id: int | None = None

    def expect(self, seconds: float) -> None:
        """It has so long for its next message, and a moment to hear why it was too late."""
        if self.connection is not None:
            self.connection.expect(seconds + LAST_WORD_S)

    def let_in(self) -> None:
        """It waits no longer: it does not have to make room for others."""
        if self.connection is not None:
            self.connection.serve()

    def __str__(self) -> str:
        return "an SPU that has not said its id" if self.spu_id is None else f"SPU {self.spu_id}"


@dataclass(frozen=True, slots=True)
class Checks:
    """What is looked at while somebody says who it is. Each raises a RunnelError to refuse it."""

    #: Whether an SPU of this id is registered.
    registered: Callable[[int], None]
    #: Whether this SPU, on a connection of this arrival, may come in as far as it has said.
    admissible: Callable[[Hello | Identify, int], None]
    #: As `connection_manager.manager.SessionEvents.authenticate`.
    authentic: Callable[[int, Exchange | None, str | None], Awaitable[str | None]]


class Introduction:
    """What an SPU says on a ``socket`` until the SC decides; ``claim`` is filled on the way."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        claim: Claim,
        checks: Checks,
        cluster_uid: Callable[[], str],
    ) -> None:
        self._socket = socket
        self._claim = claim
        self._checks = checks
        self._cluster_uid = cluster_uid

    async def hello(self) -> tuple[Hello, str | None]:
        """The whole hello, and the SC's proof for an SPU that has proven itself.

        Raises a RunnelError for who is refused, says something else, or leaves.
        """
        if self._socket.ws_protocol is None:
            return await self._bare_hello(), None
        return await self._identified_hello()

    async def _identified_hello(self) -> tuple[Hello, str | None]:
        """The hello of an SPU that says first who it is, and the SC's proof for it."""
        claim = self._claim
        who = await self._receive(Identify, MAX_IDENTITY_BYTES)
        claim.spu_id = who.spu_id
        self._checks.admissible(who, claim.arrival)
        claim.expect(HELLO_TIMEOUT_S)
        challenge = Challenge(
            cluster_uid=self._cluster_uid(), nonce=secrets.token_hex(_NONCE_BYTES)
        )
        try:
            await self._socket.send_str(Envelope(cause=new_cause("sc"), body=challenge).encode())
        except ConnectionError:
            raise _left(_name(Prove)) from None
        proven = await self._receive(Prove, MAX_IDENTITY_BYTES)
        exchange = Exchange(
            challenge.cluster_uid, who.spu_id, who.instance, who.nonce, challenge.nonce
        )
        proof = await self._checks.authentic(who.spu_id, exchange, proven.proof)
        if proof is not None:
            claim.let_in()
        # From here on a slow line may need long. Who has proven nothing keeps its place until
        # others need it.
        limit_s = HELLO_TIMEOUT_S + MAX_PART_BYTES / SLOWEST_BYTES_S
        claim.expect(limit_s)
        hello = await self._receive(Hello, limit_s=limit_s)
        if (hello.spu_id, hello.instance) != (who.spu_id, who.instance):
            raise UnauthorizedError(
                f"SPU {who.spu_id} sends the hello of SPU {hello.spu_id}, or of another process"
            )
        if not 0 <= (more := hello.more or 0) <= MAX_HELLO_PARTS:
            raise UnsupportedError(f"a hello of {more} parts; at most {MAX_HELLO_PARTS} may follow")
        replicas: list[ReplicaReport] = list(hello.replicas)
        size = 0
        for _ in range(more):
            claim.expect(limit_s)
            text = await self._text(_name(HelloPart), limit_s)
            size += len(text)
            if proof is None and size > MAX_OLDER_SPU_MESSAGE_BYTES:
                raise UnauthorizedError(
                    f"a state of more than {MAX_OLDER_SPU_MESSAGE_BYTES} characters is taken from"
                    " an SPU that has a secret only: runnel spu secret"
                )
            replicas += _parse(text, HelloPart).replicas
        return hello.model_copy(update={"replicas": tuple(replicas), "more": None}), proof

    async def _bare_hello(self) -> Hello:
        """The hello of an SPU of an older version, which cannot prove anything."""
        claim = self._claim
        text = await self._text("hello")
        if len(text) > MAX_IDENTITY_BYTES:
            # To parse it takes long, and it may come from anybody.
            found = _HELLO_OF.search(text, 0, MAX_IDENTITY_BYTES)
            if found is None:
                raise UnsupportedError("the first message must be a hello that begins with its id")
            claim.spu_id = int(found[1])
            self._checks.registered(int(found[1]))
            await self._checks.authentic(int(found[1]), None, None)
        hello = _parse(text, Hello)
        claim.spu_id = hello.spu_id
        self._checks.admissible(hello, claim.arrival)
        await self._checks.authentic(hello.spu_id, None, None)
        return hello.model_copy(update={"more": None})

    async def _receive(
        self,
        kind: type[MessageT],
        at_most: int | None = None,
        limit_s: float | None = None,
    ) -> MessageT:
        text = await self._text(_name(kind), limit_s)
        if at_most is not None and len(text) > at_most:
            raise UnsupportedError(f"a message of {len(text)} characters; {at_most} are allowed")
        return _parse(text, kind)

    async def _text(self, name: str, limit_s: float | None = None) -> str:
        limit_s = HELLO_TIMEOUT_S if limit_s is None else limit_s
        try:
            message = await self._socket.receive(limit_s)
        except TimeoutError:
            raise UnsupportedError(f"no message {name!r} within {limit_s:g} s") from None
        if message.type is aiohttp.WSMsgType.CLOSE and (why := _printable(message.extra)):
            raise UnsupportedError(f"it left before the message {name!r}, saying: {why}")
        if message.type in _ENDED:
            raise _left(name)
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise UnsupportedError(f"the message {name!r} must be text")
        return str(message.data)


def _parse(text: str, kind: type[MessageT]) -> MessageT:
    name = _name(kind)
    try:
        body = decode_envelope(text).body
    except ValidationError as error:
        raise UnsupportedError(f"the message {name!r} does not parse: {misread(error)}") from error
    if not isinstance(body, kind):
        raise UnsupportedError(f"the next message must be {name!r}, not {body.type!r}")
    return body


def _left(name: str) -> UnsupportedError:
    return UnsupportedError(f"it left before the message {name!r}")


def max_message_bytes(request: web.Request) -> int:
    """The largest message that the SC takes from an SPU with this request."""
    offered = request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "")
    in_parts = any(understands(name.strip(), PARTS_PROTOCOL) for name in offered.split(","))
    return MAX_PART_BYTES if in_parts else MAX_OLDER_SPU_MESSAGE_BYTES


def _printable(said: object) -> str:
    """What the other end said when it closed the connection, fit for a log and a status."""
    return "".join(c for c in str(said or "") if c.isprintable())[:MAX_SAID_CHARACTERS]


def _name(kind: type[Model]) -> str:
    """The name of a kind of message, as it travels."""
    return str(kind.model_fields["type"].default)
