"""How long nothing is acknowledged after an SPU was killed, beside another build.

    python -m benchmarks.failover [PYTHON] [--rounds 30] [--json]

PYTHON is the interpreter of an environment that has the other build installed, for example
``.venv/bin/python`` of a second clone; without it this build is measured alone. Each build has a
cluster of its own: an SC and three SPUs that this benchmark starts, and a topic with one partition
of three replicas. In a round each cluster in turn loses the leader to ``kill -9``, and gets it back
once another one leads; the order changes from round to round. Measured is the time from the kill to
the first acknowledgement of a record that was sent after it, one record at a time, by the client of
this build. A round ends when all replicas are live again.

    python -m benchmarks.failover --partitions 1000 [--rounds 10] [--json]

Then this build is measured alone, and all partitions are led by the SPU that is killed. Right after
the kill one record is sent to each; measured is the time to each one's acknowledgement, and by the
SC's log when it knew of the loss, had elected, and was told that the new leader leads. Before each
round the leaders are moved to that SPU (`runnel cluster rebalance --leaders`), and the same records
are sent while nothing is lost: no failover can be faster than that on the same machine.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import yaml

import runnel
from benchmarks.own_daemons import Daemon
from runnel.local.plan import HOST, ClusterPlan
from runnel.local.processes import free_base_port
from schemas.errors import RunnelError
from schemas.objects.partition import Partition

SPUS: Final = 3
TOPIC: Final = "failover"
_WHOLE_S: Final = 60.0
_PLACED_S: Final = 900.0
_QUANTILES: Final = (50, 90, 99)


@dataclass
class MeasuredCluster:
    """The daemons of one build, and what was measured of them."""

    name: str
    sc: Daemon
    spus: list[Daemon]
    cluster: runnel.Cluster
    producer: runnel.Producer
    found_ms: list[float] = field(default_factory=list)
    #: The same of a time in which nothing happened.
    unhurt_ms: list[float] = field(default_factory=list)

    def leader(self) -> int | None:
        """The leader of the partition, if it is online and all replicas are live."""
        partition = self.cluster.get("partition", f"{TOPIC}-0")
        assert isinstance(partition, Partition)
        status = partition.status
        whole = status.resolution.value == "online" and len(status.lrs) == SPUS
        return status.leader if whole else None

    def until_whole(self) -> int:
        """Wait until all replicas are live; gives the leader."""
        deadline = time.monotonic() + _WHOLE_S
        while (leader := self.leader()) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: not whole within {_WHOLE_S:g} s")
            time.sleep(0.05)
        return leader

    def fail_over(self) -> None:
        """One round."""
        spu = self.spus[self.until_whole()]
        for _ in range(20):
            self.producer.send(b"before").result(_WHOLE_S)
        began = time.perf_counter()
        spu.end(signal.SIGKILL)
        self.producer.send(b"after").result(_WHOLE_S)
        self.found_ms.append(1000 * (time.perf_counter() - began))
        spu.start()


@contextmanager
def measured_cluster(name: str, python: str, partitions: int = 1) -> Iterator[MeasuredCluster]:
    """A cluster whose daemons run under an interpreter, until the block ends. The first SPU leads
    all partitions."""
    directory = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    plan = ClusterPlan(directory, base_port=free_base_port(directory, SPUS), spus=SPUS)
    (directory / "sc-0").mkdir()
    config = {key: value for key, value in plan.sc.config.items() if key != "provisioning"}
    sc = _daemon(directory, python, "sc", "sc", config)
    spus = []
    for number in range(SPUS):
        spu_config = {
            "spuId": number,
            "logDir": str(directory / f"spu-{number}"),
            "controller": f"{HOST}:{plan.sc.ports['private']}",
            **{k: {"host": HOST, "port": port} for k, port in plan.spu_ports(number).items()},
        }
        spus.append(_daemon(directory, python, "spu", f"spu-{number}", spu_config))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        for daemon in (sc, *spus):
            stack.callback(daemon.end, signal.SIGKILL)
        sc.start()
        cluster = stack.enter_context(_connected(plan.sc_address))
        for number, spu in enumerate(spus):
            ports = plan.spu_ports(number)
            public = {"ingress": [{"hostname": HOST}], "port": ports["public"]}
            cluster.create(
                {
                    "apiVersion": "runnel/v1",
                    "kind": "Spu",
                    "metadata": {"name": f"spu-{number}"},
                    "spec": {
                        "spuId": number,
                        "spuType": "custom",
                        "publicEndpoint": public,
                        "privateEndpoint": {"host": HOST, "port": ports["private"]},
                    },
                }
            )
            spu.start()
            cluster.wait("spu", f"spu-{number}", "online")
        cluster.create(topic_of([(0, 1, 2)] * partitions))
        cluster.wait("topic", TOPIC, "provisioned", timeout=_PLACED_S)
        producer = stack.enter_context(cluster.producer(TOPIC))
        yield MeasuredCluster(name, sc, spus, cluster, producer)


def topic_of(rows: Sequence[Sequence[int]]) -> dict[str, object]:
    """The measured topic, with the SPUs of each partition, the preferred leader first."""
    assignment = [{"id": index, "replicas": list(row)} for index, row in enumerate(rows)]
    return {
        "apiVersion": "runnel/v1",
        "kind": "Topic",
        "metadata": {"name": TOPIC},
        "spec": {"assignment": assignment},
    }


def _connected(address: str) -> runnel.Cluster:
    deadline = time.monotonic() + _WHOLE_S
    while True:
        try:
            return runnel.connect(address)
        except RunnelError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _daemon(
    directory: Path, python: str, module: str, name: str, config: dict[str, object]
) -> Daemon:
    file = directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    return Daemon([python, "-P", "-m", module, "-c", str(file)], directory / f"{name}.log")


@dataclass
class Loss:
    """One round in which the SPU that leads all partitions was killed; milliseconds from then.
    ``unhurt``: milliseconds from the first of as many records while nothing was lost."""

    unhurt: list[float]
    acknowledged: list[float]
    known: float
    elected: list[float]
    led: list[float]


def lose_all(cluster: MeasuredCluster, partitions: int) -> Loss:
    """Have one SPU lead all partitions, kill it, write to each, and start it again."""
    _until_all(cluster, partitions, _are_live, "live on all SPUs")
    for index in range(partitions):
        cluster.producer.send(b"before", partition=index)
    cluster.producer.flush()
    cluster.cluster.wait("rebalance", begin_moves(cluster), "done", timeout=_PLACED_S)
    _until_all(cluster, partitions, _is_home, "led by SPU 0, with all replicas live")
    unhurt = _written(cluster, partitions, time.perf_counter())
    log_begins = cluster.sc.log.stat().st_size
    began, wall = time.perf_counter(), time.time()
    cluster.spus[0].end(signal.SIGKILL)
    acknowledged = _written(cluster, partitions, began)
    time.sleep(0.5)
    known, elected, led = _by_the_log(cluster.sc.log, log_begins, wall)
    cluster.spus[0].start()
    cluster.cluster.wait("spu", "spu-0", "online", timeout=_PLACED_S)
    return Loss(unhurt, acknowledged, known, elected, led)


def _written(cluster: MeasuredCluster, partitions: int, began: float) -> list[float]:
    """Send a record to each partition; gives when each was acknowledged, in ms since ``began``."""
    acknowledged: list[float] = []
    lock = threading.Lock()

    def note(error: RunnelError | None, _located: object) -> None:
        if error is not None:
            raise error
        with lock:
            acknowledged.append(1000 * (time.perf_counter() - began))

    for index in range(partitions):
        cluster.producer.send(b"measured", partition=index).call(note)
    cluster.producer.flush()
    _until(lambda: len(acknowledged) == partitions, _PLACED_S)
    return sorted(acknowledged)


def begin_moves(cluster: MeasuredCluster) -> str:
    """Have each partition led by its preferred leader, soon; gives the name of the rebalance."""
    name = f"home-{time.time_ns()}"
    cluster.cluster.create(
        {
            "apiVersion": "runnel/v1",
            "kind": "Rebalance",
            "metadata": {"name": name},
            "spec": {"leadersOnly": True},
        }
    )
    return name


def _by_the_log(log: Path, begins: int, wall: float) -> tuple[float, list[float], list[float]]:
    """When the SC knew, elected and heard, by its log since a kill."""
    known, elected, led = math.nan, dict[str, float](), dict[str, float]()
    with log.open() as lines:
        lines.seek(begins)
        for line in lines:
            entry = json.loads(line)
            at = 1000 * (datetime.fromisoformat(entry["timestamp"]).timestamp() - wall)
            if entry["event"] == "SPU disconnected" and math.isnan(known):
                known = at
            elif entry["event"] == "wrote" and str(entry.get("object")).startswith("Partition/"):
                kept = led if entry.get("resolution") == "online" else elected
                kept.setdefault(entry["object"], at)
    return known, sorted(elected.values()), sorted(led.values())


def _are_live(partition: Partition) -> bool:
    return len(partition.status.lrs) == SPUS


def _is_home(partition: Partition) -> bool:
    status = partition.status
    return _are_live(partition) and status.leader == 0 and status.resolution.value == "online"


def _until_all(
    cluster: MeasuredCluster, partitions: int, condition: Callable[[Partition], bool], what: str
) -> None:
    """Wait until a condition holds for all partitions, and say on stderr how many are left. Asks
    rarely where there are many: a listing takes time of the SC."""

    def left() -> int:
        found = [p for p in cluster.cluster.list("partitions") if isinstance(p, Partition)]
        return partitions - sum(condition(p) for p in found)

    deadline = time.monotonic() + _PLACED_S
    while missing := left():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{missing} of {partitions} partitions not {what}")
        print(f"{missing} of {partitions} partitions not {what} yet", file=sys.stderr)
        time.sleep(max(0.2, partitions / 1_000))


def _until(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {within_s:g} s")
        time.sleep(0.2)


def measure_losses(partitions: int, rounds: int) -> dict[str, dict[str, float]]:
    """Quantiles over all partitions of all rounds."""
    with measured_cluster("this build", sys.executable, partitions) as cluster:
        losses = [lose_all(cluster, partitions) for _ in range(rounds)]
    parts = {
        "acknowledged, nothing lost": [at for loss in losses for at in loss.unhurt],
        "the SC knows": [loss.known for loss in losses],
        "elected": [at for loss in losses for at in loss.elected],
        "the new leader leads": [at for loss in losses for at in loss.led],
        "acknowledged": [at for loss in losses for at in loss.acknowledged],
    }
    return {name: quantiles(found) for name, found in parts.items() if found}


def quantiles(found_ms: list[float]) -> dict[str, float]:
    """How many, the mean, the measured quantiles and the maximum."""
    ordered = sorted(found_ms)
    last = len(ordered) - 1
    found = {f"p{q}": ordered[round(q / 100 * last)] for q in _QUANTILES}
    mean = statistics.fmean(ordered)
    return {"rounds": len(ordered), "mean": mean, **found, "max": ordered[-1]}


def compared(
    python: str | None, rounds: int, measure: Callable[[MeasuredCluster], None]
) -> dict[str, dict[str, float]]:
    """Quantiles of what is measured of this build and, if an interpreter is given, of another one;
    which comes first changes from round to round."""
    builds = {"this build": sys.executable}
    if python:
        builds["other build"] = python
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(measured_cluster(name, path)) for name, path in builds.items()
        ]
        for number in range(rounds):
            for cluster in clusters if number % 2 else reversed(clusters):
                measure(cluster)
        found = {cluster.name: quantiles(cluster.found_ms) for cluster in clusters}
        unhurt = {
            f"{cluster.name}, nothing happens": quantiles(cluster.unhurt_ms)
            for cluster in clusters
            if cluster.unhurt_ms
        }
        return found | unhurt


def main() -> None:
    """Run and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("python", nargs="?", help="interpreter of the other build")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.partitions > 1:
        print_table(measure_losses(options.partitions, options.rounds), as_json=options.json)
        return
    found = compared(options.python, options.rounds, MeasuredCluster.fail_over)
    print_table(found, as_json=options.json)


def print_table(
    found: dict[str, dict[str, float]], *, as_json: bool, what: str = "ms from the kill"
) -> None:
    """A row for each name, or JSON."""
    if as_json:
        print(json.dumps(found, indent=2))
        return
    columns = next(iter(found.values()))
    print(f"{what:32}" + "".join(f"{k:>9}" for k in columns))
    for name, numbers in found.items():
        print(f"{name:32}" + "".join(f"{value:9.0f}" for value in numbers.values()))


if __name__ == "__main__":
    main()
