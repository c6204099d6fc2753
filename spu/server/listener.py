"""The public port of an SPU: accepts clients and bounds how many there are.

`spu.server.connection` serves each connection; `schemas.wire.framing` turns bytes into frames.
There is no TLS: the SC refuses endpoints that ask for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from schemas.errors import OverloadedError
from spu.server.connection import Connection, ListenerCounters
from spu.server.requests import Partitions

MAX_CONNECTIONS: Final = 1_000
_BACKLOG: Final = 512
_CLOSE_TIMEOUT_S: Final = 2.0


class Listener:
    """Serves ``partitions`` (a `ReplicaHost`) to clients, and counts in ``counters``."""

    def __init__(self, partitions: Partitions, max_connections: int = MAX_CONNECTIONS) -> None:
        self.counters = ListenerCounters()
        self._partitions = partitions
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._verifying = asyncio.Lock()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port (``port`` 0: the system chooses one). Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=_BACKLOG)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening and end all connections, after a short time to send what is buffered."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._wait_until_empty()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._wait_until_empty()

    def _accept(self) -> Connection:
        refusal = None
        if len(self._connections) >= self._max_connections:
            refusal = OverloadedError(
                f"SPU {self._partitions.spu_id} has {self._max_connections} connections already;"
                " try again later, or share connections"
            )
        connection = Connection(
            self._partitions, self.counters, self._gone, self._verifying, refusal
        )
        self._connections.add(connection)
        self._empty.clear()
        return connection

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    async def _wait_until_empty(self) -> None:
        if self._connections:
            await self._empty.wait()
