"""The cluster under test: five hosts, of which three have a member of etcd and an SC, and what can
be done to its daemons and disks. Starts daemons again that end although nobody ended them."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import runnel
from tests.architecture.source import ROOT
from tests.chaos.machines.machines import Machines
from tests.chaos.settled import held, unfinished, unsettled
from tests.chaos.whole.plan import CLIENTS, CONTROLLERS, HOSTS, daemons_of

CLOCK: Final = Path(__file__).parent / "clock"
"""What is on the ``PYTHONPATH`` of the daemons, so that their clocks can be wrong."""
DESK: Final = "desk"
"""The machine of the operator, which this process is on."""
MACHINES: Final = {name: f"{name}.example" for name in (DESK, CLIENTS, *HOSTS)}
PATIENCE_S: Final = 90.0
#: An SPU ends at once if what it needs is not there; so long it then rests, as under systemd.
REST_S: Final = 1.0
ROOM_LEFT: Final = 2 << 20
PORTS: Final = {"etcd": 2379, "sc": 9003, "spu": 9005}

_DATA: Final = Path("/var/lib/runnel")
_SC: Final = """\
cluster: chaos
kv: etcd://{etcd}
advertisedHost: {host}.example
public: {{host: 0.0.0.0, port: 9003}}
private: {{host: 0.0.0.0, port: 9004}}
requireSpuSecrets: true
"""
_SPU: Final = """\
spuId: {number}
logDir: /var/lib/runnel/{host}/spu
controller: [{controllers}]
public: {{host: 0.0.0.0, port: 9005}}
private: {{host: 0.0.0.0, port: 9006}}
http: {{host: 0.0.0.0, port: 9007}}
"""
_MANIFEST: Final = """\
apiVersion: runnel/v1
kind: Spu
metadata: {{name: {host}}}
spec:
  spuId: {number}
  rack: {host}
  publicEndpoint: {{port: 9005, ingress: [{{hostname: {host}.example}}]}}
  privateEndpoint: {{port: 9006, host: {host}.example}}
