"""An SPU that is turned away every second does not fill the log."""

from __future__ import annotations

from connection_manager.turned_away import AGAIN_S, LINES, REMEMBERED, TurnedAway


def test_given_the_same_again_and_again_then_it_is_counted() -> None:
    log = TurnedAway()
    assert log.due("a", "not registered", 0.0) == 1
    assert [log.due("a", "not registered", float(second)) for second in range(1, 10)] == [None] * 9
    assert log.due("a", "not registered", AGAIN_S) == 10
    assert log.due("a", "not registered", AGAIN_S + 1) is None


def test_given_another_reason_or_address_then_it_is_logged() -> None:
    log = TurnedAway()
    assert [log.due(*who, 0.0) for who in (("a", "x"), ("a", "y"), ("b", "x"))] == [1, 1, 1]


def test_given_made_up_reasons_then_memory_is_bounded() -> None:
    log = TurnedAway()
    for number in range(3 * REMEMBERED):
        assert log.due("a", str(number), number // LINES * AGAIN_S) == 1
    assert len(log._seen) == REMEMBERED


def test_given_made_up_reasons_then_lines_are_bounded() -> None:
    log = TurnedAway()
    lines = [log.due("a", str(number), number / 1_000) for number in range(10_000)]
    assert lines == [1] * LINES + [None] * (10_000 - LINES)
    # What was logged before is still counted, and there is room for more later.
    assert log.due("a", "0", 20.0) is None
    assert log.due("a", "0", AGAIN_S) == 2
    assert log.due("a", "another", AGAIN_S) == 1
