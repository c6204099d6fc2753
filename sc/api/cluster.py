"""What the API says about the cluster as a whole, from the controller's state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from sc.api.answers import ClusterAnswer, DivergentSpu, RecoveryBegun, UnreadableObject
from sc.controller import Controller

#: Most unreadable objects that are named, and most characters of what is wrong with one.
MOST_UNREADABLE: Final = 100
MAX_WHY: Final = 300


def cluster_answer(
    controller: Controller, version: str, dashboard: str | None = None
) -> ClusterAnswer:
    """The cluster as this SC, of this version, sees it."""
    leadership = controller.leadership
    begun = leadership.identity.recovery
    return ClusterAnswer(
        cluster=controller.keys.cluster,
        cluster_uid=leadership.cluster_uid,
        version=version,
        dashboard=dashboard,
        revision=controller.view.store.revision,
        office=leadership.stamp,
        recovering=controller.view.recovering,
        recovery=RecoveryBegun(**asdict(begun)) if begun is not None else None,
        divergent=tuple(
            DivergentSpu(spu=found.spu_id, why=found.why, incarnation=found.incarnation)
            for found in controller.recoveries.divergent
        ),
        unproven=controller.connections.unproven,
        unreadable=tuple(
            UnreadableObject(key=key, why=why[:MAX_WHY])
            for key, why in sorted(controller.reader.unreadable.items())[:MOST_UNREADABLE]
        ),
    )
