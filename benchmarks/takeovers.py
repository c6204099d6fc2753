"""How fast another SC leads when one is gone, and what clients notice of it: nothing.

    python -m benchmarks.takeovers [--kills 10] [--stops 5] [--step-downs 10] [--ends 5]
        [--alls 2] [--standbys 2] [--losses 0] [--lease 6s] [--json]

Three SCs over one etcd and three SPUs are processes of their own; a topic has three replicas, and a
producer writes numbered records to it all the time. In turn, the leading SC is killed with
``kill -9`` and started again, stopped by a signal until another one leads and then continued, asked
to step down, or ended by SIGTERM; or all SCs are killed and started again. For each: seconds until
one of the others, or of all, says that it leads, and until
all SPUs are connected to that. At the end: acknowledged records that are missing or there twice,
elections of partitions meanwhile, and the longest time in which no record was acknowledged.

Besides, a standby is stopped for longer than a lease and continued, and killed and started again:
that makes nobody else lead.

With ``--losses`` the leading SC is then stopped at the moment at which an SPU is lost, so that it
has something to write, and continued when its successor has elected leaders for all that this SPU
led, and nothing happens any more. What changes in the KV from then on, it would have written; and
each partition may have been elected once. Each takeover makes one office, and nothing else does.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

import runnel
from benchmarks.own_daemons import Daemon
from runnel.admin.one_shot import OneShotCalls
from runnel.local.etcd import find_etcd
from runnel.local.plan import HOST, ClusterPlan
from runnel.local.processes import free_base_port
from schemas.errors import RunnelError
from schemas.ids import Term, next_election
from schemas.objects.keys import ClusterKeys
from schemas.objects.partition import Partition
from schemas.objects.quantities import parse_duration_ms

TOPIC: Final = "records"
SCS: Final = 3
SPUS: Final = 3
PARTITIONS: Final = 4
#: How long anything here may take.
PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.01
#: Between two takeovers, so that each finds a cluster in which nothing happens.
PAUSE_S: Final = 0.5
#: For so long nothing was written before a stopped SC goes on, and is watched after it does.
QUIET_S: Final = 2.0
KINDS: Final = ("kill", "stop", "step-down", "end", "all")
#: What SCs write of themselves, each for as long as its lease.
OF_SCS: Final = ("election/", "scs/", "buckets/")


@dataclass
class Taken:
    """Seconds until another SC led, and until all SPUs were connected to it, by what happened;
    and what came of losses: keys that changed when the stopped SC went on, and partitions that
    were not elected as often as they should."""

    led_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    whole_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    written: list[str] = field(default_factory=list)
    elected_otherwise: list[str] = field(default_factory=list)


class Writing(threading.Thread):
    """Sends numbers until it is told to stop, and keeps those that were acknowledged."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.failed: list[RunnelError] = []
        self.longest_gap_s = 0.0
        self._address = address
        self._told = threading.Event()

    def run(self) -> None:
        try:
            with runnel.connect(self._address) as cluster, cluster.producer(TOPIC) as producer:
                number, before = 0, time.monotonic()
                while not self._told.is_set():
                    sent = [producer.send(str(number + n), key=str(n)) for n in range(PARTITIONS)]
                    for one in sent:
                        one.result(PATIENCE_S)
                    self.acknowledged += range(number, number + PARTITIONS)
                    number += PARTITIONS
                    now = time.monotonic()
                    self.longest_gap_s = max(self.longest_gap_s, now - before)
                    before = now
        except RunnelError as error:
            self.failed.append(error)

    def end(self) -> None:
        self._told.set()
        self.join(PATIENCE_S)
        if self.failed:
            raise self.failed[0]


