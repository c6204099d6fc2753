"""What ``runnel spu drain`` and ``replace`` do: an SPU gives its replicas to others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from runnel.cli.connection import administered
from runnel.cli.progress import going_on, progress
from schemas.errors import ConflictError, DeadlineExceededError, NotFoundError, RetryableError
from schemas.objects.metadata import Object
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution

if TYPE_CHECKING:
    from runnel.admin.blocking import BlockingAdmin

_LOOK_S: Final = 0.5
_KEEPS: Final = "keeps the replicas that have not moved yet, and gets new ones again"


def drain(
    sc: str | None, name: str, *, wait: bool, timeout_s: float, to: str | None = None
) -> None:
    """Have an SPU drained, to the SPU ``to`` if one is named, and wait until it is. Raises
    RunnelError; the drain goes on then, except for ConflictError: somebody has called it off."""
    with administered(sc) as cluster:
        targets = None
        if to is not None:
            found = cluster.get(Spu.PLURAL, to)
            targets = [found.spec.spu_id] if isinstance(found, Spu) else None
        asked = cluster.patch(Spu.PLURAL, name, {"spec": {"drain": True, "drainTo": targets}})
        if not wait:
            print(f"spu/{name} drains; see: runnel get spu {name}")
            return
        deadline = time.monotonic() + timeout_s
        said = "it begins"
        goes_on = f"spu {name!r} goes on draining; see: runnel get spu {name}; {_to_end(name)}"
        with going_on(goes_on), progress(f"draining {name}") as update:
            while time.monotonic() < deadline:
                try:
                    found = cluster.get(Spu.PLURAL, name)
                    is_called_off = _is_called_off(cluster, asked, found)
                except NotFoundError:
                    print(f"spu/{name} was drained and removed")
                    return
                except RetryableError as error:
                    said = error.message
                else:
                    if is_called_off:
                        raise ConflictError(
                            f"the drain of spu {name!r} was called off: it {_KEEPS}"
                        )
                    current = found.status.observed_generation >= found.generation
                    if isinstance(found, Spu) and current and found.status.drained:
                        print(f"spu/{name} is drained: {_what_next(found)}")
                        return
                    said = found.status.reason or said
                update(f"draining {name}: {said}")
                time.sleep(_LOOK_S)
    raise DeadlineExceededError(
        f"spu {name!r} is not drained after {timeout_s:g} s, and goes on draining: {said};"
        f" {_to_end(name)}"
    )


def _to_end(name: str) -> str:
    return f"to have it keep its replicas: runnel spu drain {name} --cancel"


def _what_next(spu: Spu) -> str:
    # What comes after how far the drain is: replicas that it keeps, for example.
    beside = (spu.status.reason or "").partition("; ")[2]
    but = f"; but see first: {beside}" if beside else ""
    if spu.spec.group is None:
        return f"it can be stopped, and deleted{but}"
    return (
        f"no partition is on it. SpuGroup {spu.spec.group} removes its SPU with the highest id when"
        f" its replicas are lowered{but}"
    )


def _is_called_off(cluster: BlockingAdmin, asked: Object, found: Object) -> bool:
    """Whether an SPU that was to drain is not to any more. ``found`` may be older than what was
    ``asked``, if another SC shows it."""
    if not isinstance(found, Spu) or found.generation <= asked.generation or found.spec.drain:
        return False
    return _removed_by(cluster, found) is None


def cancel(sc: str | None, name: str) -> None:
    """Have an SPU keep what it still has, and get replicas again. Raises RunnelError; ConflictError
    if its group has no place for it, so that its replicas move all the same."""
    with administered(sc) as cluster:
        spu = cluster.patch(Spu.PLURAL, name, {"spec": {"drain": None, "drainTo": None}})
        why = _removed_by(cluster, spu) if isinstance(spu, Spu) else None
    if why is not None:
        raise ConflictError(f"spu {name!r} goes on draining: {why}")
    print(f"spu/{name} {_KEEPS}")


def _removed_by(cluster: BlockingAdmin, spu: Spu) -> str | None:
    """Why the group of an SPU removes it, and what ends that; None if it does not."""
    if spu.spec.group is None:
        return None
    try:
        group = cluster.get(SpuGroup.PLURAL, spu.spec.group)
    except NotFoundError:
        return f"SpuGroup {spu.spec.group!r} was deleted"
    if not isinstance(group, SpuGroup):
        return None
    if group.deleting:
        return f"SpuGroup {group.name!r} is being deleted, which cannot be called off"
    spec, spu_id = group.spec, spu.spec.spu_id
    is_invalid = group.status.resolution is SpuGroupResolution.INVALID
    if is_invalid or spec.min_id <= spu_id <= spec.last_id:
        return None
    said = f"SpuGroup {group.name!r} has {spec.replicas} replicas, and no place for it"
    if spu_id < spec.min_id:
        return said
    keeping = spu_id - spec.min_id + 1
    return f"{said}; to keep it: runnel scale spugroup {group.name} --replicas {keeping}"
