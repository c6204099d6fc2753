"""Laws of reader groups, for any order in which readers act."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.groups import balance
from runnel.groups.cut import GroupCut
from runnel.groups.places import Places
from tests.laws import examples
from tests.unit.runnel.groups.group_world import RECORDS, STREAM, TOPIC, GroupWorld

STEPS = ("acquire", "process", "process", "process", "end", "move", "release", "pass", "found")
UIDS = {STREAM: "s", TOPIC: "t"}
RANDOM = st.integers(0, 1 << 32).map(Random)


def run(world: GroupWorld, steps: int, *, deaths: bool) -> None:
    random = world.random
    for _ in range(steps):
        choice = random.random()
        if choice < 0.06 and len(world.sessions) < 4:
            world.join(f"reader-{random.randrange(4)}" if deaths else f"reader-{world._number}")
        elif choice < 0.09:
            world.checkpoint(silent=random.random() < 0.5)
        elif choice < 0.11 and deaths and world.group.readers:
            world.expire(random.choice(sorted(world.group.readers)))
        elif choice < 0.13 and world.sessions:
            world.act(random.choice(world.sessions), "leave")
        elif world.sessions:
            world.act(random.choice(world.sessions), random.choice(STEPS))


@settings(max_examples=examples(60))
@given(RANDOM)
def test_given_readers_that_come_and_go_then_every_record_once_and_checkpoints_are_exact(
    random: Random,
) -> None:
    world = GroupWorld(random, scales=random.randint(0, 6))
    run(world, 200, deaths=False)
    world.drain()
    assert Counter(world._all_records()) == world.processed


@settings(max_examples=examples(60))
@given(RANDOM)
def test_given_readers_that_die_then_every_record_at_least_once(random: Random) -> None:
    world = GroupWorld(random, scales=random.randint(0, 6))
    run(world, 200, deaths=True)
    world.drain()
    assert set(world._all_records()) == set(world.processed)


@settings(max_examples=examples(60))
@given(RANDOM, st.integers(0, 150), st.booleans())
def test_given_an_end_then_what_lies_before_it_is_read_and_nothing_else(
    random: Random, steps: int, deaths: bool
) -> None:
    world, cut = ended_world(random, steps)
    run(world, 200, deaths=deaths)
    world.drain()
    assert set(world.processed) == world.before_end()
    assert deaths or max(world.processed.values(), default=1) == 1
    assert not world.group.places.open
    assert GroupCut.of(world.group.places, UIDS) == cut
    # What the group ends at is a place to go on from.
    assert GroupCut.parse(str(cut)) == cut


def ended_world(random: Random, steps: int) -> tuple[GroupWorld, GroupCut]:
    """A world whose group ends where another one has come to."""
    other = GroupWorld(random, scales=random.randint(0, 6))
    run(other, steps, deaths=False)
    return GroupWorld(random, 0, ending=other), GroupCut.of(other.group.places, UIDS)


@settings(max_examples=examples(30))
@given(RANDOM, st.integers(1, 40), st.integers(1, 7))
def test_given_any_readers_then_loads_are_even_after_one_round(
    random: Random, partitions: int, readers: int
) -> None:
    world = GroupWorld(random, scales=0, partitions=partitions)
    world.join("reader-0")
    for step in ("found", "acquire"):
        world.act(world.sessions[0], step)
    for number in range(1, readers):
        world.join(f"reader-{number}")
    for step in ("release", "acquire"):
        for session in random.sample(world.sessions, len(world.sessions)):
            world.act(session, step)
    assert_even(world)


@settings(max_examples=examples(30))
@given(RANDOM, st.integers(1, 40), st.integers(2, 7))
def test_given_one_more_reader_then_who_has_decided_before_others_gave_back_gives_no_more(
    random: Random, partitions: int, readers: int
) -> None:
    world = GroupWorld(random, scales=0, partitions=partitions)
    for number in range(readers):
        world.join(f"reader-{number}")
        for step in ("found", "release", "acquire"):
            for session in world.sessions:
                world.act(session, step)
    world.join("another")
    before = {one.name: balance.to_release(world.group, one.name) for one in world.sessions}
    for session in random.sample(world.sessions, len(world.sessions)):
        assert balance.to_release(world.group, session.name) == before[session.name]
        world.act(session, "release")
    for session in random.sample(world.sessions, len(world.sessions)):
        world.act(session, "acquire")
    assert_even(world)


def test_given_a_reader_with_a_checkpoint_to_pass_then_it_is_given_nothing_until_it_does() -> None:
    world = GroupWorld(Random(0), scales=0, partitions=10)
    world.join("busy")
    world.checkpoint()
    world.join("reader")
    world.act(world.sessions[1], "found")
    world.act(world.sessions[1], "acquire")
    assert len(world.group.owned("reader")) == len(world.group.places.open)
    assert not balance.to_release(world.group, "reader")
    busy, reader = world.sessions
    for session, step in ((busy, "pass"), (reader, "release"), (busy, "acquire")):
        world.act(session, step)
    assert_even(world)


def assert_even(world: GroupWorld) -> None:
    loads = [len(world.group.owned(session.name)) for session in world.sessions]
    assert not world.group.free()
    assert max(loads) - min(loads) <= 1
    assert not any(balance.to_release(world.group, one.name) for one in world.sessions)


def test_mutant_given_a_successor_opened_when_one_predecessor_is_left_then_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Places, "is_done", lambda *_: True)
    assert _is_seen(deaths=False)


def test_mutant_given_an_acquire_during_a_pending_checkpoint_then_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acquire = balance.to_acquire

    def hasty(group, reader):  # type: ignore[no-untyped-def]
        waiting = [(one, one.waiting) for one in group.checkpoints]
        for one, _ in waiting:
            one.waiting = set()
        try:
            return acquire(group, reader)
        finally:
            for one, names in waiting:
                one.waiting = names

    monkeypatch.setattr("runnel.groups.decisions.to_acquire", hasty)
    assert _is_seen(deaths=False)


def test_mutant_given_an_end_that_lets_successors_go_then_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits at the end would be opened once its other predecessors are done."""
    monkeypatch.setattr(Places, "stop", lambda self, one, at: self.end(one, at, ()))
    assert any(_ends_elsewhere(seed) for seed in range(200))


def _ends_elsewhere(seed: int) -> bool:
    world, cut = ended_world(Random(seed), 120)
    try:
        world.drain()
    except AssertionError:
        return True
    return GroupCut.of(world.group.places, UIDS) != cut


def test_mutant_given_a_release_without_its_position_then_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Places, "move", lambda *_: None)
    assert _is_seen(deaths=False)


def _is_seen(*, deaths: bool) -> bool:
    """Whether the laws above fail for one of many drawn orders."""
    for seed in range(200):
        world = GroupWorld(Random(seed), scales=4)
        try:
            run(world, 200, deaths=deaths)
            world.drain()
            if max(world.processed.values()) > 1 or len(world.processed) < RECORDS:
                return True
        except AssertionError:
            return True
    return False
