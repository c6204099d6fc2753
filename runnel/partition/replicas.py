"""Where the replicas of a partition are, for requests that go to followers as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runnel.admin.client import Admin
from runnel.net.connection import SpuConnection
from runnel.net.spus import connect_to
from schemas.errors import NotFoundError, UnreachableError
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition
from schemas.objects.spelling import nearest
from schemas.objects.spu import Spu


@dataclass(frozen=True, slots=True)
class Located:
    """A partition, and the SPUs that hold it; those that are not registered are left out.

    ``away`` says why SPUs were not reached: partitions that were located together share it, so
    that each SPU is waited for once.
    """

    partition: Partition
    spus: Mapping[int, Spu]
    away: dict[int, str]

    @property
    def uid(self) -> PartitionUid:
        return PartitionUid(self.partition.uid)

    @property
    def name(self) -> str:
        return self.partition.name

    async def connect(self, spu_id: int) -> SpuConnection:
        """A connection of its own to one SPU. Raises UnreachableError with the reason."""
        spu = self.spus.get(spu_id)
        if spu is None:
            raise UnreachableError(f"SPU {spu_id} is not registered")
        if spu_id in self.away:
            raise UnreachableError(self.away[spu_id])
        try:
            return await connect_to(spu)
        except UnreachableError as error:
            self.away[spu_id] = error.message
            raise


async def locate(admin: Admin, names: Iterable[str]) -> list[Located]:
    """Partitions by their own names or the names of what they belong to, each once and in order;
    all of them if no name is given. Raises NotFoundError with the nearest name."""
    partitions = [obj for obj in await admin.list("partitions") if isinstance(obj, Partition)]
    spus = {obj.spec.spu_id: obj for obj in await admin.list("spus") if isinstance(obj, Spu)}
    partitions.sort(key=lambda one: (one.spec.owner.name, one.spec.index or 0, one.name))
    wanted = list(names)
    found: dict[str, Partition] = {} if wanted else {one.name: one for one in partitions}
    for name in wanted:
        # A partition's own name comes first: a topic may have the same name.
        chosen = [one for one in partitions if one.name == name] or [
            one for one in partitions if one.spec.owner.name == name
        ]
        if not chosen:
            known = {one.name for one in partitions} | {one.spec.owner.name for one in partitions}
            meant = nearest(name, sorted(known))
            hint = f" (did you mean {meant!r}?)" if meant else ""
            raise NotFoundError(f"there is no partition or topic {name!r}{hint}")
        found |= {one.name: one for one in chosen}
    away: dict[int, str] = {}
    return [
        Located(one, {spu: spus[spu] for spu in one.spec.replicas if spu in spus}, away)
        for one in found.values()
    ]
