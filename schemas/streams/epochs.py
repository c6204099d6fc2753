"""Epochs of a stream: which segments there are, and how one set follows another. Pure.

A segment's id is ``epoch << 32 | number``: the epoch that created it, and a number that counts up
over the stream's life. Each epoch covers the whole key space, each hash once. An epoch is stored
whole where its number is a multiple of `FULL_EVERY`, and else as what it changed: so a range read
of at most `FULL_EVERY` keys gives any epoch, and ten thousand segments are written only then.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.errors import InvalidRequestError
from schemas.streams.key_space import WHOLE, KeyRange, merged

FULL_EVERY: Final = 64
"""Every so many epochs, one is stored whole."""
MAX_SEGMENTS: Final = 32_768
"""Segments of one epoch."""
MAX_EPOCH: Final = (1 << 31) - 1
MAX_NUMBER: Final = (1 << 32) - 1

_HEADER: Final = struct.Struct("<BBIIqII")
_SEGMENT: Final = struct.Struct("<QQQ")
_SEALED: Final = struct.Struct("<Q")
_VERSION: Final = 1
_FULL, _CHANGE = 0, 1
_PLAIN, _DEFLATED = b"\0", b"\1"
#: Larger records are compressed.
_DEFLATE_ABOVE: Final = 4_096


def segment_id(epoch: int, number: int) -> int:
    return epoch << 32 | number


def creation_epoch(segment: int) -> int:
    """The epoch that created a segment, by its id."""
    return segment >> 32


def number_of(segment: int) -> int:
    """The number of a segment within its stream, by its id."""
    return segment & MAX_NUMBER


def segment_text(segment: int) -> str:
    """A segment as users see it: ``EPOCH.NUMBER``, of the epoch that created it."""
    return f"{creation_epoch(segment)}.{number_of(segment)}"


def parse_segment(text: str) -> int:
    """The id of a segment that a user wrote. Raises InvalidRequestError."""
    epoch, dot, number = text.partition(".")
    digits = all(
        part.isascii() and part.isdecimal() and len(part) <= 10 for part in (epoch, number)
    )
    if not dot or not digits or int(epoch) > MAX_EPOCH or int(number) > MAX_NUMBER:
        raise InvalidRequestError(
            f"{text!r} is no segment; write EPOCH.NUMBER as `runnel describe stream` shows it: 0.1"
        )
    return segment_id(int(epoch), int(number))


def base_of(epoch: int) -> int:
    """The epoch, at or below this one, that is stored whole."""
    return epoch - epoch % FULL_EVERY


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment and its range of keys."""

    id: int
    keys: KeyRange

    @property
    def number(self) -> int:
        return number_of(self.id)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One division of the key space. ``time_ms``: when it was decided, in milliseconds since 1970.
    ``reference``: the epoch of which it is a copy, or itself. ``segments`` are in the order of
    their ranges."""

    number: int
    reference: int
    time_ms: int
    segments: tuple[Segment, ...]

    def by_id(self) -> dict[int, Segment]:
        return {segment.id: segment for segment in self.segments}

    def overlapping(self, keys: KeyRange) -> tuple[Segment, ...]:
        """Its segments that have keys of a range, in order."""
        return tuple(segment for segment in self.segments if segment.keys.overlaps(keys))


@dataclass(frozen=True, slots=True)
class Change:
    """What an epoch changed: the ids of the segments that it sealed, and those that it created."""

    number: int
    reference: int
    time_ms: int
    sealed: tuple[int, ...]
    created: tuple[Segment, ...]

    def applied_to(self, before: Epoch) -> Epoch:
        """The epoch after this change. Raises InvalidRequestError if it does not follow, or leaves
        keys without a segment."""
        return after(before, [self])


def first_epoch(change: Change) -> Epoch:
    """The epoch that a change of nothing gives. Raises InvalidRequestError if it covers not all."""
    return Epoch(change.number, change.reference, change.time_ms, _covering(change.created))


def _covering(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    found = tuple(sorted(segments, key=lambda one: one.keys))
    try:
        covered = merged(one.keys for one in found)
    except ValueError as error:
        raise InvalidRequestError(f"segments of an epoch overlap: {error}") from error
    if covered != (WHOLE,):
        raise InvalidRequestError("the segments of an epoch do not cover all keys")
    return found


def even(epoch: int, count: int, first_number: int, time_ms: int) -> Change:
    """The change that divides all keys evenly among ``count`` new segments."""
    created = (
        Segment(segment_id(epoch, first_number + i), keys)
        for i, keys in enumerate(WHOLE.split(count))
    )
    return Change(epoch, epoch, time_ms, (), tuple(created))


# -- stored form --------------------------------------------------------------------------------


def encode_epoch(epoch: Epoch) -> bytes:
    """A whole epoch: 24 bytes a segment, compressed if there are many."""
    parts = [_header(_FULL, epoch, 0, len(epoch.segments)), *map(_encoded, epoch.segments)]
    return packed(b"".join(parts))


def encode_change(change: Change) -> bytes:
    """What an epoch changed: 8 bytes for each sealed segment, 24 for each created one."""
    parts = [_header(_CHANGE, change, len(change.sealed), len(change.created))]
    parts.extend(map(_SEALED.pack, change.sealed))
    parts.extend(map(_encoded, change.created))
    return packed(b"".join(parts))


def decode(value: bytes) -> Epoch | Change:
    """What `encode_epoch` or `encode_change` made. Raises InvalidRequestError."""
    try:
        data = unpacked(value)
        version, form, number, reference, time_ms, gone, new = _HEADER.unpack_from(data)
        if version != _VERSION or form not in (_FULL, _CHANGE):
            raise ValueError(f"version {version}, form {form}")
        at = _HEADER.size
        sealed = [_SEALED.unpack_from(data, at + i * _SEALED.size)[0] for i in range(gone)]
        at += gone * _SEALED.size
        segments = []
        for i in range(new):
            name, low, high = _SEGMENT.unpack_from(data, at + i * _SEGMENT.size)
            segments.append(Segment(name, KeyRange(low, high)))
        if len(data) != at + new * _SEGMENT.size:
            raise ValueError("another length")
    except (struct.error, ValueError, zlib.error) as error:
        raise InvalidRequestError(f"a stored epoch does not parse: {error}") from error
    if form == _CHANGE:
        return Change(number, reference, time_ms, tuple(sealed), tuple(segments))
    return Epoch(number, reference, time_ms, _covering(segments))


def decode_change(value: bytes) -> Change:
    """Raises InvalidRequestError, also for a whole epoch."""
    found = decode(value)
    if not isinstance(found, Change):
        raise InvalidRequestError("a stored change of an epoch is a whole epoch")
    return found


def epoch_at(number: int, stored: Mapping[int, bytes]) -> Epoch:
    """An epoch, from the stored forms of it and of all from its base on, by number.

    Raises InvalidRequestError if one is missing or does not parse.
    """
    base = base_of(number)
    try:
        found = decode(stored[base])
        epoch = found if isinstance(found, Epoch) else first_epoch(found)
        changes = [decode_change(stored[i]) for i in range(base + 1, number + 1)]
    except KeyError as error:
        raise InvalidRequestError(f"epoch {error} of the stream is not stored") from error
    return after(epoch, changes) if changes else epoch


def after(epoch: Epoch, changes: Sequence[Change]) -> Epoch:
    """The epoch after some changes, one after the other. Raises InvalidRequestError if one does not
    follow, or the last leaves keys without a segment."""
    there = epoch.by_id()
    before = epoch.number
    for change in changes:
        if before + 1 != change.number or any(one not in there for one in change.sealed):
            raise InvalidRequestError(f"epoch {change.number} does not follow {before}")
        for one in change.sealed:
            del there[one]
        there.update((one.id, one) for one in change.created)
        before = change.number
    last = changes[-1]
    return Epoch(last.number, last.reference, last.time_ms, _covering(there.values()))


def packed(data: bytes) -> bytes:
    """Stored bytes: compressed if they are long."""
    if len(data) <= _DEFLATE_ABOVE:
        return _PLAIN + data
    return _DEFLATED + zlib.compress(data, 1)


def unpacked(value: bytes, most: int | None = None) -> bytes:
    """At most ``most`` bytes, if that is given. Raises ValueError, zlib.error."""
    form, data = value[:1], value[1:]
    if form == _PLAIN:
        return data
    if form == _DEFLATED:
        if most is None:
            return zlib.decompress(data)
        inflating = zlib.decompressobj()
        plain = inflating.decompress(data, most)
        if not inflating.eof:
            raise ValueError(f"it holds more than {most:,} bytes, or is cut off")
        return plain
    raise ValueError("it is damaged")


def _header(form: int, of: Epoch | Change, gone: int, new: int) -> bytes:
    return _HEADER.pack(_VERSION, form, of.number, of.reference, of.time_ms, gone, new)


def _encoded(segment: Segment) -> bytes:
    return _SEGMENT.pack(segment.id, segment.keys.low, segment.keys.high)
