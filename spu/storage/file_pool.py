"""A bounded set of open files that all logs of an SPU share.

Ten thousand partitions do not fit a process's file descriptors, so no log owns one: it asks for
a file when it needs it, and the pool closes the files that were not used for longest. A file in
use is pinned and stays open; a log keeps its active segment pinned from the first unsynced write
to the fsync that covers it, so that the error of a write in between is reported to that fsync.
A path that was forgotten may name another file soon (a log that was cut uses its names again):
whoever has the old one open keeps it to the end of his block, and nobody else gets it. The pool
is shared by the event loop and storage threads and guards itself.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DEFAULT_CAPACITY: Final = 256


class _OpenFile:
    __slots__ = ("fd", "forgotten", "pins")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pins = 0
        self.forgotten = False


class FilePool:
    """Open files by path, least recently used first. ``capacity`` counts files, pinned or not."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity = capacity
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def pin(self, path: str) -> int:
        """The descriptor of ``path``, readable and writable, open until `unpin`.

        Raises OSError.
        """
        return self._pin(path).fd

    def unpin(self, path: str) -> None:
        """Give back what `pin` gave; the path was not forgotten since."""
        self._unpin(self._files[path])

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """Pin ``path`` for a block."""
        file = self._pin(path)
        try:
            yield file.fd
        finally:
            self._unpin(file)

    def forget(self, path: str) -> None:
        """Close ``path``, now or when the last `open` block that uses it ends."""
        with self._lock:
            file = self._files.pop(path, None)
            if file is not None:
                file.forgotten = True
                if file.pins == 0:
                    os.close(file.fd)

    def close(self) -> None:
        """Close everything, pinned or not."""
        with self._lock:
            for file in self._files.values():
                os.close(file.fd)
            self._files.clear()

    def _pin(self, path: str) -> _OpenFile:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                self._evict()
                file = self._files[path] = _OpenFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            else:
                self._files.move_to_end(path)
            file.pins += 1
            return file

    def _unpin(self, file: _OpenFile) -> None:
        with self._lock:
            file.pins -= 1
            if file.forgotten and file.pins == 0:
                os.close(file.fd)

    def _evict(self) -> None:
        if len(self._files) < self._capacity:
            return
        for path, file in self._files.items():
            if file.pins == 0:
                del self._files[path]
                os.close(file.fd)
                return
