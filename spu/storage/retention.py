"""Retention: which segments of a log are too old or too many, and when a segment is completed.

Pure: segments, settings and the time are arguments. `spu.storage.log` applies what this decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.objects.topic import LogSettings, Retention
from spu.storage.segment import Segment


def retained_from(
    segments: Sequence[Segment], retention: Retention, now_us: int, upto_offset: int
) -> int | None:
    """The log start that retention by time and size wants, at most ``upto_offset``; None if it
    removes nothing.

    It removes whole completed segments, the oldest first. Their age counts from their last append
    by this SPU's clock: old records that are written today are kept as long as any others.
    """
    start = None
    size_bytes = sum(segment.size for segment in segments)
    excess = None if retention.size is None else size_bytes - retention.size
    horizon_us = None if retention.time is None else now_us - retention.time * 1000
    for segment in segments[:-1]:
        if segment.end_offset > upto_offset:
            break
        too_old = horizon_us is not None and segment.written_us < horizon_us
        if excess is not None and excess >= segment.size:
            excess -= segment.size
        elif not too_old:
            break
        start = segment.end_offset
    return start


def outlived(active: Segment, settings: LogSettings, now_us: int) -> bool:
    """Whether a segment has been in progress for ``segment.time``, or got its last batch longer ago
    than the retention."""
    retention_ms = settings.retention.time
    return now_us - active.opened_us >= settings.segment.time * 1000 or (
        retention_ms is not None and now_us - active.written_us > retention_ms * 1000
    )
