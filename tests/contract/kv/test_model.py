"""Every backend against the simple model, under random calls.

Keys are few and short, so that calls meet: prefixes of each other, deleted and created anew, moved
between leases, compacted while watched.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sc.kv.interface import (
    KV,
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    DeletePrefix,
    Get,
    LeaseIs,
    ModRevisionIs,
    Op,
    Put,
    PutEvent,
    TxnResult,
    ValueIs,
    VersionIs,
    Watch,
    WatchBatch,
    range_all,
)
from sc.kv.local import LocalKV
from sc.kv.memory import MemoryKV
from sc.kv.sqlite import SqliteKV
from schemas.errors import CompactedError, InvalidRequestError
from tests.laws import examples

from .model import Model
from .test_memory import Clock

T = TypeVar("T")

KEYS = st.sampled_from(["a", "a/", "a/b", "ab", "é"])
PREFIXES = st.sampled_from(["", "a", "a/", "b", "é"])
VALUES = st.sampled_from([b"", b"1", b"2"])
SMALL = st.integers(0, 12)
TTL_MS = 5_000


def compares() -> st.SearchStrategy[Compare]:
    return st.one_of(
        st.builds(ModRevisionIs, KEYS, SMALL),
        st.builds(CreateRevisionIs, KEYS, SMALL),
        st.builds(VersionIs, KEYS, st.integers(0, 2)),
        st.builds(LeaseIs, KEYS, st.just(0)),
        st.builds(ValueIs, KEYS, VALUES),
    )


def unleased_ops() -> st.SearchStrategy[Op]:
    return st.one_of(
        st.builds(Put, KEYS, VALUES),
        st.builds(Delete, KEYS),
        st.builds(DeletePrefix, KEYS),
        st.builds(Get, KEYS),
    )


TXNS = st.tuples(
    st.lists(compares(), max_size=2),
    st.lists(unleased_ops(), max_size=5),
    st.lists(unleased_ops(), max_size=3),
)


class Machine(RuleBasedStateMachine):
    """Calls go to a backend and to the model; answers, the whole present and watches must agree."""

    reopens: ClassVar[bool] = False
    virtual_time: ClassVar[bool] = True
    """Whether `clock` is the store's, and the test expires leases."""
    keeps_order: ClassVar[bool] = True
    """Whether transactions started together are applied in that order."""
    watches_stand_at_the_present: ClassVar[bool] = True
    """Whether a watch that has told all there was cannot be compacted away from there."""
    keeps_compacted_deletions: ClassVar[bool] = True
    ttl_ms: ClassVar[int] = TTL_MS

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="runnel-kv-"))
        self.clock = Clock()
        self.kv = self.run(self.open())
        self.model = Model(first=self.run(self.kv.revision()))
        self.watches: list[tuple[Watch, str, int]] = []

    async def open(self) -> KV:
        raise NotImplementedError

    async def drain(self, watch: Watch, expected: int) -> tuple[list[WatchBatch], bool]:
        """What a watch tells now, ``expected`` batches if all is well, and whether it ended in
        compaction."""
        return await _drain(watch)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def teardown(self) -> None:
        self.run(self.kv.close())
        self.runner.close()
        shutil.rmtree(self.directory)

    def with_leases(self, ops: list[Op], which: int) -> list[Op]:
        leases = [0, *self.model.leases]
        lease = leases[which % len(leases)]
        return [Put(op.key, op.value, lease) if isinstance(op, Put) else op for op in ops]

    @rule(txn=TXNS, which=SMALL)
    def transact(self, txn: tuple[list[Compare], list[Op], list[Op]], which: int) -> None:
        success, failure = self.with_leases(txn[1], which), txn[2]
        try:
            result = self.run(self.kv.txn(txn[0], success, failure))
        except InvalidRequestError:
            assert any(_writes_twice(ops) for ops in (success, failure))
        else:
            assert not any(_writes_twice(ops) for ops in (success, failure))
            assert result == self.model.txn(txn[0], success, failure)

    @rule(txns=st.lists(st.lists(st.builds(Put, KEYS, VALUES), max_size=1), max_size=6))
    def transact_together(self, txns: list[list[Op]]) -> None:
        async def together() -> list[TxnResult]:
            return await asyncio.gather(*[self.kv.txn((), ops) for ops in txns])

        results = self.run(together())
        # A transaction without effect comes after the one that made the revision it tells.
        in_order = sorted(zip(txns, results, strict=True), key=lambda t: (t[1].revision, not t[0]))
        assert [result for _, result in in_order] == [
            self.model.txn((), ops, ()) for ops, _ in in_order
        ]
        if self.keeps_order:
            assert results == sorted(results, key=lambda result: result.revision)

    @rule()
    def grant(self) -> None:
        lease = self.run(self.kv.lease_grant(self.ttl_ms))
        assert lease not in self.model.leases
        self.model.leases.append(lease)

    @precondition(lambda self: self.model.leases)
    @rule(which=SMALL)
    def revoke(self, which: int) -> None:
        lease = self.model.leases[which % len(self.model.leases)]
        self.run(self.kv.lease_revoke(lease))
        self.model.revoke(lease)

    @precondition(lambda self: self.virtual_time and self.model.leases)
    @rule(which=SMALL)
    def let_all_but_one_expire(self, which: int) -> None:
        assert isinstance(self.kv, LocalKV)
        kept = self.model.leases[which % len(self.model.leases)]
        self.run(self.kv.lease_keep_alive(kept))
        others = [lease for lease in self.model.leases if lease != kept]
        for lease in others:
            # Leases that are due together end in the order in which their time ran out.
            self.clock.now += 0.001
            self.run(self.kv.lease_keep_alive(lease))
        self.clock.now += TTL_MS / 1000 - 0.5
        self.run(self.kv.lease_keep_alive(kept))
        self.clock.now += 0.6
        assert self.run(self.kv.expire_leases()) == len(others)
        for lease in others:
            self.model.revoke(lease)

    @rule(back=st.integers(0, 8))
    def compact(self, back: int) -> None:
        at = self.model.revision - back
        if at < self.model.first:
            return
        if at <= self.model.compacted:
            with pytest.raises(CompactedError):
                self.run(self.kv.compact(at))
        else:
            self.run(self.kv.compact(at))
            self.model.compacted = at

    @rule(prefix=PREFIXES, back=SMALL, size=st.integers(1, 3))
    def list_the_past(self, prefix: str, back: int, size: int) -> None:
        at = max(self.model.revision - back, self.model.first)
        if at < self.model.compacted:
            with pytest.raises(CompactedError):
                self.run(self.kv.range(prefix, revision=at))
            return

        async def listing() -> list[Any]:
            pages = range_all(self.kv, prefix, page_size=size, revision=at)
            return [item async for page in pages for item in page.items]

        assert self.run(listing()) == self.model.listing(prefix, at)

    @rule(prefix=PREFIXES, back=SMALL)
    def start_watch(self, prefix: str, back: int) -> None:
        start = max(self.model.revision + 1 - back, self.model.first)
        self.watches = [*self.watches[-3:], (self.kv.watch(prefix, start), prefix, start)]

    @rule()
    def read_watches(self) -> None:
        going_on = []
        for watch, prefix, start in self.watches:
            expected = self.comparable(self.model.history(prefix, start))
            batches, compacted = self.run(self.drain(watch, len(expected)))
            if compacted:
                assert start < self.model.compacted
                continue
            assert self.comparable(batches) == expected
            if self.watches_stand_at_the_present:
                start = self.model.revision + 1
            elif batches:
                start = batches[-1].revision + 1
            going_on.append((watch, prefix, start))
        self.watches = going_on

    def comparable(self, batches: list[WatchBatch]) -> list[WatchBatch]:
        """Without what need not be told about the compacted revision."""
        known = [_comparable(batch, self.model.compacted) for batch in batches]
        if self.keeps_compacted_deletions:
            return known
        return [
            batch
            for batch in known
            if batch.revision != self.model.compacted
            or not any(isinstance(event, DeleteEvent) for event in batch.events)
        ]

    @precondition(lambda self: self.reopens)
    @rule()
    def reopen(self) -> None:
        self.run(self.kv.close())
        self.kv = self.run(self.open())
        self.watches = []

    @invariant()
    def present_is_the_same(self) -> None:
        page = self.run(self.kv.range(""))
        assert page.revision == self.model.revision
        assert list(page.items) == self.model.listing("", self.model.revision)


