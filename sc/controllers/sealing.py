"""Sealing a partition: whether its SPUs are told to, and what the status says of it. Pure.

The log of a partition is sealed by a control record of its leader (`spu.replication.leader.seal`).
Once the record is committed, the leader reports where the records end. An SPU of an earlier version
does not know that record: it would take records again if it led. So no SPU is told to seal while
one that holds a replica is connected and does not know how.
"""

from __future__ import annotations

from typing import Any

from sc.store.view import View
from schemas.control.messages import ReplicaReport
from schemas.objects.partition import DesiredState, Partition, PartitionResolution


def to_be_sealed(view: View, partition: Partition) -> bool:
    """Whether SPUs are told that the log takes no more records."""
    if partition.spec.desired is not DesiredState.SEALED:
        return False
    return partition.status.sealed_offset is not None or not _older_spus(view, partition)


def why_not_sealed(view: View, partition: Partition) -> str | None:
    """Why a partition that should be sealed is not told to be; None if nothing is in the way."""
    if partition.spec.desired is not DesiredState.SEALED or to_be_sealed(view, partition):
        return None
    older = _older_spus(view, partition)
    names = ", ".join(map(str, older))
    spus = f"SPU {names} is" if len(older) == 1 else f"SPUs {names} are"
    return f"it is sealed once {spus} upgraded to a version that knows how"


def led_as(partition: Partition, report: ReplicaReport) -> dict[str, Any]:
    """The resolution of a partition that is led, and where its records end if it is sealed."""
    sealed = partition.status.sealed_offset if report.sealed is None else report.sealed
    resolution = PartitionResolution.ONLINE if sealed is None else PartitionResolution.SEALED
    return {"resolution": resolution, "sealed_offset": sealed}


def _older_spus(view: View, partition: Partition) -> list[int]:
    sessions = ((spu, view.sessions.get(spu)) for spu in partition.spec.holders)
    return [spu for spu, session in sessions if session is not None and not session.seals]
