"""The SPU controller: who may connect, who is online, and what a fresh session must be told.

An object that appears is registered with the connection manager, one that disappears is
unregistered. The resolution follows the session: ``init`` until the SPU has connected once,
``online`` with a session, ``draining`` while its replicas move to others, ``unknown`` while a
controller that just started waits for SPUs to come back and while the SPU is suspect
(`sc.store.suspicions`), ``offline`` after that. A provisioner starts the process of a managed SPU;
the trouble that it reports is the reason. So is why the SC turned away an SPU that is not
connected, which other SPUs one that is connected cannot reach, that its addresses contradict each
other, and what its process waits for before it runs by the spec. A new session first gets
everything that the SPU is to hold, then the deletions that wait for it. During a recovery,
deletions wait, and no process is stopped.
"""

from __future__ import annotations

from typing import Final

from sc.controllers.actions import (
    Action,
    EndSpu,
    Key,
    ProvisionSpu,
    RegisterSpu,
    RemoveTombstone,
    ReplaceTombstone,
    SendComplete,
    SendDelete,
    UnregisterSpu,
    WakeAt,
    WriteStatus,
)
from sc.controllers.membership.drain import Draining, drain
from sc.controllers.partition import assignment_for
from sc.controllers.recovery import lost_live_set
from sc.controllers.spu_group import is_draining
from sc.controllers.spu_restarts import follows_when, next_spec, runs_by
from sc.store.view import Liveness, View
from schemas.control.messages import Tombstone
from schemas.objects.spu import Spu, SpuResolution, SpuStatus, SpuType

#: Peers that the reason of an SPU names because it cannot reach them.
NAMED: Final = 3
#: How often it is looked whether a process that must go on for now may end.
LOOK_MS: Final = 500


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Bring one SPU's registration, status and session in line with its object."""
    spu = view.store.get(Spu, key.name)
    registered = view.registered.get(key.name)
    waits = None if spu is None else follows_when(view, spu, now_ms)
    provision = _provision(view, key.name, spu, waits, now_ms)
    if spu is None:
        gone = () if registered is None else (UnregisterSpu(key.name, registered),)
        return (*gone, *provision)
    if registered is None:
        return (RegisterSpu(spu), *provision)
    if registered != spu.spec.spu_id:
        # Deleted and created again under this name before it was reconciled.
        return (UnregisterSpu(key.name, registered), RegisterSpu(spu), *provision)
    draining = drain(view, spu, now_ms) if is_draining(view.store, spu) else None
    actions: list[Action] = [] if draining is None else list(draining.actions)
    status = _status(view, spu, draining, waits, now_ms)
    if status != spu.status:
        actions.append(WriteStatus(spu, status))
    if (decided_at_ms := view.decided_at_ms((spu.spec.spu_id,), now_ms)) is not None:
        actions.append(WakeAt(key, decided_at_ms))
    actions.extend(_session_actions(view, spu.spec.spu_id))
    return (*actions, *provision)


def _provision(
    view: View, name: str, spu: Spu | None, waits: str | None, now_ms: int
) -> tuple[Action, ...]:
    """Have a managed SPU's process run by its spec, and that of a deleted one end."""
    if view.provisioning is None:
        return ()
    found = view.provisioning.spus.get(name)
    if spu is None or spu.spec.spu_type is not SpuType.MANAGED:
        # In a restored KV its object may be missing although it holds replicas.
        return () if found is None or view.recovering else (EndSpu(name),)
    if found is not None and runs_by(found.spec) == runs_by(spu.spec):
        return ()
    if waits is not None:
        return (WakeAt(Key("Spu", name), now_ms + LOOK_MS),)
    session = view.sessions.get(spu.spec.spu_id)
    wanted = spu.spec if found is None else next_spec(found, spu.spec)
    runs = spu.model_copy(update={"spec": wanted})
    return (ProvisionSpu(runs, None if session is None else session.generation),)


def _status(
    view: View, spu: Spu, draining: Draining | None, waits: str | None, now_ms: int
) -> SpuStatus:
    status = _connected(view, spu, draining, now_ms)
    if waits is not None:
        goes_on = f"its process goes on by another spec than this one until {waits}"
        status = status.model_copy(update={"reason": _joined(status.reason, goes_on)})
    if draining is None:
        return status
    update = {
        "reason": _joined(draining.reason, status.reason),
        "drained": True if draining.is_done else None,
    }
    return status.model_copy(update=update)


