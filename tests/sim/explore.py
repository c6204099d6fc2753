"""Looking at every world that can come of one, or at long random walks through them."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

WorldT = TypeVar("WorldT", bound=Hashable)
#: What happened, and to what.
Move = tuple[object, ...]
Moves = Callable[[WorldT], Iterator[tuple[Move, Callable[[], WorldT]]]]


class FailureError(AssertionError):
    """A violation with the moves that led to it."""


@dataclass(frozen=True, slots=True)
class Explored(Generic[WorldT]):
    """How many worlds were seen, and whether that is all there are."""

    worlds: int
    complete: bool


def exhaust(
    world: WorldT, moves: Moves[WorldT], check: Callable[[WorldT], None], most: int
) -> Explored[WorldT]:
    """Breadth first, so that a failure is told by the fewest moves. Raises FailureError."""
    cause: dict[WorldT, tuple[WorldT, Move] | None] = {world: None}
    waiting = deque([world])
    while waiting:
        here = waiting.popleft()
        try:
            for move, come in moves(here):
                after = come()
                if after in cause:
                    continue
                cause[after] = (here, move)
                check(after)
                if len(cause) > most:
                    return Explored(len(cause), complete=False)
                waiting.append(after)
        except AssertionError as error:
            raise FailureError(_story(cause, here, str(error))) from error
    return Explored(len(cause), complete=True)


def wander(
    world: WorldT,
    moves: Moves[WorldT],
    check: Callable[[WorldT], None],
    *,
    seed: int,
    steps: int,
    weights: Mapping[str, float],
) -> WorldT:
    """One random walk, in which a kind of move is as likely as its weight says. Gives where it
    ended; raises FailureError with them."""
    chance = random.Random(seed)
    story: list[str] = []
    for _ in range(steps):
        # In an order that does not depend on how this process hashes strings.
        options = sorted(moves(world), key=lambda option: repr(option[0]))
        if not options:
            break
        kinds = Counter(move[0] for move, _ in options)
        shares = [weights[str(move[0])] / kinds[move[0]] for move, _ in options]
        ((move, come),) = chance.choices(options, shares)
        try:
            after = come()
            if after != world:
                story.append(repr(move))
                check(after)
            world = after
        except AssertionError as error:
            raise FailureError("\n".join([f"seed {seed}", *story, str(error)])) from error
    return world


def _story(cause: dict[WorldT, tuple[WorldT, Move] | None], last: WorldT, why: str) -> str:
    lines = [why]
    at: WorldT = last
    while (came := cause.get(at)) is not None:
        at, move = came
        lines.append(repr(move))
    return "\n".join(reversed(lines))
