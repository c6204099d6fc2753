"""The few ways in which the SPU makes bytes survive a crash.

A file that is replaced as a whole is written under a temporary name and fsynced, then renamed, and
its directory is fsynced: a reader finds the old content or the new one, and nothing in between.
Documents carry their length and a CRC32C; a mismatch is reported as damage, and nothing is guessed.
Nothing here retries: after an error of the disk, the caller stops. A full disk, a quota, and a
process without descriptors or memory are no errors of the disk (`is_shortage`): they pass, and say
nothing about what the disk holds. A failed fsync of a log is never one of them, whatever it says
(`FsyncFailedError`): the kernel may have dropped what it was to write, and another fsync would
succeed.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import struct
from pathlib import Path
from typing import Any, Final

from schemas.errors import StorageFailedError
from schemas.wire.batch import Buffer, crc32c

_DOCUMENT: Final = struct.Struct("<4sII")
_DOCUMENT_MAGIC: Final = b"RNLD"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORTAGES: Final = _NO_ROOM | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
#: Suffix of files that are being written; a process that opens a directory may delete them.
UNFINISHED: Final = ".unfinished"


class FsyncFailedError(OSError):
    """Nobody knows what the disk holds of a log; ``errno`` is that of its fsync."""


def is_no_room(error: BaseException | None) -> bool:
    """Whether ``error``, or what caused it, says that the disk is full or a quota is used up."""
    return _errno(error) in _NO_ROOM


def is_shortage(error: BaseException | None) -> bool:
    """Whether ``error``, or what caused it, is `is_no_room`, or says that the process has no file
    descriptor or memory left."""
    return _errno(error) in _SHORTAGES


def sync_file(fd: int) -> None:
    """Wait until the data of ``fd``, and the size that reaches it, are on the disk."""
    # fdatasync only omits metadata that no reader of the data needs.
    getattr(os, "fdatasync", os.fsync)(fd)


def sync_directory(path: Path) -> None:
    """Wait until the names in the directory ``path`` are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_log_file(fd: int) -> None:
    """As `sync_file`, of a file that is written in place. Raises FsyncFailedError."""
    try:
        sync_file(fd)
    except OSError as error:
        raise FsyncFailedError(error.errno, error.strerror) from error


def sync_log_directory(path: Path) -> None:
    """As `sync_directory`, of names that are not given again. Raises FsyncFailedError, and OSError
    if the directory cannot be opened."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        raise FsyncFailedError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(fd)


def write_all(fd: int, data: Buffer, position: int) -> None:
    """Write all of ``data`` at ``position``. Raises OSError."""
    written = os.pwrite(fd, data, position)
    while written < len(data):
        # A short write is rare (a full disk, a signal); the next one writes the rest, or fails.
        written += os.pwrite(fd, memoryview(data)[written:], position + written)


def write_file(path: Path, data: Buffer, *, durable: bool = True, mode: int = 0o644) -> None:
    """Write a new file; with ``durable`` wait for its bytes, not for its name. Raises
    FileExistsError, OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write_all(fd, data, 0)
        if durable:
            sync_file(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: Buffer, *, durable: bool = True, mode: int = 0o644) -> None:
    """Give ``path`` the content ``data`` in one step; with ``durable`` wait for the disk. Raises
    OSError, FsyncFailedError if that is of the directory: other names in it may be lost."""
    # A name of its own: two threads may find that the same file is to be made again.
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        write_file(unfinished, data, durable=durable, mode=mode)
        os.rename(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    if durable:
        sync_log_directory(path.parent)


def write_document(path: Path, value: dict[str, Any]) -> None:
    """Replace ``path`` durably by a document with a checksum."""
    body = json.dumps(value, separators=(",", ":")).encode()
    replace_file(path, _DOCUMENT.pack(_DOCUMENT_MAGIC, len(body), crc32c(body)) + body)


def read_document(path: Path) -> dict[str, Any] | None:
    """The document at ``path``; None if it is missing. Raises StorageFailedError on damage."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _DOCUMENT.size:
        raise StorageFailedError(f"{path}: {len(data)} bytes are too few for a document")
    magic, length, stored = _DOCUMENT.unpack_from(data)
    body = data[_DOCUMENT.size :]
    if magic != _DOCUMENT_MAGIC or length != len(body) or crc32c(body) != stored:
        raise StorageFailedError(f"{path}: the checksum of the document does not match")
    value: dict[str, Any] = json.loads(body)
    return value


def _errno(error: BaseException | None) -> int | None:
    """The number of the first OSError among ``error`` and its causes; None if there is none, or if
    that is a failed fsync."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return None if error is None or isinstance(error, FsyncFailedError) else error.errno
