"""Manual placement: whether the rows that a topic gives can be placed as given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from schemas.objects.topic import PartitionAssignment


def invalid_assignment(rows: Sequence[PartitionAssignment], spus: Container[int]) -> str | None:
    """Why a manual assignment is invalid, or None; the first problem found, for the topic's status.

    ``spus`` are the ids of all registered SPUs: they need not be online. Rows may come in any
    order; there is at least one, and none is empty (the schema ensures both).
    """
    times = Counter(row.id for row in rows)
    twice = [row_id for row_id, count in times.items() if count > 1]
    if twice:
        return f"assignment has row {min(twice)} more than once"
    missing = next((i for i in range(len(rows)) if i not in times), None)
    if missing is not None:
        return f"assignment rows must be numbered from 0 without gaps: {missing} is missing"
    ordered = sorted(rows, key=lambda row: row.id)
    size = len(ordered[0].replicas)
    for row in ordered:
        name = f"assignment row {row.id}"
        if len(row.replicas) != size:
            return f"{name} has {_replicas(len(row.replicas))}, row 0 has {size}"
        for spu_id, count in Counter(row.replicas).items():
            if count > 1:
                return f"{name} names SPU {spu_id} {'twice' if count == 2 else f'{count} times'}"
            if spu_id not in spus:
                return f"{name}: SPU {spu_id} is not registered"
    return None


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"
