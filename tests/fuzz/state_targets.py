"""What clients share through a log: the records of the topic ``_positions``."""

from __future__ import annotations

from runnel.positions.state import (
    Opened,
    Positions,
    PositionsState,
    Update,
    commit,
    forget,
    open_reading,
    readings,
    uncommitted,
)
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import time_of
from runnel.state_log.fold import Entry, StateFold
from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.wire.record_requests import FetchRequest
from tests.fuzz.law import Rejected, options
from tests.unit.spu.builders import UID


def positions(data: bytes) -> None:
    """The records of one partition, a line each; the first byte is the log start.

    What is folded can be used: a snapshot of it says the same, each position can be read from,
    each time be shown, and every reading be taken over, committed and forgotten.
    """
    start, data = options(data)
    fold: StateFold[Positions, Update] = StateFold(PositionsState())
    fold.restart(start)
    try:
        for offset, value in enumerate(data.splitlines(), start):
            fold.take(offset, Entry.unpack(value), len(value))
    except (CorruptBatchError, UnsupportedError) as error:
        raise Rejected from error
    written = Entry.unpack(fold.snapshot("id").pack())
    again: StateFold[Positions, Update] = StateFold(PositionsState())
    again.restart(fold.position + 1)
    again.take(fold.position + 1, written, 1)
    assert again.state == fold.state
    for _name, _topic, reading in readings(fold.state):
        time_of(reading.since_us)
        for at in reading.positions.values():
            time_of(at.at_us)
            FetchRequest(UID, at.offset, 1, 1, 1, at.term).pack()
        uncommitted(reading, reading.topic_uid, range(4))
    for name in list(again.state):
        for topic in list(again.state[name]):
            _taken_over(again, name, topic)
    assert not again.state


def _taken_over(fold: StateFold[Positions, Update], name: str, topic: str) -> None:
    uid = fold.state[name][topic].topic_uid
    opened = Opened(name, topic, uid, 4, "mine", "me", 1, {0: 5, 1: 6})
    _appended(fold, open_reading(fold.state, opened))
    places = {0: OffsetAndTerm(7, 3), 9: OffsetAndTerm(1)}
    _appended(fold, commit(fold.state, name, topic, "mine", places, 2, close=True))
    assert fold.state[name][topic].session is None
    _appended(fold, forget(fold.state, name, topic))


def _appended(fold: StateFold[Positions, Update], updates: tuple[Update, ...]) -> None:
    entry = Entry.unpack(fold.entry("id", updates).pack())
    fold.take(fold.position, entry, 1)
