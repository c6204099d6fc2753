"""The life of a segment: in progress, completed, partially truncated, truncated, deleted.

A segment is in progress until the log begins another one. A log start inside a segment makes it
partially truncated; a log start at or after its end makes it truncated, and its file leaves the log
(`spu.storage.truncated_segments`). `spu.storage.retention` decides which segments are truncated.

After DistributedLog's design, *LogSegment Lifecycle* and *Truncation*.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.wire.log_requests import SegmentInfo, SegmentState
from spu.storage.segment import Segment
from spu.storage.truncated_segments import TruncatedSegment


def segment_infos(
    segments: Iterable[Segment], truncated: Iterable[TruncatedSegment], log_start: int
) -> list[SegmentInfo]:
    """A description of each segment of a log that begins at ``log_start``, truncated ones first."""
    gone = [
        SegmentInfo(one.base_offset, one.end_offset, one.size, SegmentState.TRUNCATED,
                    truncated_us=one.truncated_us)
        for one in truncated
    ]  # fmt: skip
    return gone + [
        SegmentInfo(
            segment.base_offset,
            segment.end_offset,
            segment.size,
            _state(segment, log_start),
            opened_us=segment.opened_us,
            completed_us=segment.completed_us,
        )
        for segment in segments
    ]


def _state(segment: Segment, log_start: int) -> SegmentState:
    if segment.completed_us and segment.end_offset <= log_start:
        return SegmentState.TRUNCATED
    if segment.base_offset < log_start < segment.end_offset:
        return SegmentState.PARTIALLY_TRUNCATED
    return SegmentState.COMPLETED if segment.completed_us else SegmentState.IN_PROGRESS
