"""Starting the daemons of a local cluster, and ports for them."""

from __future__ import annotations

import random
import socket
import subprocess
from pathlib import Path
from typing import Final

from runnel.local.etcd import find_etcd
from runnel.local.plan import HOST, ClusterPlan, Daemon
from schemas.daemon.installation import Program, program_command
from schemas.daemon.process import ProcessId, started_at
from schemas.errors import ConflictError

#: Below the ports that Linux gives to outgoing connections.
SERVER_PORTS: Final = range(10_003, 32_000)


def command_of(daemon: Daemon, config: Path) -> list[str]:
    """The command line of a daemon. Raises NotFoundError if there is no such program."""
    if daemon.program == "etcd":
        return [str(find_etcd()), f"--config-file={config}"]
    program = Program.SC if daemon.program == "sc" else Program.DASHBOARD
    return program_command(program, "-c", str(config))


def start_daemon(daemon: Daemon, config: Path, log: Path) -> ProcessId:
    """Start a daemon in the background, its output appended to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command_of(daemon, config),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=config.parent,
        )
    return ProcessId(process.pid, started_at(process.pid))


def port_is_free(port: int) -> bool:
    """Whether a daemon could listen on a loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_base_port(data_dir: Path, spus: int, among: range = SERVER_PORTS) -> int:
    """A base port at which the ports of every daemon are free now, and ``among`` these. It is drawn
    at random, so that it rarely collides with a cluster that is stopped for a moment or that looks
    for ports too.

    Raises ConflictError if there is none.
    """
    step = 10 + 3 * (spus + 1)
    bases = list(range(among.start, among.stop - step, step))
    # A caller may have set the seed of all other chance, and two that did would choose the same.
    random.SystemRandom().shuffle(bases)
    for base in bases:
        plan = ClusterPlan(data_dir, base_port=base, spus=spus, kv="etcd")
        daemons = (*plan.daemons, plan.dashboard)
        uses = [*(d.ports for d in daemons), *(plan.spu_ports(i) for i in range(spus))]
        if all(port_is_free(port) for ports in uses for port in ports.values()):
            return base
    raise ConflictError(f"no free ports for {spus} SPUs between {among.start} and {among.stop}")