"""


def addresses(port: int) -> str:
    return ",".join(f"{host}.example:{port}" for host in CONTROLLERS)


@dataclass
class Daemon:
    """A daemon that is to run, unless a fault has ended it."""

    name: str
    host: str
    command: str
    process: subprocess.Popen[bytes] | None = None
    is_wanted: bool = False
    rests_until_s: float = 0.0


@dataclass
class Cluster:
    """The daemons by name, such as ``spu@host-2``. ``ended`` is told of one that ended by itself,
    and with which code. ``disk_mib`` is the size of each SPU's disk."""

    machines: Machines
    etcd: Path
    disk_mib: int
    ended: Callable[[str, int], None]
    daemons: dict[str, Daemon] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _over: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None

    def start(self, topics: Mapping[str, int]) -> None:
        """Start all daemons, register the SPUs, and make topics with so many partitions each."""
        for host in HOSTS:
            disk = _DATA / host
            disk.mkdir()
            size = f"size={self.disk_mib}m"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(disk)], check=True)
            (disk / "spu").mkdir(mode=0o700)
            for daemon in daemons_of(host):
                self.daemons[f"{daemon}@{host}"] = Daemon(
                    f"{daemon}@{host}", host, self._command(daemon, host)
                )
        for host in CONTROLLERS:
            self.run_daemon(f"etcd@{host}")
        for host in CONTROLLERS:
            text = _SC.format(etcd=addresses(2379), host=host)
            self.machines.write(host, "sc.yaml", text)
            self.run_daemon(f"sc@{host}")
        manifests = [_MANIFEST.format(number=n, host=host) for n, host in enumerate(HOSTS, 1)]
        self.machines.write(DESK, "spus.yaml", "---\n".join(manifests))
        self.until("apply -f spus.yaml")
        with ThreadPoolExecutor() as threads:
            secret = f"spu secret {{0}} --to {_DATA}/{{0}}/spu/secret"
            list(threads.map(self.until, [secret.format(host) for host in HOSTS]))
        for number, host in enumerate(HOSTS, 1):
            controllers = ", ".join(f"{one}.example:9004" for one in CONTROLLERS)
            text = _SPU.format(number=number, host=host, controllers=controllers)
            self.machines.write(host, "spu.yaml", text)
            self.run_daemon(f"spu@{host}")
        with runnel.connect(addresses(9003)) as cluster:
            for host in HOSTS:
                cluster.wait("Spu", host, "online", PATIENCE_S)
            for topic, partitions in topics.items():
                cluster.apply(runnel.Topic(topic, partitions=partitions, replication_factor=3))
                cluster.wait("Topic", topic, "writable", PATIENCE_S)
        self._watch = threading.Thread(target=self._keep_running, daemon=True)
        self._watch.start()

    def stop(self) -> None:
        """End all daemons, without ceremony."""
        self._over.set()
        if self._watch is not None:
            self._watch.join(PATIENCE_S)
        for name in self.daemons:
            self.kill(name)

    def command(self, words: str) -> subprocess.CompletedProcess[str]:
        """Run ``runnel`` with these words at the operator's desk."""
        program = f"{sys.executable} -m runnel.cli.main"
        return self.machines.run(DESK, f"{program} {words} --sc {addresses(9003)}")

    def until(self, words: str) -> None:
        """Repeat a command until it succeeds. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                done = self.command(words)
                if done.returncode == 0:
                    return
                said = done.stdout + done.stderr
            except subprocess.TimeoutExpired:
                said = "the command did not end"
            if time.monotonic() > deadline:
                raise TimeoutError(f"runnel {words}: {said}")
            time.sleep(0.3)

    def restless(self) -> list[str]:
        """What keeps the cluster from being at rest, once it had the time to come to it."""
        deadline = time.monotonic() + PATIENCE_S
        while (why := self._restless()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return why

    def replicas(self) -> dict[str, list[int]]:
        """Which SPUs each partition is on; nothing where nobody answers."""
        try:
            found = self._objects("partitions --show-system")
        except (RuntimeError, subprocess.TimeoutExpired):
            return {}
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}

    def _restless(self) -> list[str]:
        try:
            spus, rebalances = self._objects("spus"), self._objects("rebalances")
            partitions = self._objects("partitions --show-system")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return [str(error)]
        disks = {number: _DATA / host / "spu" for number, host in enumerate(HOSTS, 1)}
        return [*unfinished(spus, rebalances), *unsettled(partitions, held(disks))]

    def _objects(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind. Raises RuntimeError."""
        done = self.command(f"get {kind} -o json")
        if done.returncode:
            raise RuntimeError(f"runnel get {kind}: {done.stdout}{done.stderr}")
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found

    def run_daemon(self, name: str) -> None:
        """Start a daemon, again if it was killed."""
        with self._lock:
            daemon = self.daemons[name]
            daemon.is_wanted = True
            daemon.process = self.machines.start(daemon.host, daemon.command, name)

    def await_daemon(self, name: str) -> None:
        """Return when a daemon listens. Raises TimeoutError."""
        daemon, deadline = self.daemons[name], time.monotonic() + PATIENCE_S
        address = self.machines.address(daemon.host), PORTS[name.partition("@")[0]]
        while True:
            try:
                socket.create_connection(address, 1.0).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name} does not listen: {error}") from None
            time.sleep(0.05)

    def kill(self, name: str) -> bool:
        """End a daemon without a chance to say so, and leave it ended. Returns whether it ran."""
        with self._lock:
            daemon = self.daemons[name]
            daemon.is_wanted, ran = False, self.runs(name)
            if daemon.process is not None:
                daemon.process.kill()
                self.machines.stop(daemon.process)
                daemon.process = None
            return ran

    def send_signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a daemon, if it runs. Returns whether it does."""
        with self._lock:
            process = self.daemons[name].process
            if process is None or process.poll() is not None:
                return False
            process.send_signal(number)
            return True

    def set_wrong(self, name: str, jump: str) -> bool:
        """Have a daemon's wall clock be wrong by so many seconds. Returns whether the daemon
        runs; when it is started again, its clock is still wrong."""
        file = self._clock(name)
        unfinished = file.with_suffix(".new")
        unfinished.write_text(jump)
        unfinished.rename(file)
        return self.runs(name)

    def set_right(self, name: str) -> None:
        self._clock(name).unlink()

    def runs(self, name: str) -> bool:
        process = self.daemons[name].process
        return process is not None and process.poll() is None

    def fill_disk(self, host: str, leave: int) -> None:
        """Use up the disk of an SPU, except for so many bytes."""
        with (_DATA / host / "ballast").open("wb") as file:
            while True:
                left = os.statvfs(_DATA / host)
                size = max(1, left.f_bavail * left.f_frsize - leave)
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # The SPU was faster with what was left.
                    continue
                return

    def free_disk(self, host: str) -> None:
        (_DATA / host / "ballast").unlink()

    def _clock(self, name: str) -> Path:
        """The file that says by how many seconds a daemon's clock is wrong."""
        return self.machines.home / f"{name}.clock"

    def _command(self, daemon: str, host: str) -> str:
        if daemon != "etcd":
            # No fault moves the clock of etcd, which does not know Python.
            clock = f"PYTHONPATH={CLOCK}:{ROOT} CHAOS_CLOCK={self._clock(f'{daemon}@{host}')}"
            return f"env {clock} {sys.executable} -m {daemon} -c {daemon}.yaml"
        members = ",".join(f"{one}=http://{one}.example:2380" for one in CONTROLLERS)
        return (
            f"{self.etcd} --name {host} --data-dir {_DATA.parent}/etcd-{host}"
            " --listen-peer-urls http://0.0.0.0:2380"
            f" --initial-advertise-peer-urls http://{host}.example:2380"
            " --listen-client-urls http://0.0.0.0:2379"
            f" --advertise-client-urls http://{host}.example:2379"
            f" --initial-cluster-token chaos --initial-cluster {members}"
        )

    def _keep_running(self) -> None:
        while not self._over.wait(0.2):
            with self._lock:
                for daemon in self.daemons.values():
                    self._look_after(daemon)

    def _look_after(self, daemon: Daemon) -> None:
        if not daemon.is_wanted:
            return
        if daemon.process is None:
            if time.monotonic() > daemon.rests_until_s:
                self.run_daemon(daemon.name)
        elif (code := daemon.process.poll()) is not None:
            self.machines.stop(daemon.process)
            daemon.process, daemon.rests_until_s = None, time.monotonic() + REST_S
            self.ended(daemon.name, code)
