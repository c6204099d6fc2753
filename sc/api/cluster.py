"""What the API says about the cluster as a whole: from the controller's state, or from what every
SC knows while none leads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from sc.api.answers import ClusterAnswer, DivergentSpu, RecoveryBegun, UnreadableObject
from sc.api.standby import RETRY_AFTER_MS
from sc.controller import Controller
from sc.mirror import Mirror
from schemas.errors import NotReadyError

#: Most unreadable objects that are named, and most characters of what is wrong with one.
MOST_UNREADABLE: Final = 100
MAX_WHY: Final = 300


def cluster_answer(
    mirror: Mirror,
    controller: Controller | None,
    version: str,
    dashboard: str | None = None,
    office_unknown: str | None = None,
) -> ClusterAnswer:
    """The cluster as this SC, of this version, sees it. ``controller``: None while it does not
    lead; then ``office_unknown`` says why it has no answer of one that does. Raises NotReadyError
    if it knows of no cluster yet."""
    identity = mirror.identity if controller is None else controller.leadership.identity
    if identity is None:
        raise NotReadyError("no SC has led this cluster yet", retryAfterMs=RETRY_AFTER_MS)
    begun = identity.recovery
    return ClusterAnswer(
        cluster=mirror.keys.cluster,
        cluster_uid=identity.uid,
        version=version,
        dashboard=dashboard,
        revision=mirror.store.revision,
        office=None if controller is None else controller.leadership.stamp,
        office_unknown=office_unknown,
        recovering=identity.recovering if controller is None else controller.view.recovering,
        recovery=RecoveryBegun(**asdict(begun)) if begun is not None else None,
        divergent=() if controller is None else _turned_away(controller),
        unproven=() if controller is None else controller.connections.unproven,
        unreadable=tuple(
            UnreadableObject(key=key, why=why[:MAX_WHY])
            for key, why in sorted(mirror.reader.unreadable.items())[:MOST_UNREADABLE]
        ),
    )


def _turned_away(controller: Controller) -> tuple[DivergentSpu, ...]:
    return tuple(
        DivergentSpu(spu=found.spu_id, why=found.why, incarnation=found.incarnation)
        for found in controller.recoveries.divergent
    )
