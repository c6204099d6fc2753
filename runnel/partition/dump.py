"""The log of one partition as its leader serves it, batch by batch, control batches included.

It shows the stored batches: nothing is decoded, left out or waited for. Consumers read with
`runnel.consume.consumer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runnel.admin.client import Admin
from runnel.net.connection import Response, SpuConnection
from runnel.partition.replicas import Located, locate
from runnel.partition.stored_batches import StoredBatch, stored_batch
from schemas.backoff import backoff_s
from schemas.errors import InvalidRequestError, NotReadyError, RetryableError
from schemas.wire.batch import split_batches
from schemas.wire.protocol import Api
from schemas.wire.record_requests import (
    LATEST,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

_FETCH_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 30.0
_ATTEMPTS: Final = 6


@dataclass(slots=True)
class BatchDump:
    """Asks the leader, and the new leader after a change. Call `close` at the end."""

    admin: Admin
    name: str
    random: Callable[[], float]
    _located: Located | None = None
    _connection: SpuConnection | None = None

    async def bounds(self) -> ListOffsetsResponse:
        """``log_start``, and ``offset`` after the last committed one."""
        return await self.find(LATEST)

    async def find(self, position: int) -> ListOffsetsResponse:
        """Translate a position or a timestamp in microseconds to an offset."""
        answer = await self._ask(
            Api.LIST_OFFSETS, lambda at: ListOffsetsRequest(at.uid, position).pack()
        )
        return ListOffsetsResponse.unpack(answer.fixed)

    async def read(self, offset: int) -> tuple[list[StoredBatch], FetchResponse]:
        """Some batches, from the one that holds ``offset`` on; none at the end of the log.

        Raises OffsetOutOfRangeError below the log start."""
        answer = await self._ask(
            Api.FETCH, lambda at: FetchRequest(at.uid, offset, _FETCH_BYTES, 0, 0).pack()
        )
        batches = [stored_batch(data) for _, data in split_batches(answer.tail)]
        return batches, FetchResponse.unpack(answer.fixed)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _ask(self, api: Api, fixed: Callable[[Located], bytes]) -> Response:
        for attempt in range(_ATTEMPTS):
            try:
                located, connection = await self._leader()
                return await connection.request(api, fixed(located), timeout_s=_TIMEOUT_S)
            except RetryableError:
                await self.close()
                self._located = None
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(backoff_s(attempt, 50, 2_000, self.random()))
        raise AssertionError("the last attempt gives an answer or raises")

    async def _leader(self) -> tuple[Located, SpuConnection]:
        if self._located is None or self._connection is None:
            found = await locate(self.admin, [self.name])
            if len(found) != 1:
                names = ", ".join(one.name for one in found)
                raise InvalidRequestError(f"{self.name} is a topic; name a partition: {names}")
            status = found[0].partition.status
            if status.leader is None:
                raise NotReadyError(f"{self.name} has no leader: {status.reason or 'not yet'}")
            self._connection = await found[0].connect(status.leader)
            self._located = found[0]
        return self._located, self._connection
