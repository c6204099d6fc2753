"""Waiting until an object is in a state, by its watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from runnel.admin.calls import object_path, parse_answer, understood
from runnel.admin.http import ScClient
from runnel.admin.states import DELETED, DRAINED, SEALED, SETTLED, WRITABLE, reason_of, state_of
from runnel.admin.watch import Watch
from schemas.errors import (
    DeadlineExceededError,
    NotFoundError,
    NotReadyError,
    RetryableError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, is_writable
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic, TopicResolution

_POLL_S: Final = 0.1
_LEAST_S: Final = 1.0


async def wait_for(
    sc: ScClient,
    cls: type[Object],
    name: str,
    wanted: str,
    timeout: float,
    random: Callable[[], float],
    on_state: Callable[[str], None] | None = None,
) -> Object | None:
    """See `runnel.admin.client.Admin.wait`; ``wanted`` is from
    `runnel.admin.states.find_resolution`."""
    label = f"{cls.kind_name().lower()} {name!r}"
    wait = _Wait(sc, random, label, wanted, timeout, on_state)
    if wanted != DELETED:
        await wait.until_the_sc_knows()
    if cls is Topic and wanted in (WRITABLE, SEALED):
        return await _topic_of(wait, name, wanted)
    return await wait.until(cls, name, wanted)


async def _topic_of(wait: _Wait, name: str, wanted: str) -> Object | None:
    """A topic once it is placed, and each of its partitions is writable, or sealed."""
    topic = await wait.until(Topic, name, str(TopicResolution.PROVISIONED))
    if not isinstance(topic, Topic):
        raise TypeError(f"a wait for a topic gave {topic!r}")
    try:
        answer = await wait.asked(f"/v1/{Partition.PLURAL}", {"labelSelector": f"topic={name}"})
    except RetryableError as error:
        raise wait.unknown(f"its partitions are not known: {error.message}") from error
    with understood("a list"):
        found = [parse_answer(Partition, item) for item in answer["items"]]
    for partition in found:
        if wanted == SEALED or not is_writable(partition):
            await wait.until(Partition, partition.name, wanted)
    return topic


class _Wait:
    """What a user waits for, and until when; on the way there, perhaps conditions of several
    objects. The deadline begins here.
    """

    def __init__(
        self,
        sc: ScClient,
        random: Callable[[], float],
        label: str,
        wanted: str,
        timeout_s: float,
        on_state: Callable[[str], None] | None,
    ) -> None:
        self._sc = sc
        self._random = random
        self._label = label
        self._wanted = wanted
        self._timeout_s = timeout_s
        self._on_state = on_state
        #: What was said last.
        self._said: str | None = None
        self._deadline = asyncio.get_running_loop().time() + timeout_s

    async def until(self, cls: type[Object], name: str, wanted: str) -> Object | None:
        """Wait for a condition of one object, until the deadline."""
        label = f"{cls.kind_name().lower()} {name!r}"
        place = "it" if label == self._label else label
        try:
            found = parse_answer(cls, await self.asked(object_path(cls, name)))
        except NotFoundError:
            if wanted == DELETED:
                return None
            raise NotFoundError(f"{label} does not exist") from None
        except RetryableError as error:
            what = "" if place == "it" else f"{place} is not known: "
            raise self.unknown(f"{what}{error.message}") from error
        #: This does not wait for a later change of the spec: it may be another client's.
        generation = found.generation
        obj, state = found, _sentence(found, generation)
        if _arrived(obj, wanted, generation):
            return obj

        def lost(error: RunnelError) -> None:
            nonlocal state
            state = f"{_sentence(obj, generation)}, and since then: {error.message}"
            self._say(label, state)

        query = {"fieldSelector": f"metadata.name={name}"}
        watch = Watch(self._sc, cls, query, self._random, patient=True, on_trouble=lost)
        try:
            async with asyncio.timeout_at(self._deadline), watch:
                # If the time is over already, it ends here, without a watch.
                await asyncio.sleep(0)
                for current in await watch.state():
                    if current.metadata.uid != obj.metadata.uid:
                        break
                    obj, state = current, _sentence(current, generation)
                    if _arrived(obj, wanted, generation):
                        return obj
                    self._say(label, state)
                    async for event in watch:
                        if event.type == "deleted":
                            break
                        obj, state = event.object, _sentence(event.object, generation)
                        if _arrived(obj, wanted, generation):
                            return obj
                        self._say(label, state)
                if wanted == DELETED:
                    return None
                raise NotFoundError(f"{label} was deleted while waiting for it")
        except TimeoutError:
            pass
        raise self.too_late(f"{place} {state}")

    async def until_the_sc_knows(self) -> None:
        """Wait until the SC can write down what it learns: before, it says what was so."""
        loop = asyncio.get_running_loop()
        try:
            while (trouble := (await self.asked("/health")).get("trouble")) is not None:
                if loop.time() >= self._deadline:
                    raise NotReadyError(str(trouble))
                await asyncio.sleep(max(0.0, min(_POLL_S, self._deadline - loop.time())))
        except UnreachableError as error:
            raise self.unknown(error.message) from error
        except RetryableError as error:
            raise self.unknown(f"what the SC shows may be old: {error.message}") from error

    def _say(self, label: str, state: str) -> None:
        said = f"{label} {state}"
        if self._on_state is not None and said != self._said:
            self._said = said
            self._on_state(said)

    def too_late(self, state: str) -> DeadlineExceededError:
        """The error once the deadline is over, with the state of what is missing."""
        return DeadlineExceededError(
            f"{self._label} is not {self._wanted} after {self._timeout_s:g} s; {state}"
        )

    def unknown(self, why: str) -> DeadlineExceededError:
        """The error once the deadline is over and the SC has not said how it is."""
        return DeadlineExceededError(
            f"whether {self._label} is {self._wanted} is not known after {self._timeout_s:g} s:"
            f" {why}"
        )

    async def asked(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        """The answer of the SC, which is asked again until the deadline."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                # One question has a moment even if the time is over.
                async with asyncio.timeout_at(max(self._deadline, loop.time() + _LEAST_S)):
                    answer: dict[str, Any] = await self._sc.call("GET", path, query=query)
                return answer
            except TimeoutError:
                raise UnreachableError(f"the SC at {self._sc.address} does not answer") from None
            except RetryableError:
                if loop.time() >= self._deadline:
                    raise
                await asyncio.sleep(max(0.0, min(_POLL_S, self._deadline - loop.time())))


def _arrived(obj: Object, wanted: str, generation: int) -> bool:
    if wanted == WRITABLE:
        there = isinstance(obj, Partition) and is_writable(obj)
    elif wanted == SETTLED:
        there = _is_settled(obj)
    elif wanted == DRAINED:
        there = isinstance(obj, Spu) and bool(obj.status.drained)
    else:
        there = state_of(obj) == wanted
    return there and obj.status.observed_generation >= generation


def _is_settled(obj: Object) -> bool:
    if isinstance(obj, Partition):
        return not obj.spec.moves
    if isinstance(obj, Stream):
        return obj.status.moves is None
    placed = isinstance(obj, Topic) and obj.status.resolution is TopicResolution.PROVISIONED
    return placed and not obj.status.moving


def _sentence(obj: Object, generation: int) -> str:
    reason = reason_of(obj)
    because = f": {reason}" if reason else ""
    stale = (
        f" (as of generation {obj.status.observed_generation}; the spec is at {generation})"
        if obj.status.observed_generation < generation
        else ""
    )
    writes = "" if getattr(obj.status, "writable", None) is not False else ", but not writable"
    return f"is {state_of(obj)}{writes}{because}{stale}"
