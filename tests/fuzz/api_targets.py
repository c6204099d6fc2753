"""The REST API of an SC, given whatever a client may send: a request of HTTP, byte for byte.

There is no socket: aiohttp's own protocol reads from the input and writes to a transport that
keeps what is written. Behind it are a whole controller and a store in memory, made for each input.
"""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Final
from unittest import mock

from aiohttp import web

from runnel.admin.sse import EventParser
from sc.api.answers import ErrorAnswer
from sc.api.openapi import document
from sc.api.server import PublicServer
from sc.controller import Controller
from sc.election.office import LocalOffice
from sc.kv.interface import Put
from sc.kv.memory import MemoryKV
from sc.store.codec import encode_object
from schemas.objects.keys import ClusterKeys
from schemas.objects.manifest.manifest import json_schemas
from tests.fuzz.connection_targets import Transport
from tests.fuzz.law import Rejected, options, with_length
from tests.unit.sc.builders import SC, live, partition_of, spu_of, topic_of

#: So many turns of the loop and nothing is under way any more: no answer waits for time.
_TURNS: Final = 300
_DEADLINE_S: Final = 5.0
_DOCUMENT: Final = json.dumps(document())
_SCHEMAS: Final = json.dumps(json_schemas())
_RUN: Final = asyncio.Runner(loop_factory=asyncio.new_event_loop)
atexit.register(_RUN.close)


class _Documents:
    """Documents that are made already: making them in a thread takes more turns than `_TURNS`."""

    async def openapi(self) -> str:
        return _DOCUMENT

    async def schemas(self) -> str:
        return _SCHEMAS


def requested(data: bytes) -> None:
    """One request. With a set lowest bit of the first byte, the length of its body is right.

    It is answered as the OpenAPI document says, at once, and never by a fault of the server.
    """
    choice, data = options(data)
    request = with_length(data) if choice & 1 else data
    status, kind, body = _RUN.run(ask(request, whole=bool(choice & 1)))
    assert status < 500 or status in (503, 504), body
    if kind == "text/event-stream":
        list(EventParser().feed(body))
        return
    if kind != "application/json":
        # Of HTTP that is none aiohttp speaks, and of metrics their format.
        if status >= 400:
            raise Rejected
        return
    said = json.loads(body) if body else {}
    if status >= 400:
        if body:
            ErrorAnswer.model_validate(said)
            assert said["code"] != "INTERNAL", said
            assert said["message"].isprintable(), said
        raise Rejected


async def ask(request: bytes, *, whole: bool) -> tuple[int, str, bytes]:
    """Status, media type and body of the answer. Raises Rejected where none comes."""
    async with asyncio.timeout(_DEADLINE_S), _controller() as controller:
        with mock.patch("sc.api.cluster_answers.Documents", _Documents):
            server = PublicServer(controller.mirror, LocalOffice(SC), "test", ["sc"])
            server.lead(controller)
        runner = web.AppRunner(server.app, access_log=None, shutdown_timeout=0.0)
        await runner.setup()
        assert runner.server is not None
        protocol = runner.server()
        transport = Transport()
        protocol.connection_made(transport)
        try:
            protocol.data_received(request)
            found = await _response(transport)
        finally:
            protocol.connection_lost(None)
            await runner.cleanup()
    if found is None:
        assert not whole, "no answer"
        raise Rejected
    return found


async def _response(transport: Transport) -> tuple[int, str, bytes] | None:
    """The first answer that was written; of a stream, what has come of it."""
    quiet = 0
    before = 0
    while quiet < _TURNS:
        await asyncio.sleep(0)
        quiet = quiet + 1 if len(transport.written) == before else 0
        before = len(transport.written)
        head, end, body = bytes(transport.written).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = dict(map(_field, lines))
        kind = fields.get("content-type", "").partition(";")[0]
        length = int(fields.get("content-length", 0))
        if end and kind != "text/event-stream" and len(body) >= length:
            break
    if not end:
        return None
    if fields.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return int(first.split(" ")[1]), kind, body


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


def _unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        found += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return found


@asynccontextmanager
async def _controller() -> AsyncIterator[Controller]:
    """A controller at work over a store that has some objects."""
    kv = MemoryKV()
    await kv.txn([], list(_objects()))
    controller = await Controller.acquire(kv, "test", grace_ms=0)
    work = asyncio.create_task(controller.run_alone())
    try:
        yield controller
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await kv.close()


@cache
def _objects() -> tuple[Put, ...]:
    keys = ClusterKeys("test")
    objects = (
        spu_of(1),
        spu_of(2, rack="a"),
        topic_of(partitions=1, factor=2),
        partition_of("t", 0, (1, 2), leader=1, lrs=(live(1),)),
        topic_of("gone", deleting=True),
    )
    return tuple(
        Put(keys.object(obj.PLURAL, obj.name), encode_object(obj, "api-1", by="me", at="t"))
        for obj in objects
    )
