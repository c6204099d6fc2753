"""The checkpoint of a log: what was durable when it was written, and where to scan from.

It never claims more than the disk holds: its values are taken before an fsync and written after
it. Its scan position is a little before the durable end: recovery verifies the last stretch below
that end again, so that damage there is noticed before the log is served. Without a readable
checkpoint, nobody knows what was durable; recovery then accepts only an undamaged log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

from schemas.errors import StorageFailedError
from schemas.wire.batch import MAX_OFFSET, MAX_TRANSACTION_ID, NO_TRANSACTION
from spu.replication.history import History, TermStart
from spu.replication.producer_state import (
    NO_PRODUCERS,
    ProducerDump,
    ProducerSnapshot,
    dump_from,
    split_last_id,
)
from spu.storage.durable import read_document, write_document
from spu.storage.segment import Segment

CHECKPOINT_NAME: Final = "checkpoint"
#: How many durable bytes recovery verifies again.
VERIFY_AGAIN_BYTES: Final = 256 << 10
_NUMBERS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets are absolute; ``segment`` is a base offset, ``scan_position`` a byte in it.

    ``id_before_start`` is the last transaction id of the records below ``log_start``.
    ``durable_leo`` is the offset after the last durable record, ``lac`` the last offset known to be
    committed then (never above that), ``history`` the terms up to ``durable_leo`` with that of the
    record before ``log_start``, ``opened_us`` when the segment got its first batch, ``producers``
    the dump of the producer table as of ``durable_leo``, ``settled`` that table at an earlier
    offset, below which only an unclean election can cut.

    ``sealed`` is the offset of the control record that seals the log, None while it is open.

    ``cut_at`` is set while files may hold more than the log: the log ends at this byte of
    ``segment``. ``history_known`` is False if an earlier version wrote the checkpoint: ``history``
    then holds only the last term.
    """

    log_start: int = 0
    segment: int = 0
    scan_position: int = 0
    scan_offset: int = 0
    durable_leo: int = 0
    lac: int = -1
    id_before_start: int = NO_TRANSACTION
    history: History = ()
    opened_us: int = 0
    producers: ProducerDump = ()
    settled: ProducerSnapshot = NO_PRODUCERS
    cut_at: int | None = None
    history_known: bool = True
    sealed: int | None = None


