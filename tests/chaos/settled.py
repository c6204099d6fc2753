"""Whether a cluster has come to rest: nothing moves, all replicas are live, and each SPU's disk
holds what the objects say, and no more. Objects are what ``runnel get … -o json`` prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Objects = Iterable[Mapping[str, Any]]


def held(disks: Mapping[int, Path]) -> dict[str, set[int]]:
    """Which SPUs have a directory of each partition, by uid. ``disks`` has the directory of each
    SPU."""
    found: dict[str, set[int]] = {}
    for spu, disk in disks.items():
        for path in (disk / "partitions").iterdir():
            # One that is being deleted may go while it is looked at.
            with suppress(FileNotFoundError):
                if any(path.iterdir()):
                    found.setdefault(path.name, set()).add(spu)
    return found


def unsettled(partitions: Sequence[Mapping[str, Any]], held: Mapping[str, set[int]]) -> list[str]:
    """What keeps partitions (of system topics too) from being at rest."""
    return [
        *(why for partition in partitions for why in _of_partition(partition)),
        *_of_disks(partitions, held),
    ]


def _of_disks(
    partitions: Sequence[Mapping[str, Any]], held: Mapping[str, set[int]]
) -> Iterator[str]:
    wanted = {one["metadata"]["uid"]: set(one["spec"]["replicas"]) for one in partitions}
    names = {one["metadata"]["uid"]: one["metadata"]["name"] for one in partitions}
    there = defaultdict(set, held)
    for uid in sorted(wanted.keys() | there.keys()):
        if there[uid] != wanted.get(uid, set()):
            where = f"{sorted(there[uid])}, not on {sorted(wanted.get(uid, ()))}"
            yield f"{names.get(uid, uid)} has directories on the SPUs {where}"


def _of_partition(partition: Mapping[str, Any]) -> Iterator[str]:
    name, spec, status = partition["metadata"]["name"], partition["spec"], partition["status"]
    live = sorted(member["spuId"] for member in status["lrs"])
    for change in ("joining", "leaving"):
        if change in spec:
            yield f"{name}: {change} {spec[change]}"
    if live != sorted(spec["replicas"]):
        yield f"{name}: live are {live} of {spec['replicas']}"
    if status["resolution"] != "online":
        yield f"{name} is {status['resolution']}"
    if status.get("leader") not in spec["replicas"]:
        yield f"{name} is led by {status.get('leader')}, not by one of {spec['replicas']}"


def unfinished(spus: Objects, rebalances: Objects) -> list[str]:
    """SPUs that are away, and rebalances that are under way."""
    states = [
        *(("SPU", "online", spu) for spu in spus),
        *(("rebalance", "done", rebalance) for rebalance in rebalances),
    ]
    return [
        f"{what} {one['metadata']['name']} is {one['status']['resolution']}"
        for what, wanted, one in states
        if one["status"]["resolution"] != wanted
    ]
