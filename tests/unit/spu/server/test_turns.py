"""Clients take turns: none has more than a slice at a time, nor all together more than a round."""

from __future__ import annotations

from collections.abc import Callable

from spu.server.turns import ROUND_S, SLICE_S, Turns


class Loop:
    """An event loop and a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, lambda: self.now_s)
        self.served: list[str] = []

    def turn(self) -> None:
        calls, self.soon[:] = list(self.soon), []
        for call in calls:
            call()

    def wait(self, name: str, rounds: int) -> None:
        """Stand in line for so many slices, and use each to its end."""

        def serve(ends_s: float) -> None:
            self.served.append(name)
            self.now_s = ends_s
            if rounds > 1:
                self.wait(name, rounds - 1)

        self.turns.wait(serve)


def test_given_nobody_else_then_a_slice_at_once() -> None:
    loop = Loop()
    assert loop.turns.slice_ends_s() == loop.now_s + SLICE_S


def test_given_a_round_is_used_up_then_others_wait_for_the_next() -> None:
    loop = Loop()
    begun_s = loop.now_s
    assert loop.turns.slice_ends_s() is not None
    loop.now_s = begun_s + ROUND_S - SLICE_S / 2
    assert loop.turns.slice_ends_s() == begun_s + ROUND_S
    loop.now_s = begun_s + ROUND_S
    assert loop.turns.slice_ends_s() is None
    loop.turn()
    assert loop.turns.slice_ends_s() == loop.now_s + SLICE_S


def test_given_some_wait_then_they_are_served_in_turn_and_before_others() -> None:
    loop = Loop()
    for name in "abc":
        loop.wait(name, 2)
    assert loop.turns.slice_ends_s() is None
    loop.turn()
    assert loop.served == ["a", "b", "c", "a", "b"]
    assert loop.turns.slice_ends_s() is None
    loop.turn()
    assert loop.served == ["a", "b", "c", "a", "b", "c"]
    loop.turn()
    assert loop.turns.slice_ends_s() is not None


def test_given_many_wait_then_one_turn_of_the_loop_takes_no_longer_than_a_round() -> None:
    loop = Loop()
    for number in range(1_000):
        loop.wait(str(number), 1)
    turns = 0
    while len(loop.served) < 1_000:
        began_s = loop.now_s
        loop.turn()
        turns += 1
        assert loop.now_s - began_s <= ROUND_S + 1e-9
    assert turns <= 1_000 * SLICE_S / ROUND_S + 1
    assert loop.served == [str(number) for number in range(1_000)]


def test_given_nobody_waits_any_more_then_nothing_is_scheduled() -> None:
    loop = Loop()
    loop.wait("a", 1)
    for _ in range(3):
        loop.turn()
    assert loop.soon == []
