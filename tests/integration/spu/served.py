"""An SPU behind its public port, in the process of the test that looks into it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from schemas.daemon.log_ring import LogRing
from spu.replica.replica import Replica
from spu.server.connection import Connection
from spu.server.listener import MAX_CONNECTIONS, Listener
from tests.unit.spu.builders import Spu


@dataclass
class Served:
    """An open SPU, and the listener that serves its partitions at ``port``."""

    spu: Spu
    listener: Listener
    port: int

    @property
    def replica(self) -> Replica:
        return self.spu.replica

    @property
    def connection(self) -> Connection:
        """The only one that there is."""
        (found,) = self.listener._connections
        return found

    async def restart(self) -> None:
        """Break all connections and come back at another port."""
        await self.listener.close()
        self.listener = Listener(self.spu.host)
        self.port = await self.listener.start("127.0.0.1", 0)


@asynccontextmanager
async def serve(
    spu: Spu, max_connections: int = MAX_CONNECTIONS, *, logs: LogRing | None = None
) -> AsyncIterator[Served]:
    """Serve an open SPU until the block ends, and close it then."""
    listener = Listener(spu.host, max_connections, logs=logs)
    served = Served(spu, listener, await listener.start("127.0.0.1", 0))
    try:
        yield served
    finally:
        await served.listener.close()
        await spu.host.close()
