"""A clean stop: other SPUs lead before this one goes.

The SC elects another live replica for each partition that asks, while this SPU still serves; so a
producer waits for a change of its leader, and not for the loss of one. What nobody else may lead
stays here to the end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from schemas.control.messages import STOPS, ReplicaReport, ReplicaRole
from schemas.daemon.logs import get_logger
from schemas.ids import PartitionUid
from spu.host.links import ScLink
from spu.replica.replica import Replica
from spu.replication.events import RequestElection

_log = get_logger(__name__)

#: How long a stop waits for others at most, and how long while none takes over.
AT_MOST_S: Final = 10.0
PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.02


async def hand_over(
    replicas: Callable[[], Sequence[Replica]], link: ScLink, connected: Callable[[], bool]
) -> None:
    """Ask for another leader of each partition that has other live replicas, and wait until they
    serve, as long as some go on and the SC is there.

    A successor needs this SPU for its first commit: it is a live replica until the SC has seen it
    go."""
    asked = {report.uid: report.term for report in _led_with_others(replicas())}
    for uid, term in asked.items():
        link.ask(uid, RequestElection(term, STOPS))
    if not asked:
        return
    _log.info("handing over", partitions=len(asked))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + AT_MOST_S
    steps, patience = math.inf, loop.time() + PATIENCE_S
    while connected() and loop.time() < min(deadline, patience):
        left = _steps_left(replicas(), asked)
        if left < steps:
            steps, patience = left, loop.time() + PATIENCE_S
        if not left:
            break
        await asyncio.sleep(_LOOK_S)
    kept = sum(report.uid in asked for report in _led_with_others(replicas()))
    _log.info("handed over", partitions=len(asked) - kept, kept=kept)


def _steps_left(replicas: Sequence[Replica], asked: Mapping[PartitionUid, int]) -> int:
    """Two for each that still leads, one for each whose successor does not serve yet."""
    steps = 0
    for replica in replicas:
        report = replica.report()
        if (term := asked.get(report.uid)) is None or replica.follows_since(term):
            continue
        steps += 1 + (report.role is ReplicaRole.LEADER)
    return steps


def _led_with_others(replicas: Sequence[Replica]) -> list[ReplicaReport]:
    """What this SPU leads and another one could."""
    reports = (replica.report() for replica in replicas)
    return [found for found in reports if found.role is ReplicaRole.LEADER and len(found.lrs) > 1]
