"""Sends a leader's log to its followers, push by push, as the replication core orders.

Batches in the page cache are sent at once. Others are read in a thread, one push at a time for each
connection, which bounds the bytes that wait to be sent. A push is dropped if its leadership or its
attachment is over: the core attaches again if something is missing.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial
from typing import Final, Protocol

from schemas.daemon.logs import get_logger
from schemas.errors import CorruptBatchError, NotReadyError, OffsetOutOfRangeError, RunnelError
from schemas.ids import PartitionUid
from schemas.wire.batch import split_batches, verify
from spu.net.peer_connection import PeerConnection
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


class FollowerPushes:
    """``reads`` runs reads of the disk, ``storage`` longer work."""

    def __init__(
        self, replica: Pushing, uid: PartitionUid, name: str, reads: Executor, storage: Executor
    ) -> None:
        self._replica = replica
        self._uid = uid
        self._name = name
        self._reads = reads
        self._storage = storage
        self._cold: set[asyncio.Task[None]] = set()

    def push(self, push: Push, connection: PeerConnection) -> None:
        """Send batches from the page cache, or read them from the disk in a thread first."""
        if not self._is_current(push):
            return
        log = self._replica.log
        try:
            found = log.read(push.start, PUSH_BYTES, log.leo, wait=False)
        except BlockingIOError:
            self._cold.add(task := asyncio.create_task(self._push_cold(push, connection)))
            task.add_done_callback(self._cold.discard)
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
        while start < end:
            found = self._replica.log.read(start, PUSH_BYTES, end, wait=True)
            for _, batch in split_batches(found.data):
                verify(batch)
            if found.next_offset <= start:
                # The log was cut meanwhile.
                return
            start = found.next_offset

    async def _push_cold(self, push: Push, connection: PeerConnection) -> None:
        loop, log = asyncio.get_running_loop(), self._replica.log
        async with connection.cold:
            if not self._is_current(push):
                return
            read = partial(log.read, push.start, PUSH_BYTES, log.leo, wait=True)
            try:
                found = await loop.run_in_executor(self._reads, read)
            except (OffsetOutOfRangeError, NotReadyError, FileNotFoundError):
                return
            except (Damage, OSError) as error:
                self._replica.fail(str(error), error)
                return
            await connection.drained()
            self._send(push, connection, found)

    def _send(self, push: Push, connection: PeerConnection, found: ReadResult) -> None:
        if not self._is_current(push):
            return
        attachment = (push.term, push.attach, push.boot)
        frame = encode_append(self._uid, attachment, push.lac, push.log_start, found.data)
        connection.write(frame)
        self._replica.step(Pushed(push.to, push.attach, found.next_offset))

    def _is_current(self, push: Push) -> bool:
        """Whether the follower is still in the attachment that the push is for."""
        leading = self._replica.state.leading
        if leading is None or leading.term != push.term:
            return False
        progress = progress_of(leading, push.to)
        return progress is not None and progress.attach == push.attach
