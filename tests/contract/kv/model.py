"""A KV so simple that it is right by inspection: one whole dict for every revision.

It repeats the interface's promises in the plainest words, and shares no code with the backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sc.kv.interface import (
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    DeletePrefix,
    DeleteResponse,
    Event,
    Get,
    GetResponse,
    KeyValue,
    LeaseIs,
    ModRevisionIs,
    Op,
    OpResponse,
    Put,
    PutEvent,
    PutResponse,
    TxnResult,
    VersionIs,
    WatchBatch,
)

State = dict[str, KeyValue]


@dataclass
class Model:
    """``states[i]`` and ``events[i]`` are of revision ``first + i``."""

    first: int
    compacted: int = 0
    states: list[State] = field(default_factory=lambda: [{}])
    events: list[list[Event]] = field(default_factory=lambda: [[]])
    leases: list[int] = field(default_factory=list)

    @property
    def revision(self) -> int:
        return self.first + len(self.states) - 1

    @property
    def now(self) -> State:
        return self.states[-1]

    def at(self, revision: int) -> State:
        return self.states[revision - self.first]

    def listing(self, prefix: str, revision: int) -> list[KeyValue]:
        under = [kv for kv in self.at(revision).values() if kv.key.startswith(prefix)]
        return sorted(under, key=lambda kv: kv.key.encode())

    def history(self, prefix: str, from_revision: int) -> list[WatchBatch]:
        batches = []
        for revision in range(from_revision, self.revision + 1):
            events = tuple(
                event
                for event in self.events[revision - self.first]
                if (event.kv.key if isinstance(event, PutEvent) else event.key).startswith(prefix)
            )
            if events:
                batches.append(WatchBatch(revision, events))
        return batches

    def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]
    ) -> TxnResult:
        succeeded = all(self._holds(compare) for compare in compares)
        state = dict(self.now)
        events: list[Event] = []
        responses: list[OpResponse] = []
        for op in success if succeeded else failure:
            if isinstance(op, Put):
                responses.append(PutResponse())
                events.append(self._put(state, op))
            elif isinstance(op, Get):
                responses.append(GetResponse(state.get(op.key)))
            else:
                gone = self._delete(state, op)
                responses.append(DeleteResponse(len(gone)))
                events.extend(gone)
        self._add(state, events)
        return TxnResult(succeeded, self.revision, tuple(responses))

    def revoke(self, lease: int) -> None:
        self.leases.remove(lease)
        state = dict(self.now)
        events: list[Event] = []
        for key in sorted(self.now):
            if self.now[key].lease == lease:
                events.extend(self._delete(state, Delete(key)))
        self._add(state, events)

    def _add(self, state: State, events: list[Event]) -> None:
        if events:
            self.states.append(state)
            self.events.append(events)

    def _put(self, state: State, put: Put) -> PutEvent:
        old = state.get(put.key)
        state[put.key] = KeyValue(
            key=put.key,
            value=put.value,
            create_revision=old.create_revision if old else self.revision + 1,
            mod_revision=self.revision + 1,
            version=old.version + 1 if old else 1,
            lease=put.lease,
        )
        return PutEvent(state[put.key], old)

    def _delete(self, state: State, op: Delete | DeletePrefix) -> list[DeleteEvent]:
        if isinstance(op, Delete):
            keys = [op.key] if op.key in state else []
        else:
            keys = sorted(key for key in state if key.startswith(op.prefix))
        return [DeleteEvent(key, self.revision + 1, state.pop(key)) for key in keys]

    def _holds(self, compare: Compare) -> bool:
        kv = self.now.get(compare.key)
        if isinstance(compare, ModRevisionIs):
            return (kv.mod_revision if kv else 0) == compare.revision
        if isinstance(compare, CreateRevisionIs):
            return (kv.create_revision if kv else 0) == compare.revision
        if isinstance(compare, VersionIs):
            return (kv.version if kv else 0) == compare.version
        if isinstance(compare, LeaseIs):
            return (kv.lease if kv else 0) == compare.lease
        return kv is not None and kv.value == compare.value
