"""The client of the cluster that all answers share, connected when the first one needs it."""

from __future__ import annotations

import asyncio

from runnel.client import Cluster

#: The name under which the dashboard asks.
BY = "dashboard"


class SharedCluster:
    """One client for all browsers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._cluster: Cluster | None = None
        self._connecting = asyncio.Lock()

    async def get(self) -> Cluster:
        """The client. Raises UnreachableError while no SC answers."""
        async with self._connecting:
            if self._cluster is None:
                self._cluster = await Cluster.connect(self._address, BY)
            return self._cluster

    async def close(self) -> None:
        """End its connections."""
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None
