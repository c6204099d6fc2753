"""Waiting until an object is in a state, by its watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from runnel.admin.calls import object_path, parse_answer, understood
from runnel.admin.http import ScClient
from runnel.admin.states import DELETED, WRITABLE, state_of
from runnel.admin.watch import Watch
from schemas.errors import DeadlineExceededError, NotFoundError, RetryableError, RunnelError
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, is_writable
from schemas.objects.topic import Topic, TopicResolution

_POLL_S: Final = 0.1


async def wait_for(
    sc: ScClient,
    cls: type[Object],
    name: str,
    wanted: str,
    timeout: float,
    random: Callable[[], float],
) -> Object | None:
    """See `runnel.admin.client.Admin.wait`; ``wanted`` is from
    `runnel.admin.states.find_resolution`."""
    if cls is Topic and wanted == WRITABLE:
        return await _writable_topic(sc, name, timeout, random)
    return await _wait(sc, cls, name, wanted, timeout, random)


async def _writable_topic(
    sc: ScClient, name: str, timeout: float, random: Callable[[], float]
) -> Object | None:
    """A topic once it is placed, and each of its partitions is writable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    placed = str(TopicResolution.PROVISIONED)
    topic = await _wait(sc, Topic, name, placed, timeout, random)
    if not isinstance(topic, Topic):
        raise TypeError(f"a wait for a topic gave {topic!r}")
    query = {"labelSelector": f"topic={name}"}
    answer = await sc.call("GET", f"/v1/{Partition.PLURAL}", query=query)
    with understood("a list"):
        found = [parse_answer(Partition, item) for item in answer["items"]]
    for partition in found:
        if not is_writable(partition):
            remaining = max(0.0, deadline - loop.time())
            await _wait(sc, Partition, partition.name, WRITABLE, remaining, random)
    return topic


async def _wait(
    sc: ScClient,
    cls: type[Object],
    name: str,
    wanted: str,
    timeout: float,
    random: Callable[[], float],
) -> Object | None:
    """Wait for a condition of this one object."""
    label = f"{cls.kind_name().lower()} {name!r}"
    deadline = asyncio.get_running_loop().time() + timeout
    found = await _first_look(sc, cls, name, deadline)
    if isinstance(found, RunnelError):
        state = f"it is not known: {found.message}"
    elif found is None:
        if wanted == DELETED:
            return None
        raise NotFoundError(f"{label} does not exist")
    else:
        #: This does not wait for a later change of the spec: it may be another client's.
        generation = found.generation
        obj, state = found, _sentence(found, generation)
        if _arrived(obj, wanted, generation):
            return obj

        def lost(error: RunnelError) -> None:
            nonlocal state
            state = f"{_sentence(obj, generation)}, and since then: {error.message}"

        query = {"fieldSelector": f"metadata.name={name}"}
        watch = Watch(sc, cls, query, random, patient=True, on_trouble=lost)
        try:
            async with asyncio.timeout_at(deadline), watch:
                # If the time is over already, it ends here, without a watch.
                await asyncio.sleep(0)
                for current in await watch.state():
                    if current.metadata.uid != obj.metadata.uid:
                        break
                    obj, state = current, _sentence(current, generation)
                    if _arrived(obj, wanted, generation):
                        return obj
                    async for event in watch:
                        if event.type == "deleted":
                            break
                        obj, state = event.object, _sentence(event.object, generation)
                        if _arrived(obj, wanted, generation):
                            return obj
                if wanted == DELETED:
                    return None
                raise NotFoundError(f"{label} was deleted while waiting for it")
        except TimeoutError:
            pass
    raise DeadlineExceededError(f"{label} is not {wanted} after {timeout:g} s; {state}")


async def _first_look(
    sc: ScClient, cls: type[Object], name: str, deadline: float
) -> Object | RunnelError | None:
    """The object, None if it does not exist, or why no SC answered until the deadline."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return parse_answer(cls, await sc.call("GET", object_path(cls, name)))
        except NotFoundError:
            return None
        except RetryableError as error:
            if loop.time() >= deadline:
                return error
            await asyncio.sleep(max(0.0, min(_POLL_S, deadline - loop.time())))


def _arrived(obj: Object, wanted: str, generation: int) -> bool:
    if wanted == WRITABLE:
        there = isinstance(obj, Partition) and is_writable(obj)
    else:
        there = state_of(obj) == wanted
    return there and obj.status.observed_generation >= generation


def _sentence(obj: Object, generation: int) -> str:
    reason = getattr(obj.status, "reason", None)
    because = f": {reason}" if reason else ""
    stale = (
        f" (as of generation {obj.status.observed_generation}; the spec is at {generation})"
        if obj.status.observed_generation < generation
        else ""
    )
    writes = "" if getattr(obj.status, "writable", None) is not False else ", but not writable"
    return f"it is {state_of(obj)}{writes}{because}{stale}"
