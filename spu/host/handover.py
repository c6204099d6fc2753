"""A clean stop: other SPUs lead before this one goes.

The SC elects another live replica for each partition that asks, while this SPU still serves; so a
producer waits for a change of its leader, and not for the loss of one. What nobody else may lead
stays here to the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from schemas.control.messages import ReplicaReport, ReplicaRole
from schemas.daemon.logs import get_logger
from spu.host.links import ScLink
from spu.replica.replica import Replica
from spu.replication.events import RequestElection

_log = get_logger(__name__)

#: How long a stop waits for others at most, and how long while none takes over.
AT_MOST_S: Final = 10.0
PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.02
REASON: Final = "its SPU stops"


async def hand_over(
    replicas: Callable[[], Sequence[Replica]], link: ScLink, connected: Callable[[], bool]
) -> None:
    """Ask for another leader of each partition that has other live replicas, and wait until they
    lead, as long as some do and the SC is there."""
    asked = {report.uid: report.term for report in _led_with_others(replicas())}
    for uid, term in asked.items():
        link.ask(uid, RequestElection(term, REASON))
    if not asked:
        return
    _log.info("handing over", partitions=len(asked))
    loop = asyncio.get_running_loop()
    left, deadline = len(asked), loop.time() + AT_MOST_S
    patience = loop.time() + PATIENCE_S
    while connected() and loop.time() < min(deadline, patience):
        now_left = sum(report.uid in asked for report in _led_with_others(replicas()))
        if now_left < left:
            left, patience = now_left, loop.time() + PATIENCE_S
        if not left:
            break
        await asyncio.sleep(_LOOK_S)
    _log.info("handed over", partitions=len(asked) - left, kept=left)


def _led_with_others(replicas: Sequence[Replica]) -> list[ReplicaReport]:
    """What this SPU leads and another one could."""
    reports = (replica.report() for replica in replicas)
    return [found for found in reports if found.role is ReplicaRole.LEADER and len(found.lrs) > 1]
