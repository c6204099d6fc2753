"""Logs of a few small batches in small segments, and all that there is to compare of one."""

from __future__ import annotations

from pathlib import Path

from schemas.wire.batch import set_offset_and_term
from tests.unit.spu.builders import OpenLog, batch_of, open_log, settings_of

SIZE = 128
SMALL = settings_of(segment=1 << 10)
PRODUCER = 7
#: Three terms, three batches of two records each, 128 bytes a batch.
TERMS = "111222333"


def stamped(base: int, term: int, count: int = 1) -> bytearray:
    """A batch as a leader sends it."""
    batch = batch_of(count)
    set_offset_and_term(batch, base, term)
    return batch


def state_of(opened: OpenLog) -> tuple[object, ...]:
    """All that a log is: bounds, terms, producers, bytes."""
    log = opened.log
    data = bytearray()
    offset = log.log_start
    while offset < log.leo:
        found = log.read(offset, 1 << 20, log.leo, wait=True)
        data += found.data
        offset = found.next_offset
    return log.log_start, log.leo, log.history, log.producers.dump(), bytes(data)


def reopened(path: Path) -> tuple[object, ...]:
    """The state of a log after another start, which must find it fit."""
    opened = open_log(path, SMALL)
    assert opened.found.unfit is None, opened.found.unfit
    state = state_of(opened)
    opened.crash()
    return state


def fill(opened: OpenLog, terms: str, *, synced: int = 0, lac: int = -1) -> None:
    """A batch of two records for every digit, its term; ``synced`` of them with a checkpoint."""
    first = opened.log.leo // 2
    for number, term in enumerate(terms, first):
        opened.append(batch_of(2, producer_id=PRODUCER, sequence=number), term=int(term))
        if number - first + 1 == synced:
            opened.sync(lac=lac, checkpoint=True)
