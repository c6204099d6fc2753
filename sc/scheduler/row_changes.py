"""Changes of the row of one placed partition: which SPU comes, and which goes. Pure.

What is true of placements (`sc.scheduler.placement`) is kept as far as one SPU more or less can:
replicas in regions, then in racks that the row does not use yet, then even loads; ties go to the
lowest id. Nobody else is moved for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sc.scheduler.rows import Location, location


@dataclass(frozen=True, slots=True)
class Seat:
    """An SPU that may hold a replica; ``replicas``: how many it holds."""

    spu_id: int
    rack: str | None = None
    region: str | None = None
    replicas: int = 0


def extended(
    row: Sequence[Seat], candidates: Iterable[Seat], *, ignore_racks: bool = False
) -> Seat | None:
    """The candidate that a row is best extended by; None if there is none that it lacks."""
    there = {seat.spu_id for seat in row}
    regions, racks = _uses(row, ignore_racks=ignore_racks)

    def rank(seat: Seat) -> tuple[int, ...]:
        region, rack = _location(seat, ignore_racks=ignore_racks)
        uses = (min(regions[region], 1), racks[rack], regions[region])
        return (*uses, seat.replicas, seat.spu_id)

    return min((seat for seat in candidates if seat.spu_id not in there), key=rank, default=None)


def shrunk(
    row: Sequence[Seat],
    count: int,
    *,
    keep: int | None,
    lost: Collection[int] = (),
    draining: Collection[int] = (),
    ignore_racks: bool = False,
) -> tuple[int, ...]:
    """The ids of a row of ``count`` of these SPUs, in their order. ``keep`` stays; those that are
    ``lost`` go first, then those that are ``draining``, then those that share their rack or region
    with most others."""
    left = list(row)
    while len(left) > count:
        left.remove(_worst(left, keep, lost, draining, ignore_racks=ignore_racks))
    return tuple(seat.spu_id for seat in left)


def _worst(
    row: Sequence[Seat],
    keep: int | None,
    lost: Collection[int],
    draining: Collection[int],
    *,
    ignore_racks: bool,
) -> Seat:
    """The seat that a row can do without best."""
    regions, racks = _uses(row, ignore_racks=ignore_racks)

    def rank(seat: Seat) -> tuple[int, ...]:
        region, rack = _location(seat, ignore_racks=ignore_racks)
        uses = (seat.spu_id in draining, racks[rack], regions[region])
        return (seat.spu_id in lost, *uses, seat.replicas, seat.spu_id)

    return max((seat for seat in row if seat.spu_id != keep), key=rank)


def _uses(row: Iterable[Seat], *, ignore_racks: bool) -> tuple[Counter[object], Counter[object]]:
    """How often a row uses each region and each rack."""
    places = [_location(seat, ignore_racks=ignore_racks) for seat in row]
    return Counter(region for region, _ in places), Counter(rack for _, rack in places)


def _location(seat: Seat, *, ignore_racks: bool) -> Location:
    if ignore_racks:
        return location(seat.spu_id, None, None)
    return location(seat.spu_id, seat.region, seat.rack)
