"""Replicas that move, under every order of events that a small world can have.

The real controllers of partitions and SPUs decide; what they hear is late, and what they say, too.
The nearest worlds of corners in the middle of a move are all looked at, random walks go further,
and both are healed; deliberate bugs must be found. ``RUNNEL_SIM_WALKS`` and ``RUNNEL_SIM_SEED`` are
as in `tests.sim.test_replication`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from tests.sim.cluster.mutants import MUTANTS as OF_LIVES
from tests.sim.explore import FailureError, exhaust, wander
from tests.sim.moving_mutants import MUTANTS
from tests.sim.small_world.corners import (
    NOTHING,
    chosen,
    delivered,
    from_here,
    replicated,
    silent,
)
from tests.sim.small_world.healing import heal
from tests.sim.small_world.membership import delete
from tests.sim.small_world.moves import WEIGHTS, moves
from tests.sim.small_world.moving_corners import (
    CORNERS,
    deleted_and_wanted,
    gone_with_its_disk,
    live,
    rebuilt,
    to_come,
    until,
)
from tests.sim.small_world.world import (
    Limits,
    ViolationError,
    World,
    begin_with_moves,
    check,
    with_node,
)

SPUS: Final = 4
STEPS: Final = 300


def walked(seed: int) -> World:
    """A random walk in which replicas move, with faults, and what it comes to without them."""
    chance = Random(seed)
    size = chance.randint(1, 3)
    minimum = chance.randint(1, min(2, size))
    wishes = tuple(
        tuple(chance.sample(range(SPUS), chance.randint(minimum, 3)))
        for _ in range(chance.randint(1, 4))
    )
    limits = Limits(
        elections=1,
        records=2,
        crashes=seed % 3,
        shrinks=seed % 2,
        attaches=6,
        lags=2,
        silences=2,
        wishes=wishes,
        wipes=int(seed % 4 == 1),
        failures=int(seed % 4 == 2),
    )
    replicas = (0, *chance.sample(range(1, SPUS), size - 1))
    world = begin_with_moves(replicas, SPUS, minimum, limits, prompt=seed % 2 == 0)
    world = wander(world, moves, check, seed=seed, steps=STEPS, weights=WEIGHTS)
    try:
        return heal(world, links_break=seed % 3 != 2)
    except AssertionError as error:
        raise FailureError(f"seed {seed}: {error}") from error


FIRST: Final = int(os.environ.get("RUNNEL_SIM_SEED", "0"))
#: Walks with the real controllers take longer than others.
WALKS: Final = int(os.environ.get("RUNNEL_SIM_WALKS", "60")) // 3
CHUNKS: Final = 5


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_walks(chunk: int) -> None:
    committed = 0
    for seed in range(FIRST + chunk, FIRST + WALKS, CHUNKS):
        committed += len(walked(seed).committed)
    assert committed > 0 or WALKS < CHUNKS


@pytest.mark.slow
def test_more_walks() -> None:
    for seed in range(100_000, 100_040):
        walked(seed)


#: What may happen to corners, beside what must.
FAULTS: Final = {
    "nothing": NOTHING,
    "a crash": replace(NOTHING, crashes=1),
    "another session": replace(NOTHING, silences=1),
    "an election": replace(NOTHING, elections=1),
    "an empty disk": replace(NOTHING, wipes=1),
}
#: So many of the nearest worlds of each are looked at.
NEAR: Final = 800
NEAR_SLOW: Final = 4_000
#: Corners, and the fault that is most likely to do harm there.
PAIRS: Final = (
    ("a newcomer has yet to come", "nothing"),
    ("a newcomer is live", "another session"),
    ("a move is turned round", "a crash"),
    ("a move is turned round", "an empty disk"),
    ("another leads", "a crash"),
    ("another leads", "an election"),
    ("who leaves is live no more", "a crash"),
    ("who leaves is live no more", "another session"),
    ("a move has ended", "a crash"),
    ("a move has ended", "an empty disk"),
    ("who is preferred is away", "an election"),
    ("a replica that is to go began anew", "a crash"),
)


@pytest.mark.parametrize("corner", CORNERS)
def test_every_corner_heals(corner: str) -> None:
    for links_break in (True, False):
        heal(CORNERS[corner](), links_break=links_break)


@pytest.mark.parametrize(("corner", "fault"), PAIRS)
def test_the_nearest_worlds_of_a_corner(corner: str, fault: str) -> None:
    exhaust(from_here(CORNERS[corner](), FAULTS[fault]), moves, check, most=NEAR)


@pytest.mark.slow
@pytest.mark.parametrize(("corner", "fault"), PAIRS)
def test_more_worlds_of_a_corner(corner: str, fault: str) -> None:
    exhaust(from_here(CORNERS[corner](), FAULTS[fault]), moves, check, most=NEAR_SLOW)


@pytest.mark.parametrize(
    "corner",
    [
        "a move is turned round",
        "another leads",
        "who leaves is live no more",
        "a move has ended",
        pytest.param("who went away is wanted again", marks=pytest.mark.slow),
    ],
)
def test_every_world_that_comes_of_a_corner(corner: str) -> None:
    assert exhaust(CORNERS[corner](), moves, check, most=20_000).complete


#: The corner in whose nearest worlds a deliberate bug shows.
CORNERED: Final = {
    "a move ends before the leader knows that some have left": "who leaves is live no more",
    "a leader leaves while it leads": "a newcomer is live",
    "a move does not wait for who catches up": "a newcomer has yet to come",
    "a replica takes over that is not live": "who is preferred is away",
    "who leaves is forgotten when others are wanted": "a newcomer is live, and another one wanted",
    "a newcomer that is not wanted any more stays live": (
        "a newcomer is live, and another one wanted"
    ),
}
#: The corner that does not heal with a deliberate bug.
UNHEALED: Final[dict[str, Callable[[], World]]] = {
    "a tombstone is forgotten before it is obeyed": CORNERS["a move has ended"],
    "a leader does not attach who is added": to_come,
    "a leader takes another replica for the one that has left": deleted_and_wanted,
    "what replaced a deleted storage is forgotten": rebuilt,
}
#: What has a test of its own below.
SCRIPTED: Final = {
    "an SPU gets a partition back before it has deleted it",
    "another process may answer an attachment",
}


def test_every_deliberate_bug_has_a_test() -> None:
    assert set(MUTANTS) == {*CORNERED, *UNHEALED} | SCRIPTED


@pytest.mark.parametrize("bug", CORNERED)
def test_given_a_deliberate_bug_then_a_corner_shows_it(bug: str) -> None:
    exhaust(CORNERS[CORNERED[bug]](), moves, check, most=NEAR)
    with MUTANTS[bug](), pytest.raises(FailureError):
        exhaust(CORNERS[CORNERED[bug]](), moves, check, most=NEAR)


@pytest.mark.parametrize("bug", UNHEALED)
def test_given_a_deliberate_bug_then_a_move_does_not_end(bug: str) -> None:
    heal(UNHEALED[bug](), links_break=False)
    with MUTANTS[bug]():
        world = UNHEALED[bug]()
        with pytest.raises(ViolationError, match="it does not come back"):
            heal(world, links_break=False)


def attached_twice() -> World:
    """An order to attach comes to the replica that SPU 1 has to delete, and once more to the one
    that is made in its place."""
    world = chosen(gone_with_its_disk(), "('attaches', 0, 1")
    order = world.mail
    world = chosen(silent(replicated(world)), "('connects', 1", "('is left out', 1")
    world = chosen(delivered(world), "('is to delete'", "('deletes', 1", "('the SC forgets'")
    world = chosen(world, "('is wanted on'", "('learns', 1", "('learns', 0, Revision(revision=5")
    world = replicated(replace(silent(world), mail=order))
    asked = [come for move, come in moves(world) if move[0] == "the SC looks" and move[1]]
    return asked[0]() if asked else world


def test_given_an_attachment_that_came_twice_then_only_who_answered_it_counts() -> None:
    check(attached_twice())
    with MUTANTS["another process may answer an attachment"]():
        world = attached_twice()
        with pytest.raises(ViolationError, match="is live with"):
            check(world)


def test_given_a_move_that_does_not_wait_for_enough_then_a_corner_shows_it() -> None:
    world = CORNERS["too few would stay"]()
    exhaust(world, moves, check, most=NEAR)
    bug = OF_LIVES["those that leave go before others are live"]
    with bug(), pytest.raises(FailureError, match="stay"):
        exhaust(world, moves, check, most=NEAR)


def ordered_to_delete_late() -> bool:
    """SPU 1 is wanted again while an order to delete any storage is on its way to it, which comes
    when it is live. Gives whether the SC let that begin."""
    world = chosen(gone_with_its_disk(), "('connects', 1", "('is to delete'")
    if not any(move[0] == "is wanted on" for move, _ in moves(world)):
        return False
    order = world.nodes[1].order
    world = chosen(world, "('is wanted on'", "('learns', 0, Revision(revision=5")
    world = chosen(world, "('attaches', 0, 1")
    world = with_node(world, 1, replace(world.nodes[1], order=None))
    world = until(world, live(0, 1))
    delete(with_node(world, 1, replace(world.nodes[1], order=order)), 1)
    return True


def test_given_a_tombstone_then_its_spu_gets_the_partition_only_after_it() -> None:
    assert not ordered_to_delete_late()
    bug = MUTANTS["an SPU gets a partition back before it has deleted it"]
    with bug(), pytest.raises(ViolationError, match="deletes"):
        ordered_to_delete_late()
