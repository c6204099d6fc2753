"""A state as the fold of updates in a log, and what became of an attempt to append. Pure.

Every record of the log is an *entry*: updates that apply together, or a *snapshot*: the state as of
its own offset. Entries are appended conditionally (only at the offset that the writer expects), so
a client that appends has folded everything before. Two things follow:

- An attempt to append at offset E succeeded if and only if the entry at E is its own. Until
  something is committed at E it may still succeed; repeating it can never append it twice.
- A snapshot at S holds everything that the records below S say, so those may be truncated. A reader
  begins at the log start and finds the first entry ever written there, or a snapshot.

Offsets have gaps (control records): `StateFold.advance` steps over them. The ids of the last
entries are kept, also in snapshots: an attempt can be judged even if its entry was truncated.

The idea is Pravega's StateSynchronizer over a RevisionedStream. `runnel.state_log.log` does the
reading and writing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, Protocol, TypeVar

from schemas.errors import CorruptBatchError, InvalidRequestError, UnsupportedError
from schemas.wire.batch import MAX_OFFSET

S = TypeVar("S")
U = TypeVar("U")

#: A snapshot is due once the entries since the last have this many bytes, or twice its size.
LEAST_SNAPSHOT_BYTES: Final = 128 << 10
#: Bytes of an entry in a log beside its value, roughly: headers of the batch and its columns.
ENTRY_OVERHEAD_BYTES: Final = 512
#: How many ids of entries are kept.
KEPT_IDS: Final = 256
_FORMAT: Final = 1
#: The errors of reading JSON that no Runnel client wrote.
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def read_text(value: Any) -> str:
    """Text of an entry, unchanged. Raises TypeError if it is no text, ValueError if it cannot be
    written again."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    # JSON can spell half of a surrogate pair, which UTF-8 cannot hold.
    value.encode()
    return value


def read_number(value: Any, most: int = MAX_OFFSET) -> int:
    """A whole number of an entry, from 0 to ``most``, such as an offset. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no whole number from 0 to {most}")
    return value


class StateType(Protocol[S, U]):
    """The type of the state: its first value, the effect of updates, and both as JSON."""

    def empty(self) -> S:
        """The state of an empty log; a new object each time."""
        ...

    def apply(self, state: S, update: U) -> S:
        """The state after an update; it may be the same object, changed. There is one after each
        update that `read_update` gives."""
        ...

    def pack_state(self, state: S) -> Any:
        """The state as JSON."""
        ...

    def read_state(self, data: Any) -> S: ...

    def pack_update(self, update: U) -> Any: ...

    def read_update(self, data: Any) -> U: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One record: updates as JSON, or a snapshot with the offsets and ids of the last entries
    before it. ``id`` is random."""

    id: str
    updates: tuple[Any, ...] = ()
    snapshot: Any = None
    recent: tuple[tuple[int, str], ...] = ()
    #: Below it entries may be missing in ``recent``.
    recent_from: int = 0
    is_snapshot: bool = False

    def pack(self) -> bytes:
        """The value of the record."""
        data: dict[str, Any] = {"format": _FORMAT, "id": self.id}
        if self.is_snapshot:
            data["snapshot"] = self.snapshot
            data["recent"] = self.recent
            data["recentFrom"] = self.recent_from
        else:
            data["updates"] = self.updates
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, value: bytes | None) -> Entry:
        """Raises CorruptBatchError if it is no entry, UnsupportedError for a later format."""
        try:
            data = json.loads(value or b"")
            if data["format"] != _FORMAT:
                raise UnsupportedError(
                    f"entries of format {data['format']} are not known to this client; upgrade it"
                )
            if "snapshot" not in data:
                return cls(read_text(data["id"]), tuple(data["updates"]))
            return cls(
                read_text(data["id"]),
                snapshot=data["snapshot"],
                recent=tuple((read_number(at), read_text(id_)) for at, id_ in data["recent"]),
                recent_from=read_number(data["recentFrom"]),
                is_snapshot=True,
            )
        except _MALFORMED as error:
            raise CorruptBatchError(f"a record is no entry of a state log: {error!r}") from error


class AppendOutcome(Enum):
    """The outcome of an attempt to append."""

    #: Nothing is committed yet at the offset that it expects.
    OPEN = auto()
    STANDS = auto()
    #: Another entry or a control record has its offset: it will never be appended.
    LOST = auto()
    #: So much was truncated since that the outcome cannot be known.
    FORGOTTEN = auto()


