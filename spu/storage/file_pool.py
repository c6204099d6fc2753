"""A bounded set of open files that all logs of an SPU share.

Ten thousand partitions do not fit a process's file descriptors, so no log owns one: it asks for
a file when it needs it, and the pool closes the files that were not used for longest. A file in
use is pinned and stays open; a log keeps its active segment pinned from the first unsynced write
to the fsync that covers it, so that the error of a write in between is reported to that fsync.
The pool is shared by the event loop and storage threads and guards itself.
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
    __slots__ = ("fd", "pins")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pins = 0


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
        with self._lock:
            file = self._files.get(path)
            if file is None:
                self._evict()
                file = self._files[path] = _OpenFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            else:
                self._files.move_to_end(path)
            file.pins += 1
            return file.fd

    def unpin(self, path: str) -> None:
        with self._lock:
            self._files[path].pins -= 1

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """Pin ``path`` for a block."""
        fd = self.pin(path)
        try:
            yield fd
        finally:
            self.unpin(path)

    def forget(self, path: str) -> None:
        """Close ``path`` if it is open and nobody uses it."""
        with self._lock:
            file = self._files.get(path)
            if file is not None and file.pins == 0:
                del self._files[path]
                os.close(file.fd)

    def close(self) -> None:
        """Close everything, pinned or not."""
        with self._lock:
            for file in self._files.values():
                os.close(file.fd)
            self._files.clear()

    def _evict(self) -> None:
        if len(self._files) < self._capacity:
            return
        for path, file in self._files.items():
            if file.pins == 0:
                del self._files[path]
                os.close(file.fd)
                return
