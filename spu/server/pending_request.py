"""A request that is not answered yet, and how its connection answers it.

A request is answered at most once: a second answer, or an answer after the client has disconnected,
is ignored. Neighbours: `spu.server.connection` writes answers, `spu.server.requests` and
`spu.server.fetches` decide what they say.
"""

from __future__ import annotations

from typing import Protocol

from schemas.errors import RunnelError
from schemas.wire.batch import Buffer
from schemas.wire.record_requests import FetchRequest
from spu.replica.held_produces import Cancellable
from spu.replica.replica import Replica


class PendingRequest:
    """``replica`` and ``fetch`` are set if it is a fetch; ``waiter`` is set while it waits for the
    log."""

    __slots__ = ("api", "correlation", "fetch", "replica", "waiter")

    def __init__(self, api: int, correlation: int) -> None:
        self.api = api
        self.correlation = correlation
        self.replica: Replica | None = None
        self.fetch: FetchRequest | None = None
        self.waiter: Cancellable | None = None


class Responder(Protocol):
    """The connection, as requests see it."""

    @property
    def is_writable(self) -> bool:
        """Whether the client reads what is written, as far as is known."""

    @property
    def is_on_this_host(self) -> bool:
        """Whether the client runs on this SPU's host, as far as its address says."""

    def is_pending(self, request: PendingRequest) -> bool:
        """Whether the client still waits for an answer."""

    def answer(self, request: PendingRequest, fixed: bytes, *tail: Buffer) -> None:
        """Write the answer."""

    def refuse(self, request: PendingRequest, error: RunnelError) -> None:
        """Write an error as the answer."""

    def refuse_read(self, request: PendingRequest, replica: Replica, error: BaseException) -> None:
        """Write why a read failed as the answer. Damage makes the replica unfit."""

    def refuse_bug(self, request: PendingRequest, what: str, error: BaseException) -> None:
        """Log an unexpected error as ``what``, and write it as the answer."""

    def drop(self, request: PendingRequest) -> None:
        """Send no answer to it."""
