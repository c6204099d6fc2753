"""What a client makes of an SC that may answer anything: answers to calls, and watches.

There is no socket: aiohttp's own protocol of clients writes to a transport that keeps what is
written, and is then given the next piece of the input, and the end of the connection.
"""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from unittest import mock

import aiohttp
from aiohttp.client_proto import ResponseHandler

from runnel.admin.answers import ClusterInfo
from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.admin.watch import Watch
from runnel.client import Cluster
from schemas.errors import RunnelError
from schemas.objects.topic import Topic
from tests.fuzz.connection_targets import Transport
from tests.fuzz.law import Rejected, options, with_length

#: Stands between what one connection brings and what the next one does.
NEXT: Final = b"\n--\n"
_STREAM: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
_DEADLINE_S: Final = 5.0
_RUN: Final = asyncio.Runner(loop_factory=asyncio.new_event_loop)
atexit.register(_RUN.close)


class _OverError(RunnelError):
    """The input has no more connections."""


class _Transport(Transport):
    """Calls back once something was written."""

    def __init__(self, asked: Callable[[], None]) -> None:
        super().__init__()
        self._asked = asked

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.written:
            asyncio.get_running_loop().call_soon(self._asked)
        super().write(data)


class _Connector(aiohttp.BaseConnector):
    """Connections that each bring a piece of the input, and end."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(force_close=True)
        self._pieces = iter(pieces)

    async def _create_connection(self, *_request: Any) -> ResponseHandler:
        piece = next(self._pieces, None)
        if piece is None:
            raise _OverError("no more of it")
        protocol = ResponseHandler(asyncio.get_running_loop())

        def asked() -> None:
            protocol.data_received(piece)
            protocol.connection_lost(None)

        protocol.connection_made(_Transport(asked))
        return protocol


async def _cluster(_admin: Admin) -> ClusterInfo:
    client = await Cluster.connect("sc:9003")
    await client.close()
    return client.info


#: What is asked, by name.
CALLS: Final[dict[str, Callable[[Admin], Awaitable[object]]]] = {
    "cluster": _cluster,
    "list": lambda admin: admin.list("topics"),
    "get": lambda admin: admin.get("topic", "t"),
    "history": lambda admin: admin.history("topic", "t"),
    "replicas": lambda admin: admin.replicas("t-0"),
    "apply": lambda admin: admin.apply(Topic.model_validate({"metadata": {"name": "t"}})),
    "delete": lambda admin: admin.delete("topic", "t"),
    "truncate": lambda admin: admin.truncate_partition("t-0", 7),
    "assignments": lambda admin: admin._sc.assignments("t"),
}


def replied(data: bytes) -> None:
    """Answers to a call. With a set lowest bit of the first byte, the lengths of bodies are right;
    its other bits say which call it is.

    It gives what can be shown and written down, or raises a `RunnelError`.
    """
    choice, data = options(data)
    pieces = [with_length(piece) if choice & 1 else piece for piece in data.split(NEXT)]
    call = list(CALLS.values())[(choice >> 1) % len(CALLS)]

    async def asked() -> object:
        async with asyncio.timeout(_DEADLINE_S), _client(pieces) as sc:
            return await call(Admin(sc))

    try:
        found = _RUN.run(asked())
    except RunnelError as error:
        json.dumps(error.to_json())
        raise Rejected from error
    repr(found)
    for obj in found if isinstance(found, list) else []:
        json.dumps(obj.to_json())
        assert obj.revision >= 0


def watched(data: bytes) -> None:
    """A watch of topics, connection by connection, each a stream of events. With a set lowest bit
    of the first byte it begins after a revision.

    Whatever is told is of topics that have a revision; it ends by an error that says why.
    """
    choice, data = options(data)
    pieces = [_STREAM + piece for piece in data.split(NEXT)]
    told = 0

    async def follow() -> None:
        nonlocal told
        async with asyncio.timeout(_DEADLINE_S), _client(pieces) as sc:
            since = 4 if choice & 1 else None
            async with Watch(sc, Topic, {}, lambda: 0.0, since=since) as watch:
                async for event in watch:
                    assert isinstance(event.object, Topic)
                    assert event.type in ("added", "modified", "deleted")
                    assert event.object.revision >= 0
                    told += 1

    try:
        with mock.patch("runnel.admin.watch.backoff_s", return_value=0.0):
            _RUN.run(follow())
    except _OverError:
        if not told:
            raise Rejected from None
    except RunnelError as error:
        json.dumps(error.to_json())
        raise Rejected from error


@asynccontextmanager
async def _client(pieces: list[bytes]) -> AsyncIterator[ScClient]:
    """A client of one SC, and any other client that is made meanwhile, with these connections."""
    connector = _Connector(pieces)
    session = aiohttp.ClientSession

    def connected(**settings: Any) -> aiohttp.ClientSession:
        return session(**settings | {"connector": connector, "connector_owner": False})

    with mock.patch("runnel.admin.http.aiohttp.ClientSession", connected):
        sc = ScClient.parse("sc:9003")
        try:
            yield sc
        finally:
            await sc.close()
            await connector.close()
