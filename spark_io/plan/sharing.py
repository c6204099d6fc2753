"""One task for several small slices, because a task has a fixed cost. Pure.

Slices next to each other share a task, in their order, until its bytes are enough. There are never
fewer tasks than ``least``: what follows the scan may have much to do for few bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from spark_io.plan.slices import LogSlice

#: Slices share a task up to about so many bytes. Reading them takes about as long as what a task
#: costs beyond them, in the JVM and in Python.
TASK_BYTES: Final = 16 << 20
#: Opening a slice takes as long as reading so many bytes.
OPENING_BYTES: Final = 1 << 20
#: The least number of tasks in which slices share, where no other one is asked for.
LEAST_TASKS: Final = 32


@dataclass(frozen=True)
class TaskSlices(InputPartition):
    """One task's work: slices that it reads one after the other."""

    slices: tuple[LogSlice, ...]


def share(
    slices: Sequence[LogSlice],
    sizes: Sequence[int],
    least: int,
    most_bytes: int | None,
) -> list[TaskSlices]:
    """Tasks for slices of ``sizes`` bytes: at least ``least``, if there are so many slices.
    ``most_bytes``: slices do not share a task of more, if that is less than `TASK_BYTES`."""
    costs = [max(size, OPENING_BYTES) for size in sizes]
    bound = TASK_BYTES if most_bytes is None else min(TASK_BYTES, most_bytes)
    # Tasks get fewer as each may take more: the most that leaves enough of them.
    low, high = 0, bound
    while low < high:
        middle = (low + high + 1) // 2
        if len(_ends(costs, middle)) >= least:
            low = middle
        else:
            high = middle - 1
    ends = _ends(costs, low)
    if low < bound and len(ends) > least:
        # A little more would leave too few: some take that.
        ends = _ends(costs, low + 1, least)
    return [TaskSlices(tuple(slices[start:end])) for start, end in pairwise([0, *ends])]


def _ends(costs: Sequence[int], most: int, least: int = 0) -> list[int]:
    """Where each task ends, if it takes slices of ``most`` together, or a single one of more, and
    leaves enough slices for ``least`` tasks."""
    ends: list[int] = []
    together = 0
    for index, cost in enumerate(costs):
        too_few = len(ends) + len(costs) - index < least
        if together and (too_few or together + cost > most):
            ends.append(index)
            together = 0
        together += cost
    if costs:
        ends.append(len(costs))
    return ends
