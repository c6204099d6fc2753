"""The controllers: ``reconcile(view, key, now_ms) -> tuple[Action, ...]``, pure and synchronous.

Controllers are level-triggered: an event says which key to look at, and the view alone decides. The
same view always gives the same actions, and once they are applied it gives none. Timers are actions
(`WakeAt`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sc.controllers import partition, spu, spu_group, topic
from sc.controllers.actions import Action, Key
from sc.controllers.membership import rebalance, segments
from sc.controllers.streams import controller as stream
from sc.store.view import View

Reconcile = Callable[[View, Key, int], tuple[Action, ...]]

CONTROLLERS: Mapping[str, Reconcile] = {
    "Spu": spu.reconcile,
    "SpuGroup": spu_group.reconcile,
    "Topic": topic.reconcile,
    "Partition": partition.reconcile,
    "Stream": stream.reconcile,
    "Rebalance": rebalance.reconcile,
    segments.KIND: segments.reconcile,
}

__all__ = ["CONTROLLERS", "Action", "Key", "Reconcile", "reconcile"]


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Ask the controller of the key's kind. A kind without one has nothing to do."""
    controller = CONTROLLERS.get(key.kind)
    return controller(view, key, now_ms) if controller is not None else ()
