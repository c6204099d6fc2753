"""The replication core under every order of events that a small world can have.

Walks through random worlds, each followed by a healing; every world of a very small one; every
world that can come of a corner; and deliberate bugs, which must be found. ``RUNNEL_SIM_WALKS`` and
``RUNNEL_SIM_SEED`` choose how many walks, and which one is the first.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from typing import Final

import pytest

from tests.sim.cluster.mutants import CORE
from tests.sim.explore import FailureError, exhaust, wander
from tests.sim.mutants import MUTANTS
from tests.sim.small_world.corners import CORNERS, chosen, delivered, replicated
from tests.sim.small_world.healing import heal
from tests.sim.small_world.moves import WEIGHTS, moves
from tests.sim.small_world.world import Limits, ViolationError, World, begin, check

STEPS: Final = 300


def walked(seed: int) -> World:
    """A random walk of three replicas with faults, and what it comes to without them."""
    limits = Limits(
        elections=3,
        records=3,
        crashes=1 + seed % 2,
        shrinks=1,
        attaches=4,
        lags=2,
        wipes=int(seed % 3 == 0),
        failures=int(seed % 3 == 1),
    )
    if seed % 5 == 3:
        # A disk goes back in time.
        limits = replace(limits, restores=1)
    if seed % 10 == 3:
        # Others may forget what they knew to be committed.
        limits = replace(limits, forgets=True, crashes=3 + seed % 3, elections=4)
    weights, steps = WEIGHTS, STEPS
    if seed % 10 == 9:
        # Slow disks and power that fails: much is not synced when an SPU crashes, and the faults
        # end in the middle of something.
        limits = replace(limits, crashes=4, attaches=6)
        weights, steps = {**WEIGHTS, "syncs": 0.5, "crashes": 1.0}, 100 + seed % 200
    world = begin(3, 1 + seed % 2, limits, slow=seed % 4 >= 2)
    world = wander(world, moves, check, seed=seed, steps=steps, weights=weights)
    try:
        return heal(world, links_break=seed % 3 != 2)
    except AssertionError as error:
        raise FailureError(f"seed {seed}: {error}") from error


def trace(seeds: range) -> str:
    """A digest of where walks end."""
    ends = hashlib.sha256()
    for seed in seeds:
        world = walked(seed)
        ends.update(repr((world.nodes, world.kv, world.committed)).encode())
    return ends.hexdigest()


FIRST: Final = int(os.environ.get("RUNNEL_SIM_SEED", "0"))
WALKS: Final = int(os.environ.get("RUNNEL_SIM_WALKS", "60"))
CHUNKS: Final = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_walks(chunk: int) -> None:
    committed = 0
    for seed in range(FIRST + chunk, FIRST + WALKS, CHUNKS):
        committed += len(walked(seed).committed)
    assert committed > 0 or WALKS < CHUNKS


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(70163, id="given-a-follower-one-commit-behind-then-it-is-told"),
        pytest.param(201_896, id="given-a-term-without-a-control-record-then-records-begin-it"),
        pytest.param(13198, id="given-a-broken-disk-not-in-the-journal-yet-then-it-is-broken"),
    ],
)
def test_walks_that_failed_once(seed: int) -> None:
    walked(seed)


@pytest.mark.slow
def test_more_walks() -> None:
    for seed in range(100_000, 100_120):
        walked(seed)


@pytest.mark.parametrize(
    ("spus", "limits"),
    [
        pytest.param(1, Limits(elections=0, records=2, crashes=2), id="one-that-crashes"),
        pytest.param(2, Limits(elections=0, records=1, attaches=0), id="two-and-a-record"),
    ],
)
def test_every_world_there_is(spus: int, limits: Limits) -> None:
    explored = exhaust(begin(spus, 1, limits), moves, check, most=100_000)
    assert explored.complete
    assert explored.worlds > 10


@pytest.mark.slow
def test_the_nearest_worlds_of_three() -> None:
    """Breadth first, as far as time allows: what a few moves can do."""
    limits = Limits(elections=2, records=2, crashes=1, shrinks=1, attaches=2, lags=1, wipes=1)
    exhaust(begin(3, 2, limits), moves, check, most=50_000)


#: A walk that finds each of the deliberate bugs. The core itself passes all of them.
FOUND: Final = {
    "a longer log of a live replica does not count": 53,
    "an unproven leader waits for no answer": 53,
    "a term promised to another process is led in again": 423,
    "a restarted leader keeps its term": 99,
    "a change is asked without the revision check": 8,
    "a pending change is dropped on a reconnect": 94,
    "a position counts before the cut": 1,
    "a follower acknowledges before it synced": 7,
    "a leader counts itself before it synced": 0,
    "a follower is cut by its last add confirmed": 97,
    "a second request replaces the union": 94,
    "answers of an older attachment count": 5,
    "an attachment does not fence": 100,
    "the leader is dropped": 0,
    "an election is computed from an older revision": 0,
    "a last add confirmed is adopted before the cut": 0,
    "an election adds a replica": 47,
    "a repaired replica keeps its storage id": 7,
    "a wiped disk keeps its seat": 72,
    "live replicas and term come of different revisions": 0,
    "a follower is cut to the smaller end only": 5,
    "a replica that failed stays in service": 4,
    "who is asked for is needed only once that is durable": 1_710,
}
#: The corner that shows what walks do not come upon in hundreds of them.
CORNERED: Final = {
    "a follower joins without the control record": (
        "a leader takes over before it hears of a commit"
    ),
    "the union is lost in a restart": "a leader restarts before its request is answered",
    "a follower cuts the record that was confirmed last": (
        "an unclean election takes a record away"
    ),
    "a last add confirmed is persisted before its record": "a follower is behind and may restart",
    "a follower obeys messages to its process of before": "a follower was cut and restarts",
    "a follower obeys messages of an older attachment": "a follower was cut and is attached again",
    "a repeated attachment is followed": "a follower was cut",
    "a contradiction is ignored": "an old disk is alone",
    "a last add confirmed contradicts nothing": "an old disk is alone",
    "a follower answers while its log is cut": "a follower is cut slowly",
    "a follower joins without all that is committed": "a follower is behind",
    "a leader commits with less than the minimum": "a replica fails that the minimum needs",
    "an unfit live replica is told to discard its log": "a live replica fails",
    "a leader without the SC needs nobody else": "an old disk knows older live replicas",
    "what a disk knows of live replicas is the word of the SC": (
        "an old disk knows older live replicas"
    ),
    "a witness that is behind has an old disk": "a leader restarts beside one that is behind",
}
#: What only whole clusters show: damage, and logs that begin later (`tests.sim.cluster.mutants`).
LIVED: Final = {
    "a leader without the SC hears of no later holders",
    "a leader without the SC knows which replicas are live",
    "a damaged follower names a term that it does not know",
    "an old live replica is told to discard its log",
    "a log that parts below the beginning of the leader's is to be cut",
}
#: What nobody comes upon has a test of its own below.
SCRIPTED: Final = {
    "what was recovered but not synced is reported",
    "records of a leader without a control record begin no term",
}


def test_every_deliberate_bug_has_a_test() -> None:
    assert set(MUTANTS) == {*FOUND, *CORNERED} | LIVED | SCRIPTED
    assert set(CORE) >= LIVED


@pytest.mark.parametrize("bug", FOUND)
def test_given_a_deliberate_bug_then_a_walk_finds_it(bug: str) -> None:
    seed = FOUND[bug]
    walked(seed)
    with MUTANTS[bug](), pytest.raises(FailureError):
        walked(seed)


@pytest.mark.parametrize("corner", CORNERS)
def test_every_world_that_comes_of_a_corner(corner: str) -> None:
    explored = exhaust(CORNERS[corner](), moves, check, most=5_000)
    assert explored.complete
    heal(CORNERS[corner](), links_break=True)


@pytest.mark.parametrize("bug", CORNERED)
def test_given_a_deliberate_bug_then_a_corner_shows_it(bug: str) -> None:
    with MUTANTS[bug](), pytest.raises(FailureError):
        exhaust(CORNERS[CORNERED[bug]](), moves, check, most=5_000)


def led_again_without_a_record() -> World:
    """The only live replica restarts without a record that it had not synced, and another one has;
    it leads on, and commits others in its place."""
    world = begin(2, 1, Limits(records=3, crashes=1, shrinks=1, lags=1))
    for _ in range(4):
        world = delivered(world)
    world = chosen(world, "('the SC drops', Member(spu=1", "('learns', 0", "('syncs', 0")
    world = delivered(chosen(world, "('appends', 0"))
    world = chosen(world, "('crashes', 0, 1", "('learns', 0", "('waits', 0")
    world = chosen(world, "('appends', 0", "('appends', 0", "('syncs', 0")
    assert [batch.data for batch in world.committed] == [b"control", b"record 2", b"record 1"]
    assert [batch.data for batch in world.nodes[1].disk.batches] == [b"control", b"record 3"]
    return world


def test_given_a_leader_without_a_control_record_then_what_it_lost_is_cut() -> None:
    world = replicated(led_again_without_a_record())
    check(world)
    assert world.nodes[1].disk.batches == world.nodes[0].disk.batches
    with MUTANTS["records of a leader without a control record begin no term"]():
        world = led_again_without_a_record()
        with pytest.raises(ViolationError, match="was committed before"):
            replicated(world)


def crashed_before_a_commit() -> World:
    """A follower restarts with a record that it had not synced; then all others sync."""
    world = begin(3, 2, Limits(crashes=1))
    for _ in range(4):
        world = delivered(world)
    options = {repr(move): come for move, come in moves(world)}
    world = options["('crashes', 1, 1)"]()
    for spu in (0, 2):
        options = {repr(move): come for move, come in moves(world)}
        world = options[f"('syncs', {spu})"]()
    for _ in range(6):
        world = delivered(world)
    assert len(world.committed) == 1
    return world


def test_given_recovery_that_does_not_sync_then_it_is_seen() -> None:
    check(crashed_before_a_commit())
    with MUTANTS["what was recovered but not synced is reported"]():
        world = crashed_before_a_commit()
        with pytest.raises(ViolationError, match="is live with"):
            check(world)


def test_given_other_hash_seeds_then_the_same_walks() -> None:
    """Walks do not depend on the process: a seed is all that it takes to see one again."""
    program = "from tests.sim.test_replication import trace; print(trace(range(3)))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
