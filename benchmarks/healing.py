"""How long nothing is acknowledged after a failure is over, beside another build.

    python -m benchmarks.healing [PYTHON] [--rounds 3] [--cases leader,ring,…] [--json]

PYTHON is the interpreter of an environment that has the other build installed; without it this
build is measured alone. Each build has a cluster of its own: an SC and three SPUs on hosts of their
own (`benchmarks.hosts`), and a topic with three partitions of three replicas. A producer, of the
same build and on another host, sends one record after another to each partition. Measured is the
time from the end of a failure (the network delivers again, or the last SPU listens) to the first
acknowledgement, of the partition for which it is longest; and the longest time without one in all,
the failure and the start of processes included. A round ends when all replicas are live again.

| case | failure |
|---|---|
| leader | the leader of partition 0 and its followers do not reach each other for 6 s |
| long | the same for 15 s: another leader is elected meanwhile |
| one-way | what that leader sends to its followers is lost for 8 s |
| ring | each SPU does not reach the next one, for 15 s |
| all | all SPUs are killed, and started again |
| again | the same, and one after another is killed again while they start |
| clients | the leader and its clients do not reach each other for 20 s |
| isolated | clients do not reach the SC, nor any SPU, for 20 s |
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import yaml

import runnel
from benchmarks.hosts import Network, network
from benchmarks.own_daemons import Daemon
from schemas.errors import RunnelError
from schemas.objects.partition import Partition

SPUS: Final = 3
PARTITIONS: Final = 3
TOPIC: Final = "healing"
CLIENT: Final = "client"
_WHOLE_S: Final = 90.0
#: With a whole cluster, records are acknowledged for so long before the next failure.
_CALM_S: Final = 1.5
_RESUMES_S: Final = 150.0
_PUBLIC, _PRIVATE, _HTTP = 9005, 9006, 9007
_SC_PUBLIC, _SC_PRIVATE = 9003, 9004


class Acknowledgements:
    """When records of each partition were acknowledged, as a producer says it."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.at: dict[int, list[float]] = defaultdict(list)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            partition, at = line.split()
            self.at[int(partition)].append(float(at))

    def since(self, moment: float) -> list[float | None]:
        """The first acknowledgement of each partition after a moment."""
        return [
            next((at for at in self.at[partition] if at > moment), None)
            for partition in range(PARTITIONS)
        ]

    def longest_gap_s(self, moment: float) -> float:
        """The longest time without an acknowledgement in any partition, from a moment on."""
        longest = 0.0
        for partition in range(PARTITIONS):
            at = [moment, *(at for at in self.at[partition] if at > moment)]
            longest = max(longest, *(b - a for a, b in pairwise(at)), 0.0)
        return longest

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class MeasuredCluster:
    """The hosts and daemons of one build, and what was measured of them: for each case the seconds
    from the end of each failure, and those without acknowledgements in all."""

    name: str
    network: Network
    sc_host: str
    hosts: list[str]
    spus: list[Daemon]
    cluster: runnel.Cluster
    acknowledgements: Acknowledgements
    found: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def leader(self) -> int | None:
        """The leader of partition 0, if all partitions are online and all replicas live."""
        leaders: list[int | None] = []
        for number in range(PARTITIONS):
            try:
                partition = self.cluster.get("partition", f"{TOPIC}-{number}")
            except RunnelError:
                return None
            assert isinstance(partition, Partition)
            status = partition.status
            if status.resolution.value != "online" or len(status.lrs) < SPUS:
                return None
            leaders.append(status.leader)
        return leaders[0]

    def until_whole(self) -> int:
        """Wait until all replicas are live; gives the leader of partition 0."""
        deadline = time.monotonic() + _WHOLE_S
        while (leader := self.leader()) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: not whole within {_WHOLE_S:g} s")
            time.sleep(0.05)
        return leader

    def run(self, case: str) -> None:
        """One round of one case."""
        leader = self.until_whole()
        time.sleep(_CALM_S)
        began = time.monotonic()
        CASES[case](self, leader)
        ended = time.monotonic()
        while None in (first := self.acknowledgements.since(ended)):
            if time.monotonic() - ended > _RESUMES_S:
                raise RuntimeError(f"{self.name}, {case}: nothing within {_RESUMES_S:g} s")
            time.sleep(0.02)
        resumed = max(at for at in first if at is not None)
        whole = self.acknowledgements.longest_gap_s(began)
        self.found[case].append((resumed - ended, whole))

    def cut(self, links: list[tuple[str, str]], for_s: float) -> None:
        """Have the first host of each link not reach the second one for a while."""
        for sender, receiver in links:
            self.network.cut(sender, receiver)
        time.sleep(for_s)
        for sender, receiver in links:
            self.network.heal(sender, receiver)

    def others(self, spu: int) -> list[tuple[str, str]]:
        """The links from an SPU to the other ones."""
        return [(self.hosts[spu], host) for host in self.hosts if host != self.hosts[spu]]

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.spus[number].end(signal.SIGKILL)

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.spus[number].start()

    def until_listening(self) -> None:
        """Wait until all SPUs accept clients."""
        deadline = time.monotonic() + _WHOLE_S
        for host in self.hosts:
            while True:
                try:
                    socket.create_connection((self.network.address(host), _PUBLIC), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)


