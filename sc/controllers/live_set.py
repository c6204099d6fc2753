"""What the live replica set (LRS) of a partition may become. Pure.

Commits need every member, and any member may be elected, so a set changes by these rules only:

- The leader never leaves. A member leaves only while the leader is online and fit: only then is it
  certain that a fit replica holds every acknowledged record.
- A member that is unfit (its SPU reports so, or reports another storage) leaves at once.
- Members whose SPUs are offline leave together, if ``minInSyncReplicas`` members remain without
  them. If not, or while the state of some member is not known, all of them stay: nothing could be
  committed without those that stay, and each that stays may still be elected.
- A member that lags leaves when the leader asks for it, if the minimum remains.
- A member joins when the leader asks for it, and its SPU holds a replica by the spec and reports
  that very storage, fit.

A request is granted whole or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from sc.store.view import Liveness, View
from schemas.control.messages import LrsRequest, ReplicaReport
from schemas.objects.partition import LiveReplica

LiveSet = tuple[LiveReplica, ...]


class Fitness(Enum):
    """The state of a member of a live replica set: online and fit with the storage it joined with;
    unfit; offline; or not known (it may still come back, or has not reported yet)."""

    LIVE = "live"
    UNFIT = "unfit"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """The state of a member, and in words why it is not live."""

    fitness: Fitness
    why: str = ""

    @property
    def live(self) -> bool:
        return self.fitness is Fitness.LIVE


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: the set, and why it is not the requested one."""

    lrs: LiveSet
    refusal: str | None = None


def member_health(view: View, uid: str, member: LiveReplica, now_ms: int) -> MemberHealth:
    """The state of a member of a partition's live replica set, by its SPU's session."""
    spu_id = member.spu_id
    match view.liveness(spu_id, now_ms):
        case Liveness.OFFLINE:
            return MemberHealth(Fitness.OFFLINE, f"SPU {spu_id} is offline")
        case Liveness.UNKNOWN:
            return MemberHealth(Fitness.UNKNOWN, f"SPU {spu_id} is unknown")
        case Liveness.ONLINE:
            report = view.report(spu_id, uid)
    if report is None:
        return MemberHealth(Fitness.UNKNOWN, f"SPU {spu_id} has not reported its replica yet")
    if report.storage_id != member.storage_id:
        why = (
            f"SPU {spu_id} came back without its data: its storage is {report.storage_id},"
            f" the live replica's was {member.storage_id}"
        )
        return MemberHealth(Fitness.UNFIT, why)
    if not report.fit:
        return MemberHealth(Fitness.UNFIT, unfit_text(spu_id, report))
    return MemberHealth(Fitness.LIVE)


def unfit_text(spu_id: int, report: ReplicaReport) -> str:
    """What an SPU reports about its unfit replica, in words."""
    return f"the replica on SPU {spu_id} is unfit: {report.reason or 'no reason given'}"


def members_health(
    view: View, uid: str, members: Collection[LiveReplica], now_ms: int
) -> dict[LiveReplica, MemberHealth]:
    """The state of each of these members."""
    return {member: member_health(view, uid, member, now_ms) for member in members}


def remove_unfit(
    lrs: LiveSet, leader: int, health: Mapping[LiveReplica, MemberHealth], minimum: int
) -> LiveSet:
    """The set without the members that leave without a request. ``leader`` is online and fit."""
    kept = tuple(m for m in lrs if m.spu_id == leader or health[m].fitness is not Fitness.UNFIT)
    if any(health[m].fitness is Fitness.UNKNOWN for m in kept):
        return kept
    there = tuple(m for m in kept if m.spu_id == leader or health[m].live)
    return there if len(there) >= minimum else kept


def answer(
    request: LrsRequest,
    before: LiveSet,
    leader: int,
    health: Mapping[LiveReplica, MemberHealth],
    *,
    replicas: Collection[int],
    minimum: int,
) -> Answer:
    """The answer to a request that was based on the set ``before``.

    ``health`` covers that set and the one asked for; ``leader`` is online and fit; ``replicas`` are
    the SPUs of the spec. A member that leaves without a request leaves whatever the request says.
    """
    lrs = remove_unfit(before, leader, health, minimum)
    kept = tuple(member for member in lrs if member in request.lrs)
    joining = tuple(m for m in dict.fromkeys(request.lrs) if m not in before)
    refusals = _leaving(lrs, kept, leader, minimum)
    taken = {member.spu_id for member in kept}
    for member in joining:
        if (why := _joining(member, health[member], taken, replicas)) is not None:
            refusals.append(why)
        taken.add(member.spu_id)
    if refusals:
        return Answer(lrs, "; ".join(refusals))
    return Answer(tuple(sorted((*kept, *joining), key=lambda m: m.spu_id)) if joining else kept)


def _leaving(lrs: LiveSet, kept: LiveSet, leader: int, minimum: int) -> list[str]:
    """Why members may not be removed so that only ``kept`` remain; empty if they may."""
    if leader not in {member.spu_id for member in kept}:
        return [f"SPU {leader} leads: only an election may remove it"]
    gone = [member.spu_id for member in lrs if member not in kept]
    if gone and len(kept) < minimum:
        return [
            f"{_spus(gone)} must stay: {len(kept)} would remain, minInSyncReplicas is {minimum}"
        ]
    return []


def _joining(
    member: LiveReplica, health: MemberHealth, taken: Collection[int], replicas: Collection[int]
) -> str | None:
    """Why a new member may not join, or None."""
    if member.spu_id not in replicas:
        return f"SPU {member.spu_id} cannot join: the spec gives it no replica"
    if member.spu_id in taken:
        return f"SPU {member.spu_id} cannot join twice"
    if not health.live:
        return f"SPU {member.spu_id} cannot join: {health.why}"
    return None


def _spus(ids: Collection[int]) -> str:
    return ("SPU " if len(ids) == 1 else "SPUs ") + ", ".join(str(i) for i in ids)
