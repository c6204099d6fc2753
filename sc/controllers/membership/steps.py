"""The next step of a partition whose replicas move. Pure.

1. *Join*: newcomers are assigned and catch up like any replica that was empty. Their leader asks
   for them as live replicas (`sc.controllers.live_set`); no other SPU becomes one.
2. *Wait* until each replica that stays and is online is live, and until those that are live are as
   many as the minimum, and more than half. So a move never ends with fewer copies than the topic
   asks for because somebody was slow, and an SPU that is offline holds it up only if too few are
   left. But a newcomer whose session ended a moment ago may be back soon (`BACK_MS`), and there is
   one copy more if those that leave wait for it. If nobody leaves, the minimum of live replicas
   rises with the end, and waits for it.
3. *Hand over*: if the leader leaves, a live replica that stays is elected.
4. *Leave*: those that leave are taken out of the live replica set (LRS).
5. *End*: they are gone from the spec, and in the same write tombstones name their storages. The
   leader must know the LRS without them before: it would wait for disks that are deleted.

Each step follows from the objects and the sessions alone; of these, also from when they ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sc.controllers.actions import EndMove
from sc.controllers.election import cut_off_from, elected
from sc.controllers.live_set import members_health
from sc.store.view import Liveness, View
from schemas.control.messages import Tombstone
from schemas.ids import PartitionUid, StorageId
from schemas.objects.partition import Partition, PartitionStatus

#: How long a newcomer that was lost may take to be back before others leave without it. More than
#: it takes to start a process again that has many logs to open.
BACK_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Waits:
    """Nothing is to be done now; ``why`` says in words what the move waits for, and ``until_ms``
    how long at most, if that is certain."""

    why: str
    until_ms: int | None = None


def next_step(
    view: View, partition: Partition, leader: int, now_ms: int
) -> PartitionStatus | EndMove | Waits:
    """What is next for a partition that moves, and that ``leader`` leads, online and fit."""
    spec, status = partition.spec, partition.status
    health = members_health(view, partition.uid, status.lrs, now_ms)
    live = {m.spu_id for m, found in health.items() if found.live}
    leaving = set(spec.leaving or ())
    if (why := _too_early(view, partition, live, now_ms)) is not None:
        return Waits(why)
    lost = _lost_a_moment_ago(view, partition, now_ms)
    if lost and (not leaving or not leaving.isdisjoint(live)):
        verb = "was" if len(lost) == 1 else "were"
        why = f"{_spus([*lost])} {verb} lost, and may be back soon"
        return Waits(why, min(lost.values()))
    if leader in leaving:
        successor = _successor(view, partition, live, now_ms)
        if (until_ms := view.stops_until_ms(successor)) > now_ms:
            return Waits(f"SPU {successor}, which is to lead, stops", until_ms)
        return elected(view, partition, successor, now_ms)
    kept = tuple(m for m in status.lrs if m.spu_id not in leaving)
    if kept != status.lrs:
        return status.model_copy(update={"lrs": kept})
    report = view.report(leader, partition.uid)
    if leaving and (report is None or not view.knows(report, partition)):
        return Waits(f"SPU {leader}, its leader, hears of it")
    if leaving and view.recovering:
        return Waits("the recovery of the cluster is not over")
    ended = spec.model_copy(update={"joining": None, "leaving": None})
    return EndMove(partition, ended, _graves(view, partition))


def _too_early(view: View, partition: Partition, live: set[int], now_ms: int) -> str | None:
    """Why the move cannot end yet, and those that leave must stay; None if it can."""
    spec = partition.spec
    staying = [i for i in spec.replicas if i in live]
    behind = [
        i
        for i in spec.replicas
        if i not in live and view.liveness(i, now_ms) is not Liveness.OFFLINE
    ]
    if behind:
        return f"{_spus(behind)} {_catch(behind)} up"
    most = len(spec.replicas)
    # A minimum that is more than all that stay is never met: no reason to wait for it.
    least = min(most, max(spec.log.min_in_sync_replicas, most // 2 + 1))
    if len(staying) < least:
        away = [i for i in spec.replicas if i not in live]
        verb = "is" if len(away) == 1 else "are"
        return f"{_spus(away)} {verb} offline, and {least} of those that stay must be live"
    return None


def _lost_a_moment_ago(view: View, partition: Partition, now_ms: int) -> dict[int, int]:
    """Newcomers that are away, and until when others wait for them. Of one whose session ends again
    and again, the first end counts: otherwise that might never end."""
    found: dict[int, int] = {}
    for spu_id in partition.spec.joining or ():
        ended_ms = view.suspicions.ended_ms(spu_id)
        if ended_ms is None or view.suspicions.is_flapping(spu_id, now_ms):
            continue
        away = spu_id not in view.sessions and view.store.spu(spu_id) is not None
        if away and now_ms < ended_ms + BACK_MS:
            found[spu_id] = ended_ms + BACK_MS
    return found


def _successor(view: View, partition: Partition, live: set[int], now_ms: int) -> int:
    """Who leads instead of one that leaves: one that reaches the live replicas and does not stop,
    of these the preferred leader, else the one that leads least."""
    able = [i for i in partition.spec.replicas if i in live]
    preferred = partition.spec.preferred_leader

    def rank(spu_id: int) -> tuple[int, bool, bool, int, int]:
        stops, apart = view.stops_until_ms(spu_id) > now_ms, cut_off_from(view, spu_id, live)
        return apart, stops, spu_id != preferred, view.leading_count(spu_id), spu_id

    return min(able, key=rank)


def _graves(view: View, partition: Partition) -> tuple[Tombstone, ...]:
    """One for each SPU that leaves, naming its storage if it is known: a replica that comes back to
    the SPU later has another one."""
    return tuple(
        Tombstone(
            uid=PartitionUid(partition.uid), spu_id=i, storage_id=_storage(view, partition, i)
        )
        for i in partition.spec.leaving or ()
    )


def _storage(view: View, partition: Partition, spu_id: int) -> StorageId | None:
    report = view.report(spu_id, partition.uid)
    return None if report is None else report.storage_id


def _spus(ids: list[int] | tuple[int, ...]) -> str:
    return ("SPU " if len(ids) == 1 else "SPUs ") + ", ".join(map(str, ids))


def _catch(ids: list[int] | tuple[int, ...]) -> str:
    return "catches" if len(ids) == 1 else "catch"