def checkpoint_of(
    active: Segment | None,
    *,
    log_start: int,
    id_before_start: int,
    lac: int,
    history: History,
    producers: ProducerDump,
    settled: ProducerSnapshot,
    sealed: int | None,
) -> Checkpoint:
    """A checkpoint at the current end of ``active``. It holds once that much is durable."""
    if active is None:
        return Checkpoint()
    entry = None
    if active.index is not None and active.size > VERIFY_AGAIN_BYTES:
        entry = active.index.entry_before(active.size - VERIFY_AGAIN_BYTES)
    scan_offset, scan_position = entry or (active.base_offset, 0)
    return Checkpoint(
        log_start=log_start,
        segment=active.base_offset,
        scan_position=scan_position,
        scan_offset=scan_offset,
        durable_leo=active.end_offset,
        lac=min(lac, active.end_offset - 1),
        id_before_start=id_before_start,
        history=history,
        opened_us=active.opened_us,
        producers=producers,
        settled=settled,
        sealed=sealed,
    )


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint durably. The caller has already made durable what it claims."""
    write_document(
        directory / CHECKPOINT_NAME,
        {
            "version": 1,
            "logStart": checkpoint.log_start,
            "segment": checkpoint.segment,
            "scanPosition": checkpoint.scan_position,
            "scanOffset": checkpoint.scan_offset,
            "durableLeo": checkpoint.durable_leo,
            "lac": checkpoint.lac,
            "idBeforeStart": checkpoint.id_before_start,
            "history": checkpoint.history,
            "openedUs": checkpoint.opened_us,
            "producers": checkpoint.producers,
            # Usually everything is committed, and the two tables are the same.
            "settled": None
            if checkpoint.settled == (checkpoint.durable_leo, checkpoint.producers)
            else checkpoint.settled,
            "cutAt": checkpoint.cut_at,
            "sealed": checkpoint.sealed,
        },
    )


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The checkpoint; None if it is missing, damaged, of another version, or impossible. It is
    checked with care because it decides what recovery deletes. Raises OSError."""
    try:
        data = read_document(directory / CHECKPOINT_NAME)
        if data is None or data["version"] != 1:
            return None
        found = _parsed(data)
    except (StorageFailedError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return found if _is_possible(found) else None


def _parsed(data: dict[str, Any]) -> Checkpoint:
    durable_leo = data["durableLeo"]
    # An earlier version took the last id for a producer's, and wrote it as a producer.
    producers, told_id = split_last_id(dump_from(data["producers"]))
    settled = data.get("settled", NO_PRODUCERS)
    return Checkpoint(
        log_start=data["logStart"],
        segment=data["segment"],
        scan_position=data["scanPosition"],
        scan_offset=data["scanOffset"],
        durable_leo=durable_leo,
        lac=data["lac"],
        id_before_start=data.get("idBeforeStart", told_id),
        history=_history(data),
        opened_us=data["openedUs"],
        producers=producers,
        settled=ProducerSnapshot(durable_leo, producers)
        if settled is None
        else ProducerSnapshot(settled[0], split_last_id(dump_from(settled[1]))[0]),
        cut_at=data.get("cutAt"),
        history_known="history" in data,
        sealed=data.get("sealed"),
    )


def _is_possible(checkpoint: Checkpoint) -> bool:
    """Whether all fields are numbers, and offsets and terms in an order that a log can have."""
    history = checkpoint.history
    cut_at = 0 if checkpoint.cut_at is None else checkpoint.cut_at
    sealed = checkpoint.log_start if checkpoint.sealed is None else checkpoint.sealed
    last_id = checkpoint.id_before_start
    signed = [checkpoint.lac, checkpoint.opened_us, last_id, *(entry.start for entry in history)]
    unsigned = [
        checkpoint.log_start,
        checkpoint.segment,
        checkpoint.scan_position,
        checkpoint.scan_offset,
        checkpoint.durable_leo,
        checkpoint.settled.leo,
        cut_at,
        sealed,
        *(entry.term for entry in history),
        *_numbers(checkpoint.producers),
        *_numbers(checkpoint.settled.dump),
    ]
    return (
        all(type(number) is int and abs(number) < _NUMBERS for number in signed)
        and all(type(number) is int and 0 <= number < _NUMBERS for number in unsigned)
        and checkpoint.segment <= checkpoint.scan_offset <= checkpoint.durable_leo <= MAX_OFFSET
        and checkpoint.log_start <= checkpoint.durable_leo
        and (checkpoint.sealed is None or checkpoint.log_start <= sealed < checkpoint.durable_leo)
        and NO_TRANSACTION <= last_id <= MAX_TRANSACTION_ID
        # A segment begins with its first record, and a scan begins before the durable end.
        and (
            checkpoint.scan_offset < checkpoint.durable_leo
            if checkpoint.scan_position
            else checkpoint.scan_offset == checkpoint.segment
        )
        and all(a.term < b.term and a.start < b.start for a, b in pairwise(history))
        and all(entry.start < checkpoint.durable_leo for entry in history)
    )


def _numbers(dump: ProducerDump) -> Iterator[int]:
    for producer_id, epoch, batches in dump:
        yield producer_id
        yield epoch
        yield from chain.from_iterable(batches)


def _history(data: dict[str, Any]) -> History:
    if "history" in data:
        return tuple(TermStart(term, start) for term, start in data["history"])
    if data["lastTerm"]:
        return (TermStart(data["lastTerm"], data["durableLeo"] - 1),)
    return ()
