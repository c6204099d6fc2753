"""One run, on machines of its own: starts the cluster and its clients, has the storms of a seed
come over them, reads everything in the end, and says what came out.

    unshare … python -m tests.chaos.whole.run DIRECTORY ETCD SEED MINUTES

Exits with 0 if all is well, with 1 if not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import runnel
from schemas.errors import RunnelError
from tests.chaos.machines.machines import Machines, machines_of
from tests.chaos.whole.cluster import MACHINES, Cluster, addresses
from tests.chaos.whole.daemons import tracebacks
from tests.chaos.whole.faults import Faults
from tests.chaos.whole.history import History
from tests.chaos.whole.plan import CALM_S, CLIENTS, storms
from tests.chaos.whole.recording import Growing, Recording, entries
from tests.chaos.whole.report import judge, progress_line, summary
from tests.chaos.whole.values import decode

TOPICS: Final = {"orders": 6, "events": 4}
#: Name, topic, records a second, and how many keys (0: to the partitions in turn).
PRODUCERS: Final = (
    ("clerk", "orders", 80, 0),
    ("till", "orders", 80, 50),
    ("sensor", "events", 60, 0),
)
#: Name, topic, way.
READERS: Final = (
    ("ledger", "orders", "pushed"),
    ("audit", "orders", "again"),
    ("screen", "events", "followers"),
    ("billing", "events", "named"),
)
TELL_S: Final = 5.0
CLIENTS_END_S: Final = 160.0
_BASE_MIB: Final = 128
_MIB_PER_MINUTE: Final = 32


def run(directory: Path, etcd: Path, seed: int, minutes: float) -> int:
    """Run it, and return the exit code."""
    histories = directory / "history"
    histories.mkdir(parents=True)
    recording = Recording(histories / "run.jsonl")

    def ended(daemon: str, code: int) -> None:
        log = (directory / "machines" / f"{daemon}.log").read_text(errors="replace")
        said = log.splitlines()[-1] if log else ""
        recording.write("ended", daemon=daemon, code=code, said=said)
        print(f"{daemon} ended with {code}: {said}", flush=True)

    with machines_of(directory / "machines", MACHINES) as machines:
        disk_mib = int(_BASE_MIB + minutes * _MIB_PER_MINUTE)
        cluster = Cluster(machines, etcd, disk_mib, ended)
        try:
            cluster.start(TOPICS)
            problems = _under_storms(cluster, histories, recording, seed, minutes)
        finally:
            cluster.stop()
    for name in cluster.daemons:
        log = (directory / "machines" / f"{name}.log").read_text(errors="replace")
        problems += tracebacks(name, log)
    recording.close()
    history = History()
    for path in sorted(histories.iterdir()):
        history.add(entries(path))
    verdict = judge(history, problems)
    print(summary(verdict, seed, minutes), flush=True)
    return 0 if verdict.is_good else 1


def _under_storms(
    cluster: Cluster, histories: Path, recording: Recording, seed: int, minutes: float
) -> list[str]:
    """Let the clients work under the storms; returns what went wrong beside their records."""
    faults = Faults(cluster, recording)
    faults.try_out()
    producers = _producers(cluster.machines, histories)
    readers = _readers(cluster.machines, histories)
    for name, entry in (
        *((name, "acked") for name, *_ in PRODUCERS),
        *((name, "read") for name, *_ in READERS),
    ):
        _await_entry(histories / f"{name}.jsonl", entry)
    recording.write("placed", replicas=cluster.replicas())
    with _telling(faults, [histories / f"{name}.jsonl" for name, *_ in PRODUCERS]):
        for storm in storms(seed, minutes):
            repaired_s = faults.storm(storm)
            time.sleep(CALM_S)
            recording.write("calm", begin=repaired_s, end=time.monotonic())
            recording.write("placed", replicas=cluster.replicas())
    problems = [*faults.problems, *_end(producers), *_end(readers)]
    problems += _read_all(recording)
    problems += [f"not at rest: {why}" for why in cluster.restless()]
    problems += _verify(cluster)
    return problems


def _producers(machines: Machines, histories: Path) -> dict[str, subprocess.Popen[bytes]]:
    return {
        name: machines.start(
            CLIENTS,
            f"{sys.executable} -m tests.chaos.whole.producing {name} {addresses(9003)} {topic}"
            f" {rate} {keys} {histories / name}.jsonl",
            name,
        )
        for name, topic, rate, keys in PRODUCERS
    }


def _readers(machines: Machines, histories: Path) -> dict[str, subprocess.Popen[bytes]]:
    return {
        name: machines.start(
            CLIENTS,
            f"{sys.executable} -m tests.chaos.whole.consuming {name} {addresses(9003)} {topic}"
            f" {way} {histories / name}.jsonl",
            name,
        )
        for name, topic, way in READERS
    }


def _await_entry(path: Path, do: str) -> None:
    """Return once a client has written such an entry. Raises TimeoutError."""
    growing, deadline = Growing(path), time.monotonic() + CLIENTS_END_S
    while not any(entry["do"] == do for entry in growing.new()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.stem} has written no {do!r}")
        time.sleep(0.1)


def _end(clients: dict[str, subprocess.Popen[bytes]]) -> list[str]:
    """Ask clients to end, and return which do not, or not well."""
    for client in clients.values():
        client.terminate()
    problems = []
    deadline = time.monotonic() + CLIENTS_END_S
    for name, client in clients.items():
        try:
            if code := client.wait(max(0.1, deadline - time.monotonic())):
                problems.append(f"{name} ended with {code}")
        except subprocess.TimeoutExpired:
            problems.append(f"{name} does not end")
    return problems


def _read_all(recording: Recording) -> list[str]:
    """Write down all records that are there; returns which partitions cannot be read."""
    problems = []
    with runnel.connect(addresses(9003)) as cluster:
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                try:
                    table = cluster.read(topic, ["offset", "value"], partitions=[partition])
                except RunnelError as error:
                    problems.append(f"{topic}-{partition} cannot be read: {error}")
                    continue
                rows = [
                    (row["offset"], *decode(row["value"]))
                    for row in table.select(["offset", "value"]).to_pylist()
                ]
                recording.write("log", topic=topic, partition=partition, rows=list(rows))
    return problems


def _verify(cluster: Cluster) -> list[str]:
    """What is wrong with the replicas, once everybody had the time to catch up."""
    try:
        for topic in TOPICS:
            cluster.until(f"partition verify {topic}")
    except TimeoutError as error:
        return [str(error)]
    return []


@contextmanager
def _telling(faults: Faults, files: list[Path]) -> Iterator[None]:
    """Print a line every few seconds."""
    over = threading.Event()
    growing = [Growing(path) for path in files]

    def count() -> int:
        return sum(len(e["rows"]) for g in growing for e in g.new() if e["do"] == "acked")

    def tell() -> None:
        begun_s, all_in_all = time.monotonic(), count()
        while not over.wait(TELL_S):
            all_in_all += (new := count())
            active = [str(fault) for fault in faults.active()]
            at_s = time.monotonic() - begun_s
            print(progress_line(at_s, all_in_all, new / TELL_S, active), flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _end_with_the_parent() -> None:
    """End at once when whoever started this has ended: all processes here go with this one."""

    def wait() -> None:
        # Not by `sys.stdin`: its lock would be held while the interpreter ends.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _end_with_the_parent()
    sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
