"""A log that no SPU has open: what its directory holds, and whether it is whole.

Reading never changes the directory; only recovery does. The checkpoint says what must be there:
damage above the durable end is a torn tail, which the next start of the SPU cuts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from schemas.wire.batch import NO_TRANSACTION
from spu.replication.history import TermStart
from spu.storage.checkpoint import CHECKPOINT_NAME, Checkpoint, read_checkpoint
from spu.storage.index import is_of_earlier_version, read_index
from spu.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Damage, Segment, segment_bases
from spu.storage.verification import TO_THE_END, Problem, Severity, Verification

_STEP_BYTES: Final = 8 << 20

#: Called with the bytes that were verified, and the bytes in total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class StoppedLog:
    """The segments of a directory. Indexes are read from their files; that of the last segment may
    cover only a part of it."""

    directory: Path
    segments: tuple[Segment, ...]
    checkpoint: Checkpoint | None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


def open_stopped(directory: Path) -> StoppedLog:
    """Read a partition's directory. Raises OSError."""
    bases = segment_bases(directory)
    segments = []
    for base, end in zip(bases, [*bases[1:], TO_THE_END], strict=False):
        segment = Segment(str(directory), base, end)
        found = os.stat(segment.path)
        segment.size = found.st_size
        segment.written_us = segment.opened_us = found.st_mtime_ns // 1000
        if end != TO_THE_END:
            segment.completed_us, segment.index = segment.written_us, None
        segments.append(segment)
    return StoppedLog(directory, tuple(segments), read_checkpoint(directory))


def is_partition_directory(path: Path) -> bool:
    """Whether a directory holds a checkpoint or segments."""
    return (path / CHECKPOINT_NAME).exists() or (path.is_dir() and bool(segment_bases(path)))


def describe(log: StoppedLog) -> dict[str, Any]:
    """Meta, checkpoint, segments and indexes as JSON. Raises OSError."""
    return {
        "directory": str(log.directory),
        "meta": _meta(log.directory),
        "checkpoint": _checkpoint(log.checkpoint),
        "segments": [_segment(segment) for segment in log.segments],
        "otherFiles": sorted(
            name
            for name in os.listdir(log.directory)
            if not name.endswith((LOG_SUFFIX, INDEX_SUFFIX))
            and name not in {"meta.json", CHECKPOINT_NAME}
        ),
    }


def verify_stopped(log: StoppedLog, progress: Progress) -> Verification:
    """Verify a whole log, also after damage. Never raises for what the disk holds."""
    verification = Verification(TO_THE_END)
    while not verification.finished:
        try:
            verification.advance(log, _STEP_BYTES)
        except (Damage, OSError) as error:
            problem = verification.problem_of(error)
            durable = 0 if log.checkpoint is None else log.checkpoint.durable_leo
            if log.checkpoint is not None and verification.offset >= durable:
                reason = f"{problem.reason}; behind the durable end: the next start cuts it"
                problem = replace(problem, reason=reason, severity=Severity.NOTE)
            verification.note(problem)
            verification.skip()
        progress(verification.checked_bytes, log.size_bytes)
    verification.close()
    if log.checkpoint is not None:
        _compare(log.checkpoint, log, verification)
    return verification


def _compare(checkpoint: Checkpoint, log: StoppedLog, verification: Verification) -> None:
    """Note what the checkpoint says must be there, and is not."""
    last = log.segments[-1:]
    first = log.segments[0].base_offset if log.segments else checkpoint.log_start
    end = verification.offset if log.segments else checkpoint.log_start
    if first > checkpoint.log_start:
        reason = f"the log begins at offset {checkpoint.log_start}, but its files at {first}"
        verification.note(Problem(CHECKPOINT_NAME, 0, reason))
    damaged = {one.file for one in verification.problems if one.severity is Severity.DAMAGE}
    # If the last segment is damaged, that says it already.
    if end < checkpoint.durable_leo and not damaged & {Path(one.path).name for one in last}:
        reason = f"offset {checkpoint.durable_leo - 1} was durable, but the files end at {end}"
        verification.note(Problem(CHECKPOINT_NAME, 0, reason))
    if checkpoint.cut_at is not None:
        reason = f"a cut at byte {checkpoint.cut_at} was begun; the next start finishes it"
        verification.note(Problem(CHECKPOINT_NAME, 0, reason, Severity.NOTE))


def _meta(directory: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((directory / "meta.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found


def _checkpoint(checkpoint: Checkpoint | None) -> dict[str, Any] | None:
    if checkpoint is None:
        return None
    return {
        "logStart": checkpoint.log_start,
        "durableEnd": checkpoint.durable_leo,
        "lac": checkpoint.lac,
        "segment": checkpoint.segment,
        "scanPosition": checkpoint.scan_position,
        "cutAt": checkpoint.cut_at,
        "producers": len(checkpoint.producers),
        "lastTransactionIdBeforeStart": None
        if checkpoint.id_before_start == NO_TRANSACTION
        else checkpoint.id_before_start,
        "history": [_term_start(one) for one in checkpoint.history],
    }


def _term_start(found: TermStart) -> dict[str, int]:
    term, start = found
    return {"term": term, "start": start}


def _segment(segment: Segment) -> dict[str, Any]:
    found = read_index(segment.index_path)
    index: dict[str, Any] | None = None
    if found is not None:
        summary, entries = found
        index = {
            "entries": len(entries.positions),
            "covered": summary.covered,
            "endOffset": summary.end_offset,
            "lastTransactionId": None
            if summary.max_transaction_id == NO_TRANSACTION
            else summary.max_transaction_id,
        }
    elif is_of_earlier_version(segment.index_path):
        index = {"ofEarlierVersion": True}
    elif segment.index_path.exists():
        index = {"damaged": True}
    return {
        "file": Path(segment.path).name,
        "baseOffset": segment.base_offset,
        "bytes": segment.size,
        "index": index,
    }


def as_json(log: StoppedLog, verification: Verification) -> dict[str, Any]:
    """What a verification found, as ``python -m spu.admin`` prints it."""
    return {
        "directory": str(log.directory),
        "meta": _meta(log.directory),
        "logStart": log.checkpoint.log_start if log.checkpoint else None,
        "end": verification.end,
        "segments": verification.segments,
        "indexes": verification.indexes,
        "batches": verification.batches,
        "records": verification.records,
        "checkedBytes": verification.checked_bytes,
        "problems": [problem.to_json() for problem in verification.problems],
    }
