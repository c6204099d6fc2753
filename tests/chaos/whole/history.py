"""What clients wrote down while the cluster was in trouble, put together. Pure.

A client's file has one JSON object on each line: ``do`` says what happened, ``t`` when (seconds of
the machine's monotonic clock).

- ``producer``: name, topic. ``sent``: below which number everything may have been sent.
  ``acked``: rows of number, partition, offset, time. ``failed``: rows of number, error.
- ``reader``: name, topic, and the way, one of `WAYS`. ``open``: a new consumer begins, at ``start``
  (offsets by partition) if not at the beginning; a named one knows itself where it goes on, and
  ``start`` is empty.
  ``read``: partition, and rows of offset, producer, number. ``committed``: ``offsets`` by
  partition, under the reader's name. ``error``: what the consumer raised.
- ``log``: topic, partition and rows, as of ``read``: everything that is there in the end.
- ``fault``: which one, ``begin``, ``repair`` (when that began), ``end`` (when it was done) and
  whether it was ``in_force``. ``cannot``: a kind of fault that this machine does not have.
  ``calm``: ``begin`` and ``end``. ``placed``: the SPUs of each partition, at first and after each
  calm. ``ended``: a daemon that nobody had ended, with its exit code and the last line of its log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.whole.values import RecordId

Place = tuple[str, int]
"""A topic and a partition."""
Row = tuple[int, RecordId]
"""A record at its offset."""

WAYS: Final = ("pushed", "followers", "again", "named")
"""How a reader reads: pushed by leaders; fetched from followers; opened again and again a little
further back; opened again and again under a name, where the last one had committed."""
STEADY: Final = WAYS[:2]
"""The ways of one consumer that lives until an error ends it."""

#: Errors with which the product itself says that records were lost or damaged.
ADMITTED: Final = frozenset(
    {"DIVERGED", "CORRUPT_BATCH", "OFFSET_OUT_OF_RANGE", "STORAGE_FAILED", "INTERNAL"}
)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a producer was told: its record is at this offset."""

    sequence: int
    place: Place
    offset: int
    at_s: float


@dataclass(slots=True)
class Sender:
    """A producer: everything below ``sent`` may be in the log, ``failed`` ones too."""

    name: str
    topic: str
    sent: int = 0
    acknowledged: list[Acknowledged] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """What one consumer read, partition by partition, from when it was opened. ``start``: where it
    was to begin, None at the beginning. ``committed``: what its name had committed before."""

    start: Mapping[int, int] | None
    committed: Mapping[int, int]
    rows: dict[Place, list[Row]] = field(default_factory=lambda: defaultdict(list))


@dataclass(slots=True)
class Reader:
    """A reader: one consumer after the other. ``committed``: by partition, as of now."""

    name: str
    topic: str
    way: str
    committed: dict[int, int] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    times: dict[Place, list[float]] = field(default_factory=lambda: defaultdict(list))


@dataclass(slots=True)
class FaultThatWas:
    """A fault with the times at which it began and was over. Was it ``in_force``? An order that
    failed is not, nor is the end of a daemon that had ended by itself."""

    kind: str
    what: str
    host: str
    begin_s: float
    end_s: float
    in_force: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A daemon that ended by itself, and the last that it said."""

    daemon: str
    code: int
    said: str
    at_s: float


@dataclass(slots=True)
class History:
    """All that was written down. ``log`` is what is there in the end, by partition."""

    senders: list[Sender] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    log: dict[Place, list[Row]] = field(default_factory=lambda: defaultdict(list))
    faults: list[FaultThatWas] = field(default_factory=list)
    cannot: set[str] = field(default_factory=set)
    calms: list[tuple[float, float]] = field(default_factory=list)
    placed: list[dict[str, list[int]]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)

    def add(self, entries: Iterable[dict[str, Any]]) -> None:
        """Add the entries of one file."""
        sender, reader = Sender("", ""), Reader("", "", "")
        for entry in entries:
            match entry["do"]:
                case "producer":
                    sender = Sender(entry["name"], entry["topic"])
                    self.senders.append(sender)
                case "sent":
                    sender.sent = entry["below"]
                case "acked":
                    sender.acknowledged += [
                        Acknowledged(sequence, (sender.topic, partition), offset, at_s)
                        for sequence, partition, offset, at_s in entry["rows"]
                    ]
                case "failed":
                    sender.failed.update(dict(entry["rows"]))
                case "reader":
                    reader = Reader(entry["name"], entry["topic"], entry["way"])
                    self.readers.append(reader)
                case "open":
                    start = None if entry["start"] is None else _offsets(entry["start"])
                    reader.sessions.append(Session(start, dict(reader.committed)))
                case "read":
                    place = (reader.topic, entry["partition"])
                    reader.sessions[-1].rows[place] += _rows(entry["rows"])
                    reader.times[place].append(entry["t"])
                case "committed":
                    reader.committed |= _offsets(entry["offsets"])
                case "error":
                    reader.errors.append(entry["error"])
                case _:
                    self._add_of_run(entry)

    def _add_of_run(self, entry: dict[str, Any]) -> None:
        match entry["do"]:
            case "log":
                self.log[entry["topic"], entry["partition"]] += _rows(entry["rows"])
            case "fault":
                self.faults.append(
                    FaultThatWas(
                        entry["kind"],
                        entry["what"],
                        entry["host"],
                        entry["begin"],
                        entry["end"],
                        entry["in_force"],
                    )
                )
            case "cannot":
                self.cannot.add(entry["kind"])
            case "calm":
                self.calms.append((entry["begin"], entry["end"]))
            case "placed":
                self.placed.append(entry["replicas"])
            case "ended":
                self.ended.append(Ended(entry["daemon"], entry["code"], entry["said"], entry["t"]))
            case _:
                pass


def _offsets(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def _rows(rows: Sequence[Sequence[Any]]) -> list[Row]:
    return [(offset, RecordId(producer, sequence)) for offset, producer, sequence in rows]
