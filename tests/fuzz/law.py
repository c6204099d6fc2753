"""What a target is, and what targets share: how an input is taken apart, a directory in memory."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

Target = Callable[[bytes], None]

#: Fields of HTTP that say how a body is sent.
_FRAMING = (b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"connection")


class Rejected(Exception):  # noqa: N818 - an answer, not an error
    """The input was refused by an error that is documented."""


def options(data: bytes) -> tuple[int, bytes]:
    """The first byte and the rest."""
    return (data[0], data[1:]) if data else (0, b"")


def named_pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Pieces, each behind a byte and a length of two bytes; the last one may be cut short."""
    while len(data) >= 3:
        code, length = struct.unpack_from("<BH", data)
        yield code, data[3 : 3 + length]
        data = data[3 + length :]


def with_length(message: bytes) -> bytes:
    """A message of HTTP whose head says how long its body is, and no other way to send it."""
    head, _, body = message.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(_FRAMING)]
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([first, *kept, length, b"", body])


@contextmanager
def empty_directory() -> Iterator[Path]:
    """An empty directory in memory, if that is possible; nothing waits for a disk."""
    memory = Path("/dev/shm")
    place = str(memory) if os.access(memory, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="runnel-fuzz-", dir=place))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, path)
        stack.enter_context(
            mock.patch.multiple(os, fsync=lambda fd: None, fdatasync=lambda fd: None)
        )
        yield path
