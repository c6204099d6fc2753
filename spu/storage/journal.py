"""The journal: what this SPU was told and promised, for all its replicas, in one file.

Terms, live replica sets, revisions, roles and assignments of thousands of partitions change
together (an election after a failure, a start), so they share one file: however many entries
change at once, they cost one write and one fsync. A write is one frame with one checksum: after
a crash it is there whole or it is a torn tail. A frame is only written once the one before it is
durable, hence a bad frame with a good one behind it is damage, and the SPU refuses to start on
it: to skip it could mean to use a term twice.

The file is rewritten atomically when most of it is out of date.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from schemas.batch import crc32c
from schemas.errors import StorageFailedError
from schemas.ids import PartitionUid
from schemas.messages import Assignment, Peer, Stamp
from spu.replication.state import Member, Members, Promise
from spu.storage.durable import replace_file, sync_directory, sync_file, write_all

_FRAME: Final = struct.Struct("<4sII")
_MAGIC: Final = b"RNLJ"
#: A journal smaller than this is never rewritten.
_COMPACT_ABOVE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What is known of one replica: what it promised, and what it is to hold."""

    uid: PartitionUid
    promise: Promise
    assigned: bool = True
    assignment: Assignment | None = None

    def to_json(self) -> dict[str, Any]:
        promise = self.promise
        return {
            "uid": self.uid,
            "storageId": promise.storage,
            "term": promise.term,
            "incarnation": promise.incarnation,
            "revision": promise.revision,
            "replicas": promise.replicas,
            "lrs": promise.lrs,
            "minInSync": promise.min_in_sync,
            "pending": promise.pending,
            "leading": promise.leading,
            "unfit": promise.unfit,
            "assigned": self.assigned,
            # None is a value here (no retention by time), so it is not left out.
            "assignment": self.assignment
            and self.assignment.model_dump(mode="json", by_alias=True),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The entry of `to_json`, or of an earlier version's."""
        row = data["assignment"]
        assignment = Assignment.model_validate(row) if row else None
        pending = data.get("pending")
        promise = Promise(
            storage=data["storageId"],
            term=data["term"],
            # Without these an earlier version wrote it, which knew no followers.
            incarnation=data.get("incarnation", 0),
            revision=data["revision"],
            replicas=tuple(data.get("replicas", assignment.replicas if assignment else ())),
            lrs=_members(data["lrs"]),
            min_in_sync=data.get(
                "minInSync", assignment.log.min_in_sync_replicas if assignment else 1
            ),
            pending=None if pending is None else _members(pending),
            leading=data["leading"],
            unfit=data["unfit"],
        )
        return cls(
            uid=PartitionUid(data["uid"]),
            promise=promise,
            assigned=data["assigned"],
            assignment=assignment,
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """The highest KV revision this SPU has heard of, and the reign it came from."""

    revision: int
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class JournalChange:
    """Entries to set, uids to forget, the newest revision seen, if it is newer, and where peers
    listen."""

    entries: tuple[JournalEntry, ...] = ()
    removed: tuple[PartitionUid, ...] = ()
    seen: Seen | None = None
    peers: tuple[Peer, ...] = ()


class Journal:
    """An open journal. Calls block on the disk and must not overlap."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.entries: dict[PartitionUid, JournalEntry] = {}
        self.peers: dict[int, Peer] = {}
        self.seen: Seen | None = None
        self._fd = fd
        self._size = 0
        self._compacted_size = 0
        self._failure: str | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the journal, cut a torn tail. Raises StorageFailedError on damage before it, and
        for entries that cannot be understood."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        journal = cls(path, fd)
        try:
            journal._load(path.read_bytes())
            sync_directory(path.parent)
        except BaseException:
            os.close(fd)
            raise
        return journal

    def append(self, changes: Iterable[JournalChange]) -> None:
        """Make all of ``changes`` durable with one write and one fsync.

        Raises StorageFailedError; after that every later call fails too, as nobody can say
        what the file holds.
        """
        if self._failure is not None:
            raise StorageFailedError(self._failure)
        rows: list[dict[str, Any]] = []
        for change in changes:
            rows.extend(entry.to_json() for entry in change.entries)
            rows.extend({"removed": uid} for uid in change.removed)
            rows.extend({"peer": peer.to_json()} for peer in change.peers)
            if change.seen is not None:
                rows.append(_seen_row(change.seen))
        if not rows:
            return
        frame = _frame(rows)
        try:
            write_all(self._fd, frame, self._size)
            sync_file(self._fd)
            self._size += len(frame)
            self._apply(rows)
            if self._size > max(_COMPACT_ABOVE_BYTES, 4 * self._compacted_size):
                self._compact()
        except OSError as error:
            self._failure = f"{self.path}: {error.strerror}; the SPU must be restarted"
            raise StorageFailedError(self._failure) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load(self, data: bytes) -> None:
        at = 0
        while (body := _read_frame(data, at)) is not None:
            try:
                self._apply(json.loads(body))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise StorageFailedError(
                    f"{self.path} holds at byte {at} what no version of this SPU writes"
                    f" ({type(error).__name__}: {error}); restore the file, or replace this SPU's"
                    " log directory by an empty one"
                ) from error
            at += _FRAME.size + len(body)
        self._size = at
        if at == len(data):
            return
        behind = data.find(_MAGIC, at + 1)
        while behind >= 0:
            if _read_frame(data, behind) is not None:
                raise StorageFailedError(
                    f"{self.path} is damaged at byte {at}: valid entries follow at byte {behind};"
                    " restore the file, or replace this SPU's log directory by an empty one"
                )
            behind = data.find(_MAGIC, behind + 1)
        os.ftruncate(self._fd, at)
        sync_file(self._fd)

    def _apply(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if "removed" in row:
                self.entries.pop(row["removed"], None)
            elif "peer" in row:
                peer = Peer.model_validate(row["peer"])
                self.peers[peer.spu_id] = peer
            elif "seen" in row:
                self.seen = Seen(row["seen"], Stamp.model_validate(row["stamp"]))
            else:
                self.entries[row["uid"]] = JournalEntry.from_json(row)

    def _compact(self) -> None:
        rows = [entry.to_json() for entry in self.entries.values()]
        rows += [{"peer": peer.to_json()} for peer in self.peers.values()]
        if self.seen is not None:
            rows.append(_seen_row(self.seen))
        frame = _frame(rows)
        replace_file(self.path, frame)
        os.close(self._fd)
        self._fd = -1
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._size = self._compacted_size = len(frame)


def _members(rows: Iterable[Iterable[Any]]) -> Members:
    return tuple(Member(*row) for row in rows)


def _seen_row(seen: Seen) -> dict[str, Any]:
    return {"seen": seen.revision, "stamp": seen.stamp.to_json()}


def _frame(rows: list[dict[str, Any]]) -> bytes:
    body = json.dumps(rows, separators=(",", ":")).encode()
    return _FRAME.pack(_MAGIC, len(body), crc32c(body)) + body


def _read_frame(data: bytes, at: int) -> bytes | None:
    """What the frame at ``at`` holds; None where no whole, valid frame stands there.

    Every frame holds something: zeros behind the magic, as a torn write leaves them where a block
    ends there, have a checksum that fits.
    """
    if len(data) - at < _FRAME.size:
        return None
    magic, length, stored = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    if magic != _MAGIC or not 0 < length <= len(data) - start:
        return None
    body = data[start : start + length]
    return body if crc32c(body) == stored else None
