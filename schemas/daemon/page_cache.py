"""Reads of files that do not wait for the disk, if the file system can tell."""

from __future__ import annotations

import errno
import os
from typing import Final

#: Whether a read can be asked not to wait at all.
CAN_REFUSE_TO_WAIT: Final = hasattr(os, "RWF_NOWAIT")
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)


def read_at(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
    """Fill ``view`` from ``position`` of a file on, up to the end of the file; how many bytes.

    Without ``wait``, raises BlockingIOError if the disk is needed. Raises OSError.
    """
    filled = 0
    while filled < len(view):
        got = _read_some(fd, view[filled:], position + filled, wait=wait)
        if not got:
            break
        filled += got
        if filled < len(view) and not wait:
            raise BlockingIOError(errno.EAGAIN, "the rest is on the disk")
    return filled


def _read_some(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
    if wait or not CAN_REFUSE_TO_WAIT:
        return os.preadv(fd, [view], position)
    try:
        return os.preadv(fd, [view], position, _NOWAIT)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        # This file system does not support it.
        return os.preadv(fd, [view], position)
