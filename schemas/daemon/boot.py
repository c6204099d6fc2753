"""The boot of the operating system under this process: the same one means the same host."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> bytes | None:
    """16 bytes that all processes of this host share, and those of no other host; None where
    the system has no such thing."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return None
