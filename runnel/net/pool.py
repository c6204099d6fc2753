"""The connections of one client: one per SPU, opened when needed, opened again when broken.

A failed attempt is remembered: the next one to the same address waits for a jittered
exponential backoff first, so that many partitions that lost one SPU do not flood it. All who wait
for one attempt share its outcome, a connection or a refusal: each asks the SC again then, and none
waits for its turn to meet the same refusal. An attempt whose own caller gave up, because its
partition has moved or its time is over, has none: the next one tries again. A caller whose time
ends with the backoff gets the error of the failed attempt: why it had to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from runnel.fork import OpenedIn
from runnel.net.address import Address
from runnel.net.connection import SpuConnection, open_connection
from schemas.backoff import backoff_s
from schemas.errors import RunnelError, UnreachableError

#: How long the SPU may take to answer the first request; connecting itself has a shorter limit.
HELLO_TIMEOUT_S: Final = 5.0
_BASE_MS: Final = 20.0
_CAP_MS: Final = 1_000.0
#: An attempt that could last no longer than this would only tell how short it was.
_LEAST_ATTEMPT_S: Final = 0.05


@dataclass(slots=True)
class _Slot:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: SpuConnection | None = None
    failures: int = 0
    #: Attempts that failed, apart from those that only their callers' time has ended.
    refusals: int = 0
    not_before: float = 0.0
    error: RunnelError | None = None


class ConnectionPool:
    """``random`` gives numbers in [0, 1). Every SPU must answer with ``cluster_uid``."""

    def __init__(self, cluster_uid: str, random: Callable[[], float]) -> None:
        self._cluster_uid = cluster_uid
        self._random = random
        self._slots: dict[Address, _Slot] = {}
        self._closed = False
        self._opened_in = OpenedIn()

    def ready(self, address: Address) -> SpuConnection | None:
        """The connection to an SPU, if one is open and works."""
        self._opened_in.require()
        slot = self._slots.get(address)
        found = None if slot is None else slot.connection
        return found if found is not None and found.usable else None

    def refused(self, address: Address) -> bool:
        """Whether the last attempt to connect to an SPU failed: the next one waits its turn."""
        slot = self._slots.get(address)
        return slot is not None and slot.error is not None

    async def get(self, address: Address, timeout_s: float) -> SpuConnection:
        """A working connection. Raises UnreachableError after one failed attempt.

        One attempt only: the caller asks for the leader again before the next one, because the
        leader may have moved away from an SPU that does not answer.
        """
        if (found := self.ready(address)) is not None:
            return found
        slot = self._slots.setdefault(address, _Slot())
        deadline = asyncio.get_running_loop().time() + timeout_s
        refusals = slot.refusals
        async with slot.lock:
            if slot.refusals > refusals and slot.error is not None:
                raise slot.error
            if slot.connection is None or not slot.connection.usable:
                slot.connection = await self._open(slot, address, deadline)
            return slot.connection

    async def close(self) -> None:
        """Close all; later calls of `get` are refused."""
        if not self._opened_in.is_this:
            # The parent uses the same sockets, and the same poller.
            return
        self._closed = True
        for slot in self._slots.values():
            if slot.connection is not None:
                await slot.connection.close()

    async def _open(self, slot: _Slot, address: Address, deadline: float) -> SpuConnection:
        self._require_open()
        loop = asyncio.get_running_loop()
        wait_s = min(slot.not_before, deadline) - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if slot.error is not None and deadline - loop.time() < _LEAST_ATTEMPT_S:
            raise slot.error
        try:
            connection = await open_connection(
                address, max(0.001, min(HELLO_TIMEOUT_S, deadline - loop.time()))
            )
            if connection.cluster_uid not in {"", self._cluster_uid}:
                await connection.close()
                raise UnreachableError(
                    f"the SPU at {address} belongs to cluster {connection.cluster_uid}, not to"
                    f" {self._cluster_uid}; check the publicEndpoint of the SPUs"
                )
        except RunnelError as error:
            slot.error = error
            pause_s = backoff_s(slot.failures, _BASE_MS, _CAP_MS, self._random())
            slot.failures += 1
            slot.refusals += loop.time() < deadline
            slot.not_before = loop.time() + pause_s
            raise
        slot.error = None
        slot.failures = 0
        slot.not_before = 0.0
        try:
            self._require_open()
        except UnreachableError:
            await connection.close()
            raise
        return connection

    def _require_open(self) -> None:
        if self._closed:
            raise UnreachableError("the client is closed")