def _connected(view: View, spu: Spu, draining: Draining | None, now_ms: int) -> SpuStatus:
    """The status apart from how far a drain has come."""
    current = spu.status.resolution
    match view.liveness(spu.spec.spu_id, now_ms):
        case Liveness.ONLINE if draining is not None:
            resolution = SpuResolution.DRAINING
            # At the end of a drain its own reason says that.
            undeleted = _undeleted(view, spu.spec.spu_id) if draining.left else None
            reason = _joined(undeleted, _strangers(view, spu.spec.spu_id))
        case Liveness.ONLINE:
            return SpuStatus(
                resolution=SpuResolution.ONLINE,
                reason=_joined(
                    _undeleted(view, spu.spec.spu_id),
                    _strangers(view, spu.spec.spu_id),
                    *view.unreachable_from(spu.spec.spu_id)[:NAMED],
                    spu.spec.contradiction,
                ),
                observed_generation=spu.generation,
            )
        case _ if (trouble := _trouble(view, spu)) is not None:
            resolution = current if current is SpuResolution.INIT else SpuResolution.OFFLINE
            reason = trouble
        case _ if current is SpuResolution.INIT:
            resolution, reason = current, "registered; waiting for the SPU to connect"
        case Liveness.UNKNOWN:
            resolution, reason = SpuResolution.UNKNOWN, "waiting for the SPU to connect again"
        case Liveness.OFFLINE:
            resolution, reason = SpuResolution.OFFLINE, "the SPU is not connected"
    return SpuStatus(
        resolution=resolution,
        reason=_joined(reason, view.refusal(spu.spec.spu_id), spu.spec.contradiction),
        observed_generation=spu.generation,
    )


def _joined(*reasons: str | None) -> str | None:
    return "; ".join(reason for reason in reasons if reason is not None) or None


def _strangers(view: View, spu_id: int) -> str | None:
    """Replicas on an SPU that it is not to hold, and that nobody asked it to delete: of no
    partition, or of one that a restored KV gives to others, if the SPU came too late to be asked
    for it (`sc.controllers.recovery`)."""
    session = view.sessions.get(spu_id)
    if session is None or not session.complete:
        return None
    dying = {t.uid for t in view.store.tombstones_of(spu_id)}
    of_none, of_others = list[str](), list[str]()
    for uid in session.reports.keys() - dying:
        partition = view.store.partition_by_uid(uid)
        if partition is None:
            of_none.append(uid)
        elif spu_id not in partition.spec.holders and lost_live_set(view, partition) is None:
            # While nobody knows who was live, it is asked like the others.
            of_others.append(partition.name)
    said = []
    if of_none:
        count = _counted(of_none, "a replica that belongs", "replicas that belong")
        said.append(f"keeps {count} to no partition: {_few(sorted(of_none))}")
    if of_others:
        count = _counted(of_others, "a replica that is", "replicas that are")
        said.append(f"keeps {count} on other SPUs now: {_few(sorted(of_others))}")
    return _joined(*said)


def _undeleted(view: View, spu_id: int) -> str | None:
    """Replicas that an SPU was asked to delete, and could not."""
    session = view.sessions.get(spu_id)
    if session is None or not session.undeleted:
        return None
    why = next(iter(session.undeleted.values()))
    count = _counted(list(session.undeleted), "a replica", "replicas")
    return f"cannot delete {count} that it is not to hold any more: {why}"


def _counted(found: list[str], one: str, several: str) -> str:
    return one if len(found) == 1 else f"{len(found)} {several}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _trouble(view: View, spu: Spu) -> str | None:
    """Why the process of a managed SPU does not run."""
    if view.provisioning is None:
        return None
    found = view.provisioning.spus.get(spu.name)
    return found.trouble if found is not None else None


def _session_actions(view: View, spu_id: int) -> list[Action]:
    session = view.sessions.get(spu_id)
    if session is None:
        return []
    if not session.complete:
        assignments = tuple(
            assignment_for(view, p) for p in view.store.partitions_on(spu_id) if not p.deleting
        )
        return [SendComplete(spu_id, session.generation, assignments)]
    actions: list[Action] = []
    todo = list[Tombstone]()
    for tombstone in view.store.tombstones_of(spu_id):
        partition = view.store.partition_by_uid(tombstone.uid)
        held = partition is not None and spu_id in partition.spec.holders
        if held and partition is not None and not partition.deleting:
            # Of a time before the KV was restored: the SPU has got the partition back since.
            actions.append(RemoveTombstone(tombstone))
        elif partition is not None and not partition.deleting and _may_be_later(view, tombstone):
            actions.append(RemoveTombstone(tombstone))
        elif session.deleted.get(tombstone.uid) != tombstone:
            todo.append(tombstone)
        elif partition is None or (left := _rebuilt(view, tombstone)) is None:
            actions.append(RemoveTombstone(tombstone))
        else:
            actions.append(ReplaceTombstone(partition, left))
    if todo and not view.recovering:
        actions.append(SendDelete(spu_id, tuple(todo)))
    return actions


def _may_be_later(view: View, tombstone: Tombstone) -> bool:
    """Whether an SPU may have got the replica that it has after its tombstone was left: it knows
    nothing of the last recovery, and the tombstone, which does not name it, may come from the
    backup. It may hold what no other replica does, so it stays, and the SPU's status names it."""
    report = view.report(tombstone.spu_id, tombstone.uid)
    if report is None or report.storage_id == tombstone.storage_id:
        return False
    return report.incarnation < view.incarnation


def _rebuilt(view: View, tombstone: Tombstone) -> Tombstone | None:
    """The tombstone of the storage that an SPU has instead of the one that it was to delete; None
    if it has none."""
    report = view.report(tombstone.spu_id, tombstone.uid)
    if report is None or tombstone.storage_id in (None, report.storage_id):
        return None
    return tombstone.model_copy(update={"storage_id": report.storage_id})
