"""Courses of events in the life of a stream, and what each comes to undisturbed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from schemas.objects.stream import Scaling
from schemas.streams.epochs import segment_id
from schemas.streams.key_space import SPACE
from tests.unit.sc.streams.world import World, scale, seal, truncation

HALF = SPACE // 2
Course = Callable[[World], Awaitable[None]]


async def created(_world: World) -> None:
    """Nothing but what a new stream leads to."""


async def split(world: World) -> None:
    await world.settle()
    await world.submit(scale([0], [(0, HALF), (HALF, SPACE)]))


async def merged(world: World) -> None:
    await split(world)
    await world.settle()
    ids = [segment.id for segment in (await world.epoch(1)).segments]
    await world.submit(scale(ids, [(0, SPACE)], "scale-2"))


async def sealed(world: World) -> None:
    await split(world)
    await world.settle()
    await world.submit(seal())


async def two_at_once(world: World) -> None:
    await world.settle()
    await world.submit(scale([0], [(0, HALF), (HALF, SPACE)]))
    await world.submit(scale([0], [(0, 5), (5, SPACE)], "scale-2"))


async def behind_a_seal(world: World) -> None:
    await world.settle()
    await world.submit(seal())
    await world.submit(scale([0], [(0, HALF), (HALF, SPACE)]))


async def deleted(world: World) -> None:
    await sealed(world)
    await world.settle()
    await world.mark_deleting()


async def more_wanted(world: World) -> None:
    await world.settle()
    stream = await world.stream()
    assert stream is not None
    scaling = Scaling(min_segments=3)
    spec = stream.spec.model_copy(update={"scaling": scaling, "max_record_size": 1 << 10})
    await world.put(stream.model_copy(update={"spec": spec}).with_metadata(generation=2))


async def truncated(world: World) -> None:
    """0.0 is before the cut, and 1.1 begins within."""
    await split(world)
    await world.settle()
    await world.submit(truncation({"1.1": 3, "1.2": 0}))


async def truncated_between(world: World) -> None:
    """A segment waits for one that is not done: both stay, and so do those behind them."""
    await merged(world)
    await world.settle()
    await world.submit(truncation({"1.1": 11, "1.2": 5, "2.3": -1}))


async def truncated_again(world: World) -> None:
    """Both cuts name segments of several epochs, and the stream is in a later one. Each record says
    which to read next, so no look asks more often."""
    await split(world)
    await world.settle()
    quarter = SPACE // 4
    await world.submit(scale([segment_id(1, 1)], [(0, quarter), (quarter, HALF)], "scale-2"))
    await world.settle()
    await world.submit(truncation({"1.1": 3, "1.2": 2, "2.3": -1}, "truncate-0"))
    await world.settle()
    merging = [segment_id(2, 4), segment_id(1, 2)]
    await world.submit(scale(merging, [(quarter, SPACE)], "scale-3"))
    await world.settle()
    await world.submit(scale([segment_id(3, 5)], [(quarter, SPACE)], "scale-4"))
    await world.settle()
    # 2.4 is done, and 3.5 waits for 1.2.
    await world.submit(truncation({"2.3": 1, "1.2": 9, "3.5": -1}))


async def truncated_behind_a_scale(world: World) -> None:
    """It is checked in its turn: now there is what it names."""
    await split(world)
    await world.submit(truncation({"1.1": 0, "1.2": 7}))
    await world.submit(truncation({"1.1": 0, "1.2": 2}, "truncate-2"))
    await world.submit(seal())


COURSES: dict[str, Course] = {
    course.__name__: course
    for course in (
        created,
        split,
        merged,
        sealed,
        two_at_once,
        behind_a_seal,
        deleted,
        more_wanted,
        truncated,
        truncated_between,
        truncated_again,
        truncated_behind_a_scale,
    )
}


async def undisturbed(course: Course, segments: int = 1) -> tuple[World, int]:
    world = await World.begin(segments=segments)
    await course(world)
    return world, await world.settle()
