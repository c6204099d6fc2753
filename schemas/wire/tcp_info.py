"""What Linux says about a TCP connection: what the other host has not acknowledged. Pure.

Neighbours: `schemas.wire.keepalive` asks the kernel.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

#: ``struct tcp_info`` up to ``tcpi_unacked``: eight bytes, of which the third counts
#: retransmissions, and five numbers. Its beginning never changes.
_INFO: Final = struct.Struct("=2xB5x16xI")
TCP_INFO_BYTES: Final = _INFO.size


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """What the other host has not acknowledged: so many ``segments``, and how many times in a row
    TCP sent the oldest of them again."""

    segments: int
    retransmissions: int


def parse_tcp_info(info: bytes) -> Unacknowledged | None:
    """From the beginning of a ``struct tcp_info``; None if it is too short."""
    if len(info) < _INFO.size:
        return None
    retransmissions, segments = _INFO.unpack_from(info)
    return Unacknowledged(segments, retransmissions)
