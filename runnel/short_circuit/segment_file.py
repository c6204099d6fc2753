"""Batches of one segment, read from the file of an SPU on this host.

The SPU said where committed batches lie (`schemas.wire.located_batches`). The file is looked at
while the SPU goes on, so what it said is checked, and once more with each read:

- It is the file that the SPU meant, on this host: same boot, device and inode.
- A deleted file can still be read to its end; so retention takes nothing away.
- An SPU cuts its log only above what is committed, unless an unclean election lost records. Then
  the file is shorter, or is another one, or batches of another term lie there: a segment holds the
  records of one term. Neither is read.
- The file is read, not mapped: a mapped file that is cut ends the process that looks at it.

Whoever gets the batches verifies their checksums and offsets, as of all batches. Whatever does not
hold here is no error of the log: the reader asks the SPU to send the batches instead.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import Final, Self

from runnel.fork import tell_forks
from runnel.short_circuit.buffers import Buffers
from schemas.daemon.boot import boot_id
from schemas.daemon.page_cache import read_at
from schemas.errors import CorruptBatchError
from schemas.wire.batch import HEADER_SIZE, BatchHeader, read_header
from schemas.wire.located_batches import Place

#: The client's thread hands each read to its user's. Smaller reads cost more for that; with larger
#: ones it is no longer felt.
READ_BYTES: Final = 4 << 20
#: The most files that a process has open here: its user needs descriptors, too.
MOST_OPEN: Final = 128


class NotThereError(Exception):
    """The batches cannot be read from the file: another host, no permission, or another file."""


class _OpenFiles:
    """Counts the open files of this process; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        tell_forks(self)

    def forked(self) -> None:
        """Serve the clients of the child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def add(self) -> bool:
        """Count one more, unless there are `MOST_OPEN`."""
        with self._lock:
            fits = self._count < MOST_OPEN
            self._count += fits
            return fits

    def remove(self) -> None:
        with self._lock:
            self._count -= 1


_open_files: Final = _OpenFiles()


class SegmentFile:
    """The batches of a segment from ``offset`` on. Close it, or use it as a context.

    ``next_offset``: where the next `read` begins, or within the batch that it begins with.
    """

    def __init__(self, place: Place, offset: int, most: int, fd: int) -> None:
        self.next_offset = offset
        self._path = place.path
        self._term = place.batches.term
        self._most = most
        self._buffers = Buffers()
        # Held for every look at the descriptor: a thread may read while the file is closed.
        self._lock = threading.Lock()
        self._fd = fd
        self._reading = self._closed = False
        self._position = place.batches.position
        self._end = self._position + place.batches.length

    @classmethod
    def open(cls, place: Place, offset: int, most: int = READ_BYTES) -> Self:
        """Open the file if it is the one that the SPU meant. A read gives at most ``most`` bytes,
        but a whole batch. Raises NotThereError."""
        if place.batches.boot_id != boot_id():
            raise NotThereError(f"{place.path} is on another host")
        if not _open_files.add():
            raise NotThereError(f"{MOST_OPEN} other files are open")
        try:
            fd = _open(place)
        except BaseException:
            _open_files.remove()
            raise
        return cls(place, offset, max(most, HEADER_SIZE), fd)

    @property
    def exhausted(self) -> bool:
        """Was everything read that the SPU had said is there?"""
        return self._position >= self._end

    def read(self, *, wait: bool) -> memoryview:
        """The next whole batches, at least one.

        Without ``wait``, raises BlockingIOError if the disk is needed; repeat it in a thread then.
        Raises NotThereError: there are no such batches any more, or they cannot be read.
        """
        with self._lock:
            if self._closed:
                raise NotThereError(f"{self._path} was closed")
            self._reading = True
        try:
            return self._read(wait=wait)
        finally:
            with self._lock:
                self._reading = False
                self._release()

    def close(self) -> None:
        """Close the file, or have the thread do so that reads it. What was read stays."""
        with self._lock:
            self._closed = True
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _release(self) -> None:
        if self._closed and not self._reading and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _open_files.remove()

    def _read(self, *, wait: bool) -> memoryview:
        left = self._end - self._position
        size = min(self._most, left)
        data = self._bytes(size, wait=wait)
        end, next_offset = self._whole(data)
        if not end:
            if len(data) < HEADER_SIZE or (size := self._header(data, 0).length) > left:
                raise NotThereError(f"{self._path} has no whole batch where it was said")
            data = self._bytes(size, wait=wait)
            end, next_offset = self._whole(data)
        self._position += end
        self.next_offset = next_offset
        return data[:end]

    def _bytes(self, size: int, *, wait: bool) -> memoryview:
        view = self._buffers.take(size)
        try:
            filled = read_at(self._fd, view, self._position, wait=wait)
        except BlockingIOError:
            raise
        except OSError as error:
            raise NotThereError(f"{self._path} cannot be read: {error}") from error
        if filled < size:
            raise NotThereError(f"{self._path} was cut")
        return view

    def _whole(self, data: memoryview) -> tuple[int, int]:
        """The length of the whole batches at the start of ``data``, and the offset after them."""
        at, next_offset = 0, self.next_offset
        while len(data) - at >= HEADER_SIZE:
            header = self._header(data, at)
            if not header.base_offset <= next_offset < header.next_offset:
                raise NotThereError(f"{self._path} has other offsets than was said")
            if at + header.length > len(data):
                break
            at += header.length
            next_offset = header.next_offset
        return at, next_offset

    def _header(self, data: memoryview, at: int) -> BatchHeader:
        try:
            header = read_header(data, at)
        except CorruptBatchError as error:
            raise NotThereError(f"{self._path}: {error.message}") from error
        if header.term != self._term:
            raise NotThereError(f"{self._path} has batches of another term")
        return header


def _open(place: Place) -> int:
    """A descriptor of the file. Raises NotThereError."""
    try:
        fd = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise NotThereError(f"{place.path} cannot be opened: {error}") from error
    found, meant = os.fstat(fd), place.batches
    same = (found.st_dev, found.st_ino) == (meant.device, meant.inode)
    if not same or not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise NotThereError(f"{place.path} is another file here")
    return fd
