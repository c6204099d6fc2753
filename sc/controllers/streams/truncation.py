"""Where a stream begins, and what a truncation may ask for. Pure.

All functions raise NotReadError for records that they need.
"""

from __future__ import annotations

from sc.controllers.streams.records import (
    SealedSegment,
    SegmentSize,
    StreamPaths,
    TruncationRecord,
    decode,
    epoch_of,
)
from sc.store.records import GetRecord, Records, get, listed, need
from schemas.errors import ConflictError, InvalidRequestError
from schemas.objects.stream import Stream
from schemas.streams.cuts import Frontier, StreamCut
from schemas.streams.epochs import Epoch, Segment, creation_epoch, segment_text


def beginning(records: Records | None, stream: Stream) -> StreamCut:
    """The first place of a stream that is there."""
    paths = StreamPaths(stream.uid)
    if (record := get(records, paths.truncation)) is not None:
        return StreamCut.parse(decode(TruncationRecord, record).cut)
    first = _epoch(records, paths, 0)
    return StreamCut(stream.name, stream.uid, {one.id: 0 for one in first.segments})


def check(records: Records | None, stream: Stream, current: int, cut: StreamCut) -> None:
    """Raise unless a stream, which is in its epoch ``current``, can begin at a cut.

    Raises InvalidRequestError if it is no place in the stream, or lies beyond the end of a segment
    that was replaced; ConflictError if it lies before the place where the stream begins.
    """
    check_stream(stream, cut)
    paths = StreamPaths(stream.uid)
    need(records, GetRecord(paths.truncation), paths.epoch_want(0), paths.epoch_want(current))
    wanted = placed(records, paths, current, cut)
    begins = placed(records, paths, current, beginning(records, stream))
    if (where := begins.is_after(wanted)) is not None:
        raise ConflictError(
            f"stream {stream.name} begins behind the cut already: {where}; a truncation cannot be"
            " taken back"
        )
    now = _epoch(records, paths, current).by_id()
    replaced = [one for one in cut.offsets if one not in now]
    need(records, *(GetRecord(paths.size(one)) for one in replaced))
    for one in replaced:
        size = get(records, paths.size(one))
        if size is not None and cut.offsets[one] > (end := decode(SegmentSize, size).end):
            raise InvalidRequestError(
                f"the cut lies beyond the end of segment {segment_text(one)}: offset"
                f" {cut.offsets[one]}, and it ends at {end}; take one from the stream's tail"
            )


def check_stream(stream: Stream, cut: StreamCut) -> None:
    """Raise InvalidRequestError unless a cut is of this stream."""
    if cut.stream != stream.name:
        raise InvalidRequestError(f"the cut is of stream {cut.stream}, not of {stream.name}")
    if cut.uid != stream.uid:
        raise InvalidRequestError(
            f"the cut is of an earlier stream {stream.name}, which was deleted"
        )


def placed(records: Records | None, paths: StreamPaths, current: int, cut: StreamCut) -> Frontier:
    """A cut with the keys of its segments. Raises InvalidRequestError if it is no place."""
    newest = max(map(creation_epoch, cut.offsets), default=0)
    if newest > current:
        raise _unknown(cut, max(cut.offsets))
    there = _epoch(records, paths, newest).by_id()
    # What is not in that epoch was replaced by it, or before.
    older = [one for one in cut.offsets if one not in there]
    need(records, *(GetRecord(paths.sealed(one)) for one in older))
    segments = [there[one] for one in cut.offsets if one in there]
    for one in older:
        if (record := get(records, paths.sealed(one))) is None:
            raise _unknown(cut, one)
        segments.append(Segment(one, decode(SealedSegment, record).keys))
    return Frontier(cut, segments)


def _epoch(records: Records | None, paths: StreamPaths, number: int) -> Epoch:
    return epoch_of(number, listed(records, paths.epoch_want(number)))


def _unknown(cut: StreamCut, segment: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"the cut is no place in stream {cut.stream}, which has no segment {segment_text(segment)}"
    )
