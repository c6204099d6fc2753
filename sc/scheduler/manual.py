"""Manual placement: whether the rows that a topic gives can be placed as given.

Some rows are wrong whatever SPUs there are (`wrong_row`): the API refuses them. Others only name
SPUs that are not registered yet (`unregistered`): the topic waits for those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from schemas.objects.spu import MAX_SPU_ID
from schemas.objects.topic import PartitionAssignment


@dataclass(frozen=True, slots=True)
class WrongRow:
    """Something wrong with a row. ``path`` is its field, seen from ``assignment``: ``[0].id``."""

    path: str
    why: str


def invalid_assignment(rows: Sequence[PartitionAssignment], spus: Container[int]) -> str | None:
    """Why a manual assignment is invalid, or None; the first problem found, for the topic's status.

    ``spus`` are the ids of all registered SPUs: they need not be online. Rows may come in any
    order; there is at least one, and none is empty (the schema ensures both).
    """
    found = wrong_row(rows) or next(unregistered(rows, spus), None)
    return None if found is None else f"assignment {found.why}"


def wrong_row(rows: Sequence[PartitionAssignment]) -> WrongRow | None:
    """The first thing that is wrong with rows, whatever SPUs there are."""
    seen: set[int] = set()
    for index, row in enumerate(rows):
        if row.id in seen:
            return WrongRow(f"[{index}].id", f"row {row.id} is there more than once")
        seen.add(row.id)
    missing = next((i for i in range(len(rows)) if i not in seen), None)
    if missing is not None:
        why = f"row {missing} is missing: rows are numbered from 0 without gaps"
        return WrongRow("", why)
    size = next(len(row.replicas) for row in rows if row.id == 0)
    for index, row in _ordered(rows):
        path, name = f"[{index}].replicas", f"row {row.id}"
        if len(row.replicas) != size:
            return WrongRow(path, f"{name} has {_replicas(len(row.replicas))}, row 0 has {size}")
        if len(set(row.replicas)) < len(row.replicas):
            spu_id, count = Counter(row.replicas).most_common(1)[0]
            often = "twice" if count == 2 else f"{count} times"
            return WrongRow(path, f"{name} names SPU {spu_id} {often}")
        for spu_id in row.replicas:
            if not 0 <= spu_id <= MAX_SPU_ID:
                why = f"{name} names SPU {spu_id}; ids of SPUs go from 0 to {MAX_SPU_ID}"
                return WrongRow(path, why)
    return None


def unregistered(rows: Sequence[PartitionAssignment], spus: Container[int]) -> Iterator[WrongRow]:
    """Rows that name SPUs which are not registered, with the first of them, in order of their
    ids."""
    for index, row in _ordered(rows):
        for spu_id in row.replicas:
            if spu_id not in spus:
                why = f"row {row.id}: SPU {spu_id} is not registered"
                yield WrongRow(f"[{index}].replicas", why)
                break


def _ordered(rows: Sequence[PartitionAssignment]) -> list[tuple[int, PartitionAssignment]]:
    """Rows in the order of their ids, with their places in the list."""
    return sorted(enumerate(rows), key=lambda found: found[1].id)


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"
