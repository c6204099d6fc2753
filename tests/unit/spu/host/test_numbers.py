"""Which numbers of replicas an SPU tells next."""

from __future__ import annotations

from schemas.control.statistics import ReplicaNumbers
from schemas.ids import PartitionUid
from spu.host.numbers import ChangedNumbers

HELD = {PartitionUid(name) for name in "abc"}


def numbers_of(name: str, end: int = 0) -> ReplicaNumbers:
    return ReplicaNumbers(PartitionUid(name), 0, end, end, end * 10)


def told(changed: ChangedNumbers, at_most: int = 10) -> list[tuple[str, int]]:
    return [(numbers.uid, numbers.log_end) for numbers in changed.take(at_most, HELD)]


def test_numbers_are_told_once_and_again_when_they_change() -> None:
    changed = ChangedNumbers()
    changed.note(numbers_of("a", 1))
    assert told(changed) == [("a", 1)]
    changed.note(numbers_of("a", 1))
    assert told(changed) == []
    changed.note(numbers_of("a", 2))
    assert told(changed) == [("a", 2)]


def test_given_more_than_fit_then_each_has_its_turn_with_its_latest_numbers() -> None:
    changed = ChangedNumbers()
    for name in "abc":
        changed.note(numbers_of(name, 1))
    assert told(changed, 1) == [("a", 1)]
    for name in "abc":
        changed.note(numbers_of(name, 2))
    assert told(changed, 1) == [("b", 2)]
    assert told(changed, 2) == [("c", 2), ("a", 2)]


def test_a_replica_that_the_spu_no_longer_holds_is_not_told() -> None:
    changed = ChangedNumbers()
    changed.note(numbers_of("gone", 1))
    changed.note(numbers_of("a", 1))
    assert told(changed) == [("a", 1)]


def test_another_sc_is_told_everything_at_once_though_nothing_changes_any_more() -> None:
    changed = ChangedNumbers()
    changed.note(numbers_of("a", 1))
    changed.note(numbers_of("b", 1))
    assert told(changed) == [("a", 1), ("b", 1)]
    changed.note(numbers_of("b", 2))
    changed.note(numbers_of("c", 1))
    changed.note(numbers_of("gone", 1))
    changed.forget()
    # An idle replica notes its numbers again; they are told all the same, and once.
    changed.note(numbers_of("a", 1))
    assert told(changed) == [("a", 1), ("b", 2), ("c", 1)]
    assert told(changed) == []
