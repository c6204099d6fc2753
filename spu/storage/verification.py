"""Checks a log against its checksums and indexes, piece by piece, even while the log is in use.

`Verification.advance` continues where it stopped: it verifies both CRCs of every batch, that
offsets follow each other and terms do not fall, that each segment is as long as it should be, and
that every index entry leads to its batch. It knows nothing of threads, pauses and replicas: the
caller decides how much is read at once (`spu.server.verifications` for a replica that serves,
`spu.admin` for a directory that no SPU uses).

Damaged records end it; the caller decides what that means. An index is only a shortcut: a damaged
one is noted and built again from the log, which was verified just before. A file may be cut or
deleted during the check: the segment is looked up again before a problem counts.

Equal logs have equal digests: a digest covers the first 28 bytes of every batch header. The
leader's CRC in them covers offset, term and the client's CRC, and that covers everything else.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from schemas.errors import NotReadyError
from schemas.wire.batch import BatchHeader
from spu.storage.checkpoint import CHECKPOINT_NAME, read_checkpoint
from spu.storage.index import SparseIndex, is_of_earlier_version, read_index, write_index
from spu.storage.segment import Damage, Segment, scan

DIGEST_BYTES: Final = 16
#: Problems beyond this number are only counted.
MAX_PROBLEMS: Final = 100
_DIGESTED: Final = struct.Struct("<IIqQI")
#: For a log that no SPU has open: verify to the end of its files.
TO_THE_END: Final = (1 << 63) - 1


class Severity(StrEnum):
    """What a finding means."""

    DAMAGE = "damage"
    #: What a crash or an older version leaves behind, and what the SPU repairs by itself.
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be. ``file`` is a name within the directory, or a whole
    path; ``position`` a byte in it. ``rebuilt``: an index that is in order again."""

    file: str
    position: int
    reason: str
    severity: Severity = Severity.DAMAGE
    rebuilt: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "position": self.position,
            "reason": self.reason,
            "severity": self.severity.value,
            "rebuilt": self.rebuilt,
        }


class VerifiableLog(Protocol):
    """A log to verify: `spu.storage.log.PartitionLog`, or a log that no SPU has open."""

    @property
    def directory(self) -> Path: ...

    @property
    def segments(self) -> Sequence[Segment]: ...


