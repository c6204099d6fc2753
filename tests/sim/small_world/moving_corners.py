"""Corners of moves: small worlds in the middle of one, where a rule decides what comes next.

Each is told like those of `tests.sim.small_world.corners`: what was sent before is forgotten, and
then every order of what is left is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.sim.small_world.corners import NOTHING, chosen, delivered, from_here, silent
from tests.sim.small_world.healing import ROUND_MS, round_of
from tests.sim.small_world.world import World, begin_with_moves

#: Rounds within which everything happens that a story waits for.
_ROUNDS: Final = 30


def until(world: World, is_there: Callable[[World], bool], *, away: int | None = None) -> World:
    """All goes well until something is as wanted; only SPU ``away`` is not there. What was sent is
    lost then."""
    for turn in range(_ROUNDS):
        if is_there(world):
            return silent(world)
        world = round_of(world, ROUND_MS * turn, away=away)
    raise AssertionError(f"the story does not come that far: {world.now}")


def live(*spus: int) -> Callable[[World], bool]:
    """These are live, and no others."""
    return lambda world: {member.spu for member in world.now.lrs} == {*spus}


def needs_nobody_else(world: World) -> bool:
    """Whether SPU 0 has heard that it is the only live replica, and asked for no other since."""
    return world.nodes[0].state.required == {world.nodes[0].state.me}


def wanted(world: World, *spus: int) -> World:
    """These are to hold the partition from now on."""
    return chosen(from_here(world, replace(NOTHING, wishes=(spus,))), "('is wanted on'")


def led(*replicas: int, of: int, minimum: int = 1, prompt: bool = True) -> World:
    """SPU 0 leads, and all replicas are live."""
    world = begin_with_moves(replicas, of, minimum, NOTHING, prompt=prompt)
    for _ in range(2):
        world = round_of(world, 0)
    assert live(*replicas)(world)
    return silent(world)


def to_come() -> World:
    """SPU 3 is to hold the partition instead of SPU 2, and does not know yet."""
    return from_here(wanted(led(0, 1, 2, of=4), 0, 1, 3))


def joined() -> World:
    """SPU 1 is to hold the partition instead of SPU 0, and has just become live."""
    return from_here(until(wanted(led(0, of=3), 1), live(0, 1)))


def wanted_elsewhere() -> World:
    """The same, and a third one is to hold it instead of both."""
    return from_here(joined(), replace(NOTHING, wishes=((2,),)))


def turned_round() -> World:
    """The same, and SPU 1 is not wanted any more."""
    return from_here(wanted(joined(), 0))


def handed_over() -> World:
    """SPU 1 has come instead of SPU 0, and was elected; nobody has heard of that."""
    return from_here(until(wanted(led(0, of=2), 1), lambda world: world.now.leader == 1))


def left() -> World:
    """The same, and SPU 0 is live no more; SPU 1 leads, and has not heard of that."""
    world = until(wanted(led(0, of=2), 1), lambda world: world.nodes[1].state.is_serving)
    world = from_here(chosen(world, "('the SC looks', None"))
    assert live(1)(world)
    return world


def ended() -> World:
    """SPU 1 holds the partition instead of SPU 0, which has not heard of that."""
    return from_here(until(wanted(led(0, of=2), 1), lambda world: bool(world.graves)))


def preferred_is_away() -> World:
    """SPU 3 is to come instead of SPU 0, which leads, and to be preferred; it has gone away, and
    the other two that stay are live."""
    world = from_here(wanted(led(0, 1, 2, of=4), 3, 1, 2), replace(NOTHING, silences=1))
    return from_here(chosen(world, "('loses its session', 3"))


def too_few() -> World:
    """SPU 2 is to come instead of SPU 1, and has gone away; the minimum is two."""
    world = wanted(led(0, 1, of=3, minimum=2), 0, 2)
    return from_here(
        chosen(from_here(world, replace(NOTHING, silences=1)), "('loses its session', 2")
    )


def gone_with_its_disk() -> World:
    """SPU 1 went away before it was to go, so that a tombstone means any storage that it has. It is
    wanted again."""
    world = from_here(led(0, 1, of=2), replace(NOTHING, silences=1))
    world = wanted(chosen(world, "('loses its session', 1"), 0)
    world = until(world, lambda found: bool(found.graves), away=1)
    assert [grave.storage for grave in world.graves] == [None]
    return from_here(world, replace(NOTHING, attaches=1, wishes=((0, 1),)))


def deleted_and_wanted() -> World:
    """SPU 1 held the partition, deleted it, and is to hold it again; nothing that SPU 1 sent has
    come to SPU 0, which leads and has heard everything from the SC."""
    world = from_here(until(wanted(led(0, 1, of=2), 0), lambda found: bool(found.graves)))
    world = chosen(silent(world), "('is to delete'", "('deletes', 1", "('the SC forgets'")
    world = chosen(world, "('learns', 0")
    return from_here(chosen(wanted(world, 0, 1), "('learns', 0", "('learns', 1"))


def rebuilt() -> World:
    """SPU 1 is to delete the storage that it had before it began anew, of which the SC has not
    heard yet."""
    world = from_here(led(0, 1, of=2, prompt=False), replace(NOTHING, failures=1))
    world = until(chosen(world, "('fails', 1"), needs_nobody_else)
    world = chosen(from_here(world, replace(NOTHING, attaches=1)), "('attaches', 0, 1")
    for _ in range(3):
        world = delivered(world)
    assert world.nodes[1].state.me.storage != "s1"
    world = silent(world)
    world = chosen(wanted(world, 0), "('learns', 0", "('reports', 0", "('the SC looks', None")
    assert [grave.storage for grave in world.graves] == ["s1"]
    return from_here(world)


#: Where a rule of the SC decides.
CORNERS: Final[dict[str, Callable[[], World]]] = {
    "a newcomer has yet to come": to_come,
    "a newcomer is live": joined,
    "a newcomer is live, and another one wanted": wanted_elsewhere,
    "a move is turned round": turned_round,
    "another leads": handed_over,
    "who leaves is live no more": left,
    "a move has ended": ended,
    "who is preferred is away": preferred_is_away,
    "too few would stay": too_few,
    "who went away is wanted again": gone_with_its_disk,
    "who has deleted it is wanted again": deleted_and_wanted,
    "a replica that is to go began anew": rebuilt,
}
