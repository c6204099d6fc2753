"""Credits and turns: nobody is forgotten, nobody is sent more than was granted and a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spu.server.push_scheduler import PushScheduler, Turn

QUANTUM = 100


def turns(queue: PushScheduler, count: int, *, size: int) -> list[int]:
    """Take turns that find ``size`` bytes and more behind them."""
    taken = []
    for _ in range(count):
        turn = queue.next()
        if turn is None:
            break
        taken.append(turn.number)
        queue.done(turn.number, size, more=True)
    return taken


def test_given_nobody_then_there_is_no_turn() -> None:
    assert PushScheduler(QUANTUM).next() is None


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        (0, Turn(7, 1, 1)),
        (1, Turn(7, 1, 1)),
        (60, Turn(7, 60, 60)),
        (100, Turn(7, 100, 100)),
        (5_000, Turn(7, 100, 5_000)),
    ],
    ids=[
        "given-no-credit-then-it-counts-as-one",
        "given-a-byte-then-a-byte",
        "given-less-than-a-quantum-then-the-credit",
        "given-a-quantum-then-that",
        "given-more-then-a-quantum",
    ],
)
def test_first_turns(credit: int, expected: Turn) -> None:
    queue = PushScheduler(QUANTUM)
    queue.add(7, credit)
    assert queue.next() == expected
    assert queue.next() is None, "it has its turn already"


@pytest.mark.parametrize(
    ("credit", "sent", "granted", "expected"),
    [
        (100, 60, 0, Turn(7, 40, 40)),
        (100, 100, 0, None),
        (100, 250, 0, None),
        (100, 250, 150, None),
        (100, 250, 151, Turn(7, 1, 1)),
        (100, 100, 500, Turn(7, 100, 500)),
    ],
    ids=[
        "given-credit-left-then-the-rest",
        "given-none-left-then-it-waits",
        "given-a-longer-batch-then-it-waits",
        "given-a-grant-that-fills-up-what-was-too-much-then-it-waits",
        "given-a-byte-more-then-it-goes-on",
        "given-a-large-grant-then-a-quantum",
    ],
)
def test_what_is_left(credit: int, sent: int, granted: int, expected: Turn | None) -> None:
    queue = PushScheduler(QUANTUM)
    queue.add(7, credit)
    assert queue.next() is not None
    queue.done(7, sent, more=True)
    queue.grant(7, granted)
    assert queue.next() == expected


def test_given_nothing_found_then_the_next_commit_makes_a_turn() -> None:
    queue = PushScheduler(QUANTUM)
    queue.add(7, 50)
    queue.next()
    queue.done(7, 0, more=False)
    queue.grant(7, 50)
    assert queue.next() is None
    queue.woken(7)
    assert queue.next() == Turn(7, 100, 100)


def test_given_a_commit_during_a_turn_then_another_follows() -> None:
    queue = PushScheduler(QUANTUM)
    queue.add(7, 50)
    queue.next()
    queue.woken(7)
    assert queue.next() is None
    queue.done(7, 10, more=False)
    assert queue.next() == Turn(7, 40, 40)


def test_given_one_with_much_to_send_then_the_others_have_their_turns() -> None:
    queue = PushScheduler(QUANTUM)
    for number in (1, 2, 3):
        queue.add(number, 10_000)
    assert turns(queue, 7, size=100) == [1, 2, 3, 1, 2, 3, 1]


def test_given_the_end_of_one_then_it_has_no_turn() -> None:
    queue = PushScheduler(QUANTUM)
    for number in (1, 2, 3):
        queue.add(number, 10_000)
    assert queue.next() == Turn(1, QUANTUM, 10_000)
    for number in (1, 2, 2, 9):
        queue.remove(number)
    for number in (1, 2, 9):
        queue.grant(number, 5)
        queue.woken(number)
    assert turns(queue, 3, size=100) == [3, 3, 3]
    assert len(queue) == 1
    assert 3 in queue
    assert 1 not in queue


@dataclass
class Client:
    """What one client granted and was sent; its log as lengths of batches."""

    log: list[int]
    granted: int
    sent: int = 0
    taken: int = 0
    longest: int = 0
    frames: list[int] = field(default_factory=list)


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "grant", "append", "turn", "turn", "turn", "remove"]),
        st.integers(0, 4),
        st.integers(0, 300),
    ),
    max_size=80,
)


def serve(queue: PushScheduler, clients: dict[int, Client]) -> int | None:
    """One turn, as an SPU takes it; whose it was."""
    turn = queue.next()
    if turn is None:
        return None
    client = clients[turn.number]
    length = 0
    while client.taken < len(client.log):
        batch = client.log[client.taken]
        if length and length + batch > turn.max_bytes:
            break
        client.taken += 1
        client.longest = max(client.longest, batch)
        length += batch
    assert client.sent < client.granted, "a turn without credit"
    client.sent += length
    client.frames.append(length)
    queue.done(turn.number, length, more=client.taken < len(client.log))
    return turn.number


@given(steps)
def test_law_credit_bounds_what_is_sent_and_nothing_hangs(
    walk: list[tuple[str, int, int]],
) -> None:
    queue = PushScheduler(QUANTUM)
    clients: dict[int, Client] = {}
    for step, number, amount in walk:
        match step:
            case "add" if number not in clients:
                queue.add(number, amount)
                clients[number] = Client([], max(1, amount))
            case "grant" if number in clients:
                queue.grant(number, amount)
                clients[number].granted += amount
            case "append" if number in clients:
                clients[number].log.append(amount + 1)
                queue.woken(number)
            case "remove":
                queue.remove(number)
                clients.pop(number, None)
            case "turn":
                serve(queue, clients)
        for client in clients.values():
            assert client.sent < client.granted + max(1, client.longest)
            assert all(frame <= max(QUANTUM, client.longest) for frame in client.frames)
    while serve(queue, clients) is not None:
        pass
    for client in clients.values():
        assert client.frames, "nobody was answered"
        assert client.taken == len(client.log) or client.sent >= client.granted


@given(st.lists(st.integers(1, 300), min_size=2, max_size=6), st.integers(1, 60))
def test_law_between_two_turns_of_one_everybody_else_has_one(sizes: list[int], count: int) -> None:
    queue = PushScheduler(QUANTUM)
    clients = {number: Client([size] * 6_000, 1_000_000_000) for number, size in enumerate(sizes)}
    for number in clients:
        queue.add(number, 1_000_000_000)
    order = [serve(queue, clients) for _ in range(count)]
    for place, whose in enumerate(order):
        assert whose not in order[place + 1 : place + len(sizes)]