def _both_ways(links: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*links, *((receiver, sender) for sender, receiver in links)]


def _cut_leader(cluster: MeasuredCluster, leader: int) -> None:
    cluster.cut(_both_ways(cluster.others(leader)), 6)


def _cut_leader_long(cluster: MeasuredCluster, leader: int) -> None:
    cluster.cut(_both_ways(cluster.others(leader)), 15)


def _cut_one_way(cluster: MeasuredCluster, leader: int) -> None:
    cluster.cut(cluster.others(leader), 8)


def _cut_ring(cluster: MeasuredCluster, _leader: int) -> None:
    hosts = cluster.hosts
    cluster.cut(list(zip(hosts, [*hosts[1:], hosts[0]], strict=True)), 15)


def _kill_all(cluster: MeasuredCluster, _leader: int) -> None:
    cluster.kill(*range(SPUS))
    cluster.start(*range(SPUS))
    cluster.until_listening()


def _kill_again(cluster: MeasuredCluster, leader: int) -> None:
    cluster.kill(*range(SPUS))
    cluster.start(*range(SPUS))
    for number in range(SPUS):
        time.sleep(1.0)
        victim = (leader + number) % SPUS
        cluster.kill(victim)
        cluster.start(victim)
    cluster.until_listening()


def _cut_clients(cluster: MeasuredCluster, leader: int) -> None:
    cluster.cut(_both_ways([(cluster.hosts[leader], CLIENT)]), 20)


def _isolate_clients(cluster: MeasuredCluster, _leader: int) -> None:
    hosts = [cluster.sc_host, *cluster.hosts]
    cluster.cut(_both_ways([(host, CLIENT) for host in hosts]), 20)


CASES: Final[dict[str, Callable[[MeasuredCluster, int], None]]] = {
    "leader": _cut_leader,
    "long": _cut_leader_long,
    "one-way": _cut_one_way,
    "ring": _cut_ring,
    "all": _kill_all,
    "again": _kill_again,
    "clients": _cut_clients,
    "isolated": _isolate_clients,
}


