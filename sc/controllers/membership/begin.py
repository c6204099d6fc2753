"""The spec with which a move begins, and the SPUs that replicas may move to. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sc.controllers.actions import BeginMove
from sc.controllers.membership.budget import Budget
from sc.controllers.placing import REPLICA_BYTES
from sc.controllers.spu_group import is_draining
from sc.scheduler.row_changes import Seat
from sc.store.view import Liveness, View
from schemas.objects.partition import Partition, PartitionSpec, is_led
from schemas.objects.spu import Spu


def respecified(partition: Partition, replicas: tuple[int, ...]) -> PartitionSpec:
    """The spec of a partition that is to be held by these SPUs, whatever is under way now."""
    spec = partition.spec
    live = {m.spu_id for m in partition.status.lrs}
    settled = set(spec.replicas) - set(spec.joining or ())
    joining = tuple(i for i in replicas if i not in live and i not in settled)
    leaving = tuple(i for i in spec.holders if i not in replicas)
    return spec.model_copy(
        update={
            "replicas": replicas,
            "preferred_leader": replicas[0],
            "joining": joining or None,
            "leaving": leaving or None,
        }
    )


def begin(
    view: View, partition: Partition, spec: PartitionSpec, budget: Budget
) -> BeginMove | str | None:
    """The action that begins a move to this spec (`respecified`); or why it may not begin, in
    words; or None while others move."""
    before = set(partition.spec.holders)
    added = [i for i in spec.replicas if i not in before]
    spus: list[Spu] = []
    for spu_id in added:
        spu = view.store.spu(spu_id)
        if spu is None:
            return f"SPU {spu_id} is not registered"
        if spu_id not in view.sessions:
            return f"SPU {spu_id}, which is to get a replica of {partition.name}, is not connected"
        if view.store.tombstone(spu_id, partition.uid) is not None:
            return f"SPU {spu_id} is still deleting a former replica of {partition.name}"
        spus.append(spu)
    if not budget.take(added, spec, instead_of=partition.spec):
        return None
    return BeginMove(partition, spec, tuple(spus))


def may_move(view: View, partition: Partition) -> str | None:
    """Why no move of a partition can begin now, in words; None if one can."""
    if view.recovering:
        return "replicas move when the recovery of the cluster is over"
    if not is_led(partition.status):
        return f"{partition.name} has no leader"
    return None


def lost_newcomers(view: View, moving: Iterable[Partition], now_ms: int) -> str | None:
    """That SPUs which are to get replicas are offline, in words; None if none of them is."""
    joining = {i for partition in moving for i in partition.spec.joining or ()}
    lost = [str(i) for i in sorted(joining) if view.liveness(i, now_ms) is Liveness.OFFLINE]
    if not lost:
        return None
    spus = f"SPU {lost[0]}, which is" if len(lost) == 1 else f"SPUs {', '.join(lost)}, which are"
    return f"some are to come to {spus} offline"


def row_of(view: View, spu_ids: tuple[int, ...], budget: Budget) -> list[Seat]:
    """The seats of a row. An SPU that is not registered is in no rack."""
    return [_seat(view, i, view.store.spu(i), budget) for i in spu_ids]


def candidates(view: View, partition: Partition, budget: Budget) -> list[Seat]:
    """SPUs that may get a replica of a partition: online, not to be emptied, with room for it."""
    found = able(view, partition, view.store.objects(Spu))
    return [_seat(view, spu.spec.spu_id, spu, budget) for spu in found]


def able(view: View, partition: Partition, spus: Iterable[Spu]) -> list[Spu]:
    """Those of some SPUs that may get a replica of a partition."""
    size = view.size(partition)
    needed = REPLICA_BYTES + (0 if size is None else size.log_bytes)
    found = []
    for spu in spus:
        session = view.sessions.get(spu.spec.spu_id)
        if session is None or is_draining(view.store, spu):
            continue
        if session.free_bytes is not None and session.free_bytes < needed:
            continue
        if view.store.tombstone(spu.spec.spu_id, partition.uid) is None:
            found.append(spu)
    return found


def _seat(view: View, spu_id: int, spu: Spu | None, budget: Budget) -> Seat:
    rack, region = (None, None) if spu is None else (spu.spec.rack, spu.spec.region)
    held = view.store.replica_count(spu_id) + budget.given[spu_id]
    return Seat(spu_id, rack, region, held)