@dataclass
class Scene:
    """The processes, and the addresses of the SCs by the numbers of their daemons."""

    plan: ClusterPlan
    scs: list[Daemon]
    spus: list[Daemon]

    def address(self, sc: int) -> str:
        return f"{HOST}:{self.plan.controllers[sc].ports['public']}"

    def role(self, sc: int) -> dict[str, Any] | None:
        """What an SC says of its health; None if it does not answer."""
        try:
            found: dict[str, Any] = OneShotCalls(self.address(sc)).call("GET", "/health")
        except RunnelError:
            return None
        return found

    def stands_by(self, sc: int) -> bool:
        return (said := self.role(sc)) is not None and said["role"] == "standby"

    def leader(self, among: list[int]) -> int:
        """The SC that leads, once one of these does."""

        def found() -> int | None:
            for sc in among:
                if (said := self.role(sc)) is not None and said["role"] == "leader":
                    return sc
            return None

        return int(_until(found, "an SC leads"))

    def written(self) -> dict[str, int]:
        """The revision of the last write of each key of the cluster, but for what SCs hold."""
        root = ClusterKeys(self.plan.cluster).root
        end = root[:-1] + chr(ord(root[-1]) + 1)
        asked = {
            "key": base64.b64encode(root.encode()).decode(),
            "range_end": base64.b64encode(end.encode()).decode(),
            "keys_only": True,
        }
        port, data = self.plan.etcd.ports["client"], json.dumps(asked).encode()
        with urllib.request.urlopen(f"http://{HOST}:{port}/v3/kv/range", data, 5) as answer:
            items = json.load(answer)["kvs"]
        keys = {base64.b64decode(one["key"]).decode(): int(one["mod_revision"]) for one in items}
        return {
            key.removeprefix(root): revision
            for key, revision in keys.items()
            if not key.removeprefix(root).startswith(OF_SCS)
        }

    def offices(self) -> int:
        """How many tenures of SCs there have been."""
        return sum(key.startswith("offices/") for key in self.written())

    def connected(self, sc: int, spus: int = SPUS) -> bool:
        """Whether so many SPUs have a session with an SC, by its metrics."""
        with urllib.request.urlopen(f"http://{self.address(sc)}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return f"runnel_sc_spu_sessions {spus}.0" in text


def _until(condition: Any, what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(LOOK_S)


@contextmanager
def running(lease: str, python: str = sys.executable) -> Iterator[Scene]:
    """The processes, until the block ends."""
    directory = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    base = free_base_port(directory, SPUS)
    plan = ClusterPlan(directory, base_port=base, spus=SPUS, kv="etcd", scs=SCS)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        (directory / "etcd-0").mkdir()
        options = [
            f"--{key}={value}"
            for key, value in plan.etcd.config.items()
            if key not in ("log-outputs", "logger")
        ]
        etcd = Daemon([str(find_etcd()), *options], directory / "etcd.log")
        stack.callback(etcd.end, signal.SIGKILL)
        etcd.start()
        scs, spus = [], []
        for one in plan.controllers:
            config = {k: v for k, v in one.config.items() if k not in ("provisioning", "dashboard")}
            scs.append(_daemon(directory, python, "sc", one.name, config | {"lease": lease}))
        addresses = [f"{HOST}:{one.ports['private']}" for one in plan.controllers]
        for number in range(SPUS):
            ports = plan.spu_ports(number)
            config = {
                "spuId": number,
                "logDir": str(directory / f"spu-{number}"),
                "controller": addresses,
                **{name: {"host": HOST, "port": port} for name, port in ports.items()},
            }
            spus.append(_daemon(directory, python, "spu", f"spu-{number}", config))
        for daemon in (*scs, *spus):
            stack.callback(daemon.end, signal.SIGKILL)
        for daemon in scs:
            daemon.start()
        scene = Scene(plan, scs, spus)
        _until(lambda: all(scene.role(sc) is not None for sc in range(SCS)), "SCs are there")
        with runnel.connect(plan.sc_address) as cluster:
            for number, spu in enumerate(spus):
                cluster.create(_spu(plan, number))
                spu.start()
                cluster.wait("spu", f"spu-{number}", "online")
            cluster.create(
                {
                    "apiVersion": "runnel/v1",
                    "kind": "Topic",
                    "metadata": {"name": TOPIC},
                    "spec": {"partitions": PARTITIONS, "replicationFactor": SPUS},
                }
            )
            cluster.wait("topic", TOPIC, "writable")
            _until(lambda: _is_whole(cluster), "all replicas are live")
        yield scene


def _is_whole(cluster: runnel.Cluster) -> bool:
    found = [one for one in cluster.list("partitions") if isinstance(one, Partition)]
    return bool(found) and all(len(one.status.lrs) == SPUS for one in found)


def _spu(plan: ClusterPlan, number: int) -> dict[str, object]:
    ports = plan.spu_ports(number)
    return {
        "apiVersion": "runnel/v1",
        "kind": "Spu",
        "metadata": {"name": f"spu-{number}"},
        "spec": {
            "spuId": number,
            "spuType": "custom",
            "publicEndpoint": {"ingress": [{"hostname": HOST}], "port": ports["public"]},
            "privateEndpoint": {"host": HOST, "port": ports["private"]},
        },
    }


def _daemon(
    directory: Path, python: str, module: str, name: str, config: dict[str, object]
) -> Daemon:
    file = directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    return Daemon([python, "-P", "-m", module, "-c", str(file)], directory / f"{name}.log")


def take_over(scene: Scene, kind: str, taken: Taken) -> None:
    """Take the leading SC away, wait for another one, and bring the first one back."""
    victim = scene.leader([*range(SCS)])
    others = [sc for sc in range(SCS) if sc != victim]
    daemon = scene.scs[victim]
    began = time.perf_counter()
    if kind == "all":
        _restart_all(scene)
        others = [*range(SCS)]
    match kind:
        case "kill":
            daemon.end(signal.SIGKILL)
        case "end":
            daemon.end(signal.SIGTERM)
        case "stop":
            _signal(daemon, signal.SIGSTOP)
        case "step-down":
            OneShotCalls(scene.plan.sc_address).call("POST", "/v1/controllers/step-down")
    successor = scene.leader(others)
    taken.led_s[kind].append(time.perf_counter() - began)
    _until(lambda: scene.connected(successor), "all SPUs are connected")
    taken.whole_s[kind].append(time.perf_counter() - began)
    if kind == "stop":
        _signal(daemon, signal.SIGCONT)
    elif kind not in ("step-down", "all"):
        daemon.start()
    for sc in {*range(SCS)} - {successor}:
        _until(lambda sc=sc: scene.stands_by(sc), "the others stand by")
    time.sleep(PAUSE_S)


def _restart_all(scene: Scene) -> None:
    """Kill all SCs at once, and start them again, as a supervisor does."""
    for daemon in scene.scs:
        _signal(daemon, signal.SIGKILL)
    for daemon in scene.scs:
        daemon.end(signal.SIGKILL)
    for daemon in scene.scs:
        daemon.start()


def disturb_a_standby(scene: Scene, lease_s: float) -> None:
    """Stop a standby for longer than a lease and continue it, then kill it and start it again."""
    leader = scene.leader([*range(SCS)])
    standby = (leader + 1) % SCS
    daemon = scene.scs[standby]
    _signal(daemon, signal.SIGSTOP)
    time.sleep(lease_s + 1.0)
    _signal(daemon, signal.SIGCONT)
    _until(lambda: scene.stands_by(standby), "the one that was stopped stands by")
    daemon.end(signal.SIGKILL)
    daemon.start()
    _until(lambda: scene.stands_by(standby), "the one that was killed stands by")
    scene.leader([leader])


def lose_an_spu(scene: Scene, taken: Taken) -> None:
    """Stop the leading SC as it loses the SPU that leads most, and continue it when its successor
    has done what there was to do. Then the SPU is started again."""
    victim = scene.leader([*range(SCS)])
    calls = OneShotCalls(scene.plan.sc_address)
    before = _led(calls)
    ((lost, _),) = Counter(spu for _, spu in before.values() if spu is not None).most_common(1)
    wanted = {n: next_election(term) if spu == lost else term for n, (term, spu) in before.items()}
    began = time.perf_counter()
    _signal(scene.spus[lost], signal.SIGKILL)
    _signal(scene.scs[victim], signal.SIGSTOP)
    scene.spus[lost].end(signal.SIGKILL)
    successor = scene.leader([sc for sc in range(SCS) if sc != victim])
    taken.led_s["loss"].append(time.perf_counter() - began)
    _until(lambda: scene.connected(successor, SPUS - 1), "the other SPUs are connected")
    taken.whole_s["loss"].append(time.perf_counter() - began)
    _until(lambda: not {lost, None} & {leader for _, leader in _led(calls).values()}, "others lead")
    written = _until(lambda: _written_when_quiet(scene), "nothing is written any more")
    _signal(scene.scs[victim], signal.SIGCONT)
    _until(lambda: scene.stands_by(victim), "the one that led stands by")
    time.sleep(QUIET_S)
    taken.written += sorted({key for key, _ in scene.written().items() ^ written.items()})
    taken.elected_otherwise += [
        f"{name}: {before[name]} became {(term, leader)} without SPU {lost}"
        for name, (term, leader) in _led(calls).items()
        if term != wanted[name]
    ]
    scene.spus[lost].start()
    with runnel.connect(scene.plan.sc_address) as cluster:
        _until(lambda: _is_whole(cluster), "all replicas are live")


def _written_when_quiet(scene: Scene) -> dict[str, int] | None:
    written = scene.written()
    time.sleep(QUIET_S)
    return written if scene.written() == written else None


def _signal(daemon: Daemon, number: signal.Signals) -> None:
    subprocess.run(["kill", f"-{number.value}", str(daemon.pid)], check=True)


def measure(kinds: list[str], standbys: int, losses: int, lease: str) -> dict[str, Any]:
    """Take the leader away so often, disturb standbys, and take the leader away with an SPU in the
    end; and count what was lost."""
    taken = Taken()
    with running(lease) as scene:
        calls = OneShotCalls(scene.plan.sc_address)
        before, offices = _led(calls), scene.offices()
        writing = Writing(scene.plan.sc_address)
        writing.start()
        for number, kind in enumerate(kinds, 1):
            take_over(scene, kind, taken)
            print(
                f"{number} of {len(kinds)}: {kind}: {taken.led_s[kind][-1]:.2f} s", file=sys.stderr
            )
        for number in range(1, standbys + 1):
            disturb_a_standby(scene, parse_duration_ms(lease) / 1000)
            print(f"{number} of {standbys}: standby", file=sys.stderr)
        after, gap_s = _led(calls), writing.longest_gap_s
        for number in range(1, losses + 1):
            lose_an_spu(scene, taken)
            print(f"{number} of {losses}: loss: {taken.led_s['loss'][-1]:.2f} s", file=sys.stderr)
        offices = scene.offices() - offices
        writing.end()
        with runnel.connect(scene.plan.sc_address) as cluster:
            values = cluster.read(TOPIC)["value"].to_pylist()
        read = Counter(int(value) for value in values)
    return {
        "takeovers": len(kinds) + losses,
        "offices": offices,
        "acknowledged": len(writing.acknowledged),
        "lost": sum(number not in read for number in writing.acknowledged),
        "twice": sum(count > 1 for count in read.values()),
        "elections": sum(after[name][0] != term for name, (term, _) in before.items()),
        "writtenByTheDeposed": taken.written,
        "electedOtherwise": taken.elected_otherwise,
        "longestGapOfTheProducerS": gap_s,
        "ledS": {kind: _quantiles(found) for kind, found in taken.led_s.items()},
        "wholeS": {kind: _quantiles(found) for kind, found in taken.whole_s.items()},
    }


def _led(calls: OneShotCalls) -> dict[str, tuple[Term, int | None]]:
    """Term and leader of each partition."""
    items = calls.call("GET", "/v1/partitions")["items"]
    statuses = {one["metadata"]["name"]: one["status"] for one in items}
    return {name: (Term(status["term"]), status.get("leader")) for name, status in statuses.items()}


def _quantiles(found: list[float]) -> dict[str, float]:
    ordered = sorted(found)
    last = len(ordered) - 1
    return {
        "rounds": len(ordered),
        "p50": ordered[round(0.5 * last)],
        "p99": ordered[round(0.99 * last)],
        "max": ordered[-1],
    }


def _in_turn(counts: dict[str, int]) -> list[str]:
    """So many of each kind, mixed."""
    left, found = dict(counts), []
    while any(left.values()):
        for kind in KINDS:
            if left[kind]:
                left[kind] -= 1
                found.append(kind)
    return found


def main() -> None:
    """Measure, and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--step-downs", type=int, default=10)
    parser.add_argument("--ends", type=int, default=5)
    parser.add_argument("--alls", type=int, default=2)
    parser.add_argument("--standbys", type=int, default=2)
    parser.add_argument("--losses", type=int, default=0)
    parser.add_argument("--lease", default="6s")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rounds = given.kills, given.stops, given.step_downs, given.ends, given.alls
    counts = dict(zip(KINDS, rounds, strict=True))
    found = measure(_in_turn(counts), given.standbys, given.losses, given.lease)
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{found['takeovers']} takeovers, {found['offices']} offices, lease {given.lease}:"
        f" {found['acknowledged']:,} records"
        f" acknowledged, {found['lost']} lost, {found['twice']} twice,"
        f" {found['elections']} partitions elected anew;"
        f" {len(found['writtenByTheDeposed'])} keys written by an SC that was deposed,"
        f" {len(found['electedOtherwise'])} partitions not elected once after a loss;"
        " longest gap of the producer before losses"
        f" {found['longestGapOfTheProducerS']:.2f} s"
    )
    print(f"{'s until':12}{'':8}{'rounds':>8}{'p50':>8}{'p99':>8}{'max':>8}")
    for what, name in (("ledS", "led"), ("wholeS", "whole")):
        for kind, row in found[what].items():
            print(
                f"{kind:12}{name:8}{row['rounds']:8}"
                f"{row['p50']:8.2f}{row['p99']:8.2f}{row['max']:8.2f}"
            )


if __name__ == "__main__":
    main()
