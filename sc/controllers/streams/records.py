"""What is stored of a stream besides its object, and where. Pure.

::

    streams/<uid>/state                 where the stream is in its life; each step writes it
    streams/<uid>/plan                  of a stream that is created or scaled: the change
    streams/<uid>/accepted              requests that wait, in the order of their turns
    streams/<uid>/requests/<id>         a request that waits or is carried out
    streams/<uid>/done/<id>             what became of a request; kept for `KEEP_DONE_MS`
    streams/<uid>/epochs/<base>/<n>     an epoch (`schemas.streams.epochs`), 16 hexadecimal digits
    streams/<uid>/chunks/<c>/<n>        when an epoch began and what it did; c counts thousands
    streams/<uid>/sealed/<segment>      which epoch sealed a segment, and the keys that it had
    streams/<uid>/sizes/<c>/<segment>   where a sealed segment ends
    streams/<uid>/truncation            where the stream begins; absent before its first truncation
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from pydantic import ValidationError

from sc.store.records import ListRecords, Record
from schemas.errors import InvalidRequestError
from schemas.model import CaselessEnum, Model
from schemas.objects.stream import StreamState
from schemas.streams.epochs import FULL_EVERY, Epoch, base_of, creation_epoch, epoch_at
from schemas.streams.key_space import KeyRange

KEEP_DONE_MS: Final = 3_600_000
"""How long the outcome of a request can be asked for."""
EPOCHS_KNOWN: Final = 16
"""Epochs that are kept decoded: several looks in a row are at one, and it may be long."""
MAX_WAITING: Final = 100
"""Requests of one stream that wait."""
CHUNK: Final = 1_000
"""Epochs in a chunk of the history."""
_STREAMS: Final = "streams/"
_FIXED: Final = frozenset({"epochs", "chunks", "sealed", "sizes"})

M = TypeVar("M", bound=Model)


class StateRecord(Model):
    """The record that each step compares and writes.

    ``epoch`` is the current one (None until there is one) with ``segments`` segments;
    ``next_number`` is that of the next segment; ``request`` the one that is carried out;
    ``observed_generation`` of the spec that the partitions have. Within a workflow,
    ``epoch_stored`` says that the new epoch is stored, ``by_load`` that a scale was begun because
    of the load of segments, and ``cursor`` how far a row of records, or of segments by their ids,
    is done. ``steps`` counts, so that no two values of the record are the
    same.
    """

    state: StreamState
    epoch: int | None = None
    segments: int = 0
    next_number: int = 0
    request: str | None = None
    observed_generation: int = 0
    epoch_stored: bool = False
    by_load: bool | None = None
    cursor: int = 0
    steps: int = 0


class RequestKind(CaselessEnum):
    SCALE = "scale"
    SEAL = "seal"
    TRUNCATE = "truncate"


class Request(Model):
    """What somebody asked of a stream. Of a scale: the ids of the segments to ``seal``, and the
    bounds of the ranges that replace them. Of a truncation: the ``cut`` as text."""

    id: str
    kind: RequestKind
    seal: tuple[int, ...] = ()
    into: tuple[tuple[int, int], ...] = ()
    cut: str | None = None
    by: str = ""
    at_ms: int = 0

    @property
    def ranges(self) -> tuple[KeyRange, ...]:
        return tuple(KeyRange(low, high) for low, high in self.into)

    @property
    def digest(self) -> str:
        """Of what it asks for; equal for requests that ask for the same."""
        text = repr((self.kind.value, sorted(self.seal), sorted(self.into), self.cut))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Accepted(Model):
    """Ids of the requests that wait or are carried out, the oldest first."""

    waiting: tuple[str, ...] = ()


class Outcome(Model):
    """What became of a request. ``epoch`` is the one that a scale began; ``digest`` is of what the
    request asked for."""

    id: str
    kind: RequestKind
    digest: str
    done: bool
    reason: str | None = None
    epoch: int | None = None
    at_ms: int


class SealedSegment(Model):
    """The epoch that sealed a segment, and the bounds of the keys that it had."""

    epoch: int
    low: int
    high: int

    @property
    def keys(self) -> KeyRange:
        return KeyRange(self.low, self.high)


class EpochEntry(Model):
    """An entry of the history: ``splits`` and ``merges`` are of the segments that it replaced;
    ``by_load``: because of their load, and not because somebody asked for it."""

    reference: int
    time_ms: int
    splits: int
    merges: int
    by_load: bool | None = None


class SegmentSize(Model):
    """Where a sealed segment ends: the offset after its last record."""

    end: int


class TruncationRecord(Model):
    """Where a stream begins: a cut as text. ``updating``: what is before it is being removed."""

    cut: str
    updating: bool


@dataclass(frozen=True, slots=True)
class StreamPaths:
    """Paths of the records of one stream, by its uid."""

    uid: str

    @property
    def root(self) -> str:
        return f"{_STREAMS}{self.uid}/"

    @property
    def state(self) -> str:
        return f"{self.root}state"

    @property
    def plan(self) -> str:
        return f"{self.root}plan"

    @property
    def accepted(self) -> str:
        return f"{self.root}accepted"

    @property
    def truncation(self) -> str:
        return f"{self.root}truncation"

    def request(self, request: str) -> str:
        return f"{self.root}requests/{request}"

    def outcome(self, request: str) -> str:
        return f"{self.root}done/{request}"

    @property
    def outcomes(self) -> str:
        return f"{self.root}done/"

    def epoch(self, number: int) -> str:
        return f"{self.root}epochs/{base_of(number):016x}/{number:016x}"

    def entry(self, number: int) -> str:
        return f"{self.root}chunks/{number // CHUNK:08x}/{number:016x}"

    def sealed(self, segment: int) -> str:
        return f"{self.root}sealed/{segment:016x}"

    def size(self, segment: int) -> str:
        return f"{self.root}sizes/{creation_epoch(segment) // CHUNK:08x}/{segment:016x}"

    def epoch_want(self, number: int) -> ListRecords:
        """What must be read to know an epoch: one range of at most `FULL_EVERY` records."""
        prefix = f"{self.root}epochs/{base_of(number):016x}/"
        return ListRecords(prefix, FULL_EVERY, f"{number:016x}")


def is_fixed(path: str) -> bool:
    """Whether the record at a path is never written twice."""
    parts = path.split("/")
    return len(parts) > 3 and parts[0] + "/" == _STREAMS and parts[2] in _FIXED


def encode(record: Model) -> bytes:
    return record.model_dump_json(by_alias=True, exclude_none=True).encode()


def decode(cls: type[M], record: Record) -> M:
    """Raises InvalidRequestError that names the record."""
    try:
        return cls.model_validate_json(record.value)
    except ValidationError as error:
        raise InvalidRequestError(f"record {record.path} does not parse: {error}") from error


@lru_cache(maxsize=EPOCHS_KNOWN)
def epoch_of(number: int, found: tuple[Record, ...]) -> Epoch:
    """An epoch of what `StreamPaths.epoch_want` found. Raises InvalidRequestError."""
    stored: Mapping[int, bytes] = {int(r.path.rpartition("/")[2], 16): r.value for r in found}
    return epoch_at(number, stored)
