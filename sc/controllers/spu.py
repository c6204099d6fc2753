"""The SPU controller: who may connect, who is online, and what a fresh session must be told.

An object that appears is registered with the connection manager, one that disappears is
unregistered. The resolution follows the session: ``init`` until the SPU has connected once,
``online`` with a session, ``unknown`` while a controller that just started waits for SPUs to come
back, ``offline`` after that. A new session is first sent everything the SPU is to hold, then the
deletions that wait for it.
"""

from __future__ import annotations

from sc.controllers.actions import (
    Action,
    Key,
    RegisterSpu,
    RemoveTombstone,
    SendComplete,
    SendDelete,
    UnregisterSpu,
    WakeAt,
    WriteStatus,
)
from sc.controllers.partition import assignment_of
from sc.store.view import Liveness, View
from schemas.spu import Spu, SpuResolution, SpuStatus


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Bring one SPU's registration, status and session in line with its object."""
    spu = view.store.get(Spu, key.name)
    registered = view.registered.get(key.name)
    if spu is None:
        return () if registered is None else (UnregisterSpu(key.name, registered),)
    if registered is None:
        return (RegisterSpu(spu),)
    if registered != spu.spec.spu_id:
        # Deleted and created again under this name before anyone looked.
        return (UnregisterSpu(key.name, registered), RegisterSpu(spu))
    actions: list[Action] = []
    status = _status(view, spu, now_ms)
    if status != spu.status:
        actions.append(WriteStatus(spu, status))
    if view.liveness(spu.spec.spu_id, now_ms) is Liveness.UNKNOWN:
        actions.append(WakeAt(key, view.grace_until_ms))
    actions.extend(_session_actions(view, spu.spec.spu_id))
    return tuple(actions)


def _status(view: View, spu: Spu, now_ms: int) -> SpuStatus:
    current = spu.status.resolution
    match view.liveness(spu.spec.spu_id, now_ms):
        case Liveness.ONLINE:
            resolution, reason = SpuResolution.ONLINE, None
        case _ if current is SpuResolution.INIT:
            resolution, reason = current, "registered; waiting for the SPU to connect"
        case Liveness.UNKNOWN:
            resolution, reason = SpuResolution.UNKNOWN, "waiting for the SPU to connect again"
        case Liveness.OFFLINE:
            resolution, reason = SpuResolution.OFFLINE, "the SPU is not connected"
    return SpuStatus(resolution=resolution, reason=reason, observed_generation=spu.generation)


def _session_actions(view: View, spu_id: int) -> list[Action]:
    session = view.sessions.get(spu_id)
    if session is None:
        return []
    if not session.complete:
        assignments = tuple(
            assignment_of(p) for p in view.store.partitions_on(spu_id) if not p.deleting
        )
        return [SendComplete(spu_id, session.generation, assignments)]
    waiting = view.store.tombstones_of(spu_id)
    done = [t for t in waiting if t.uid in session.deleted]
    todo = tuple(t for t in waiting if t.uid not in session.deleted)
    actions: list[Action] = [RemoveTombstone(t) for t in done]
    if todo:
        actions.append(SendDelete(spu_id, todo))
    return actions
