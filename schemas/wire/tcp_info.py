"""What Linux says about a TCP connection: what is not acknowledged, and how fast it is. Pure.

Neighbours: `schemas.wire.keepalive` asks the kernel.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

#: ``struct tcp_info`` up to ``tcpi_unacked``: eight bytes, of which the third counts
#: retransmissions, and five numbers. Its beginning never changes.
_INFO: Final = struct.Struct("=2xB5x16xI")
#: Up to ``tcpi_rttvar``: ``tcpi_last_data_recv``, ``tcpi_rtt`` and it are the 12th, the 16th and
#: the 17th number.
_PACE: Final = struct.Struct("=8x44xI12xII")
TCP_INFO_BYTES: Final = _PACE.size
#: An acknowledgement that takes less is that of a short line: receivers delay it by up to 40 ms,
#: and senders wait for it so long at least before they send again.
_SHORT_MS: Final = 200.0
#: An acknowledgement that takes longer counts as this: a dead peer must be noticed some time.
_MOST_ANSWER_MS: Final = 2_000.0
#: For so many times what an acknowledgement takes more than on a short line, silence may be that of
#: a line that loses much: what was lost three times in a row has come by then.
_ANSWERS: Final = 6


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """What the other host has not acknowledged: so many ``segments``, and how many times in a row
    TCP sent the oldest of them again."""

    segments: int
    retransmissions: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How long an acknowledgement may take (the smoothed round trip and four times its mean
    deviation, as TCP itself reckons), and how long ago data came, in milliseconds."""

    answer_ms: float
    silent_ms: int

    def more_intervals(self, interval_ms: float) -> int:
        """For how many intervals longer than on a short line the other end may be silent, because
        what it sent was lost and is sent again."""
        longer_ms = min(self.answer_ms, _MOST_ANSWER_MS) - _SHORT_MS
        return int(_ANSWERS * max(0.0, longer_ms) / interval_ms)


def parse_pace(info: bytes) -> Pace | None:
    """From the beginning of a ``struct tcp_info``; None if it is too short."""
    if len(info) < _PACE.size:
        return None
    silent_ms, round_trip_us, deviation_us = _PACE.unpack_from(info)
    return Pace((round_trip_us + 4 * deviation_us) / 1_000, silent_ms)


def parse_tcp_info(info: bytes) -> Unacknowledged | None:
    """From the beginning of a ``struct tcp_info``; None if it is too short."""
    if len(info) < _INFO.size:
        return None
    retransmissions, segments = _INFO.unpack_from(info)
    return Unacknowledged(segments, retransmissions)
