"""Versions of keys over revisions: the pure core of the backends that run inside the SC.

No clock, no thread, no disk: `Mvcc` applies transactions to state in memory and returns, as a
`Delta`, what a durable backend must write. The head may be ahead of the durable revision; because
every read names a revision, a backend that reads at the last durable one never shows the rest.

Invariants:

- Each revision above the compacted one (and that one itself) has its events in ``_log``, at index
  ``revision - _log_base``; a key occurs at most once in them.
- ``_versions`` holds, for each key, everything above the compacted revision and the newest
  version at or below it. A tombstone at or below it is held only at that revision itself.
- ``_keys`` is ``_versions``' keys, sorted. ``_live`` is the head: keys that exist now.
- Every key of a lease is in ``_live`` and names that lease.

What is forgotten is proportional to what was written between two compactions, never to the size
of the store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from sc.kv.interface import (
    Compare,
    Delete,
    DeleteEvent,
    DeletePrefix,
    DeleteResponse,
    Event,
    Get,
    GetResponse,
    KeyValue,
    Op,
    OpResponse,
    Put,
    PutEvent,
    PutResponse,
    TxnResult,
)
from sc.kv.requests import holds
from schemas.errors import NotFoundError

FIRST_REVISION = 1
"""The revision of an empty store, as in etcd."""

_OVERHEAD = 400
"""About the bytes of Python objects around one version; without them, history made of many small
values would take far more memory than its bound says."""


@dataclass(frozen=True, slots=True)
class Version:
    """The state of a key after a revision; ``kv`` is None for a deletion. ``sub`` orders the
    versions of one revision from 0."""

    key: str
    revision: int
    sub: int
    kv: KeyValue | None


@dataclass(frozen=True, slots=True)
class Delta:
    """A step of the store, to be made durable whole and in order.

    ``forgotten`` are (revision, sub) of versions that compaction dropped; ``granted`` are
    (lease, time to live in ms). ``revision`` and ``compacted`` are the store's after the step;
    ``compacts`` when the step moved the latter, which may forget no version at all.
    """

    revision: int
    compacted: int
    written: tuple[Version, ...] = ()
    forgotten: tuple[tuple[int, int], ...] = ()
    granted: tuple[tuple[int, int], ...] = ()
    revoked: tuple[int, ...] = ()
    compacts: bool = False

    @property
    def empty(self) -> bool:
        """Nothing to make durable."""
        return not (self.written or self.compacts or self.granted or self.revoked)

    def then_compacted(self, compaction: Delta) -> Delta:
        """This step and the compaction that directly followed it, as one."""
        return replace(
            self,
            compacted=compaction.compacted,
            forgotten=self.forgotten + compaction.forgotten,
            compacts=True,
        )

    @property
    def size(self) -> int:
        """About the bytes of memory that the versions written take."""
        return sum(_size(version) for version in self.written)


@dataclass(slots=True)
class _Lease:
    ttl_ms: int
    keys: set[str] = field(default_factory=set)


class Mvcc:
    """The state and its history. Arguments must have passed `sc.kv.requests`."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.compacted = 0
        self.log_bytes = 0
        self._versions: dict[str, list[Version]] = {}
        self._keys: list[str] = []
        self._live: dict[str, KeyValue] = {}
        self._log: list[tuple[Event, ...]] = []
        self._log_base = FIRST_REVISION + 1
        self._leases: dict[int, _Lease] = {}

    @classmethod
    def restore(
        cls,
        *,
        revision: int,
        compacted: int,
        versions: Iterable[Version],
        leases: Iterable[tuple[int, int]],
    ) -> Mvcc:
        """The store whose deltas left these versions, in (revision, sub) order, and leases.

        Raises ValueError when the versions cannot be the whole history of such a store.
        """
        store = cls()
        store._leases = {lease: _Lease(ttl_ms) for lease, ttl_ms in leases}
        store.compacted = compacted
        store._log_base = max(compacted, FIRST_REVISION + 1)
        events: list[list[Event]] = [[] for _ in range(store._log_base, revision + 1)]
        for version in versions:
            event = store._record(version)
            if version.revision > revision:
                raise ValueError(f"a version of {version.key!r} is newer than the store")
            if version.revision >= store._log_base:
                events[version.revision - store._log_base].append(event)
                store.log_bytes += _size(version)
        for index, of_revision in enumerate(events):
            if not of_revision:
                raise ValueError(f"revision {store._log_base + index} is missing")
        store._log = [tuple(of_revision) for of_revision in events]
        store.revision = revision
        return store

    def get(self, key: str, revision: int) -> KeyValue | None:
        """The key as of a revision that is not compacted."""
        versions = self._versions.get(key)
        if versions is None:
            return None
        if versions[-1].revision <= revision:
            return versions[-1].kv
        index = bisect_right(versions, revision, key=_revision)
        return versions[index - 1].kv if index else None

    def range(
        self, prefix: str, *, start_after: str | None, limit: int, revision: int
    ) -> tuple[tuple[KeyValue, ...], bool]:
        """A page of a prefix as of a revision, and whether there is more."""
        items: list[KeyValue] = []
        for key in self._keys_under(prefix, start_after):
            kv = self.get(key, revision)
            if kv is None:
                continue
            if len(items) == limit:
                return tuple(items), True
            items.append(kv)
        return tuple(items), False

    def events(self, revision: int) -> tuple[Event, ...]:
        """The events of a revision from the compacted one up to the head."""
        index = revision - self._log_base
        return self._log[index] if index >= 0 else ()

    def apply(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]
    ) -> tuple[TxnResult, Delta]:
        """Decide and apply a transaction at the head.

        Raises NotFoundError for a lease that does not exist, with nothing changed.
        """
        succeeded = all(holds(compare, self._live.get(compare.key)) for compare in compares)
        ops = success if succeeded else failure
        for op in ops:
            if isinstance(op, Put) and op.lease and op.lease not in self._leases:
                raise lease_not_found(op.lease)
        written: list[Version] = []
        responses = tuple([self._apply_op(op, written) for op in ops])
        self._advance(written)
        delta = Delta(self.revision, self.compacted, written=tuple(written))
        return TxnResult(succeeded, self.revision, responses), delta

    def grant(self, lease: int, ttl_ms: int) -> Delta:
        """Add a lease under an id that was never used."""
        self._leases[lease] = _Lease(ttl_ms)
        return Delta(self.revision, self.compacted, granted=((lease, ttl_ms),))

    def revoke(self, lease: int) -> Delta:
        """End a lease and delete its keys, in key order. Raises NotFoundError."""
        if lease not in self._leases:
            raise lease_not_found(lease)
        written: list[Version] = []
        for key in sorted(self._leases[lease].keys):
            self._stage(key, None, written)
        self._advance(written)
        del self._leases[lease]
        return Delta(self.revision, self.compacted, written=tuple(written), revoked=(lease,))

    def lease_ttl_ms(self, lease: int) -> int:
        """The time a lease was granted for. Raises NotFoundError."""
        if lease not in self._leases:
            raise lease_not_found(lease)
        return self._leases[lease].ttl_ms

    def leases(self) -> tuple[int, ...]:
        """All leases that exist."""
        return tuple(self._leases)

    def compaction_target(self, *, keep_revisions: int, keep_bytes: int) -> int:
        """The lowest revision to compact to so that at most ``keep_revisions`` revisions, and
        about ``keep_bytes`` bytes of memory for their versions, stay below the head."""
        target = max(self.compacted, self.revision - keep_revisions)
        excess = self.log_bytes - keep_bytes
        revision = self._log_base
        while excess > 0 and revision < self.revision:
            excess -= sum(_event_size(event) for event in self.events(revision))
            revision += 1
            target = max(target, revision)
        return target

    def compact(self, revision: int) -> Delta:
        """Forget versions that only revisions below ``revision`` show; it is above the compacted
        revision and not above the head."""
        touched = {
            _event_key(event)
            for of_revision in self._log[: max(0, revision + 1 - self._log_base)]
            for event in of_revision
        }
        forgotten: list[tuple[int, int]] = []
        for key in touched:
            versions = self._versions[key]
            keep = bisect_right(versions, revision, key=_revision) - 1
            if keep >= 0 and versions[keep].kv is None and versions[keep].revision < revision:
                keep += 1
            keep = max(keep, 0)
            forgotten.extend((version.revision, version.sub) for version in versions[:keep])
            del versions[:keep]
            if not versions:
                del self._versions[key]
                del self._keys[bisect_left(self._keys, key)]
        drop = max(0, revision - self._log_base)
        self.log_bytes -= sum(_event_size(e) for events in self._log[:drop] for e in events)
        del self._log[:drop]
        self._log_base += drop
        self.compacted = revision
        return Delta(
            self.revision, self.compacted, forgotten=tuple(sorted(forgotten)), compacts=True
        )

    def _apply_op(self, op: Op, written: list[Version]) -> OpResponse:
        match op:
            case Put(key=key, value=value, lease=lease):
                old = self._live.get(key)
                revision = self.revision + 1
                kv = KeyValue(
                    key=key,
                    value=value,
                    create_revision=old.create_revision if old else revision,
                    mod_revision=revision,
                    version=old.version + 1 if old else 1,
                    lease=lease,
                )
                self._stage(key, kv, written)
                return PutResponse()
            case Delete(key=key):
                found = key in self._live
                if found:
                    self._stage(key, None, written)
                return DeleteResponse(int(found))
            case DeletePrefix(prefix=prefix):
                keys = [key for key in self._keys_under(prefix, None) if key in self._live]
                for key in keys:
                    self._stage(key, None, written)
                return DeleteResponse(len(keys))
            case Get(key=key):
                return GetResponse(self._live.get(key))
            case _:
                assert_never(op)

    def _stage(self, key: str, kv: KeyValue | None, written: list[Version]) -> None:
        # The history is written by _advance; the head changes at once, for the operations after.
        old = self._live.get(key)
        if old is not None and old.lease:
            self._leases[old.lease].keys.discard(key)
        if kv is None:
            del self._live[key]
        else:
            self._live[key] = kv
            if kv.lease:
                self._leases[kv.lease].keys.add(key)
        written.append(Version(key, self.revision + 1, len(written), kv))

    def _advance(self, written: list[Version]) -> None:
        if written:
            self.revision += 1
            self._log.append(tuple([self._append(version) for version in written]))
            self.log_bytes += sum(_size(version) for version in written)

    def _append(self, version: Version) -> Event:
        versions = self._versions.get(version.key)
        previous = versions[-1].kv if versions else None
        if versions is None:
            self._versions[version.key] = [version]
            insort(self._keys, version.key)
        else:
            versions.append(version)
        if version.kv is None:
            return DeleteEvent(version.key, version.revision, previous)
        return PutEvent(version.kv, previous)

    def _record(self, version: Version) -> Event:
        old = self._live.pop(version.key, None)
        if old is not None and old.lease in self._leases:
            self._leases[old.lease].keys.discard(version.key)
        if version.kv is not None:
            self._live[version.key] = version.kv
            if version.kv.lease in self._leases:
                self._leases[version.kv.lease].keys.add(version.key)
        return self._append(version)

    def _keys_under(self, prefix: str, start_after: str | None) -> Iterator[str]:
        index = bisect_left(self._keys, prefix)
        if start_after is not None:
            index = max(index, bisect_right(self._keys, start_after))
        while index < len(self._keys) and self._keys[index].startswith(prefix):
            yield self._keys[index]
            index += 1


def lease_not_found(lease: int) -> NotFoundError:
    """The error for a lease that expired, was revoked, or never was."""
    return NotFoundError(f"lease {lease} does not exist; it expired or was revoked")


def event_under(event: Event, prefix: str) -> bool:
    """Whether an event's key starts with ``prefix``."""
    return _event_key(event).startswith(prefix)


def _event_key(event: Event) -> str:
    return event.kv.key if isinstance(event, PutEvent) else event.key


def _event_size(event: Event) -> int:
    if isinstance(event, PutEvent):
        return _OVERHEAD + len(event.kv.key) + len(event.kv.value)
    return _OVERHEAD + len(event.key)


def _size(version: Version) -> int:
    return _OVERHEAD + len(version.key) + (len(version.kv.value) if version.kv else 0)


def _revision(version: Version) -> int:
    return version.revision
