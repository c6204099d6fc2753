"""Says what a command waits for while a topic cannot take or give records yet.

Clients wait for a leader and for enough replicas, as they should: a restart is over in a moment. A
person in front of a terminal wants to know why nothing happens. A topic that was just created has
a moment to become whole before anything is said. Looking never fails a command: the client that
opens the topic next reports any error.
"""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from runnel.cli.failure import say
from schemas.control.assignments import TopicAssignment
from schemas.errors import RunnelError
from schemas.objects.partition import Partition, PartitionResolution, is_led, is_writable
from schemas.objects.topic import TopicResolution

if TYPE_CHECKING:
    import runnel
    from runnel.admin.blocking import BlockingAdmin


#: The replicas of a new partition join within about a second.
_YOUNG_S: Final = 3.0
_LOOK_AGAIN_S: Final = 0.1


def commits(partition: Partition) -> bool:
    """Whether the partition has a leader and the live replicas that committing needs, and nothing
    else is known to keep it from committing."""
    if partition.status.resolution is PartitionResolution.SEALED:
        # Nothing is left to commit.
        return True
    # The live replicas are counted, too: an SC of an earlier version does not say `writable`.
    return (
        is_writable(partition)
        and len(partition.status.lrs) >= partition.spec.log.min_in_sync_replicas
    )


def why_not(partition: Partition) -> str:
    """Why a partition that has a leader does not commit."""
    live, needed = len(partition.status.lrs), partition.spec.log.min_in_sync_replicas
    return partition.status.reason or (
        f"{live} of {len(partition.spec.replicas)} replicas are live, and {needed} must be"
    )


def partitions_of(cluster: BlockingAdmin, topic: str, uid: str) -> list[Partition]:
    """The partitions of this very topic, in order of their index."""
    found = [
        p
        for p in cluster.list("partitions", {"topic": topic}, show_system=True)
        if isinstance(p, Partition) and p.spec.owner.uid == uid
    ]
    return sorted(found, key=lambda p: p.spec.index or 0)


def obstacle(
    topic: TopicAssignment,
    partitions: Sequence[Partition],
    *,
    committing: bool,
    wanted: Container[int] | None = None,
) -> str | None:
    """Why records have to wait, or None.

    ``committing``: live replicas count as well as leaders. ``wanted``: only these partitions.
    """
    if topic.resolution is not TopicResolution.PROVISIONED:
        return f"topic {topic.name} is {topic.resolution.value}{_because(topic.reason)}"
    stuck = []
    for p in partitions:
        index = p.spec.index or 0
        if wanted is not None and index not in wanted:
            continue
        if not is_led(p.status):
            stuck.append(
                f"partition {index} of {topic.name} has no leader{_because(p.status.reason)}"
            )
        elif committing and not commits(p):
            stuck.append(f"partition {index} of {topic.name} cannot commit: {why_not(p)}")
    if not stuck:
        return None
    more = len(stuck) - 1
    others = f" (and {more} more partition{'' if more == 1 else 's'})" if more else ""
    return stuck[0] + others


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def say_what_is_awaited(
    cluster: runnel.Cluster,
    topic: str,
    *,
    committing: bool,
    wanted: Container[int] | None = None,
) -> None:
    """Print ``waiting: …`` on standard error if records of the topic have to wait."""
    deadline = time.monotonic() + _YOUNG_S
    while True:
        try:
            assignment = cluster.topic(topic)
            partitions = partitions_of(cluster, topic, assignment.uid)
        except RunnelError:
            return
        found = obstacle(assignment, partitions, committing=committing, wanted=wanted)
        if found is None:
            return
        if not _is_young(partitions) or time.monotonic() > deadline:
            say(f"waiting: {found}")
            return
        time.sleep(_LOOK_AGAIN_S)


def _is_young(partitions: Sequence[Partition]) -> bool:
    """Was one of them created just now, by the clock of the SC? Its replicas are about to join."""
    created = [p.metadata.creation_timestamp for p in partitions if p.metadata.creation_timestamp]
    if not created:
        return False
    age = datetime.now(UTC) - max(map(datetime.fromisoformat, created))
    return abs(age) < timedelta(seconds=_YOUNG_S)