class MemoryMachine(Machine):
    async def open(self) -> LocalKV:
        return MemoryKV(clock=self.clock)


class SqliteMachine(Machine):
    reopens = True

    async def open(self) -> LocalKV:
        return await SqliteKV.open(self.directory / "kv.db", clock=self.clock)


def _writes_twice(ops: list[Op]) -> bool:
    puts = [op.key for op in ops if isinstance(op, Put)]
    return len(puts) != len(set(puts)) or any(
        (isinstance(op, Delete) and op.key in puts)
        or (isinstance(op, DeletePrefix) and any(key.startswith(op.prefix) for key in puts))
        for op in ops
    )


async def _drain(watch: Watch) -> tuple[list[WatchBatch], bool]:
    """What a watch tells without waiting, and whether it ended in compaction."""
    batches: list[WatchBatch] = []
    while True:
        pending = asyncio.ensure_future(anext(watch))
        for _ in range(3):
            await asyncio.sleep(0)
        if not pending.done():
            pending.cancel()
            await asyncio.wait([pending])
            return batches, False
        try:
            batches.append(pending.result())
        except CompactedError:
            return batches, True


def _comparable(batch: WatchBatch, compacted: int) -> WatchBatch:
    """At the compacted revision the previous version may be told or not."""
    if batch.revision != compacted:
        return batch
    return WatchBatch(
        batch.revision,
        tuple(
            PutEvent(event.kv, None)
            if isinstance(event, PutEvent)
            else DeleteEvent(event.key, event.mod_revision, None)
            for event in batch.events
        ),
    )


def machine_case(machine: type[Machine], examples: int) -> Callable[[], None]:
    """A test class that runs a machine."""
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return case  # type: ignore[return-value]


TestMemoryAgainstModel = machine_case(MemoryMachine, examples(25))
TestSqliteAgainstModel = machine_case(SqliteMachine, examples(8))
