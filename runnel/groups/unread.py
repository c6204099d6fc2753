"""How much of a segment is not read yet. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """What the leader of a segment holds: the offsets from ``begin`` to below ``end``, which is the
    one after the last committed record, in so many ``bytes`` of its log."""

    begin: int
    end: int
    bytes: int


def unread_bytes(position: int, extent: Extent, end: int) -> int:
    """About how many bytes of the log lie between a position and an end, as if all records were of
    one size. What retention removed, or only an archive has, is not counted."""
    held = extent.end - extent.begin
    left = min(end, extent.end) - max(position, extent.begin)
    if held <= 0 or left <= 0:
        return 0
    return -(-extent.bytes * left // held)
