"""Topics of the system: their specs when a client first needs one. Pure.

A topic's replication factor cannot change in this version, so it must not depend on which SPUs are
offline at that moment: the topic has at least two replicas if two SPUs exist, and waits for them.
"""

from __future__ import annotations

from typing import Final

from sc.controllers.spu_group import is_draining
from sc.store.view import Liveness, View
from schemas.objects.metadata import Metadata
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.system_topics import GROUPS, STATES
from schemas.objects.topic import Durability, Retention, SegmentSettings, Topic, TopicSpec

#: All records of one consumer name, one group or one state are in one partition; writers of one
#: partition compete. The readers of a group write every few seconds.
PARTITIONS: Final = 4
MORE_PARTITIONS: Final = 16
LEAST_REPLICAS: Final = 2
MOST_REPLICAS: Final = 3
#: Logs of state are short: a segment's file is removed once a later snapshot exists.
SEGMENT_BYTES: Final = 1 << 20
#: A snapshot is one record.
MAX_RECORD_BYTES: Final = 32 << 20


def system_topic(name: str, view: View, now_ms: int) -> Topic:
    """A topic of the system in a cluster as it is now: a replica on each of up to three SPUs."""
    known = [
        spu
        for spu in view.store.objects(Spu)
        if spu.status.resolution is not SpuResolution.INIT and not is_draining(view.store, spu)
    ]
    there = [spu for spu in known if view.liveness(spu.spec.spu_id, now_ms) is not Liveness.OFFLINE]
    replicas = max(min(LEAST_REPLICAS, len(known)), min(MOST_REPLICAS, len(there)))
    spec = TopicSpec(
        partitions=MORE_PARTITIONS if name in (GROUPS, STATES) else PARTITIONS,
        replication_factor=max(1, replicas),
        durability=Durability.FSYNC,
        retention=Retention(time=None),
        segment=SegmentSettings(size=SEGMENT_BYTES),
        max_record_size=MAX_RECORD_BYTES,
    )
    return Topic(metadata=Metadata(name=name), spec=spec)
