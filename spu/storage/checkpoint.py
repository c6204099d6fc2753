"""The checkpoint of a log: what was durable when it was written, and where to scan from.

It never claims more than the disk holds: its values are taken before an fsync and written after
it. It points a little back: recovery verifies the last stretch below the durable point again,
so that damage there is noticed before the log is served. A log without a readable checkpoint
has lost its durable point; recovery then accepts nothing but an undamaged log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schemas.errors import StorageFailedError
from spu.producers import ProducerDump, ProducerTable
from spu.storage.durable import read_document, write_document
from spu.storage.segment import Segment

CHECKPOINT_NAME: Final = "checkpoint"
#: How much of what is durable already recovery verifies again.
VERIFY_AGAIN_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets are absolute; ``segment`` is a base offset, ``scan_position`` a byte in it.

    ``durable_leo`` is the offset after the last durable record, ``lac`` the last committed one
    known then (never above it), ``last_term`` the term of the last durable record, ``opened_us``
    when the segment got its first batch, ``producers`` the dump of the producer table as of
    ``durable_leo``.
    """

    log_start: int = 0
    segment: int = 0
    scan_position: int = 0
    scan_offset: int = 0
    durable_leo: int = 0
    lac: int = -1
    last_term: int = 0
    opened_us: int = 0
    producers: ProducerDump = ()


def checkpoint_of(
    active: Segment | None, *, log_start: int, lac: int, last_term: int, producers: ProducerTable
) -> Checkpoint:
    """A checkpoint at the end of ``active`` as it is now. True once that much is durable."""
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
        last_term=last_term,
        opened_us=active.opened_us,
        producers=producers.dump(),
    )


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint durably. The caller has made durable what it claims."""
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
            "lastTerm": checkpoint.last_term,
            "openedUs": checkpoint.opened_us,
            "producers": checkpoint.producers,
        },
    )


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The checkpoint; None where it is missing, damaged or of another version."""
    try:
        data = read_document(directory / CHECKPOINT_NAME)
    except StorageFailedError:
        return None
    if data is None or data.get("version") != 1:
        return None
    return Checkpoint(
        log_start=data["logStart"],
        segment=data["segment"],
        scan_position=data["scanPosition"],
        scan_offset=data["scanOffset"],
        durable_leo=data["durableLeo"],
        lac=data["lac"],
        last_term=data["lastTerm"],
        opened_us=data["openedUs"],
        producers=tuple(_producer(row) for row in data["producers"]),
    )


def _producer(row: list[Any]) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
    producer_id, epoch, batches = row
    return producer_id, epoch, tuple((a, b, c) for a, b, c in batches)
