"""Where new partitions go, of the SPUs that are online now. Pure.

Placement counts what exists, so the loop carries out one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sc.controllers.spu_group import is_draining
from sc.scheduler.placement import Candidate, Load, Placement, Request, Shortage, place
from sc.store.view import Liveness, View
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu, SpuResolution

REPLICA_BYTES: Final = 1 << 20
"""Free space on a disk that a new replica needs. Nobody knows how large it will grow."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows of replicas, the preferred leader first."""

    rows: list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """Why there are no rows now. ``wait``: SPUs are expected to connect again; by ``until_ms`` the
    next of them will be known to be offline."""

    reason: str
    wait: bool = False
    until_ms: int | None = None


def place_new(
    view: View, count: int, replicas: int, now_ms: int, *, ignore_racks: bool = False
) -> Placed | NotPlaced:
    """Rows for ``count`` new partitions with so many replicas each."""
    spus = view.store.objects(Spu)
    alive = {s.spec.spu_id: view.liveness(s.spec.spu_id, now_ms) for s in spus}
    if away := returning(view, now_ms):
        # SPUs that connect first after a restart must not get everything.
        reason = f"waiting for {', '.join(away)} to connect again"
        return NotPlaced(reason, wait=True, until_ms=decided_at_ms(view, now_ms))
    online = [s for s in spus if alive[s.spec.spu_id] is Liveness.ONLINE]
    able = [s for s in online if not is_draining(view.store, s)]
    # By id: while a mirror catches up, an id may still have its former object beside its new one.
    candidates = {
        s.spec.spu_id: Candidate(
            s.spec.spu_id, s.spec.rack, s.spec.region, view.sessions[s.spec.spu_id].free_bytes
        )
        for s in able
    }
    request = Request(
        partitions=count,
        replication_factor=replicas,
        ignore_racks=ignore_racks,
        registered=len(spus),
        draining=len(online) - len(able),
        replica_bytes=REPLICA_BYTES,
    )
    load = Load(
        leaders={i: view.store.preferred_count(i) for i in candidates},
        replicas={i: view.store.replica_count(i) for i in candidates},
    )
    match place(candidates.values(), request, load):
        case Placement(rows=rows):
            return Placed(rows)
        case Shortage(reason=reason):
            return NotPlaced(reason)


def returning(view: View, now_ms: int) -> list[str]:
    """Names of the SPUs that may connect again soon: until then, nothing new is planned."""
    return [
        spu.name
        for spu in view.store.objects(Spu)
        if view.liveness(spu.spec.spu_id, now_ms) is Liveness.UNKNOWN
        and spu.status.resolution is not SpuResolution.INIT
    ]


def decided_at_ms(view: View, now_ms: int) -> int | None:
    """When the next of the SPUs that are `returning` will be known to be offline."""
    return view.decided_at_ms((s.spec.spu_id for s in view.store.objects(Spu)), now_ms)


def named_by(view: View, partitions: tuple[Partition, ...]) -> tuple[Spu, ...]:
    """The registered SPUs on which partitions are placed. A restored one may name others, too."""
    ids = sorted({i for p in partitions for i in p.spec.replicas})
    return tuple(spu for i in ids if (spu := view.store.spu(i)) is not None)
