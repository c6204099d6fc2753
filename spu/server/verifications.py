"""Verifies the replicas of an SPU while they serve, when clients ask for it over the public port.

A verification belongs to the connection that began it and continues with each of its requests, so
it ends when the client disconnects. It reads in the read threads, a slice at a time, with a pause
after each: all verifications of an SPU together use one of these threads for a quarter of the time
and read at most `RATE_BYTES_S`, so that clients hardly notice.

If it finds damage, the replica is told as if a reader had found it: the replica becomes unfit, and
the verification ends.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Executor
from typing import Final, Protocol

from schemas.errors import InvalidRequestError, OverloadedError, RunnelError
from schemas.ids import PartitionUid
from schemas.wire.log_requests import VerifyRequest, VerifyResponse
from schemas.wire.record_requests import EARLIEST
from spu.replica.replica import Replica
from spu.replica.verify_slice import verify_slice
from spu.replica.waiters import MAX_WAIT_MS
from spu.storage.verification import Verification

SLICE_BYTES: Final = 256 << 10
RATE_BYTES_S: Final = 64 << 20
#: The pause after a slice is this many times as long as the slice took.
PAUSE_RATIO: Final = 3


class Partitions(Protocol):
    """The part of the replica host that verifications need."""

    @property
    def read_threads(self) -> Executor: ...

    def replica(self, uid: PartitionUid) -> Replica: ...


class Verifications:
    """The verification of one connection. ``turn`` is shared by all connections of an SPU."""

    def __init__(self, partitions: Partitions, turn: asyncio.Lock) -> None:
        self._partitions = partitions
        self._turn = turn
        self._uid: PartitionUid | None = None
        self._verification: Verification | None = None
        self._is_busy = self._is_closed = False

    async def advance(self, asked: VerifyRequest) -> tuple[VerifyResponse, bytes]:
        """Begin or go on, at most for the time that ``asked`` names; returns fixed part and tail.

        Raises OverloadedError while an earlier request is not answered, InvalidRequestError if
        ``asked`` is not the next step, and the errors with which the replica refuses reads.
        """
        if self._is_busy:
            raise OverloadedError(
                "this connection runs a verification already; open another one, or wait"
            )
        replica = self._partitions.replica(asked.uid)
        log, end = replica.verifiable()
        if asked.offset == EARLIEST:
            self._close_file()
            self._uid = asked.uid
            self._verification = Verification(end, asked.compare_from, asked.compare_upto)
        verification = self._verification
        if (
            verification is None
            or self._uid != asked.uid
            or asked.offset
            not in (
                EARLIEST,
                verification.offset,
            )
        ):
            raise InvalidRequestError(
                f"this connection has no verification at offset {asked.offset}; begin with"
                f" {EARLIEST}"
            )
        self._is_busy = True
        try:
            await self._work(replica, verification, min(asked.max_wait_ms, MAX_WAIT_MS) / 1000)
        except RunnelError:
            self._verification = None
            verification.close()
            raise
        finally:
            self._is_busy = False
            if self._is_closed:
                self._close_file()
        return _answer(replica, verification, log.size_bytes)

    def close(self) -> None:
        """The client is gone: end after the current slice."""
        self._is_closed = True
        if not self._is_busy:
            self._close_file()

    async def _work(self, replica: Replica, verification: Verification, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not (verification.finished or self._is_closed) and loop.time() < until:
            async with self._turn:
                began_at = loop.time()
                threads = self._partitions.read_threads
                await verify_slice(replica, verification, threads, SLICE_BYTES)
                took_s = loop.time() - began_at
                await asyncio.sleep(max(PAUSE_RATIO * took_s, SLICE_BYTES / RATE_BYTES_S))

    def _close_file(self) -> None:
        if self._verification is not None:
            self._verification.close()


def _answer(
    replica: Replica, verification: Verification, size_bytes: int
) -> tuple[VerifyResponse, bytes]:
    response = VerifyResponse(
        log_start=replica.log_start,
        lac=replica.lac,
        end=verification.end,
        next_offset=verification.offset,
        compared_from=verification.compared_from,
        size_bytes=size_bytes,
        checked_bytes=verification.checked_bytes,
        batches=verification.batches,
        records=verification.records,
        segments=verification.segments,
        indexes=verification.indexes,
        digest=verification.digest,
        finished=int(verification.finished),
    )
    tail = {"problems": [problem.to_json() for problem in verification.problems]}
    return response, json.dumps(tail).encode()
