"""Sealing a topic: its partitions take no more records, for good, and readers meet their ends.

The SC notes it in the topic. The leader of each partition then appends a control record that ends
the records of its log; once that is committed, the partition's status says where they end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from runnel.admin.calls import NotConnectedError
from runnel.admin.client import Admin
from schemas.errors import DeadlineExceededError, NotFoundError, RetryableError
from schemas.objects.partition import Partition

_AGAIN_S: Final = 0.05
_MOST_AGAIN_S: Final = 1.0
#: Partitions that an error names.
_NAMED: Final = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sealed:
    """One partition: ``end`` is the offset after its last record."""

    partition: int
    end: int


async def seal(admin: Admin, topic: str, timeout_s: float) -> tuple[Sealed, ...]:
    """Seal a topic; returns once all its partitions are sealed. Again, it only waits for that.

    An SC that restarts meanwhile is asked again. Raises NotFoundError; UnreachableError if no SC is
    there at the beginning; DeadlineExceededError after ``timeout_s`` seconds: the others are sealed
    as soon as they have leaders.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    order = {"spec": {"sealed": True}}
    uid = (await _asked(lambda: admin.patch("topic", topic, order), deadline, begins=True)).uid
    again_s = _AGAIN_S
    while True:
        listed = await _asked(lambda: admin.list("partition", {"topic": topic}), deadline)
        found = [one for one in listed if isinstance(one, Partition) and one.spec.owner.uid == uid]
        open_ = [one for one in found if one.status.sealed_offset is None]
        if found and not open_:
            return tuple(
                Sealed(one.spec.index or 0, one.status.sealed_offset or 0)
                for one in sorted(found, key=lambda one: one.spec.index or 0)
            )
        if not found and (await _asked(lambda: admin.get("topic", topic), deadline)).uid != uid:
            raise NotFoundError(f"topic {topic!r} was deleted and created again meanwhile")
        if loop.time() >= deadline:
            raise DeadlineExceededError(_waits_for(topic, timeout_s, open_))
        await asyncio.sleep(min(again_s, max(0.0, deadline - loop.time())))
        again_s = min(2 * again_s, _MOST_AGAIN_S)


async def _asked(ask: Callable[[], Awaitable[T]], deadline: float, *, begins: bool = False) -> T:
    """An answer of an SC, which is asked again until the deadline; ``begins``: not if none is
    there."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return await ask()
        except RetryableError as error:
            if loop.time() >= deadline or (begins and isinstance(error, NotConnectedError)):
                raise
        begins = False
        await asyncio.sleep(_AGAIN_S)


def _waits_for(topic: str, timeout_s: float, partitions: Sequence[Partition]) -> str:
    head = f"topic {topic!r} is being sealed, but not all of it was after {timeout_s:g} s"
    if not partitions:
        return f"{head}: it has no partitions yet"
    told = [
        f"{one.name} is {one.status.resolution.value}"
        + (f" ({one.status.reason})" if one.status.reason else "")
        for one in partitions[:_NAMED]
    ]
    more = "; …" if len(partitions) > _NAMED else ""
    return f"{head}: {'; '.join(told)}{more}. It goes on by itself"
