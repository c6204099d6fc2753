"""Counts of what is well in a cluster, gathered within a time.

Neighbour: `schemas.objects.html` shows them in a notebook.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from runnel.admin.reads import ObjectReads
from runnel.admin.states import state_of
from schemas.errors import RunnelError
from schemas.objects.html import Row
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, is_writable
from schemas.objects.spu import SpuResolution
from schemas.objects.topic import TopicResolution

#: How long a notebook waits for what it shows.
HEALTH_TIMEOUT_S: Final = 2.0


async def health_rows(reads: ObjectReads, timeout_s: float = HEALTH_TIMEOUT_S) -> list[Row]:
    """What is well of SPUs, topics and partitions, a row each, or why that is not known.

    Takes at most about ``timeout_s`` seconds, and raises no RunnelError.
    """
    asked = {
        "SPUs": asyncio.create_task(reads.list("spus")),
        "topics": asyncio.create_task(reads.list("topics")),
        "partitions": asyncio.create_task(reads.list("partitions")),
    }
    try:
        await asyncio.wait(asked.values(), timeout=timeout_s)
        return [(name, _told(task, timeout_s)) for name, task in asked.items()]
    finally:
        for task in asked.values():
            task.cancel()
        await asyncio.gather(*asked.values(), return_exceptions=True)


def _told(task: asyncio.Task[list[Object]], timeout_s: float) -> str:
    if not task.done():
        return f"the SC has not answered within {timeout_s:g} s"
    try:
        return _counted(task.result())
    except RunnelError as error:
        return error.message


def _counted(objects: Sequence[Object]) -> str:
    """How many there are, and how many of them are in each state that is not good."""
    states = Counter(map(_trouble, objects))
    well = states.pop("", 0)
    troubles = "".join(f", {count} {state}" for state, count in states.most_common())
    return f"{well} of {len(objects)} well{troubles}" if objects else "none"


def _trouble(obj: Object) -> str:
    """The state of an object that is not as it should be; empty if it is."""
    state = state_of(obj)
    if isinstance(obj, Partition):
        return "" if is_writable(obj) else f"{state} and not writable"
    return "" if state in _GOOD else state


_GOOD: Final = (str(SpuResolution.ONLINE), str(TopicResolution.PROVISIONED))
