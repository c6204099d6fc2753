"""Sends a leader's log to its followers, push by push, as the replication core orders.

Batches in the page cache are sent at once. Others are read in a thread, one push at a time for each
connection, which bounds the bytes that wait to be sent. A push is dropped if its leadership or its
attachment is over: the core attaches again if something is missing. Pushes to replicas that are not
live wait for their turn where their rate is limited (`spu.replica.catch_up`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from schemas.daemon.logs import get_logger
from schemas.errors import CorruptBatchError, NotReadyError, OffsetOutOfRangeError, RunnelError
from schemas.ids import PartitionUid
from schemas.wire.batch import split_batches, verify
from spu.net.peer_connection import PeerConnection
from spu.replica.catch_up import CatchUpRate, FallingBehind
from spu.replication.attachments import progress_of
from spu.replication.events import Input, Push, Pushed
from spu.replication.state import ReplicaState
from spu.replication.wire import Damaged, encode_append
from spu.storage.log import PartitionLog
from spu.storage.reader import ReadResult
from spu.storage.segment import Damage

_log = get_logger(__name__)

#: How much one push carries at most, unless a single batch is longer.
PUSH_BYTES: Final = 1 << 20


class Pushing(Protocol):
    """The replica whose log is pushed."""

    @property
    def state(self) -> ReplicaState: ...

    @property
    def log(self) -> PartitionLog: ...

    def step(self, event: Input) -> None: ...

    def fail(self, reason: str, cause: BaseException | None = None) -> None: ...


@dataclass(slots=True)
class _Waiting:
    """A push that waits for its turn."""

    push: Push
    connection: PeerConnection
    task: asyncio.Task[object] | None = None


class FollowerPushes:
    """``reads`` runs reads of the disk, ``storage`` longer work; ``rate`` is that of the SPU."""

    def __init__(
        self,
        replica: Pushing,
        uid: PartitionUid,
        name: str,
        reads: Executor,
        storage: Executor,
        rate: CatchUpRate,
    ) -> None:
        self._replica = replica
        self._uid = uid
        self._name = name
        self._reads = reads
        self._storage = storage
        self._rate = rate
        self._waiting: set[asyncio.Task[object]] = set()
        self._falling = FallingBehind()
        #: By follower: what waits for a turn.
        self._turns: dict[int, _Waiting] = {}

    def push(self, push: Push, connection: PeerConnection) -> None:
        """Send batches from the page cache, or read them from the disk in a thread first."""
        if not self._is_current(push):
            return
        if self._rate.is_limited and not self._is_live(push.to):
            if (waiting := self._turns.get(push.to)) is not None:
                # A follower that was attached anew meanwhile keeps its place.
                waiting.push, waiting.connection = push, connection
                return
            self._turns[push.to] = waiting = _Waiting(push, connection)
            waiting.task = self._later(self._push_in_turn(waiting))
            return
        self._falling.forget(push.to)
        log = self._replica.log
        try:
            found = log.read(push.start, PUSH_BYTES, log.leo, wait=False)
        except BlockingIOError:
            self._later(self._push_cold(push, connection))
        except (OffsetOutOfRangeError, NotReadyError):
            # Retention was faster: the core attaches again, and resets the follower.
            return
        except (Damage, OSError) as error:
            self._replica.fail(str(error), error)
        else:
            self._send(push, connection, found)

    async def verify_unacknowledged(self, peer: int, damaged: Damaged) -> None:
        """Check this disk for a batch that a follower received damaged. If the batch is damaged
        here, this replica becomes unfit."""
        leading, log = self._replica.state.leading, self._replica.log
        progress = None if leading is None else progress_of(leading, peer)
        if leading is None or progress is None:
            return
        if (leading.term, progress.attach) != (damaged.term, damaged.attach):
            return
        loop = asyncio.get_running_loop()
        bounds = (max(progress.match_offset, log.log_start), progress.sent)
        try:
            await loop.run_in_executor(self._storage, self._verify, *bounds)
        except (Damage, CorruptBatchError, OSError) as error:
            self._replica.fail(f"SPU {peer} was sent a damaged batch: {error}", error)
        except RunnelError:
            # The log was truncated meanwhile.
            return
        else:
            _log.error("a batch was damaged in transit to a peer", partition=self._name, peer=peer)

    def _verify(self, start: int, end: int) -> None:
        """Verify every batch in a range of offsets. Blocks."""
        log = self._replica.log
        while start < end:
            try:
                found = log.read(start, PUSH_BYTES, end, wait=True)
            except FileNotFoundError:
                if log.log_start <= start < log.leo:
                    raise
                # Retention was faster, or the log was cut.
                return
            for _, batch in split_batches(found.data):
                verify(batch)
            if found.next_offset <= start:
                # The log was cut meanwhile.
                return
            start = found.next_offset

    def hurry(self) -> None:
        """Other replicas may be live: what is to be sent to them does not wait for its turn."""
        for spu, waiting in tuple(self._turns.items()):
            if self._is_live(spu):
                del self._turns[spu]
                if waiting.task is not None:
                    waiting.task.cancel()
                self._later(self._push_cold(waiting.push, waiting.connection))

    def _later(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        self._waiting.add(task := asyncio.create_task(work))
        task.add_done_callback(self._waiting.discard)
        return task

    def _is_live(self, spu: int) -> bool:
        """Whether commits wait for what this follower is sent."""
        return any(member.spu == spu for member in self._replica.state.required)

    async def _push_in_turn(self, waiting: _Waiting) -> None:
        try:
            while not await self._pushed_in_turn(waiting):
                pass
        finally:
            if self._turns.get(waiting.push.to) is waiting:
                del self._turns[waiting.push.to]

    async def _pushed_in_turn(self, waiting: _Waiting) -> bool:
        """Wait for a turn and take it. False, and others go first, if the connection takes nothing
        by then."""
        # Nobody else waits for a peer that takes nothing at the moment.
        await waiting.connection.drained()
        async with self._rate.turn():
            push, connection = waiting.push, waiting.connection
            if not connection.is_drained:
                return False
            if (found := await self._read(push, self._rate.push_bytes)) is not None:
                self._rate.sent(self._send(push, connection, found))
                self._look_back(push.to, self._replica.log.leo - found.next_offset)
            # Another one may have taken its place while it was read.
            return waiting.push is push

    def _look_back(self, follower: int, left: int) -> None:
        if self._falling.lacks(follower, left, self._rate.now_s()):
            _log.warning(
                "a replica falls behind, since more is written than catchUpRate lets through:"
                " raise it, or write less",
                partition=self._name,
                peer=follower,
                records=left,
                bytes_per_second=self._rate.bytes_per_second,
            )

    async def _push_cold(self, push: Push, connection: PeerConnection) -> None:
        async with connection.cold:
            if (found := await self._read(push, PUSH_BYTES)) is not None:
                await connection.drained()
                self._send(push, connection, found)

    async def _read(self, push: Push, most: int) -> ReadResult | None:
        """Read in a thread; None if there is nothing to push any more."""
        if not self._is_current(push):
            return None
        log = self._replica.log
        read = partial(log.read, push.start, most, log.leo, wait=True)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reads, read)
        except (OffsetOutOfRangeError, NotReadyError, FileNotFoundError):
            return None
        except (Damage, OSError) as error:
            self._replica.fail(str(error), error)
            return None

    def _send(self, push: Push, connection: PeerConnection, found: ReadResult) -> int:
        """Send, if the follower is still there for it; how many bytes of records that were."""
        if not self._is_current(push):
            return 0
        attachment = (push.term, push.attach, push.boot)
        frame = encode_append(self._uid, attachment, push.lac, push.log_start, found.data)
        connection.write(frame)
        self._replica.step(Pushed(push.to, push.attach, found.next_offset))
        return len(found.data)

    def _is_current(self, push: Push) -> bool:
        """Whether the follower is still in the attachment that the push is for."""
        leading = self._replica.state.leading
        if leading is None or leading.term != push.term:
            return False
        progress = progress_of(leading, push.to)
        return progress is not None and progress.attach == push.attach