@dataclass(slots=True)
class Verification:
    """One pass over a log up to ``end``, an offset between two batches, or `TO_THE_END` of files.

    Batches from ``compare_from`` on and below ``compare_upto`` go into the digest. Call `close`
    at the end; between two calls of `advance` a file may be open.
    """

    end: int
    compare_from: int = 0
    compare_upto: int = 0
    #: The next offset to verify; -1 before it began.
    offset: int = field(default=-1, init=False)
    segments: int = field(default=0, init=False)
    indexes: int = field(default=0, init=False)
    batches: int = field(default=0, init=False)
    records: int = field(default=0, init=False)
    checked_bytes: int = field(default=0, init=False)
    compared_from: int = field(default=-1, init=False)
    problems: list[Problem] = field(default_factory=list, init=False)
    #: Everything up to ``end`` was checked, or damage ended the verification.
    finished: bool = field(default=False, init=False)
    _digest: Any = field(init=False)
    #: The segment in progress, its file, and what is left to verify of it.
    _segment: Segment | None = field(default=None, init=False)
    _file: BinaryIO | None = field(default=None, init=False)
    _batches: Iterator[tuple[int, BatchHeader]] | None = field(default=None, init=False)
    #: That segment as its records describe it, with the index that follows from them.
    _seen: Segment = field(init=False)
    _term: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._seen = Segment("", 0, 0)

    @property
    def digest(self) -> bytes:
        """A digest of `DIGEST_BYTES` bytes over the batches compared so far."""
        found: bytes = self._digest.digest()
        return found

    def advance(self, log: VerifiableLog, max_bytes: int) -> None:
        """Verify about ``max_bytes`` more (at least one batch). Blocks on the disk.

        Raises Damage of records and OSError of the log as it is now, NotReadyError if the log was
        cut below what was verified or is still to be verified.
        """
        if self.offset < 0:
            self._begin(log)
        goal = self.checked_bytes + max_bytes
        while not self.finished and self.checked_bytes < goal:
            segment = self._find(log)
            if segment is None:
                self.finished = True
                return
            try:
                if self.offset < min(segment.end_offset, self.end):
                    self._scan(segment, goal)
                if self.offset >= min(segment.end_offset, self.end):
                    self._complete(log, segment)
            except (Damage, OSError):
                self.close()
                if segment in log.segments:
                    raise
                # The segment was cut or deleted during the scan: `_find` looks it up again.

    def note(self, problem: Problem) -> None:
        """Keep a problem, as long as there are not too many to show."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def fail(self, error: Damage | OSError) -> None:
        """End the verification with damage that `advance` raised."""
        self.note(self.problem_of(error))
        self.finished = True
        self._leave()

    def problem_of(self, error: Damage | OSError) -> Problem:
        """The problem that an error of `advance` describes, in the segment it came from."""
        path = self._segment.path if self._segment is not None else ""
        if isinstance(error, Damage):
            reason = str(error).removeprefix(f"{path} at byte {error.position}: ")
            return Problem(Path(path).name, error.position, reason)
        reason = error.strerror or str(error)
        return Problem(Path(path or str(error.filename)).name, self._seen.size, reason)

    def skip(self) -> None:
        """Go on after the current segment, which is damaged."""
        if self._segment is None or self._segment.end_offset >= self.end:
            self.end = self.offset
        else:
            self.offset = self._segment.end_offset
        self._leave()

    def close(self) -> None:
        """Close the file."""
        self._batches = None
        if self._file is not None:
            self._file.close()
            self._file = None

    # How

    def _begin(self, log: VerifiableLog) -> None:
        segments = log.segments
        if not segments and self.end == TO_THE_END:
            self.end = 0
        self.offset = segments[0].base_offset if segments else self.end
        # Checked twice, because it may be replaced while it is read.
        if read_checkpoint(log.directory) is None and read_checkpoint(log.directory) is None:
            reason = "is missing, or its checksum does not match"
            self.note(Problem(CHECKPOINT_NAME, 0, reason))

    def _find(self, log: VerifiableLog) -> Segment | None:
        """The segment to go on with, as the log has it now; None at the end."""
        segments = log.segments
        if self._segment is not None:
            if self._segment in segments:
                return self._segment
            self._leave()
            if segments and self.offset > segments[0].base_offset:
                raise NotReadyError(
                    f"the log was cut near offset {self.offset} while it was verified; try again"
                )
        if segments and self.offset < segments[0].base_offset:
            # Retention removed what was to be verified next.
            self.offset = segments[0].base_offset
        if self.offset >= self.end:
            return None
        for segment in segments:
            if segment.base_offset == self.offset < segment.end_offset:
                self._segment = segment
                self._seen = Segment(segment.directory, segment.base_offset, segment.base_offset)
                self.segments += 1
                return segment
        if self.end == TO_THE_END:
            return None
        raise NotReadyError(f"the log no longer reaches offset {self.offset}; try again")

    def _scan(self, segment: Segment, goal: int) -> None:
        seen, end = self._seen, min(segment.end_offset, self.end)
        if self._batches is None:
            file = self._file = open(segment.path, "rb", buffering=0)  # noqa: SIM115
            self._batches = scan(file.fileno(), segment.path, seen.size, self.offset, self._term)
        for position, header in self._batches:
            if header.next_offset > segment.end_offset:
                raise Damage(
                    segment.path,
                    position,
                    f"holds offset {header.next_offset - 1}, but the next segment begins at"
                    f" {segment.end_offset}",
                )
            seen.note(header, header.base_offset)
            self._account(header)
            if self.offset >= end or self.checked_bytes >= goal:
                return
        if end == TO_THE_END:
            self.end = self.offset
            return
        raise Damage(
            segment.path, seen.size, f"the file ends at offset {self.offset}, not at {end}"
        )

    def _account(self, header: BatchHeader) -> None:
        self.batches += 1
        self.checked_bytes += header.length
        if not header.is_control:
            self.records += header.record_count
        self.offset = header.next_offset
        self._term = header.term
        if header.base_offset >= self.compare_from and header.next_offset <= self.compare_upto:
            if self.compared_from < 0:
                self.compared_from = header.base_offset
            self._digest.update(
                _DIGESTED.pack(
                    header.leader_crc,
                    header.client_crc,
                    header.base_offset,
                    header.term,
                    header.length,
                )
            )

    def _complete(self, log: VerifiableLog, segment: Segment) -> None:
        """Finish a segment, all of which was verified."""
        behind = segment.size - self._seen.size if segment.completed_us else 0
        if behind and self.offset == segment.end_offset:
            raise Damage(segment.path, self._seen.size, f"{behind} bytes follow the last batch")
        self._check_index(log, segment)
        self._leave()

    def _leave(self) -> None:
        self._segment = None
        self.close()

    # Indexes

    def _check_index(self, log: VerifiableLog, segment: Segment) -> None:
        """Compare the index file with the segment, which was verified up to `_seen`."""
        path, seen = segment.index_path, self._seen
        # The SPU has the index of a segment in progress in memory, and may write it at any time.
        is_settled = segment.index is None and seen.size == segment.size
        found = read_index(path) or (read_index(path) if path.exists() else None)
        if found is None and not path.exists():
            if is_settled and segment in log.segments:
                self._rebuild(segment, "is missing", Severity.NOTE)
            return
        self.indexes += 1
        if found is None and is_of_earlier_version(path):
            problem, severity = "is of an earlier version", Severity.NOTE
        elif found is None:
            problem, severity = "its checksum does not match", Severity.DAMAGE
        elif is_settled and found[0].covered != seen.size:
            problem = f"it covers {found[0].covered} bytes of a log of {seen.size}"
            severity = Severity.NOTE
        elif not _agree(found[1], seen.index, min(found[0].covered, seen.size)):
            problem, severity = "its entries are not those of the log", Severity.DAMAGE
        else:
            return
        if segment not in log.segments:
            return
        if is_settled:
            self._rebuild(segment, problem, severity)
        else:
            replaced = f"{problem}; it is replaced when the next checkpoint is written"
            self.note(Problem(path.name, 0, replaced, severity))

    def _rebuild(self, segment: Segment, problem: str, severity: Severity) -> None:
        name, index = segment.index_path.name, self._seen.index or SparseIndex()
        try:
            write_index(segment.index_path, segment.summary(), index.to_bytes())
        except FileNotFoundError:
            # A reader has just built it again, or the segment is being deleted.
            self.note(Problem(name, 0, problem, severity))
        except OSError as error:
            failed = f"{problem}; it cannot be built again: {error.strerror}"
            self.note(Problem(name, 0, failed, severity))
        else:
            self.note(Problem(name, 0, f"{problem}; built again", severity, rebuilt=True))


def _agree(one: SparseIndex, other: SparseIndex | None, size: int) -> bool:
    """Whether two indexes agree about the first ``size`` bytes."""
    if other is None:
        return False
    first, second = (SparseIndex.from_bytes(index.to_bytes()) for index in (one, other))
    first.cut(size)
    second.cut(size)
    return first.to_bytes() == second.to_bytes()
