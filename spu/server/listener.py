"""The public port of an SPU: accepts clients, and bounds how many there are and what they cost.

`spu.net.admission` counts connections, and `schemas.wire.frame_budget` the memory of large frames;
`spu.server.connection` serves each connection; `schemas.wire.framing` turns bytes into frames.
There is no TLS: the SC refuses endpoints that ask for it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from schemas.daemon.log_ring import LogRing
from schemas.wire.frame_budget import FrameBudget
from spu.net.admission import Admission
from spu.server.connection import Connection
from spu.server.counters import ListenerCounters
from spu.server.requests import Partitions
from spu.server.turns import Turns

MAX_CONNECTIONS: Final = 1_000
#: Connections that may be open beside those, and have not said HELLO yet.
MAX_UNPROVEN: Final = 128
#: The memory of all large frames that are arriving.
FRAME_BUDGET_BYTES: Final = 256 << 20
_BACKLOG: Final = 512
_CLOSE_TIMEOUT_S: Final = 2.0


class Listener:
    """Serves ``partitions`` (a `ReplicaHost`) to clients, and counts in ``counters``. ``logs`` has
    the SPU's own log lines."""

    def __init__(
        self,
        partitions: Partitions,
        max_connections: int = MAX_CONNECTIONS,
        max_unproven: int = MAX_UNPROVEN,
        logs: LogRing | None = None,
    ) -> None:
        self.counters = ListenerCounters()
        self._partitions = partitions
        self._logs = logs or LogRing(1)
        self._admission = Admission(
            f"SPU {partitions.spu_id}",
            max_connections,
            max_unproven,
            # The other half is for others, whatever one host does.
            max_per_address=(max_connections + 1) // 2,
        )
        self._budget = FrameBudget(FRAME_BUDGET_BYTES)
        self._turns = Turns(
            lambda call: asyncio.get_running_loop().call_soon(call), time.perf_counter
        )
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
        connection = Connection(
            self._partitions,
            self.counters,
            self._admission,
            self._budget,
            self._turns,
            self._gone,
            self._verifying,
            self._logs,
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
