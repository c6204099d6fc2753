"""How a cluster is laid out: its SPUs and partitions, as objects of the KV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from sc.controllers.topic import partition_uid
from schemas.objects.metadata import Metadata, Object, OwnerReference
from schemas.objects.partition import Partition, PartitionSpec
from schemas.objects.spu import Spu, SpuSpec
from schemas.objects.topic import Durability, LogSettings

TOPIC_UID = "6f1f6a34-9a42-4c1a-8a52-3d4be5c1a001"


@dataclass(frozen=True, slots=True)
class Plan:
    """One partition; the first of its replicas is the preferred leader."""

    name: str
    replicas: tuple[int, ...]
    min_in_sync: int = 1
    durability: Durability = Durability.FSYNC


@dataclass(frozen=True, slots=True)
class Layout:
    """SPUs are numbered from 1 on."""

    spus: tuple[int, ...]
    partitions: tuple[Plan, ...]

    def objects(self) -> Iterator[Object]:
        """What stands in the KV of a new cluster."""
        for spu_id in self.spus:
            metadata = Metadata(name=f"spu-{spu_id}", uid=f"spu-{spu_id}", generation=1)
            yield Spu(metadata=metadata, spec=SpuSpec(spu_id=spu_id))
        owner = OwnerReference(kind="Topic", name="t", uid=TOPIC_UID)
        for index, plan in enumerate(self.partitions):
            uid = partition_uid(TOPIC_UID, index)
            log = LogSettings(min_in_sync_replicas=plan.min_in_sync, durability=plan.durability)
            spec = PartitionSpec(
                owner=owner,
                index=index,
                replicas=plan.replicas,
                preferred_leader=plan.replicas[0],
                log=log,
            )
            metadata = Metadata(name=plan.name, uid=uid, generation=1)
            yield Partition(metadata=metadata, spec=spec)


def cautious(layout: Layout) -> Layout:
    """The same with two replicas for each commit, where there are two, and with fsync."""
    plans = (
        replace(plan, min_in_sync=min(2, len(plan.replicas)), durability=Durability.FSYNC)
        for plan in layout.partitions
    )
    return replace(layout, partitions=tuple(plans))


def drawn(chance: Random) -> Layout:
    """A small cluster, one like another only by chance."""
    spus = tuple(range(1, 1 + chance.choice((3, 3, 3, 4, 5))))
    plans = []
    for index in range(chance.choice((1, 1, 2, 3))):
        replicas = tuple(chance.sample(spus, chance.choice((1, 2, 2, 3, 3, 3, 3))))
        minimum = min(len(replicas), chance.choice((1, 2, 2)))
        durability = chance.choice((Durability.FSYNC,) * 3 + (Durability.REPLICATED,))
        plans.append(Plan(f"t-{index}", replicas, minimum, durability))
    return Layout(spus, tuple(plans))
