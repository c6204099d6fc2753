"""The name of an SC, which is its address: that no two processes run under one.

An earlier process of the same SC may still be listed, and hold the office: its lease ends later
than it did. On this machine a process can be looked at. One that ran elsewhere is dead when its
lease has ended, and another SC with the same address when it has not: then this one does not start.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from sc.kv.interface import KV
from schemas.control.controllers import ControllerEntry
from schemas.daemon.logs import get_logger
from schemas.daemon.process import ProcessId, is_alive, is_ending, started_at
from schemas.errors import ConflictError
from schemas.objects.keys import ClusterKeys

LOOK_S: Final = 0.2
#: Longer than the lease of an earlier process lasts.
MORE_S: Final = 2.0

log = get_logger(__name__)


def own_process() -> dict[str, int | str]:
    """What distinguishes this process from others of this machine, as fields of an entry."""
    pid = os.getpid()
    return {"pid": pid, "started": started_at(pid), "pid_namespace": _namespace()}


async def claim_name(kv: KV, keys: ClusterKeys, me: ControllerEntry, lease_ms: int) -> str | None:
    """Make sure that no other SC runs under this name. Gives the instance of an earlier process
    that has ended and is still listed. Raises ConflictError, RunnelError."""
    waited_s = 0.0
    while (there := await _listed(kv, keys, me.name)) is not None:
        if there.instance == me.instance:
            return None
        if _is_of_this_machine(there):
            process = ProcessId(there.pid, there.started)
            # One that was killed may still close its files, and be done with that in between.
            ending = is_ending(process)
            if not is_alive(process):
                return there.instance
            if not ending:
                raise taken(me.name, f"as process {there.pid} of this machine")
        if not waited_s:
            log.info("waiting for the lease of an earlier process of this SC", name=me.name)
        if waited_s > lease_ms / 1000 + MORE_S:
            raise taken(me.name, "elsewhere")
        await asyncio.sleep(LOOK_S)
        waited_s += LOOK_S
    return None


def taken(name: str, where: str) -> ConflictError:
    """The error of an SC whose name another one has."""
    return ConflictError(
        f"another SC of this cluster runs as {name} {where}: SCs are told apart by the address at"
        " which clients reach them; set advertisedHost in sc.yaml to the name or the IP address of"
        " this host, or public.port to another one"
    )


async def _listed(kv: KV, keys: ClusterKeys, name: str) -> ControllerEntry | None:
    found = await kv.get(keys.sc(name))
    if found is None:
        return None
    if (entry := ControllerEntry.decode(found.value)) is not None:
        return entry
    # Of a later version, perhaps; its lease tells whether it lives.
    return ControllerEntry(name=name, public="", private="", version="", since="", instance="?")


def _is_of_this_machine(there: ControllerEntry) -> bool:
    """Whether that process can be looked at from here: the same boot, the same pids."""
    boot = started_at(os.getpid()).partition("/")[0]
    return bool(
        there.pid
        and there.pid_namespace
        and there.pid_namespace == _namespace()
        and there.started.startswith(f"{boot}/")
    )


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
