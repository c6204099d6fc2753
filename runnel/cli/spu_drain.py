"""What ``runnel spu drain`` and ``replace`` do: an SPU gives its replicas to others."""

from __future__ import annotations

import time
from typing import Final

from runnel.cli.connection import administered
from runnel.cli.progress import going_on, progress
from schemas.errors import DeadlineExceededError, NotFoundError, RetryableError
from schemas.objects.spu import Spu

_LOOK_S: Final = 0.5


def drain(
    sc: str | None, name: str, *, wait: bool, timeout_s: float, to: str | None = None
) -> None:
    """Have an SPU drained, to the SPU ``to`` if one is named, and wait until it is. Raises
    RunnelError; the drain goes on then."""
    with administered(sc) as cluster:
        targets = None
        if to is not None:
            found = cluster.get(Spu.PLURAL, to)
            targets = [found.spec.spu_id] if isinstance(found, Spu) else None
        cluster.patch(Spu.PLURAL, name, {"spec": {"drain": True, "drainTo": targets}})
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
                except NotFoundError:
                    print(f"spu/{name} was drained and removed")
                    return
                except RetryableError as error:
                    said = error.message
                else:
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


def cancel(sc: str | None, name: str) -> None:
    """Have an SPU keep what it still has, and get replicas again. Raises RunnelError."""
    with administered(sc) as cluster:
        cluster.patch(Spu.PLURAL, name, {"spec": {"drain": None, "drainTo": None}})
    print(f"spu/{name} keeps the replicas that have not moved yet, and gets new ones again")
