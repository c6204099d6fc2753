"""Segments that a reader has open: what it is told of one that is truncated away."""

from __future__ import annotations

from typing import cast

import pytest

from runnel.consume.consumer import Consumer
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.consume.settings import ConsumerSettings
from runnel.groups import opened
from runnel.groups.opened import Item, OpenSegments
from runnel.groups.places import SourceSegment
from runnel.groups.sources import Source
from runnel.net.routing import SegmentGoneError
from runnel.records.offset_and_term import NOTHING_READ
from schemas.errors import OffsetOutOfRangeError, RunnelError, UnreachableError

SEGMENT = SourceSegment("s/t", 0)
END = 4


class Goes:
    """A source whose only segment has four records and is truncated away once two or four were
    fetched; and a consumer of it."""

    name = "s/t"

    def __init__(self, fetched: list[int], failures: list[RunnelError]) -> None:
        self.state = ReadState(self.name)
        self._fetched = fetched
        self._failures = failures

    def open(self, *_: object) -> Consumer:
        return cast(Consumer, self)

    async def next_chunk(self) -> FetchedChunk | None:
        if not self._fetched:
            raise SegmentGoneError("segment number 0 of stream s/t was removed by a truncation")
        return FetchedChunk(SEGMENT.number, [], self._fetched.pop(0))

    async def end(self, _segment: SourceSegment) -> int | None:
        if self._failures:
            raise self._failures.pop()
        return END

    def position(self) -> dict[int, int]:
        return dict(self.state.position)

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("fetched", "failures", "lost_from"),
    [
        pytest.param([2, 4], 0, None, id="given-all-that-was-fetched-then-its-end"),
        pytest.param([2, 4], 2, None, id="given-no-sc-at-first-then-its-end"),
        pytest.param([2], 0, 2, id="given-a-part-that-was-fetched-then-the-rest-is-lost"),
        pytest.param([2], 2, 2, id="given-a-part-and-no-sc-at-first-then-the-rest-is-lost"),
    ],
)
async def test_a_segment_that_is_truncated_away(
    monkeypatch: pytest.MonkeyPatch, fetched: list[int], failures: int, lost_from: int | None
) -> None:
    monkeypatch.setattr(opened, "_AGAIN_MS", 1.0)
    chunks = len(fetched)
    source = Goes(list(fetched), [UnreachableError("the SC does not answer")] * failures)
    segments = OpenSegments("g", ConsumerSettings())
    segments.begin(SEGMENT, cast(Source, source), NOTHING_READ, None, 1)
    items = [await segments.queue.get() for _ in range(chunks + 1)]
    *read, last = [item.found for item in items if isinstance(item, Item)]
    assert [chunk.position_after for chunk in read if isinstance(chunk, FetchedChunk)] == fetched
    if lost_from is None:
        assert last is None
    else:
        assert isinstance(last, OffsetOutOfRangeError)
        assert f"the records from {lost_from} on are lost" in last.message
    await segments.close_all()