class StateFold(Generic[S, U]):
    """The state as of ``position``, the next offset to fold; at first that of an empty log."""

    def __init__(self, kind: StateType[S, U]) -> None:
        self._kind = kind
        self.restart(0)

    def restart(self, log_start: int) -> None:
        """Forget everything; the entries from the log start on follow."""
        self.state: S = self._kind.empty()
        self.position = log_start
        self._recent: deque[tuple[int, str]] = deque(maxlen=KEPT_IDS)
        self._recent_from = log_start
        self._waits_for_snapshot = log_start > 0
        self._since_bytes = 0
        self._snapshot_bytes = 0

    def take(self, offset: int, entry: Entry, size: int) -> None:
        """Fold the entry at an offset; ``size`` in bytes. An entry that is folded already changes
        nothing.

        Raises CorruptBatchError if the log begins in the middle without a snapshot, and for
        malformed updates.
        """
        if offset < self.position:
            return
        try:
            if entry.is_snapshot:
                self._take_snapshot(entry, size)
            elif self._waits_for_snapshot:
                raise CorruptBatchError(
                    f"the state log begins at offset {offset} without a snapshot: something was"
                    " removed that its writers did not"
                )
            else:
                for update in entry.updates:
                    self.state = self._kind.apply(self.state, self._kind.read_update(update))
                self._since_bytes += size + ENTRY_OVERHEAD_BYTES
        except _MALFORMED as error:
            raise CorruptBatchError(
                f"the entry at offset {offset} of a state log cannot be read: {error!r}"
            ) from error
        self._remember(offset, entry.id)
        self.position = offset + 1

    def advance(self, position: int) -> None:
        """There are no more entries below ``position``."""
        self.position = max(self.position, position)

    def outcome(self, expected: int, attempt: str) -> AppendOutcome:
        """The outcome of the attempt with this id to append at offset ``expected``."""
        if self.position <= expected:
            return AppendOutcome.OPEN
        if expected < self._recent_from:
            return AppendOutcome.FORGOTTEN
        stands = (expected, attempt) in self._recent
        return AppendOutcome.STANDS if stands else AppendOutcome.LOST

    def entry(self, attempt: str, updates: Sequence[U]) -> Entry:
        """The entry to append at `position` for these updates."""
        return Entry(attempt, tuple(map(self._kind.pack_update, updates)))

    def written(self, entry: Entry) -> bytes:
        """The value of an entry's record, which was read as every client will read it.

        Raises InvalidRequestError for what could not be read back: once appended, it would hide all
        that the log holds.
        """
        try:
            value = entry.pack()
            again = Entry.unpack(value)
            if again.is_snapshot:
                self._kind.read_state(again.snapshot)
            for update in again.updates:
                self._kind.read_update(update)
        except (*_MALFORMED, CorruptBatchError) as error:
            raise InvalidRequestError(
                f"nothing was written to the state log: what was to be could not be read: {error}"
            ) from error
        return value

    @property
    def snapshot_due(self) -> bool:
        """Whether enough was appended since the last snapshot for another one. This keeps the log
        within a few times the size of its state, and snapshots within half of all bytes
        written."""
        return self._since_bytes >= max(LEAST_SNAPSHOT_BYTES, 2 * self._snapshot_bytes)

    def snapshot(self, attempt: str) -> Entry:
        """The entry to append at `position`. Once committed, all before it may be truncated."""
        return Entry(
            attempt,
            snapshot=self._kind.pack_state(self.state),
            recent=tuple(self._recent),
            recent_from=self._recent_from,
            is_snapshot=True,
        )

    def _take_snapshot(self, entry: Entry, size: int) -> None:
        # A client that has folded everything before it already knows its content.
        if self._waits_for_snapshot:
            self.state = self._kind.read_state(entry.snapshot)
            self._recent.extend(entry.recent)
            self._recent_from = entry.recent_from
            self._waits_for_snapshot = False
        self._snapshot_bytes = size
        self._since_bytes = 0

    def _remember(self, offset: int, attempt: str) -> None:
        if len(self._recent) == KEPT_IDS:
            self._recent_from = self._recent[0][0] + 1
        self._recent.append((offset, attempt))
