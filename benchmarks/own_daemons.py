"""An SC and one SPU as processes that a benchmark itself limits, watches, kills and restarts.

`benchmarks.local_cluster` leaves its daemons to `runnel cluster`, which restarts an SPU by itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import yaml

from runnel.local.plan import HOST, ClusterPlan
from runnel.local.processes import free_base_port

SPU_ID: Final = 0
_SAMPLE_S: Final = 0.02
_STOP_S: Final = 120.0


@dataclass
class Daemon:
    """One process that can be started again; ``files`` bounds its descriptors, None: as this one's.

    ``most_files`` is the highest number of open descriptors that was seen, over all starts.
    """

    command: list[str]
    log: Path
    files: int | None = None
    most_files: int = 0
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = self.command
        if self.files is not None:
            command = ["sh", "-c", f'ulimit -n {self.files}; exec "$@"', "sh", *command]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.command} is not running")
        return self._process.pid

    def end(self, number: signal.Signals) -> float:
        """Signal it and wait for its end; returns how many seconds that took."""
        if self._process is None:
            return 0.0
        began = time.perf_counter()
        self._process.send_signal(number)
        self._process.wait(_STOP_S)
        self._process = None
        return time.perf_counter() - began

    def check(self) -> None:
        """Raise RuntimeError with the end of its log if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            said = self.log.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"{self.command[2]} ended:\n{said}")

    @property
    def rss(self) -> int:
        """Resident bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time since its start."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def count_files(self) -> None:
        """Note how many descriptors it has open."""
        if self._process is not None:
            try:
                found = len(os.listdir(f"/proc/{self._process.pid}/fd"))
            except OSError:
                return
            self.most_files = max(self.most_files, found)


@dataclass
class OwnDaemons:
    """The processes, and where they listen."""

    directory: Path
    plan: ClusterPlan
    sc: Daemon
    spu: Daemon
    _watching: threading.Event = field(default_factory=threading.Event)

    @property
    def sc_address(self) -> str:
        return self.plan.sc_address

    @property
    def spu_port(self) -> int:
        return self.plan.spu_ports(SPU_ID)["public"]

    @property
    def manifest(self) -> dict[str, object]:
        """The object that registers the SPU."""
        ports = self.plan.spu_ports(SPU_ID)
        return {
            "apiVersion": "runnel/v1",
            "kind": "Spu",
            "metadata": {"name": f"spu-{SPU_ID}"},
            "spec": {
                "spuId": SPU_ID,
                "spuType": "custom",
                "publicEndpoint": {"ingress": [{"hostname": HOST}], "port": ports["public"]},
                "privateEndpoint": {"host": HOST, "port": ports["private"]},
            },
        }

    def watch_files(self) -> None:
        while not self._watching.wait(_SAMPLE_S):
            self.spu.count_files()
            self.sc.count_files()

    def close(self) -> None:
        self._watching.set()
        for daemon in (self.spu, self.sc):
            daemon.end(signal.SIGKILL)


@contextmanager
def own_daemons(spu_files: int | None) -> Iterator[OwnDaemons]:
    """A running SC, and an SPU that is not started yet, in a temporary directory."""
    directory = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    plan = ClusterPlan(directory, base_port=free_base_port(directory, 1), spus=1)
    ports = plan.spu_ports(SPU_ID)
    (directory / "sc-0").mkdir()
    spu = {
        "spuId": SPU_ID,
        "logDir": str(directory / "spu-0"),
        "controller": f"{HOST}:{plan.sc.ports['private']}",
        **{name: {"host": HOST, "port": port} for name, port in ports.items()},
    }
    sc = {key: value for key, value in plan.sc.config.items() if key != "provisioning"}
    daemons = []
    for module, config, files in (("sc", sc, None), ("spu", spu, spu_files)):
        file = directory / f"{module}.yaml"
        file.write_text(yaml.safe_dump(config))
        command = [sys.executable, "-P", "-m", module, "-c", str(file)]
        daemons.append(Daemon(command, directory / f"{module}.log", files))
    running = OwnDaemons(directory, plan, sc=daemons[0], spu=daemons[1])
    watcher = threading.Thread(target=running.watch_files, daemon=True)
    try:
        running.sc.start()
        watcher.start()
        yield running
    finally:
        running.close()
        watcher.join()
        shutil.rmtree(directory)
