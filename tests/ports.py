"""Ports for servers that tests start, and stop, and start again.

Each worker of a parallel run draws from a range of its own: while a server of one worker is down
for a moment, no server of another worker can take its port.
"""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from runnel.local import processes

HOST: Final = "127.0.0.1"
#: Below those that Linux gives to outgoing connections, which begin at 32768: while its server is
#: down, such a port may become the near end of any connection, and the server cannot come back.
SERVER_PORTS: Final = range(10_000, 32_000)


def own_ports() -> range:
    """The ports of this worker, or all of them if it runs alone."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = len(SERVER_PORTS) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return SERVER_PORTS[worker * share : (worker + 1) * share]


def free_base_port(data_dir: Path, spus: int) -> int:
    """A base port for a local cluster, at which all of its ports are free."""
    return processes.free_base_port(data_dir, spus, own_ports())


def free_ports(count: int) -> list[int]:
    """Ports on which no server listens, for servers that come back to them; all different."""
    found: list[int] = []
    ports = own_ports()
    # Hypothesis sets the seed of all other chance, and then two runs would choose the same.
    chance = random.SystemRandom()
    with ExitStack() as stack:
        for port in chance.sample(ports, len(ports)):
            if len(found) == count:
                return found
            with suppress(OSError):
                stack.enter_context(socket.socket()).bind((HOST, port))
                found.append(port)
    raise AssertionError(f"no {count} free ports from {ports[0]} to {ports[-1]}")
