"""The fold of a state log: tables, and two writers and a log that does everything a log may do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runnel.archive.manifest import ArchivesState, Removed
from runnel.groups.places import SourceSegment
from runnel.groups.state import Moved
from runnel.groups.stored_state import GroupsState
from runnel.positions.state import Committed, PositionsState
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.shared_state.state import Patched, SharedValuesState
from runnel.state_log import fold as fold_module
from runnel.state_log.fold import (
    LEAST_SNAPSHOT_BYTES,
    AppendOutcome,
    Entry,
    StateFold,
    StateType,
    read_text,
)
from schemas.errors import CorruptBatchError, InvalidRequestError, UnsupportedError
from tests.laws import examples


class Words:
    """A state that tells every update and their order."""

    def empty(self) -> list[str]:
        return []

    def apply(self, state: list[str], update: str) -> list[str]:
        state.append(update)
        return state

    def pack_state(self, state: list[str]) -> Any:
        return list(state)

    def read_state(self, data: Any) -> list[str]:
        return [read_text(word) for word in data]

    def pack_update(self, update: str) -> Any:
        return {"say": update}

    def read_update(self, data: Any) -> str:
        return read_text(data["say"])


def said(word: str, attempt: str = "") -> Entry:
    return Entry(attempt or word, ({"say": word},))


def folded(*words: str) -> StateFold[list[str], str]:
    """From an empty log on, one word at each offset from 1 on: 0 is a control record."""
    fold = StateFold(Words())
    fold.advance(1)
    for word in words:
        fold.take(fold.position, said(word), 10)
    return fold


@pytest.mark.parametrize(
    ("expected", "attempt", "outcome"),
    [
        pytest.param(4, "d", AppendOutcome.OPEN, id="given-nothing-there-yet-then-open"),
        pytest.param(3, "c", AppendOutcome.STANDS, id="given-its-own-then-it-stands"),
        pytest.param(2, "c", AppendOutcome.LOST, id="given-its-id-elsewhere-then-lost"),
        pytest.param(1, "x", AppendOutcome.LOST, id="given-another-then-lost"),
        pytest.param(0, "x", AppendOutcome.LOST, id="given-a-control-record-then-lost"),
    ],
)
def test_outcome(expected: int, attempt: str, outcome: AppendOutcome) -> None:
    assert folded("a", "b", "c").outcome(expected, attempt) is outcome


NOW_US = 1_700_000_000_000_000
SEGMENT = SourceSegment("orders", 0)
UPDATES: dict[str, tuple[StateType[Any, Any], Callable[[int], Any]]] = {
    "positions": (PositionsState(), lambda n: Committed("c", "orders", NOW_US, {0: n})),
    "groups": (GroupsState(), lambda n: Moved("g", "r", {SEGMENT: OffsetAndTerm(n)})),
    "shared-states": (SharedValuesState(), lambda n: Patched("s", {}, "me", n)),
    "archives": (ArchivesState(), lambda n: Removed("uid", 0, n)),
}


@pytest.mark.parametrize("number", [1 << 63, True, -1, 1.0], ids=repr)
@pytest.mark.parametrize(("kind", "update"), UPDATES.values(), ids=UPDATES)
def test_given_an_update_of_any_kind_that_could_not_be_read_then_it_is_not_written(
    kind: StateType[Any, Any], update: Callable[[int], Any], number: int
) -> None:
    fold = StateFold(kind)
    readable = fold.entry("id", [update(7)])
    assert Entry.unpack(fold.written(readable)).id == "id"
    with pytest.raises(InvalidRequestError, match=re.escape(repr(number))):
        fold.written(fold.entry("id", [update(7), update(number)]))


def test_given_a_snapshot_then_a_reader_from_there_knows_what_a_reader_of_all_does() -> None:
    fold = folded("a", "b")
    snapshot = Entry.unpack(fold.snapshot("s").pack())
    late = StateFold(Words())
    late.restart(3)
    late.take(3, snapshot, 100)
    for each in (fold, late):
        # Once more: what is folded changes nothing.
        each.take(3, snapshot, 100)
        each.take(4, said("c"), 10)
        assert each.state == ["a", "b", "c"]
        assert each.position == 5
    # Also of attempts below the log start.
    assert late.outcome(2, "b") is AppendOutcome.STANDS
    assert late.outcome(2, "x") is AppendOutcome.LOST
    assert late.outcome(3, "s") is AppendOutcome.STANDS


def test_given_more_entries_than_ids_are_kept_then_older_attempts_are_forgotten() -> None:
    fold = folded(*(str(n) for n in range(fold_module.KEPT_IDS + 5)))
    assert fold.outcome(5, "4") is AppendOutcome.FORGOTTEN
    assert fold.outcome(6, "5") is AppendOutcome.STANDS
    late = StateFold(Words())
    late.restart(fold.position)
    late.take(fold.position, Entry.unpack(fold.snapshot("s").pack()), 100)
    assert late.outcome(6, "5") is AppendOutcome.FORGOTTEN
    assert late.outcome(7, "6") is AppendOutcome.STANDS


def test_given_a_log_that_begins_in_the_middle_then_an_error() -> None:
    fold = StateFold(Words())
    fold.restart(7)
    with pytest.raises(CorruptBatchError, match="offset 8 without a snapshot"):
        fold.take(8, said("a"), 10)


def test_given_entries_then_a_snapshot_is_due_by_size_and_by_its_own() -> None:
    fold = folded("a")
    due = [fold.snapshot_due]
    for entry in (said("b"), fold.snapshot("s"), said("c"), said("d")):
        fold.take(fold.position, entry, LEAST_SNAPSHOT_BYTES)
        due.append(fold.snapshot_due)
    assert due == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param(None, CorruptBatchError, id="given-no-value"),
        pytest.param(b"\xff", CorruptBatchError, id="given-no-json"),
        pytest.param(b"[]", CorruptBatchError, id="given-no-object"),
        pytest.param(b'{"format": 1, "updates": []}', CorruptBatchError, id="given-no-id"),
        pytest.param(b'{"format": 2, "id": "a"}', UnsupportedError, id="given-a-later-format"),
    ],
)
def test_refused(value: bytes | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        Entry.unpack(value)


def test_given_a_malformed_update_then_corrupt_and_nothing_is_folded() -> None:
    fold = folded("a")
    with pytest.raises(CorruptBatchError, match="offset 2"):
        fold.take(2, Entry("x", ({"sing": "b"},)), 10)
    assert (fold.state, fold.position) == (["a"], 2)


@dataclass
class Attempt:
    expected: int
    entry: Entry


@dataclass
class Writer:
    fold: StateFold[list[str], str] = field(default_factory=lambda: StateFold(Words()))
    attempt: Attempt | None = None


class Log(RuleBasedStateMachine):
    """Writers, attempts on their way, and one partition: what is not committed may be dropped by a
    change of the leader, which leaves a control record; answers get lost; repeated attempts arrive
    late."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_ids, fold_module.KEPT_IDS = fold_module.KEPT_IDS, 4  # type: ignore[misc]
        self.log: list[Entry | None] = [None]
        self.committed = 1
        self.start = 0
        self.snapshots: list[int] = []
        self.flying: list[Attempt] = []
        self.writers = [Writer(), Writer()]
        self.outcomes: dict[str, AppendOutcome] = {}
        self.names = 0

    def teardown(self) -> None:
        fold_module.KEPT_IDS = self.kept_ids  # type: ignore[misc]
        ids = [entry.id for entry in self.log if entry is not None]
        assert len(ids) == len(set(ids)), "an attempt appears twice"
        for attempt, outcome in self.outcomes.items():
            if outcome is not AppendOutcome.FORGOTTEN:
                assert (attempt in ids) is (outcome is AppendOutcome.STANDS), (attempt, outcome)

    @invariant()
    def every_state_is_the_fold_of_what_stands_below(self) -> None:
        for writer in self.writers:
            fold = writer.fold
            below = self.log[: fold.position]
            words = [u["say"] for entry in below if entry is not None for u in entry.updates]
            if fold.position > self.start or self.start == 0:
                assert fold.state == words

    @rule(who=st.sampled_from([0, 1]), count=st.integers(1, 2))
    def begin(self, who: int, count: int) -> None:
        writer = self.writers[who]
        if writer.attempt is None and writer.fold.position > 0:
            self.names += 1
            words = [f"{self.names}.{n}" for n in range(count)]
            entry = writer.fold.entry(f"id{self.names}", words)
            writer.attempt = Attempt(writer.fold.position, entry)
            self.flying.append(writer.attempt)

    @rule(who=st.sampled_from([0, 1]))
    def begin_snapshot(self, who: int) -> None:
        writer = self.writers[who]
        fold = writer.fold
        if writer.attempt is None and fold.position > self.start:
            self.names += 1
            writer.attempt = Attempt(fold.position, fold.snapshot(f"id{self.names}"))
            self.flying.append(writer.attempt)

    @rule(who=st.sampled_from([0, 1]))
    def repeat(self, who: int) -> None:
        if (attempt := self.writers[who].attempt) is not None:
            self.flying.append(attempt)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        attempt = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        if attempt.expected == len(self.log):
            self.log.append(Entry.unpack(attempt.entry.pack()))

    @rule(who=st.sampled_from([0, 1]), heard=st.booleans())
    def write_through(self, who: int, heard: bool) -> None:
        """All goes well, but for the answer perhaps: the short way to long logs."""
        self.begin(who, 1)
        if (attempt := self.writers[who].attempt) is None:
            return
        if attempt.expected == len(self.log):
            self.log.append(Entry.unpack(attempt.entry.pack()))
        self.committed = len(self.log)
        if heard:
            self.answer(who)

    @rule(who=st.sampled_from([0, 1]), truncated=st.booleans())
    def tidy(self, who: int, truncated: bool) -> None:
        """A writer reads all, puts a snapshot at the end, and may have the rest truncated."""
        self.read_upto(who, self.committed)
        self.begin_snapshot(who)
        attempt = self.writers[who].attempt
        self.write_through(who, True)
        if truncated and attempt is not None and attempt.expected in self.snapshots:
            self.start = max(self.start, attempt.expected)

    @precondition(lambda self: self.committed < len(self.log))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.committed = data.draw(st.integers(self.committed + 1, len(self.log)))

    @rule(data=st.data())
    def change_leader(self, data: st.DataObject) -> None:
        del self.log[data.draw(st.integers(self.committed, len(self.log))) :]
        self.log.append(None)

    @rule(who=st.sampled_from([0, 1]))
    def answer(self, who: int) -> None:
        """The leader says that the attempt stands: it is folded without being read."""
        writer = self.writers[who]
        if (attempt := writer.attempt) is None or attempt.expected >= self.committed:
            return
        entry = self.log[attempt.expected]
        if entry is not None and entry.id == attempt.entry.id:
            writer.fold.take(attempt.expected, attempt.entry, 10)
            self._decided(writer, attempt, AppendOutcome.STANDS)

    @rule(who=st.sampled_from([0, 1]), data=st.data())
    def read(self, who: int, data: st.DataObject) -> None:
        position = max(self.writers[who].fold.position, self.start)
        upto = st.integers(min(position, self.committed), self.committed)
        self.read_upto(who, data.draw(upto))

    def read_upto(self, who: int, upto: int) -> None:
        writer = self.writers[who]
        fold = writer.fold
        if fold.position < self.start:
            fold.restart(self.start)
        for offset in range(fold.position, upto):
            if (entry := self.log[offset]) is not None:
                fold.take(offset, entry, 10)
            else:
                fold.advance(offset + 1)
        if writer.attempt is not None:
            outcome = fold.outcome(writer.attempt.expected, writer.attempt.entry.id)
            if outcome is not AppendOutcome.OPEN:
                self._decided(writer, writer.attempt, outcome)

    @precondition(lambda self: any(offset < self.committed for offset in self.snapshots))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        snapshot = data.draw(st.sampled_from(self.snapshots))
        self.start = max(self.start, snapshot)

    @rule(who=st.sampled_from([0, 1]))
    def die(self, who: int) -> None:
        """Another writer begins without knowing anything; what was under way still is."""
        self.writers[who] = Writer()

    def _decided(self, writer: Writer, attempt: Attempt, outcome: AppendOutcome) -> None:
        known = self.outcomes.setdefault(attempt.entry.id, outcome)
        assert known is outcome or AppendOutcome.FORGOTTEN in {known, outcome}
        writer.attempt = None
        if outcome is AppendOutcome.STANDS and attempt.entry.is_snapshot:
            self.snapshots.append(attempt.expected)


TestLog = Log.TestCase
TestLog.settings = settings(max_examples=examples(20), stateful_step_count=60)
