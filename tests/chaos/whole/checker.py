"""Whether what clients were told is true, by all that was written down. Pure.

Nothing here depends on which faults there were: these promises hold always.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.whole.history import ADMITTED, History, Place, Reader, Row, Sender, Session
from tests.chaos.whole.values import RecordId

Log = Mapping[Place, Sequence[Row]]


class Broken(StrEnum):
    """Which promise was broken, as the report names it."""

    LOST = "acknowledged and not in the log"
    MOVED = "acknowledged at another offset"
    TWICE = "in the log twice"
    ORDER = "out of order in the log"
    FOREIGN = "in the log and never sent"
    TAKEN_BACK = "read and not in the log"
    CHANGED = "read as another record than the log has"
    SKIPPED = "passed over by a reader"
    REPEATED = "read twice or backwards by one consumer"
    MISPLACED = "a consumer began below where it was to begin"
    BACK = "read again under a name that had committed it"
    BEHIND = "not read in the end"
    ADMITTED = "a client was told that records are lost or damaged"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: which, and what exactly happened."""

    broken: Broken
    what: str

    def __str__(self) -> str:
        return f"{self.broken.value}: {self.what}"


def check(history: History) -> list[Violation]:
    """Everything that is wrong, in the order of `Broken`."""
    log = {place: sorted(rows, key=lambda row: row[0]) for place, rows in history.log.items()}
    found = [
        *_of_log(log, history.senders),
        *_of_acknowledgements(log, history.senders),
        *(v for reader in history.readers for v in _of_reader(log, reader)),
        *_of_errors(history),
    ]
    order = list(Broken)
    return sorted(found, key=lambda violation: order.index(violation.broken))


def _of_log(log: Log, senders: Sequence[Sender]) -> Iterator[Violation]:
    """Each record once, only what was sent, and in the order in which it was sent."""
    sent = {(sender.topic, sender.name): sender.sent for sender in senders}
    seen: dict[tuple[str, RecordId], tuple[Place, int]] = {}
    for place, rows in log.items():
        last: dict[str, int] = {}
        for offset, record in rows:
            if record.sequence >= sent.get((place[0], record.producer), 0):
                yield Violation(Broken.FOREIGN, f"{_at(place, offset)} {record}")
            before = seen.setdefault((place[0], record), (place, offset))
            if before != (place, offset):
                where = f"{_at(*before)} and {_at(place, offset)}"
                yield Violation(Broken.TWICE, f"{record} at {where}")
            elif record.sequence < last.get(record.producer, -1):
                where = f"{_at(place, offset)} {record}"
                yield Violation(Broken.ORDER, f"{where} after {last[record.producer]}")
            last[record.producer] = max(record.sequence, last.get(record.producer, -1))
    for place, rows in log.items():
        for (one, _), (other, record) in itertools.pairwise(rows):
            if one == other:
                yield Violation(Broken.TWICE, f"{_at(place, one)} holds {record} and another one")


def _of_acknowledgements(log: Log, senders: Sequence[Sender]) -> Iterator[Violation]:
    """Each acknowledged record is where its producer was told."""
    offsets = {place: dict(rows) for place, rows in log.items()}
    where = {
        (place[0], record): (place, offset)
        for place, rows in log.items()
        for offset, record in rows
    }
    for sender in senders:
        for told in sender.acknowledged:
            record = RecordId(sender.name, told.sequence)
            if offsets.get(told.place, {}).get(told.offset) == record:
                continue
            claimed = f"{record} acknowledged as {_at(told.place, told.offset)}"
            if (found := where.get((sender.topic, record))) is None:
                yield Violation(Broken.LOST, claimed)
            else:
                yield Violation(Broken.MOVED, f"{claimed}, it is {_at(*found)}")


def _of_reader(log: Log, reader: Reader) -> Iterator[Violation]:
    """Each consumer read a piece of the log without gaps; together they read it to its end."""
    offsets = {place: dict(rows) for place, rows in log.items()}
    index = {place: {row[0]: n for n, row in enumerate(rows)} for place, rows in log.items()}
    for session in reader.sessions:
        for place, rows in session.rows.items():
            known = offsets.get(place, {})
            right = [row for row in rows if known.get(row[0]) == row[1]]
            if len(right) < len(rows):
                yield from _wrong(reader, place, rows, known)
            if right:
                yield from _begun(reader, session, place, right[0])
                yield from _gaps(reader, session, place, right, index[place], log)
    if reader.sessions:
        yield from _not_read(log, reader)


def _wrong(
    reader: Reader, place: Place, rows: Sequence[Row], known: Mapping[int, RecordId]
) -> Iterator[Violation]:
    for offset, record in rows:
        where = f"{reader.name} read {_at(place, offset)} as {record}"
        if offset not in known:
            yield Violation(Broken.TAKEN_BACK, where)
        elif known[offset] != record:
            yield Violation(Broken.CHANGED, f"{where}, it is {known[offset]}")


def _begun(reader: Reader, session: Session, place: Place, row: Row) -> Iterator[Violation]:
    """No consumer begins below its start, nor below what was committed under its name."""
    offset, record = row
    partition = place[1]
    where = f"{reader.name}, {_at(place, offset)} {record}"
    if session.start is not None and offset < (start := session.start.get(partition, 0)):
        yield Violation(Broken.MISPLACED, f"{where}, it was to begin at {start}")
    if offset < (committed := session.committed.get(partition, 0)):
        yield Violation(Broken.BACK, f"{where}, {committed} was committed")


def _gaps(
    reader: Reader,
    session: Session,
    place: Place,
    rows: Sequence[Row],
    index: Mapping[int, int],
    log: Log,
) -> Iterator[Violation]:
    before = _before(session, place, rows[0][0], log[place])
    for offset, record in rows:
        now = index[offset]
        if now != before + 1:
            where = f"{reader.name}, {_at(place, offset)} {record}"
            if now <= before:
                yield Violation(Broken.REPEATED, where)
            else:
                missed = log[place][before + 1 : now]
                said = f"{where} without {len(missed)} before it, from {missed[0][0]} on"
                yield Violation(Broken.SKIPPED, said)
        before = now


def _before(session: Session, place: Place, first: int, rows: Sequence[Row]) -> int:
    """The index of the row before the one that a consumer was to begin with: the first one at its
    start or above. One without a start, or that began too low, begins where it did."""
    start = 0 if session.start is None else session.start.get(place[1], first)
    return bisect_left(rows, min(start, first), key=lambda row: row[0]) - 1


def _not_read(log: Log, reader: Reader) -> Iterator[Violation]:
    for place, rows in log.items():
        if place[0] != reader.topic:
            continue
        read = {offset for session in reader.sessions for offset, _ in session.rows.get(place, ())}
        missing = [offset for offset, _ in rows if offset not in read]
        if not missing:
            continue
        said = f"{reader.name}: {len(missing)} from {_at(place, missing[0])} on"
        passed = read and missing[0] < max(read)
        yield Violation(Broken.SKIPPED if passed else Broken.BEHIND, said)


def _of_errors(history: History) -> Iterator[Violation]:
    """Errors that no fault excuses."""
    for sender in history.senders:
        for number, error in sender.failed.items():
            if error.partition(":")[0] in ADMITTED:
                yield Violation(Broken.ADMITTED, f"{sender.name}:{number} {error}")
    for reader in history.readers:
        for error in reader.errors:
            if error.partition(":")[0] in ADMITTED:
                yield Violation(Broken.ADMITTED, f"{reader.name} {error}")


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"
