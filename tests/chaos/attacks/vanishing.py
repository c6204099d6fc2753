"""A thousand clients whose host is gone: run this in a network namespace of its own, and it prints
what became of their connections as JSON.

    unshare --map-root-user --net python -m tests.chaos.attacks.vanishing DIRECTORY

The clients come from addresses of their own, and from one moment on the namespace drops all packets
from and to these. So neither end is told anything, as when a host loses its power.
"""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import runnel
from schemas.wire.protocol import PREFIX, Api, HelloRequest, pack_frame
from tests.chaos.attacks.beside import Neighbours, Noticed, check_nothing_lost, used
from tests.chaos.attacks.scene import scene_in, until
from tests.chaos.replication.clients import TOPIC

CLIENTS = 1_000
READERS_OF_FEEDS = 60
#: An SPU gives half of its connections to one address.
HOSTS = tuple(f"127.0.1.{n}" for n in range(1, 5))
QUIET_S = 5.0
PATIENCE_S = 100.0


@dataclass(frozen=True)
class Outcome:
    """What was seen: how many connections the SPU had, and when those of the clients that vanished
    were gone there and at the SC; when a client that came meanwhile had its first record
    acknowledged; what clients that were there before noticed."""

    connections: float
    freed_after_s: float
    sc_descriptors_more: int
    newcomer_after_s: float
    producer: tuple[Noticed, Noticed]
    consumer: tuple[Noticed, Noticed]


def run(home: Path) -> Outcome:
    """Let the clients vanish. Raises AssertionError if something does not happen at all."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with scene_in(home, spus=1) as scene, Neighbours(scene.address) as neighbours:
        until(lambda: len(neighbours.read_at) > 100, "records flow")
        began = time.perf_counter()
        time.sleep(QUIET_S)
        sc, port = scene.processes["sc-0"], scene.exposed.spus[0]
        sc_descriptors = used(sc)[1]
        held = [client(HOSTS[n % len(HOSTS)], port) for n in range(CLIENTS)]
        held += [feed(HOSTS[n % len(HOSTS)], scene.exposed.sc) for n in range(READERS_OF_FEEDS)]
        connections = spu_connections(port + 2)
        vanished = time.perf_counter()
        for way in ("--source", "--destination"):
            subprocess.run(
                ["iptables", "-A", "INPUT", way, "127.0.1.0/24", "-j", "DROP"], check=True
            )
        came: list[float] = []

        def come() -> None:
            with runnel.connect(scene.address) as cluster, cluster.producer(TOPIC) as producer:
                # A number that no neighbour sends.
                producer.send(b"-1", b"newcomer").result(PATIENCE_S)
                came.append(time.perf_counter() - vanished)

        newcomer = threading.Thread(target=come)
        newcomer.start()
        until(lambda: spu_connections(port + 2) < 50, "their connections are gone", PATIENCE_S)
        freed_after_s = time.perf_counter() - vanished
        until(lambda: used(sc)[1] < sc_descriptors + 20, "their feeds are gone", PATIENCE_S)
        newcomer.join(PATIENCE_S)
        over = time.perf_counter()
        check_nothing_lost(neighbours)
        for one in held:
            one.close()
        quiet, loud = neighbours.between(began, vanished), neighbours.between(vanished, over)
        return Outcome(
            connections,
            freed_after_s,
            used(sc)[1] - sc_descriptors,
            came[0] if came else PATIENCE_S,
            (quiet[0], loud[0]),
            (quiet[1], loud[1]),
        )


def client(host: str, port: int) -> socket.socket:
    """A client that has said HELLO, and was answered, or was refused."""
    connection = socket.create_connection(("127.0.0.1", port), 5, (host, 0))
    connection.sendall(b"".join(pack_frame(Api.HELLO, 0, HelloRequest(1, 1).pack())))
    connection.recv(PREFIX.size)
    return connection


def feed(host: str, port: int) -> socket.socket:
    """A reader of a feed, to which the SC has begun to answer."""
    connection = socket.create_connection(("127.0.0.1", port), 5, (host, 0))
    connection.sendall(b"GET /v1/assignments?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.recv(1)
    return connection


def spu_connections(port: int) -> float:
    """How many clients are connected, by the metrics of the SPU; infinity if it says nothing."""
    with suppress(OSError):
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return float(
            next(one for one in lines if one.startswith("runnel_spu_connections ")).split()[1]
        )
    return float("inf")


if __name__ == "__main__":
    print(json.dumps(asdict(run(Path(sys.argv[1])))))
