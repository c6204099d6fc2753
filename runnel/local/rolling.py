"""Restarting a local cluster's daemons one after the other, while clients go on.

An SPU that is asked to stop has others lead first; the SC starts its process again. The next one
follows only when all replicas are live again: with two replicas, each partition is served all the
time. SCs come first, the one that leads last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from runnel.admin.calls import HEALTH
from runnel.admin.one_shot import OneShotCalls
from runnel.local.starting import Progress
from runnel.local.state import DataDirectory, SpuProcess
from schemas.daemon.process import ProcessId, stop
from schemas.errors import (
    DeadlineExceededError,
    RetryableError,
    StorageFailedError,
    UnreachableError,
)
from schemas.objects.partition import Partition, is_led, is_under_replicated
from schemas.objects.spu import CONNECTED, Spu

#: How long one SPU may take to be whole again.
WHOLE_S: Final = 600.0
#: So many replicas are live where one may stop.
_LIVE: Final = 2
#: How often it is looked.
_LOOK_S: Final = 0.1
#: What an SC tells beside its health if its KV is to blame, and the error that this is here.
_KV_TROUBLE: Final = {"kvAwayMs": UnreachableError, "kvUnwritable": StorageFailedError}


def require_kv(controllers: Mapping[str, OneShotCalls]) -> None:
    """Raises UnreachableError if an SC says that its KV is away, StorageFailedError if it takes no
    writes: an SC that is stopped then cannot start again. One that says nothing may need just
    that."""
    for name, client in controllers.items():
        try:
            client.call("GET", HEALTH)
        except RetryableError as error:
            for trouble, kind in _KV_TROUBLE.items():
                if trouble in error.details:
                    raise kind(
                        f"{name}: {error.message}; it could not start again: mend that, and repeat"
                        " the command"
                    ) from error


def restart_spus(directory: DataDirectory, client: OneShotCalls, progress: Progress) -> list[str]:
    """Restart the SPUs that run, one after the other; gives their names.

    Raises DeadlineExceededError, naming the first that was not restarted, if the replicas are not
    live again in time.
    """
    done: list[str] = []
    for spu in [one for one in directory.spus() if directory.runs(one)]:
        progress(f"waiting until all replicas are live, before {spu.name}")
        _until(lambda: _missing(client), f"{spu.name} was not restarted")
        progress(f"restarting {spu.name}")
        stop([spu.process])
        _until(
            lambda spu=spu: _absent(directory, client, spu),  # type: ignore[misc]
            f"{spu.name} was stopped, and is not back",
        )
        done.append(spu.name)
    progress("waiting until all replicas are live")
    _until(lambda: _missing(client), "all SPUs were restarted")
    return done


def _until(obstacle: Callable[[], str | None], said: str) -> None:
    """Wait until nothing is in the way."""
    deadline = time.monotonic() + WHOLE_S
    while (why := _asked(obstacle)) is not None:
        if time.monotonic() > deadline:
            raise DeadlineExceededError(
                f"{said}: after {WHOLE_S:g} s, {why}; mend that, and repeat the command"
            )
        time.sleep(_LOOK_S)


def _asked(obstacle: Callable[[], str | None]) -> str | None:
    try:
        return obstacle()
    except RetryableError as error:
        return error.message


def _missing(client: OneShotCalls) -> str | None:
    """A partition that would lose its leader if an SPU stopped now, although it has others."""
    answer = client.call("GET", "/v1/partitions")
    for partition in map(Partition.model_validate, answer["items"]):
        if len(partition.spec.replicas) == 1:
            continue
        status = partition.status
        # While replicas move, one that joins is not missed: the others may be one.
        alone = len(status.lrs) < _LIVE
        if alone or not is_led(status) or is_under_replicated(partition):
            return f"{partition.name}: {status.reason or 'not all replicas are live'}"
    return None


def _absent(directory: DataDirectory, client: OneShotCalls, before: SpuProcess) -> str | None:
    """Why an SPU's new process does not serve yet."""
    found = next((one for one in directory.spus() if one.name == before.name), None)
    if found is None or found.process == before.process or not directory.runs(found):
        return f"the SC has not started {before.name} again"
    spu = Spu.model_validate(client.call("GET", f"/v1/spus/{before.name}"))
    if spu.status.resolution in CONNECTED:
        return None
    return f"{before.name} is {spu.status.resolution.value}: {spu.status.reason}"


def order_of(roles: dict[str, str], running: dict[str, ProcessId]) -> list[str]:
    """The SCs that run, the one that leads last. Those that say nothing come first: after each
    restart, all must be well."""
    names = [name for name in sorted(running) if name.startswith("sc-")]
    return sorted(names, key=lambda name: (name in roles, roles.get(name) == "leader"))
