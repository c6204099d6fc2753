"""A changed template restarts the SPUs of a group one after the other. Pure.

An SPU whose process would end waits until each other SPU of the group runs by its spec and is
connected, and each managed one of other groups that shares a partition with it, and until all
replicas that it shares with others are live. So a template with which no SPU can run stops at the
first one, and another directory of replicas is filled before the next SPU gets an empty one. A live
replica set may name one that has come back without its data, where the minimum keeps it in: what
the SPUs report counts, not the set alone. An SPU that is not connected has nothing to wait for: it
may be the template that keeps it from running. But one with the only live copy of a partition keeps
its directory until it is back, or cannot run. And one that only gets more room, or
may send faster, does not wait for replicas: they may lack just that.

What it waits for is said together with what a user can do. A replica that never comes back is
waited for without end: to go on without it might take the last copy out of service.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sc.controllers.live_set import member_health
from sc.store.view import Liveness, Provisioned, View
from schemas.objects.partition import Partition, missed
from schemas.objects.spu import Spu, SpuSpec, SpuType

#: Other SPUs that the reason of one that waits names.
NAMED: Final = 3


def runs_by(spec: SpuSpec) -> tuple[object, ...]:
    """The part of a spec that its process sees: another rack is no reason to restart it."""
    return *_place(spec), *_bounds(spec)


def is_run_by(view: View, name: str, spec: SpuSpec) -> bool:
    """Whether the process of a managed SPU runs by a spec already, whatever its object says: a
    restored one may be older, and what gives it this spec ends no process."""
    found = None if view.provisioning is None else view.provisioning.spus.get(name)
    return found is not None and runs_by(found.spec) == runs_by(spec)


def _place(spec: SpuSpec) -> tuple[object, ...]:
    return spec.spu_id, spec.storage.log_dir, *_ports(spec)


def _ports(spec: SpuSpec) -> tuple[int, int]:
    return spec.public_endpoint.port, spec.private_endpoint.port


def next_spec(found: Provisioned, wanted: SpuSpec) -> SpuSpec:
    """By which spec the process of a managed SPU runs next that runs by another one than its object
    has. Clients and other SPUs look for it at the ports of the object: while it is at others, no
    replica becomes live, and it keeps its directory until it is at those."""
    if not found.spec_known or _ports(found.spec) == _ports(wanted):
        return wanted
    storage = wanted.storage.model_copy(update={"log_dir": found.spec.storage.log_dir})
    return wanted.model_copy(update={"storage": storage})


def _bounds(spec: SpuSpec) -> tuple[int | None, ...]:
    """Its room and its rate, None for no bound."""
    return spec.storage.size, spec.catch_up_rate


def _relieves(before: SpuSpec, after: SpuSpec) -> bool:
    """Whether a process differs only in that it is bounded less."""
    bounds = zip(_bounds(before), _bounds(after), strict=True)
    return _place(before) == _place(after) and all(
        new is None or (old is not None and new >= old) for old, new in bounds
    )


def awaited(view: View, spu: Spu, spec: SpuSpec, now_ms: int) -> str | None:
    """What the restart of an SPU of a group by another spec waits for; None if it may be restarted
    now."""
    if view.recovering:
        return "the cluster has recovered"
    spu_id = spu.spec.spu_id
    match view.liveness(spu_id, now_ms):
        case Liveness.OFFLINE:
            return _comes_back(view, spu, spu.spec, spec, now_ms)
        case Liveness.UNKNOWN:
            return f"{spu.name} is connected"
        case Liveness.ONLINE:
            pass
    if (other := next(_away_beside(view, spu, now_ms), None)) is not None:
        return f"{other.name} is back"
    if _relieves(spu.spec, spec):
        return None
    return _needed_for(view, spu_id, now_ms)


def follows_when(view: View, spu: Spu, now_ms: int) -> str | None:
    """What the process of a managed SPU waits for that runs by another spec than its object has;
    None if there is no such process, or it may end now. A restored KV may name a directory of
    replicas that the group had before: what was acknowledged since is in the one that the process
    has. So all go on until the recovery is over, and then one follows the other, as those of a
    changed template do. It says what a user can do about a wait that may have no end."""
    found = None if view.provisioning is None else view.provisioning.spus.get(spu.name)
    if found is None or spu.spec.spu_type is not SpuType.MANAGED:
        return None
    if runs_by(found.spec) == runs_by(spu.spec):
        return None
    if view.recovering:
        return "the cluster has recovered"
    wanted = next_spec(found, spu.spec)
    match view.liveness(spu.spec.spu_id, now_ms):
        case Liveness.OFFLINE:
            return _comes_back(view, spu, found.spec, wanted, now_ms)
        case Liveness.UNKNOWN:
            return f"{spu.name} is connected"
        case Liveness.ONLINE:
            pass
    for other in view.store.objects(Spu):
        if other.name != spu.name and _restarts(view, other):
            return f"{other.name} is back"
    if _relieves(found.spec, wanted) or (found.spec_known and _ports(found.spec) != _ports(wanted)):
        # What waits for replicas must not keep them from becoming live.
        return None
    return _needed_for(view, spu.spec.spu_id, now_ms)


def _comes_back(view: View, spu: Spu, before: SpuSpec, after: SpuSpec, now_ms: int) -> str | None:
    """That an SPU which is away is waited for, before it gets another directory: its process is
    started again, and what it has is the only live copy of a partition that is to have several.
    None once it is known that the process cannot run: that may be for its directory. That somebody
    kills it, or claims its id, says nothing of the directory."""
    if before.storage.log_dir == after.storage.log_dir:
        return None
    found = None if view.provisioning is None else view.provisioning.spus.get(spu.name)
    if found is not None and found.unable:
        return None
    for partition in view.store.partitions_on(spu.spec.spu_id):
        members = {member.spu_id: member for member in partition.status.lrs}
        if members.pop(spu.spec.spu_id, None) is None or len(partition.spec.replicas) == 1:
            continue
        others = members.values()
        if not any(member_health(view, partition.uid, m, now_ms).live for m in others):
            return (
                f"{spu.name} is back: no other replica of {partition.name} is live; have another"
                f" lead without it if it has lost that: runnel partition elect {partition.name}"
                " --unclean"
            )
    return None


def _restarts(view: View, spu: Spu) -> bool:
    """Whether the process of a managed SPU was ended, and the next one is not back: it may be about
    to connect, as long as nothing is known that keeps it from that."""
    found = None if view.provisioning is None else view.provisioning.spus.get(spu.name)
    session = view.sessions.get(spu.spec.spu_id)
    if found is None or found.ended_session is None:
        return False
    if session is None:
        return found.trouble is None and view.refusal(spu.spec.spu_id) is None
    return found.ended_session == session.generation


def _away_beside(view: View, spu: Spu, now_ms: int) -> Iterator[Spu]:
    """SPUs that are not back: the others of its group, then the managed ones of other groups with
    the same partitions, because several groups may be changed at once."""
    away = [
        other
        for other in view.store.objects(Spu)
        if other.spec.spu_type is SpuType.MANAGED
        and other.name != spu.name
        and not _is_back(view, other, now_ms)
    ]
    yield from (other for other in away if other.spec.group == spu.spec.group)
    if elsewhere := [other for other in away if other.spec.group != spu.spec.group]:
        held = view.store.partitions_on(spu.spec.spu_id)
        sharing = {i for partition in held for i in partition.spec.holders}
        yield from (other for other in elsewhere if other.spec.spu_id in sharing)


def _needed_for(view: View, spu_id: int, now_ms: int) -> str | None:
    """For which partition an SPU must stay, until when, and what a user can do if that is never;
    None if it may be restarted."""
    for partition in view.store.partitions_on(spu_id):
        if _is_needed(view, partition, spu_id, now_ms):
            lacking = _lacking(view, partition, spu_id, now_ms)
            whys = [_why(view, partition, i, now_ms) for i in lacking[:NAMED]]
            if len(lacking) > NAMED:
                whys.append(f"{len(lacking) - NAMED} more are not live")
            said = ", and ".join(whys) or "its own catches up"
            return f"all replicas of {partition.name} are live: {said}"
    return None


def _lacking(view: View, partition: Partition, spu_id: int, now_ms: int) -> list[int]:
    """The other SPUs whose replicas of a partition are not live: newcomers only if no other is."""
    members = {member.spu_id: member for member in partition.status.lrs}
    away = [
        i
        for i in sorted({*partition.spec.replicas, *members} - {spu_id})
        if i not in members or not member_health(view, partition.uid, members[i], now_ms).live
    ]
    return [i for i in away if i in members or i not in (partition.spec.joining or ())] or away


def _why(view: View, partition: Partition, spu_id: int, now_ms: int) -> str:
    """Why the replica of an SPU is not live, and what a user can do, in words that change only with
    what wakes those that wait."""
    spu = view.store.spu(spu_id)
    if spu is None:
        return (
            f"SPU {spu_id} is not registered; register it again, and have others take its replicas:"
            " runnel spu drain"
        )
    match view.liveness(spu_id, now_ms):
        case Liveness.ONLINE:
            return f"that of {spu.name} is not; see: runnel describe partition {partition.name}"
        case Liveness.UNKNOWN:
            return f"{spu.name} may be about to connect"
        case Liveness.OFFLINE if spu.spec.drain:
            return f"{spu.name} is offline, and drains; see: runnel describe spu {spu.name}"
        case Liveness.OFFLINE:
            return (
                f"{spu.name} is offline; bring it back, or have others take its replicas: runnel"
                f" spu drain {spu.name}"
            )


def _is_needed(view: View, partition: Partition, spu_id: int, now_ms: int) -> bool:
    """Whether an SPU must stay for a partition, because another replica of it is not live, or its
    own is about to be. One that is unfit is no reason: another directory may be what it lacks."""
    if not _does_without(view, partition, spu_id, now_ms):
        return True
    report = view.report(spu_id, partition.uid)
    unfit = {spu_id} if report is not None and not report.fit else set[int]()
    return any(i not in unfit for i in missed(partition))


def _does_without(view: View, partition: Partition, spu_id: int, now_ms: int) -> bool:
    """Whether a partition that is to have several replicas has another live one, and each other one
    of its live replica set is there with its data."""
    others = [member for member in partition.status.lrs if member.spu_id != spu_id]
    if not others:
        # One replica that only changes its place is as little served meanwhile as one that stays.
        return len(partition.spec.replicas) == 1
    return all(member_health(view, partition.uid, other, now_ms).live for other in others)


def _is_back(view: View, spu: Spu, now_ms: int) -> bool:
    """Whether an SPU is connected, and by a process that runs by its spec."""
    if view.liveness(spu.spec.spu_id, now_ms) is not Liveness.ONLINE:
        return False
    found = None if view.provisioning is None else view.provisioning.spus.get(spu.name)
    session = view.sessions.get(spu.spec.spu_id)
    return (
        found is not None
        and session is not None
        and runs_by(found.spec) == runs_by(spu.spec)
        and found.ended_session != session.generation
    )