@contextmanager
def measured_cluster(
    name: str, python: str, wires: Network, label: str
) -> Iterator[MeasuredCluster]:
    """A cluster whose processes run under an interpreter, until the block ends; ``label`` is in the
    names of its hosts."""
    directory = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    sc_host, hosts = f"{label}-sc", [f"{label}-spu{number}" for number in range(SPUS)]
    for host in (sc_host, *hosts):
        wires.add(host)
    sc_address = wires.address(sc_host)
    sc_config: dict[str, object] = {
        "cluster": "healing",
        "kv": f"sqlite:{directory / 'kv.db'}",
        "public": {"host": sc_address, "port": _SC_PUBLIC},
        "private": {"host": sc_address, "port": _SC_PRIVATE},
    }

    def daemon(host: str, module: str, config: dict[str, object]) -> Daemon:
        file = directory / f"{host}.yaml"
        file.write_text(yaml.safe_dump(config))
        command = wires.command(host, python, "-P", "-m", module, "-c", str(file))
        return Daemon(command, directory / f"{host}.log")

    sc = daemon(sc_host, "sc", sc_config)
    spus = []
    for number, host in enumerate(hosts):
        ports = {"public": _PUBLIC, "private": _PRIVATE, "http": _HTTP}
        spu_config: dict[str, object] = {
            "spuId": number,
            "logDir": str(directory / f"spu-{number}"),
            "controller": f"{sc_address}:{_SC_PRIVATE}",
            **{key: {"host": wires.address(host), "port": port} for key, port in ports.items()},
        }
        spus.append(daemon(host, "spu", spu_config))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        for each in (sc, *spus):
            stack.callback(each.end, signal.SIGKILL)
        sc.start()
        public = f"{sc_address}:{_SC_PUBLIC}"
        cluster = stack.enter_context(_connected(public))
        for number, spu in enumerate(spus):
            host = wires.address(hosts[number])
            cluster.create(
                {
                    "apiVersion": "runnel/v1",
                    "kind": "Spu",
                    "metadata": {"name": f"spu-{number}"},
                    "spec": {
                        "spuId": number,
                        "spuType": "custom",
                        "publicEndpoint": {"ingress": [{"hostname": host}], "port": _PUBLIC},
                        "privateEndpoint": {"host": host, "port": _PRIVATE},
                    },
                }
            )
            spu.start()
        for number in range(SPUS):
            cluster.wait("spu", f"spu-{number}", "online")
        cluster.create(
            {
                "apiVersion": "runnel/v1",
                "kind": "Topic",
                "metadata": {"name": TOPIC},
                "spec": {"partitions": PARTITIONS, "replicationFactor": SPUS},
            }
        )
        cluster.wait("topic", TOPIC, "provisioned")
        sender = Path(__file__).with_name("acknowledgements.py")
        command = [python, "-P", str(sender), public, TOPIC, str(PARTITIONS)]
        log = directory / "producer.log"
        acknowledgements = Acknowledgements(wires.command(CLIENT, *command), log)
        stack.callback(acknowledgements.close)
        yield MeasuredCluster(name, wires, sc_host, hosts, spus, cluster, acknowledgements)


def _connected(address: str) -> runnel.Cluster:
    deadline = time.monotonic() + _WHOLE_S
    while True:
        try:
            return runnel.connect(address)
        except RunnelError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def measure(
    builds: dict[str, str], cases: list[str], rounds: int
) -> dict[str, dict[str, dict[str, float]]]:
    """What was found for each build and case; ``builds`` names interpreters."""
    with ExitStack() as stack:
        wires = stack.enter_context(network())
        wires.add(CLIENT)
        wires.enter(CLIENT)
        clusters = [
            stack.enter_context(measured_cluster(name, python, wires, f"b{number}"))
            for number, (name, python) in enumerate(builds.items())
        ]
        for number in range(rounds):
            for case in cases:
                for cluster in clusters if number % 2 else reversed(clusters):
                    cluster.run(case)
        return {
            cluster.name: {case: _summary(found) for case, found in cluster.found.items()}
            for cluster in clusters
        }


def _summary(found: list[tuple[float, float]]) -> dict[str, float]:
    after, whole = [one for one, _ in found], [one for _, one in found]
    return {
        "after_s": statistics.median(after),
        "after_most_s": max(after),
        "without_s": statistics.median(whole),
    }


def main() -> None:
    """Run and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("python", nargs="?", help="interpreter of the other build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    builds = {"this build": sys.executable}
    if options.python:
        builds["other build"] = options.python
    found = measure(builds, options.cases.split(","), options.rounds)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    _print_table(found)


def _print_table(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """One line a case; with two builds also the ratio of the other one to this one."""
    this, *others = found.values()
    other = others[0] if others else {}
    print(f"{'case':10}{'after it, s':>12}{'at most':>9}{'in all':>9}", end="")
    print(f"{'other build':>14}{'at most':>9}{'in all':>9}{'ratio':>8}" if other else "")
    for case, numbers in this.items():
        print(f"{case:10}" + _columns(numbers, 12), end="")
        if other:
            ratio = other[case]["after_s"] / numbers["after_s"]
            print(_columns(other[case], 14) + f"{ratio:>8.1f}", end="")
        print()


def _columns(numbers: dict[str, float], width: int) -> str:
    after, most, whole = numbers.values()
    return f"{after:>{width}.1f}{most:>9.1f}{whole:>9.1f}"


if __name__ == "__main__":
    main()
