"""Small clients of the public port, as bare as the protocol allows."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

import pytest

from schemas.errors import RunnelError
from schemas.wire.protocol import (
    PREFIX,
    Api,
    FrameHeader,
    HelloRequest,
    HelloResponse,
    pack_frame,
    raise_for_status,
    unpack_frame,
)
from schemas.wire.record_requests import (
    NO_FLAGS,
    NO_OFFSET,
    Acks,
    FetchFlags,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from schemas.wire.subscription_requests import (
    Grant,
    PushResponse,
    SubscribeRequest,
    SubscriptionEntry,
)
from tests.unit.spu.builders import DEADLINE_S, UID, headers


class Client:
    """One connection; every call sends or receives one frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, *, hello: bool = True) -> Self:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        if hello:
            await client.call(Api.HELLO, 0, HelloRequest(1, 1).pack())
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def send(self, api: int, correlation: int, fixed: bytes, tail: bytes | bytearray = b"") -> None:
        self.writer.writelines(pack_frame(api, correlation, fixed, tail))

    async def receive(self) -> tuple[FrameHeader, memoryview, memoryview]:
        async with asyncio.timeout(DEADLINE_S):
            (length,) = PREFIX.unpack(await self.reader.readexactly(PREFIX.size))
            return unpack_frame(memoryview(await self.reader.readexactly(length)))

    async def call(
        self, api: int, correlation: int, fixed: bytes, tail: bytes | bytearray = b""
    ) -> tuple[memoryview, memoryview]:
        """Send one request and wait for its answer. Raises the error the answer carries."""
        self.send(api, correlation, fixed, tail)
        header, answer, rest = await self.receive()
        raise_for_status(header, rest)
        assert (header.api, header.correlation) == (api, correlation)
        return answer, rest

    async def hello(self) -> tuple[HelloResponse, str]:
        fixed, tail = await self.call(Api.HELLO, 0, HelloRequest(1, 1).pack())
        return HelloResponse.unpack(fixed), bytes(tail).decode()

    async def produce(
        self, batch: bytearray, acks: Acks = Acks.COMMITTED, expected: int = NO_OFFSET
    ) -> ProduceResponse:
        request = ProduceRequest(UID, acks, 10_000, expected)
        fixed, _ = await self.call(Api.PRODUCE, 1, request.pack(), batch)
        return ProduceResponse.unpack(fixed)

    async def fetch(
        self,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        flags: FetchFlags = NO_FLAGS,
    ) -> tuple[FetchResponse, memoryview]:
        request = FetchRequest(UID, offset, max_bytes, min_bytes, max_wait_ms, flags=flags)
        fixed, tail = await self.call(Api.FETCH, 2, request.pack())
        return FetchResponse.unpack(fixed), tail

    async def list_offsets(self, position: int) -> ListOffsetsResponse:
        fixed, _ = await self.call(Api.LIST_OFFSETS, 3, ListOffsetsRequest(UID, position).pack())
        return ListOffsetsResponse.unpack(fixed)

    async def closed(self) -> bool:
        """Wait until the other side has closed."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    async def last_error(self) -> RunnelError:
        """The error of the next frame."""
        header, _, tail = await self.receive()
        try:
            raise_for_status(header, tail)
        except RunnelError as error:
            error.details["correlation"] = header.correlation
            return error
        raise AssertionError("the answer carries no error")


class Subscriber(Client):
    """A client of which a test knows what each subscription was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.offsets: dict[int, list[int]] = {}

    async def subscribe(self, *entries: SubscriptionEntry) -> None:
        fixed = SubscribeRequest(SubscriptionEntry.LAYOUT.size).pack()
        self.send(Api.SUBSCRIBE, 5, fixed, b"".join(entry.pack() for entry in entries))
        header, fixed_answer, tail = await self.receive()
        raise_for_status(header, tail)
        assert (header.api, header.correlation) == (Api.SUBSCRIBE, 5)
        assert (len(fixed_answer), len(tail)) == (0, 0)

    def grant(self, *grants: Grant) -> None:
        self.send(Api.CREDIT, 6, b"", b"".join(grant.pack() for grant in grants))

    async def pushed(self) -> tuple[int, PushResponse, memoryview]:
        """The next frame. Raises the error that it carries, with its number in the details."""
        header, fixed, tail = await self.receive()
        assert header.api == Api.PUSH
        try:
            raise_for_status(header, tail, fixed)
        except RunnelError as error:
            error.details["number"] = header.correlation
            raise
        found = self.offsets.setdefault(header.correlation, [])
        found += [batch.base_offset for batch in headers(tail)]
        return header.correlation, PushResponse.unpack(fixed), tail

    async def refused(self) -> RunnelError:
        with pytest.raises(RunnelError) as caught:
            await self.pushed()
        return caught.value

    async def nothing_came(self) -> None:
        """Whatever was to be sent before now came before the answer to this."""
        await self.subscribe()
