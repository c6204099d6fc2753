"""Workflows of streams: no crash and no second owner changes what they come to.

Each course of events is run once undisturbed. Then it is run again for each of its writes, with the
owner gone after that write and another one in its place; and once more with the first one still
acting on what it saw before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from sc.controllers.actions import Action, KvAction, Step
from schemas.errors import ConflictError, RunnelError
from schemas.ids import make_term
from tests.laws import sampled
from tests.unit.sc.streams.courses import COURSES, Course, split, undisturbed
from tests.unit.sc.streams.world import MOST, Owner, World, run

Change = Callable[[Owner], None]


def unchanged(_owner: Owner) -> None:
    """No deliberate bug."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", COURSES)
def test_given_a_crash_after_any_write_then_it_ends_the_same(name: str) -> None:
    async def story() -> None:
        world, writes = await undisturbed(COURSES[name])
        wanted = await world.everything()
        for crash in sampled(range(writes + 1), every=2):
            other = await World.begin()
            await COURSES[name](other)
            for _ in range(crash):
                assert await other.move(other.owner)
            other.owner = other.another()
            await other.settle()
            assert await other.everything() == wanted, f"after write {crash}"

    run(story())


@pytest.mark.sampled
@pytest.mark.parametrize("name", COURSES)
def test_given_a_first_owner_that_still_acts_on_what_it_saw_then_it_ends_the_same(
    name: str,
) -> None:
    assert run(first_difference(COURSES[name])) is None


async def first_difference(
    course: Course, every: int = 5, change: Change = unchanged
) -> str | None:
    """The first way in which two owners that act in turns end otherwise than one alone does."""
    world, writes = await undisturbed(course)
    wanted = await world.everything()
    ways = product(range(writes + 1), (1, 2, writes), (False, True))
    for crash, ahead, looks_late in sampled(ways, every=every):
        other = await World.begin()
        await course(other)
        for _ in range(crash):
            assert await other.move(other.owner)
        change(other.owner)
        await _with_a_late_owner(other, ahead, change, looks_late=looks_late)
        if await other.everything() != wanted:
            return f"after write {crash}, {ahead} ahead, looks late: {looks_late}"
    return None


async def _with_a_late_owner(world: World, ahead: int, change: Change, *, looks_late: bool) -> None:
    """The first owner looks, another one makes some writes, and then the first one acts. It
    decides before those writes, or (``looks_late``) after them, by its old mirror."""
    late, other = world.owner, world.another()
    change(other)
    await late.sync()
    decided = () if looks_late else await late.look()
    for _ in range(ahead):
        if not await world.move(other):
            break
    for action in await late.look() if looks_late else decided:
        # The loop would look again.
        with suppress(ConflictError):
            await late.carry_out(action)
    for _ in range(MOST):
        if not (await world.move(late) or await world.move(other)):
            return
    raise AssertionError("it goes on and on")


def without_state(owner: Owner) -> None:
    """Steps do not compare the stream's state."""
    write = owner.write

    async def written(action: KvAction) -> None:
        await write(replace(action, compares=()) if isinstance(action, Step) else action)

    owner.write = written  # type: ignore[method-assign]


def test_given_steps_that_do_not_compare_the_state_then_two_owners_differ_from_one() -> None:
    """A deliberate bug, which shows that the courses above would find it."""
    found: str | None
    try:
        found = run(first_difference(split, 1, without_state))
    except (AssertionError, RunnelError) as error:
        found = str(error)
    assert found is not None


async def leader_after_a_late_seal(change: Change) -> int | None:
    """Who leads a partition, once a step that was decided before the election orders its seal."""
    world = await World.begin()
    await split(world)
    change(world.owner)
    action: Action | None = None
    while not (isinstance(action, Step) and action.respec):
        if action is not None:
            await world.owner.carry_out(action)
        while await world.obey():
            pass
        await world.owner.sync()
        (action,) = await world.owner.look()
    old = next(p for p in await world.partitions() if p.spec.segment_id == 0)
    led = old.status.model_copy(update={"leader": 2, "term": make_term(0, 1)})
    await world.put(old.with_status(led))
    with suppress(ConflictError):
        # The loop would look again.
        await world.owner.carry_out(action)
    await world.settle()
    now = next(p for p in await world.partitions() if p.spec.segment_id == 0)
    assert now.status.sealed_offset is not None
    return now.status.leader


def without_partitions(owner: Owner) -> None:
    """Steps do not compare the partitions that they change."""
    write = owner.write

    async def written(action: KvAction) -> None:
        if isinstance(action, Step):
            now = {one.uid: one.metadata.resource_version for one in await owner.partitions()}
            respec = tuple(
                (old.with_metadata(resource_version=now[old.uid]), spec)
                for old, spec in action.respec
            )
            action = replace(action, respec=respec)
        await write(action)

    owner.write = written  # type: ignore[method-assign]


def test_given_a_partition_that_changed_meanwhile_then_a_step_does_not_undo_that() -> None:
    assert run(leader_after_a_late_seal(unchanged)) == 2
    assert run(leader_after_a_late_seal(without_partitions)) == 1, "a deliberate bug is seen"
