"""Stream cuts: a place in a stream, for all its keys at once. Pure.

For each key, a cut names the first segment that is not done, with the offset of the next record.
`NOT_BEGUN` stands for the offset of a segment that waits: some of its predecessors are done, others
are not. So keys whose segment was begun belong to that one, and the others to the oldest segment
that the cut names for them; everything older than that is done.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from schemas.errors import InvalidRequestError
from schemas.streams.epochs import (
    MAX_SEGMENTS,
    Segment,
    creation_epoch,
    packed,
    segment_text,
    unpacked,
)
from schemas.streams.key_space import SPACE, KeyRange, shown

NOT_BEGUN: Final = -1
"""The offset of a segment that waits for its predecessors."""

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<BBI")
_OFFSET: Final = struct.Struct("<Qq")
_CRC: Final = struct.Struct("<I")
_MAX_OFFSET: Final = (1 << 63) - 1
#: Of what a text holds: whoever sends one decides neither the memory nor the time that it takes.
_MOST_BYTES: Final = _HEADER.size + 0xFF + 2 * MAX_SEGMENTS * _OFFSET.size
_MOST_TEXT: Final = 2 * _MOST_BYTES


@dataclass(frozen=True, slots=True)
class StreamCut:
    """A place in a stream: keep it as text, ``str(cut)``, and read that with `StreamCut.parse`.

    ``stream`` is SCOPE/NAME, ``uid`` tells it from earlier streams of that name, ``offsets`` are by
    the id of the segment. Cuts come from a consumer's position, or from a stream's head or tail.
    """

    stream: str
    uid: str
    offsets: Mapping[int, int]

    def __str__(self) -> str:
        uid = self.uid.encode()
        parts = [_HEADER.pack(_VERSION, len(uid), len(self.offsets)), uid]
        parts.extend(_OFFSET.pack(*one) for one in sorted(self.offsets.items()))
        data = packed(b"".join(parts))
        checked = data + _CRC.pack(zlib.crc32(data, zlib.crc32(self.stream.encode())))
        return f"{self.stream}@{base64.urlsafe_b64encode(checked).decode().rstrip('=')}"

    def __repr__(self) -> str:
        first = sorted(self.offsets.items())[:4]
        more = ", …" if len(self.offsets) > len(first) else ""
        places = ", ".join(f"{segment_text(one)}: {offset}" for one, offset in first)
        return f"<runnel.StreamCut of {self.stream!r} at {{{places}{more}}}>"

    @classmethod
    def parse(cls, text: str) -> StreamCut:
        """The cut that `str` gave. Raises InvalidRequestError."""
        if not isinstance(text, str):
            raise InvalidRequestError(
                f"not a stream cut: {text!r:.60}; give the text that `runnel stream cut` or a"
                " consumer's position() printed"
            )
        if len(text) > _MOST_TEXT:
            raise InvalidRequestError(f"not a stream cut: it has {len(text):,} characters")
        stream, at, coded = text.strip().partition("@")
        try:
            if not at or stream.count("/") != 1:
                raise ValueError("it does not begin with SCOPE/NAME@")
            padded = coded.encode("ascii") + b"=" * (-len(coded) % 4)
            return _parsed(stream, base64.b64decode(padded, altchars=b"-_", validate=True))
        except (ValueError, struct.error, binascii.Error, zlib.error) as error:
            raise InvalidRequestError(
                f"not a stream cut: {text[:60]!r}{'…' if len(text) > 60 else ''} ({error}); give"
                " all of what `runnel stream cut` or a consumer's position() printed"
            ) from None


def _parsed(stream: str, checked: bytes) -> StreamCut:
    data, crc = checked[: -_CRC.size], checked[-_CRC.size :]
    if crc != _CRC.pack(zlib.crc32(data, zlib.crc32(stream.encode()))):
        raise ValueError("its checksum is wrong: something of it is missing or was changed")
    plain = unpacked(data, _MOST_BYTES)
    if len(plain) < _HEADER.size:
        raise ValueError("it is damaged")
    version, uid_bytes, count = _HEADER.unpack_from(plain)
    if version != _VERSION:
        raise ValueError(f"it is of version {version}, which this version does not know")
    begin = _HEADER.size + uid_bytes
    if len(plain) != begin + count * _OFFSET.size:
        raise ValueError("it is damaged")
    uid = plain[_HEADER.size : begin].decode()
    return StreamCut(stream, uid, dict(_OFFSET.iter_unpack(plain[begin:])))


class Frontier:
    """A cut with the ranges of its segments: what is done, and what comes first for each key."""

    def __init__(self, cut: StreamCut, segments: Iterable[Segment]) -> None:
        """``segments`` are those of the cut. Raises InvalidRequestError if they are no place in a
        stream: keys have none of them, or two that were begun, or one that was begun behind one
        that was not."""
        self.cut = cut
        self.segments = {one.id: one for one in segments}
        self._check_offsets()
        self._lows: list[int] = []
        self._first: list[int] = []
        self._sweep()

    def is_done(self, segment: Segment) -> bool:
        """Is all of a segment before the cut?"""
        return all(one > segment.id for one in self._first_of(segment.keys))

    def holds(self, segment: Segment) -> bool:
        """Is anything of a segment before the cut, or its beginning the cut?"""
        return self.cut.offsets.get(segment.id, NOT_BEGUN) >= 0 or self.is_done(segment)

    def is_after(self, other: Frontier) -> str | None:
        """Where the other one is before this one, in words; None if it is so for no keys."""
        for low in sorted({*self._lows, *other._lows}):
            mine, theirs = self._at(low), other._at(low)
            if mine > theirs:
                return f"from key {low / SPACE:g} on, {_shown(theirs)} comes before {_shown(mine)}"
        return None

    def joined(self, other: Frontier) -> Frontier:
        """The place behind both: what is before one of them is before it."""
        offsets: dict[int, int] = {}
        for mine, theirs in ((self, other), (other, self)):
            for one, segment in mine.segments.items():
                if not theirs.is_done(segment):
                    here, there = (of.cut.offsets.get(one, NOT_BEGUN) for of in (mine, theirs))
                    offsets[one] = max(here, there)
        known = {**self.segments, **other.segments}
        return Frontier(
            StreamCut(self.cut.stream, self.cut.uid, offsets), [known[one] for one in offsets]
        )

    def met(self, other: Frontier) -> Frontier:
        """The place before both: what is before it is before each of them."""
        offsets: dict[int, int] = {}
        for mine, theirs in ((self, other), (other, self)):
            for one, segment in mine.segments.items():
                if theirs.is_done(segment):
                    offsets[one] = mine.cut.offsets[one]
                elif one in theirs.segments:
                    offsets[one] = min(of.cut.offsets[one] for of in (mine, theirs))
        known = {**self.segments, **other.segments}
        return Frontier(
            StreamCut(self.cut.stream, self.cut.uid, offsets), [known[one] for one in offsets]
        )

    def end_with(self, tail: Frontier, epoch: int) -> Frontier:
        """Where a stream ends for who reads from here on. ``tail`` is its end in its current
        ``epoch``: this place may be in the next one already, which a scale is about to begin."""
        ahead = any(creation_epoch(one) > epoch for one in self.cut.offsets)
        return tail.joined(self) if ahead else tail

    def _at(self, place: int) -> tuple[int, int]:
        first = self._first[bisect_right(self._lows, place) - 1]
        return first, max(0, self.cut.offsets[first])

    def _first_of(self, keys: KeyRange) -> list[int]:
        begin = bisect_right(self._lows, keys.low) - 1
        return self._first[begin : bisect_left(self._lows, keys.high)]

    def _check_offsets(self) -> None:
        offsets = self.cut.offsets
        if len(offsets) > 2 * MAX_SEGMENTS:
            raise self._wrong(f"it names {len(offsets):,} segments")
        for one, offset in offsets.items():
            if not NOT_BEGUN <= offset <= _MAX_OFFSET:
                raise self._wrong(f"segment {segment_text(one)} has the offset {offset}")

    def _sweep(self) -> None:
        """Find the first segment of all keys, from the lowest key on."""
        by_low = sorted(self.segments.values(), key=lambda one: one.keys)
        bounds = sorted({bound for one in by_low for bound in (one.keys.low, one.keys.high)})
        waiting: list[tuple[int, int]] = []
        begun: Segment | None = None
        following = 0
        for low, high in zip([0, *bounds], [*bounds, SPACE], strict=True):
            if low == high:
                continue
            if begun is not None and begun.keys.high <= low:
                begun = None
            while following < len(by_low) and by_low[following].keys.low <= low:
                one = by_low[following]
                heappush(waiting, (one.id, one.keys.high))
                if self.cut.offsets[one.id] >= 0:
                    if begun is not None:
                        raise self._out_of_order(begun.id, one.id)
                    begun = one
                following += 1
            while waiting and waiting[0][1] <= low:
                heappop(waiting)
            if not waiting:
                raise self._wrong(
                    f"it names no segment for the keys {shown([KeyRange(low, high)])}"
                )
            first = waiting[0][0]
            if begun is not None and begun.id != first:
                raise self._out_of_order(begun.id, first)
            self._lows.append(low)
            self._first.append(first)

    def _out_of_order(self, begun: int, other: int) -> InvalidRequestError:
        return self._wrong(
            f"the segments {segment_text(begun)} and {segment_text(other)} share keys, and the"
            " newer one is begun"
        )

    def _wrong(self, why: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"the cut is no place in stream {self.cut.stream}: {why}; take cuts from a consumer's"
            " position, or from the stream's head or tail"
        )


def _shown(place: tuple[int, int]) -> str:
    return f"offset {place[1]} of segment {segment_text(place[0])}"
