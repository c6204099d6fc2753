"""Where a stream ends, and how much it took since a cut, by what SPUs count. Pure.

An end that an SPU told may be behind by a second, and is never ahead of what is committed. Sizes
are by the log's mean: how many bytes lie behind an offset is in proportion to how many records do.
"""

from __future__ import annotations

from sc.controllers.streams.steps import Pass
from schemas.control.statistics import ReplicaNumbers
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import Epoch, creation_epoch


def tail(of: Pass, now: Epoch) -> StreamCut | None:
    """The end of a stream; None while it is not known of one of its segments."""
    offsets = {}
    for segment in now.segments:
        partition = of.partition(segment.id)
        numbers = None if partition is None else of.view.numbers(partition)
        if numbers is None:
            return None
        offsets[segment.id] = numbers.committed_end
    return StreamCut(of.stream.name, of.stream.uid, offsets)


def taken_since(of: Pass, last: StreamCut | None) -> int | None:
    """Bytes that came behind a cut of the whole stream's end, or all that there are; None while one
    of the numbers is not known."""
    epoch = -1 if last is None else max(map(creation_epoch, last.offsets))
    total = 0
    for partition in of.partitions():
        segment = partition.spec.segment_id or 0
        begun = None if last is None else last.offsets.get(segment)
        if partition.deleting or (begun is None and creation_epoch(segment) <= epoch):
            # It had ended by then.
            continue
        if (numbers := of.view.numbers(partition)) is None:
            return None
        total += behind(numbers, 0 if begun is None else begun)
    return total


def behind(numbers: ReplicaNumbers, offset: int) -> int:
    """Bytes of a log behind an offset."""
    records = numbers.log_end - numbers.log_start
    if records <= 0:
        return 0
    left = min(max(0, numbers.log_end - offset), records)
    return numbers.log_bytes * left // records
