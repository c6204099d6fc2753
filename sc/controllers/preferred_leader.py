"""Preferred leader election: leaders go home after a while. Pure.

A failover leaves the partitions of a lost SPU with those that survived, and when it is back it
leads nothing. So a partition elects its preferred leader again, if that SPU is a live replica and
all live replicas are online and fit. For lack of a planned hand-over this is an election like any
other: nothing acknowledged is lost, and producers wait for a moment. It is therefore done gently:

- only when no session opened or ended, and the SC did not lag, for `CALM_MS`;
- one partition per SPU in `PACE_MS`;
- the same partition again only after `AGAIN_MS`, in case its preferred leader cannot lead;
- never to an SPU that stops, that is flapping or that its group wants to remove, or that cannot
  reach all live replicas.

Somebody may ask for it now (`elect_now`): then it waits for nothing. But one that the preferred
leader has lost again, although no SPU came or went, is not given back before `AGAIN_MS`.

Partitions that wait for their turn look at different times, so that thousands of them do not look
all at once. `sc.dispatch.loop` notes what was decided.
"""

from __future__ import annotations

from sc.controllers.election import cut_off_from, elected
from sc.controllers.live_set import members_health
from sc.controllers.spu_group import is_draining
from sc.store.view import View
from schemas.objects.partition import Partition, PartitionStatus, is_led

#: For so long nothing must have happened.
CALM_MS = 30_000
#: Between two partitions that one SPU gets back.
PACE_MS = 5_000
#: Between two preferred leader elections of one partition.
AGAIN_MS = 300_000
#: Over so many times of `PACE_MS` partitions that wait spread.
TURNS = 12


def elect_preferred(view: View, partition: Partition, now_ms: int) -> PartitionStatus | int | None:
    """The status with the preferred leader of a healthy partition as its leader, or when to look
    again. None if that SPU leads, or may not: then an event will say when to look again."""
    preferred = partition.spec.preferred_leader
    if not _may_lead(view, partition, now_ms):
        return None
    due_ms = _due_ms(view, partition, now_ms)
    return elected(view, partition, preferred, now_ms) if due_ms <= now_ms else due_ms


def elect_now(view: View, partition: Partition, now_ms: int) -> PartitionStatus | None:
    """The status with the preferred leader as the leader, because somebody asks for that now. None
    if that SPU leads, or may not."""
    if not may_lead_soon(view, partition, now_ms) or not _may_lead(view, partition, now_ms):
        return None
    return elected(view, partition, partition.spec.preferred_leader, now_ms)


def may_lead_soon(view: View, partition: Partition, now_ms: int) -> bool:
    """Whether another SPU leads, and the preferred leader may lead as soon as it is a live replica,
    and all live replicas are online, fit and in its reach: at once, or when an SPU is back."""
    preferred = partition.spec.preferred_leader
    spu = view.store.spu(preferred)
    return (
        is_led(partition.status)
        and partition.status.leader != preferred
        and preferred in partition.spec.replicas
        and spu is not None
        and not is_draining(view.store, spu)
        and view.stops_until_ms(preferred) <= now_ms
        and not _has_failed(view, partition, now_ms)
    )


def _may_lead(view: View, partition: Partition, now_ms: int) -> bool:
    """Whether the preferred leader does not lead, and may."""
    status, preferred = partition.status, partition.spec.preferred_leader
    if preferred == status.leader or preferred not in partition.spec.replicas:
        return False
    health = members_health(view, partition.uid, status.lrs, now_ms)
    if preferred not in {m.spu_id for m in health} or not all(h.live for h in health.values()):
        return False
    if cut_off_from(view, preferred, {m.spu_id for m in health}):
        return False
    spu = view.store.spu(preferred)
    return not (view.recovering or spu is None or is_draining(view.store, spu))


def _has_failed(view: View, partition: Partition, now_ms: int) -> bool:
    """Whether the preferred leader was elected not long ago, and does not lead any more although no
    session opened or ended since then: it would lose the partition again. An election that was
    decided and not written is none."""
    found, changed_ms = view.preferred_elections.by_partition, view.suspicions.changed_ms
    if (given := found.get(partition.uid)) is None:
        return False
    given_ms, leader, term = given
    is_over = partition.status.term > term and leader == partition.spec.preferred_leader
    if not is_over or now_ms >= given_ms + AGAIN_MS:
        return False
    return changed_ms is None or changed_ms <= given_ms


def _due_ms(view: View, partition: Partition, now_ms: int) -> int:
    preferred, elections = partition.spec.preferred_leader, view.preferred_elections
    changed_ms = view.suspicions.changed_ms
    given = elections.by_partition.get(partition.uid)
    due_ms = max(now_ms, view.stops_until_ms(preferred))
    # One that was not written is none. While it is on its way, the pace of its SPU holds it back.
    if given is not None and partition.status.term >= given[2]:
        due_ms = max(due_ms, given[0] + AGAIN_MS)
    if changed_ms is not None:
        due_ms = max(due_ms, changed_ms + CALM_MS)
    if view.suspicions.is_flapping(preferred, now_ms):
        due_ms = max(due_ms, now_ms + CALM_MS)
    free_ms = elections.by_spu.get(preferred, now_ms - PACE_MS) + PACE_MS
    if free_ms > now_ms:
        turn = (partition.spec.index or 0) % TURNS
        due_ms = max(due_ms, free_ms + turn * PACE_MS)
    return due_ms
