"""What the disk has of many replicas, found as fast as one process can.

Reading a log is mostly computing, and threads that compute wait for each other's turn at the
interpreter: two that read take longer than one. So one thread reads, a part after the other, and
those logs that must still be made durable wait for the disk in as many threads as there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

from schemas.errors import RunnelError
from schemas.ids import PartitionUid
from spu.host.links import parts_of
from spu.storage.data_dir import DataDir, PartitionMeta
from spu.storage.recovery import RecoveredLog, Recovery

ArgsT = TypeVarTuple("ArgsT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Found:
    """What a directory says of its replica, and the log in it."""

    meta: PartitionMeta
    log: RecoveredLog


class OnDisk(Protocol):
    """Runs blocking work in a storage thread. Raises StorageFailedError where the disk fails."""

    async def __call__(self, work: Callable[[Unpack[ArgsT]], ResultT], *args: *ArgsT) -> ResultT:
        """What ``work`` gives."""
        ...


async def recovered(
    directory: DataDir, uids: Sequence[PartitionUid], now_us: int, on_disk: OnDisk
) -> AsyncIterator[tuple[PartitionUid, Found | RunnelError]]:
    """What there is of each of ``uids``, in order and durable, or why its directory cannot be read.
    A log that is damaged says so itself. Raises StorageFailedError."""
    for part in parts_of(uids):
        found = await on_disk(_read, directory, part, now_us)
        waiting = (one for one in found if isinstance(one, _Read) and not one.recovery.is_durable)
        await asyncio.gather(*(on_disk(one.recovery.make_durable) for one in waiting))
        for uid, one in zip(part, found, strict=True):
            yield uid, Found(one.meta, one.recovery.log) if isinstance(one, _Read) else one


@dataclass(frozen=True, slots=True)
class _Read:
    meta: PartitionMeta
    recovery: Recovery


def _read(
    directory: DataDir, uids: Sequence[PartitionUid], now_us: int
) -> list[_Read | RunnelError]:
    """Read each. Blocks."""
    found: list[_Read | RunnelError] = []
    for uid in uids:
        try:
            meta = directory.read_meta(uid)
        except RunnelError as error:
            found.append(error)
            continue
        recovery = Recovery(directory.partition_path(uid), now_us)
        recovery.read()
        found.append(_Read(meta, recovery))
    return found
