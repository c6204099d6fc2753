"""Processor time: of this process, of the daemons of a local cluster, of the whole machine.

A cluster counts as local when every daemon of it runs on this host, as ``runnel cluster status``
knows them by pid; otherwise the usage of its daemons is unknown and left out.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from runnel.admin.blocking import BlockingAdmin
from runnel.contexts import local_data_dirs
from runnel.local.cluster import ClusterDaemons
from runnel.net.address import Address, parse_address, parse_addresses
from schemas.errors import RunnelError
from schemas.objects.spu import CONNECTED, Spu

_HERE = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class LocalDaemons:
    """The cluster that is measured, if it is a local one.

    ``pids`` by name of the daemon, or None where some of its SPUs run elsewhere.
    """

    data_dir: Path
    pids: Mapping[str, int] | None


def find_local(addresses: Iterable[Address], spus: Iterable[str]) -> LocalDaemons | None:
    """The local cluster whose SC listens at one of these addresses; ``spus`` are the names of all
    online SPUs that it should have."""
    here = {*_HERE, socket.gethostname()}
    ports = {address.port for address in addresses if address.host in here}
    for data_dir in local_data_dirs():
        with suppress(RunnelError):
            status = ClusterDaemons(data_dir).status()
            if parse_address(status["address"]).port in ports:
                return _daemons(status, set(spus))
    return None


def spu_pids(cluster: BlockingAdmin, address: str) -> list[int] | None:
    """The processes of all online SPUs of a cluster; None unless all of them are on this host."""
    found = [one for one in cluster.list("spus") if isinstance(one, Spu)]
    online = [one.name for one in found if one.status.resolution in CONNECTED]
    local = find_local(parse_addresses(address), online)
    if local is None or local.pids is None:
        return None
    return [local.pids[name] for name in online]


def _daemons(status: Mapping[str, Any], spus: Set[str]) -> LocalDaemons:
    """Those in the ``status`` of a local cluster."""
    rows = (*status["etcd"], *status["sc"], *status["spus"])
    pids = {row["name"]: row["pid"] for row in rows if row["pid"] is not None}
    complete = spus <= pids.keys() and any(row["pid"] is not None for row in status["sc"])
    return LocalDaemons(Path(status["dataDir"]), pids if complete else None)


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time during ``wall_s``; ``machine`` is the busy share of all cores.

    ``daemons`` by name, or None where they are not on this host.
    """

    wall_s: float
    client_s: float
    daemons: Mapping[str, float] | None
    machine: float
    cores: int

    @property
    def total_s(self) -> float | None:
        """Of client and daemons together; None where the daemons are not known."""
        return None if self.daemons is None else self.client_s + sum(self.daemons.values())


class Meter:
    """Measures from `start` to `stop`."""

    def __init__(self, pids: Mapping[str, int] | None) -> None:
        self._pids = pids
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        self._daemons = self._daemon_times()
        self._machine = _machine_times()
        self._client_s = time.process_time()
        self._begin = time.perf_counter()

    def stop(self) -> Usage:
        """The usage since `start`."""
        wall_s = time.perf_counter() - self._begin
        client_s = time.process_time() - self._client_s
        busy, total = (
            now - then for now, then in zip(_machine_times(), self._machine, strict=True)
        )
        before, after = self._daemons, self._daemon_times()
        daemons = None
        if before is not None and after is not None:
            daemons = {name: max(0.0, after[name] - before[name]) for name in before}
        machine = min(1.0, busy / total) if total > 0 else 0.0
        return Usage(max(wall_s, 1e-9), client_s, daemons, machine, psutil.cpu_count() or 1)

    def _daemon_times(self) -> dict[str, float] | None:
        if self._pids is None:
            return None
        try:
            times = {name: psutil.Process(pid).cpu_times() for name, pid in self._pids.items()}
        except psutil.Error:
            # One of them ended: its usage is not known.
            return None
        return {name: found.user + found.system for name, found in times.items()}


def _machine_times() -> tuple[float, float]:
    """Seconds that all cores were busy, and all seconds there were."""
    times = psutil.cpu_times()._asdict()
    # Time of guests is part of that of users.
    total = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
    idle = times["idle"] + times.get("iowait", 0.0)
    return total - idle, total
