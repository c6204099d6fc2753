"""A bounded set of open files that all logs of an SPU share.

Ten thousand partitions need more files than a process has descriptors, so no log owns one. A log
asks for a file when it needs it, and the pool closes the least recently used files. A file is in
use, and stays open, for the length of a block or a write. A file with unsynced data is *held* open
until its log calls `release`: the kernel then reports an error of writing that data back to the
log's own fsync. If more files are held than the pool may have, it syncs and closes the least
recently used one: no log waits for others, and none is refused.

The kernel tells of a failed write once for each open file, and an fsync after that one succeeds. So
fsyncs of a file, of its log and of the pool, wait for each other, and after one that failed every
use of the file fails.

A path that was forgotten may soon name another file (a log that was cut uses its names again). A
block that has the old file open keeps it until it ends, and no other user gets it. The event loop
and storage threads share the pool, which has a lock of its own; it opens and closes files with the
lock held, and syncs without it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from schemas.wire.batch import Buffer
from spu.storage.durable import FsyncFailedError, sync_log_file, write_all

DEFAULT_CAPACITY: Final = 256
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class _OpenFile:
    """``users`` counts the blocks and writes that use it now, ``writes`` all writes so far;
    ``failure`` is that of its fsync, and ``syncing`` is held during one."""

    __slots__ = ("failure", "fd", "forgotten", "held", "path", "syncing", "users", "writes")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.users = 0
        self.writes = 0
        self.held = False
        self.forgotten = False
        self.syncing = threading.Lock()
        self.failure: OSError | None = None


class FilePool:
    """Open files by path. ``capacity`` bounds all of them, except that files in use at once (one
    for each thread) may exceed it."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity = capacity
        self._files: dict[str, _OpenFile] = {}
        # Files that are not in use, the least recently used first: with and without data that their
        # log has not synced.
        self._held: OrderedDict[str, _OpenFile] = OrderedDict()
        self._idle: OrderedDict[str, _OpenFile] = OrderedDict()
        # Paths whose data could not be synced.
        self._failed: dict[str, OSError] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[int]:
        """The descriptor of ``path``, readable and writable, for a block. Raises OSError."""
        file = self._use(path)
        try:
            yield file.fd
        finally:
            self._leave(file)

    def create(self, path: str) -> None:
        """Create an empty file. Raises FileExistsError and other OSErrors."""
        self._leave(self._use(path, os.O_CREAT | os.O_EXCL))

    def write(self, path: str, data: Buffer, position: int) -> None:
        """Write all of ``data`` at ``position`` of an existing file, and hold the file from now on,
        even if the write fails. Raises OSError."""
        file = self._use(path)
        try:
            file.held = True
            file.writes += 1
            write_all(file.fd, data, position)
        finally:
            self._leave(file)

    def truncate(self, path: str, size: int) -> None:
        """Cut an existing file to ``size`` bytes. Raises OSError."""
        with self.open(path) as fd:
            os.ftruncate(fd, size)

    def sync(self, path: str) -> None:
        """Wait until all that was written to ``path`` is on the disk. Raises FsyncFailedError, also
        if an fsync of it failed before, and OSError if it cannot be opened."""
        file = self._use(path)
        try:
            self._sync(file)
        finally:
            self._leave(file)

    def failure(self, path: str) -> OSError | None:
        """Why what was written to ``path`` could not be synced; None if it could."""
        return self._failed.get(path)

    def release(self, path: str) -> None:
        """All that was written to ``path`` is durable, or no longer needed."""
        with self._lock:
            if (file := self._files.get(path)) is not None and file.held:
                file.held = False
                if self._held.pop(path, None) is not None:
                    self._idle[path] = file

    def forget(self, path: str) -> None:
        """Close ``path``, now or when the last `open` block that uses it ends."""
        with self._lock:
            self._failed.pop(path, None)
            if (file := self._files.pop(path, None)) is not None:
                file.forgotten = True
                if not file.users:
                    self._close(file)

    def close(self) -> None:
        """Close everything, in use or not."""
        with self._lock:
            for file in self._files.values():
                os.close(file.fd)
            for files in (self._files, self._held, self._idle):
                files.clear()

    def _use(self, path: str, flags: int = 0) -> _OpenFile:
        while True:
            with self._lock:
                if (failure := self._failed.get(path)) is not None:
                    raise FsyncFailedError(failure.errno, failure.strerror, path)
                file = self._files.get(path)
                if file is not None and not flags & os.O_EXCL:
                    return self._used(file)
                if len(self._files) < self._capacity or self._evict_idle() or not self._held:
                    try:
                        return self._open(path, flags)
                    except OSError as error:
                        if error.errno not in _NO_DESCRIPTORS:
                            raise
                        # The process is out of descriptors: make do with fewer than the capacity.
                        if self._evict_idle():
                            continue
                        if not self._held:
                            raise
                oldest = self._used(next(iter(self._held.values())))
            self._sync_and_close(oldest)

    def _used(self, file: _OpenFile) -> _OpenFile:
        file.users += 1
        self._held.pop(file.path, None)
        self._idle.pop(file.path, None)
        return file

    def _leave(self, file: _OpenFile) -> None:
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.forgotten:
                self._close(file)
            elif self._files.get(file.path) is not file:
                # The pool was closed.
                return
            elif file.held:
                self._held[file.path] = file
            else:
                self._idle[file.path] = file

    def _open(self, path: str, flags: int) -> _OpenFile:
        file = _OpenFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644))
        self._files[path] = file
        return self._used(file)

    def _sync(self, file: _OpenFile) -> None:
        """Sync a file that the caller uses. Raises FsyncFailedError."""
        with file.syncing:
            if (failure := file.failure) is not None:
                raise FsyncFailedError(failure.errno, failure.strerror, file.path)
            try:
                sync_log_file(file.fd)
            except OSError as error:
                with self._lock:
                    file.failure = error
                    if not file.forgotten:
                        self._failed[file.path] = error
                raise

    def _sync_and_close(self, file: _OpenFile) -> None:
        """Give back the descriptor of a held file, which the caller uses."""
        writes = file.writes
        # The log hears of a failure at its next use of the file.
        with contextlib.suppress(OSError):
            self._sync(file)
        with self._lock:
            # Another thread may have written since that fsync began, or may be about to.
            if file.users == 1 and (file.writes == writes or file.failure is not None):
                file.users = 0
                if not file.forgotten:
                    del self._files[file.path]
                self._close(file)
                return
        self._leave(file)

    def _evict_idle(self) -> bool:
        if not self._idle:
            return False
        path, file = self._idle.popitem(last=False)
        del self._files[path]
        os.close(file.fd)
        return True

    def _close(self, file: _OpenFile) -> None:
        self._held.pop(file.path, None)
        self._idle.pop(file.path, None)
        os.close(file.fd)
