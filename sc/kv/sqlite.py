"""The KV in one SQLite file: the embedded default, for one SC and no other process.

The head lives in memory (`Mvcc`); `sc.kv.database` keeps it on disk. A dedicated thread does all
of SQLite's work, so that no fsync ever stops the event loop.

Group commit: while the thread writes, steps accumulate; the next write takes all of them in one
SQLite transaction. Persist before acknowledge: a caller is answered, and readers and watches see
its revision, only after that transaction's COMMIT has returned. Waiting steps are bounded
in number and bytes; beyond that, writes raise `OverloadedError`.

While the disk is full the store takes no new writes, continues to serve reads, and writes the
waiting steps once there is room: SQLite has rolled such a write back. Their callers wait for
`ANSWER_S` and then get `DeadlineExceededError`. `SqliteKV.check_writable` finds a disk without a
free byte before a write does. Any other failed write ends
the store: it is unknown what is on the disk, so every later call raises `StorageFailedError`;
only opening the file again shows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from sc.kv.database import Database, DiskFullError
from sc.kv.local import KEEP_BYTES, KEEP_REVISIONS, LocalKV, closed_error
from sc.kv.mvcc import Delta, Mvcc
from schemas.daemon.logs import get_logger
from schemas.errors import (
    DeadlineExceededError,
    OverloadedError,
    RunnelError,
    StorageFailedError,
)

MAX_WAITING: Final = 4096
"""Most steps that wait to be written."""

FULL_RETRY_S: Final = 0.5
"""How often a full disk is tried again."""

ANSWER_S: Final = 10.0
"""How long a write waits until it is durable; as long as one to etcd."""

MAX_WAITING_BYTES: Final = 64 << 20
"""Most memory, in bytes, that steps waiting to be written may take, about."""

_log = get_logger(__name__)


class SqliteKV(LocalKV):
    """A store in a file; make one with `open`."""

    def __init__(
        self,
        store: Mvcc,
        database: Database,
        thread: ThreadPoolExecutor,
        *,
        clock: Callable[[], float],
        keep_revisions: int,
        keep_bytes: int,
    ) -> None:
        super().__init__(store, clock=clock, keep_revisions=keep_revisions, keep_bytes=keep_bytes)
        self._database = database
        self._thread = thread
        self._waiting: list[tuple[Delta, asyncio.Future[None]]] = []
        self._waiting_bytes = 0
        self._writing = False
        self._full = False
        self._closing = False
        self._closed = False
        self._close_lock = asyncio.Lock()
        self._work = asyncio.Event()
        self._writer = asyncio.get_running_loop().create_task(
            self._write_forever(), name="kv-writer"
        )

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        keep_revisions: int = KEEP_REVISIONS,
        keep_bytes: int = KEEP_BYTES,
    ) -> Self:
        """Open a file, or create it and its directory. Leases start their whole time anew;
        `start_lease_timer` makes them expire by themselves.

        Raises ConflictError when another process has the file open, UnsupportedError for a file
        that is not a KV of this version, StorageFailedError when it cannot be read or written.
        """
        database = Database(path)
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kv-sqlite")
        try:
            store = await asyncio.get_running_loop().run_in_executor(thread, database.open)
            return cls(
                store,
                database,
                thread,
                clock=clock,
                keep_revisions=keep_revisions,
                keep_bytes=keep_bytes,
            )
        except BaseException:
            # Cancelled while the thread still opens the file: closing runs after that.
            thread.submit(database.close)
            thread.shutdown(wait=False)
            raise

    async def check_writable(self) -> None:
        self._check_usable()
        # While steps wait for room, writing them is the test.
        if not (self._waiting or self._writing):
            await self._try_to_write()
        if self._full:
            raise self._full_error()

    async def close(self) -> None:
        async with self._close_lock:
            await self._stop_lease_timer()
            self._closing = True
            self._work.set()
            await asyncio.wait([self._writer])
            await super().close()
            if not self._closed:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
                self._thread.shutdown()
                self._closed = True

    async def _make_durable(self, delta: Delta) -> None:
        if delta.empty and not self._waiting and not self._writing:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((delta, done))
        self._waiting_bytes += delta.size
        self._work.set()
        try:
            async with asyncio.timeout(ANSWER_S):
                await done
        except TimeoutError:
            why = f": the disk under {self._database.path} is full" if self._full else ""
            raise DeadlineExceededError(
                f"not written within {ANSWER_S:g} s{why}; it may still be: read again, then decide"
            ) from None

    def _admit(self) -> None:
        super()._admit()
        if self._closing:
            raise closed_error()
        if self._full:
            raise self._full_error()
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            raise OverloadedError(
                f"{len(self._waiting)} transactions wait for the disk; try again later"
            )

    def _full_error(self) -> OverloadedError:
        return OverloadedError(
            f"the disk under {self._database.path} is full: nothing can be changed until there is"
            " room; reads are answered as before"
        )

    def _new_lease(self) -> int:
        # Random, so that an id is not used again after a restart; 63 bits as in etcd.
        return secrets.randbelow((1 << 63) - 1) + 1

    async def _write_forever(self) -> None:
        try:
            while self._waiting or not self._closing:
                if self._waiting:
                    await self._write_waiting()
                else:
                    await self._work.wait()
                    self._work.clear()
        except Exception as error:
            # Nothing may be answered or written after a step whose outcome is unknown, whatever
            # the reason. Every caller gets the first cause.
            _log.error("the KV store stops", error=str(error), exc_info=error)
            reason = str(error)
            self._fail(lambda: StorageFailedError(reason))
        finally:
            self._fail(closed_error)
            self._answer(self._waiting, self._failure)

    async def _write_waiting(self) -> None:
        group, self._waiting, self._waiting_bytes = self._waiting, [], 0
        deltas = [delta for delta, _ in group if not delta.empty]
        self._writing = True
        try:
            if deltas:
                await self._write_once_there_is_room(deltas)
        except BaseException:
            self._waiting = group + self._waiting
            raise
        finally:
            self._writing = False
        if deltas and deltas[-1].revision > self._durable_revision:
            self._publish(deltas[-1].revision)
        self._answer(group, None)

    async def _try_to_write(self) -> None:
        """See whether there is room, if there seems to be none. Raises StorageFailedError."""
        if self._closing:
            raise closed_error()
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._thread, self._database.check_room
            )
        except DiskFullError as error:
            self._note_full(error)
        else:
            self._note_room()

    async def _write_once_there_is_room(self, deltas: Sequence[Delta]) -> None:
        """Raises StorageFailedError, and DiskFullError when the store is closed meanwhile."""
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._database.write, deltas
                )
            except DiskFullError as error:
                if self._closing:
                    raise
                self._note_full(error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FULL_RETRY_S):
                        self._work.clear()
                        await self._work.wait()
            else:
                self._note_room()
                return

    def _note_full(self, error: DiskFullError) -> None:
        if not self._full:
            _log.error("the disk is full", path=str(self._database.path), error=str(error))
        self._full = True

    def _note_room(self) -> None:
        if self._full:
            _log.info("the disk has room again", path=str(self._database.path))
        self._full = False

    def _answer(
        self,
        steps: Sequence[tuple[Delta, asyncio.Future[None]]],
        failure: Callable[[], RunnelError] | None,
    ) -> None:
        for _, done in steps:
            # A caller that was cancelled no longer waits.
            if done.done():
                continue
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure())
