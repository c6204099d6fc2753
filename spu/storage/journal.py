"""The journal: the SC's assignments, and the hard state of all replicas of this SPU, in one file.

Terms, live replica sets, revisions, roles and assignments of thousands of partitions change
together (an election after a failure, a start), so they share one file: however many entries
change at once, they cost one write and one fsync. A write is one frame with one checksum: after
a crash, the file holds the whole frame, or the frame is a torn tail. A frame is written only once
the frame before it is durable. So a bad frame with a good one behind it is damage, and the SPU
refuses to start: skipping it might mean to use a term twice.

The file is rewritten atomically when most of it is out of date. A change that a full disk refused
is not in the journal, and later ones may succeed: what a failed write left is cut off, and after
a failed fsync, when nobody knows what the file holds, the next change begins with another file. Any
other error of the disk ends the use of the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from schemas.control.messages import Assignment, Peer, Stamp
from schemas.errors import StorageFailedError
from schemas.ids import PartitionUid
from schemas.wire.batch import crc32c
from spu.replication.state import HardState, Member, Members
from spu.storage.durable import (
    is_shortage,
    replace_file,
    sync_directory,
    sync_file,
    write_all,
)

_FRAME: Final = struct.Struct("<4sII")
_MAGIC: Final = b"RNLJ"
#: The journal holds the keys that this SPU shares with others.
_MODE: Final = 0o600
#: A journal smaller than this is never rewritten.
_COMPACT_ABOVE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The entry of one replica: its hard state and its assignment."""

    uid: PartitionUid
    hard_state: HardState
    assigned: bool = True
    assignment: Assignment | None = None

    def to_json(self) -> str:
        """One row of a frame. Most of it is the assignment, which writes its own JSON."""
        hard_state = self.hard_state
        row = {
            "uid": self.uid,
            "storageId": hard_state.storage,
            "term": hard_state.term,
            "incarnation": hard_state.incarnation,
            "revision": hard_state.revision,
            "replicas": hard_state.replicas,
            "lrs": hard_state.lrs,
            "minInSync": hard_state.min_in_sync,
            "pending": hard_state.pending,
            "leading": hard_state.leading,
            "unfit": hard_state.unfit,
            "leaderBoot": hard_state.leader_boot,
            "uncleanTerm": hard_state.unclean_term,
            "assigned": self.assigned,
        }
        # None is a value here (no retention by time), so it is not left out.
        held = self.assignment
        assignment = "null" if held is None else held.model_dump_json(by_alias=True)
        return f'{_dump(row)[:-1]},"assignment":{assignment}}}'

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The entry from its JSON form, also from that of an earlier version."""
        row = data["assignment"]
        assignment = Assignment.model_validate(row) if row else None
        pending = data.get("pending")
        hard_state = HardState(
            storage=data["storageId"],
            term=data["term"],
            # If these are missing, an earlier version wrote it, which had no followers.
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
            leader_boot=data.get("leaderBoot", ""),
            unclean_term=data.get("uncleanTerm") or (assignment and assignment.unclean_term) or 0,
        )
        return cls(
            uid=PartitionUid(data["uid"]),
            hard_state=hard_state,
            assigned=data["assigned"],
            assignment=assignment,
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """The highest KV revision that this SPU has seen, and the stamp of the tenure it came from."""

    revision: int
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class JournalChange:
    """Entries to set, uids to forget, the newest revision seen, if it is newer than before, and
    where peers listen."""

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
        # The size above which it is rewritten.
        self._compact_above = _COMPACT_ABOVE_BYTES
        # Whether the file may hold something else than the entries.
        self._in_doubt = False
        self._failure: str | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the journal, cut a torn tail, and make what is left durable: a process that was
        killed may have written without an fsync what this one relies on.

        Raises StorageFailedError for damage before the tail, and for entries that cannot be
        understood.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        journal = cls(path, fd)
        try:
            # An older version let others read it.
            os.fchmod(fd, _MODE)
            journal._load(path.read_bytes())
            sync_file(fd)
            sync_directory(path.parent)
        except BaseException:
            os.close(fd)
            raise
        return journal

    def append(self, changes: Iterable[JournalChange]) -> None:
        """Make all of ``changes`` durable with one write and one fsync.

        Raises StorageFailedError; none of ``changes`` counts then. If the disk was full, a later
        call may succeed. After every other error all later calls fail, because nobody knows what
        the file holds.
        """
        if self._failure is not None:
            raise StorageFailedError(self._failure)
        changes = tuple(changes)
        rows: list[str] = []
        for change in changes:
            rows.extend(entry.to_json() for entry in change.entries)
            rows.extend(_dump({"removed": uid}) for uid in change.removed)
            rows.extend(_peer_row(peer) for peer in change.peers)
            if change.seen is not None:
                rows.append(_seen_row(change.seen))
        if not rows:
            return
        frame = _frame(rows)
        try:
            if self._in_doubt:
                self._rewrite()
            self._write(frame)
        except OSError as error:
            raise StorageFailedError(self._failed(error)) from error
        for change in changes:
            self._apply(change)
        if self._size > self._compact_above:
            self._compact()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load(self, data: bytes) -> None:
        at = place = 0
        # The last row of each uid, and where its frame begins: only the last becomes an entry.
        newest: dict[str, tuple[dict[str, Any], int]] = {}
        try:
            while (body := _read_frame(data, at)) is not None:
                place = at
                self._read(json.loads(body), newest, place)
                at += _FRAME.size + len(body)
            for row, begun in newest.values():
                place = begun
                entry = JournalEntry.from_json(row)
                self.entries[entry.uid] = entry
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise StorageFailedError(
                f"{self.path} holds an entry at byte {place} that no version of this SPU writes"
                f" ({type(error).__name__}: {error}); restore the file, or give this SPU an empty"
                " log directory"
            ) from error
        self._size = at
        if at == len(data):
            return
        behind = data.find(_MAGIC, at + 1)
        while behind >= 0:
            if _read_frame(data, behind) is not None:
                raise StorageFailedError(
                    f"{self.path} is damaged at byte {at}: valid entries follow at byte {behind};"
                    " restore the file, or give this SPU an empty log directory"
                )
            behind = data.find(_MAGIC, behind + 1)
        os.ftruncate(self._fd, at)

    def _apply(self, change: JournalChange) -> None:
        self.entries.update((entry.uid, entry) for entry in change.entries)
        for uid in change.removed:
            self.entries.pop(uid, None)
        self.peers.update((peer.spu_id, peer) for peer in change.peers)
        if change.seen is not None:
            self.seen = change.seen

    def _read(
        self,
        rows: list[dict[str, Any]],
        newest: dict[str, tuple[dict[str, Any], int]],
        at: int,
    ) -> None:
        for row in rows:
            if "removed" in row:
                newest.pop(row["removed"], None)
            elif "peer" in row:
                peer = Peer.model_validate(row["peer"])
                self.peers[peer.spu_id] = peer
            elif "seen" in row:
                self.seen = Seen(row["seen"], Stamp.model_validate(row["stamp"]))
            else:
                newest[row["uid"]] = row, at

    def _write(self, frame: bytes) -> None:
        self._in_doubt = True
        try:
            write_all(self._fd, frame, self._size)
        except OSError:
            # A shorter frame that is written here next must not have the rest behind it.
            os.ftruncate(self._fd, self._size)
            self._in_doubt = False
            raise
        sync_file(self._fd)
        self._in_doubt = False
        self._size += len(frame)

    def _failed(self, error: OSError) -> str:
        """What to say of an error; no change is taken any more, unless the error may pass."""
        text = f"{self.path}: {error.strerror}"
        if self._fd < 0 or not is_shortage(error):
            text = self._failure = f"{text}; the SPU must be restarted"
        return text

    def _compact(self) -> None:
        """Rewrite the file; go on with the old one if there is no room for another."""
        try:
            self._rewrite()
        except OSError as error:
            self._failed(error)
            self._compact_above = self._size + _COMPACT_ABOVE_BYTES

    def _rewrite(self) -> None:
        """Begin another file, with the entries alone."""
        rows = [entry.to_json() for entry in self.entries.values()]
        rows += [_peer_row(peer) for peer in self.peers.values()]
        if self.seen is not None:
            rows.append(_seen_row(self.seen))
        frame = _frame(rows)
        in_doubt, self._in_doubt = self._in_doubt, True
        try:
            replace_file(self.path, frame, mode=_MODE)
        except OSError:
            # The new name may be there, but not be durable: neither file is to be relied on then.
            self._in_doubt = in_doubt or not self._is_in_place()
            raise
        fd, self._fd = self._fd, -1
        os.close(fd)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._in_doubt = False
        self._size = len(frame)
        self._compact_above = max(_COMPACT_ABOVE_BYTES, 4 * self._size)

    def _is_in_place(self) -> bool:
        """Whether the file that is open has its name still."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        return False


def _members(rows: Iterable[Iterable[Any]]) -> Members:
    return tuple(Member(*row) for row in rows)


def _dump(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"))


def _seen_row(seen: Seen) -> str:
    return _dump({"seen": seen.revision, "stamp": seen.stamp.to_json()})


def _peer_row(peer: Peer) -> str:
    return _dump({"peer": peer.to_json()})


def _frame(rows: list[str]) -> bytes:
    """A frame of rows that are JSON already."""
    body = f"[{','.join(rows)}]".encode()
    return _FRAME.pack(_MAGIC, len(body), crc32c(body)) + body


def _read_frame(data: bytes, at: int) -> bytes | None:
    """The payload of the frame at ``at``; None if there is no whole, valid frame.

    An empty payload is not valid: a torn write may leave zeros behind the magic, if a block ends
    there, and these have a matching checksum.
    """
    if len(data) - at < _FRAME.size:
        return None
    magic, length, stored = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    if magic != _MAGIC or not 0 < length <= len(data) - start:
        return None
    body = data[start : start + length]
    return body if crc32c(body) == stored else None
