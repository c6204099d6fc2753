"""An SC and SPUs (three, unless a test says so) as processes, the SPUs behind proxies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos.replication.proxy import PeerProxy
from tests.e2e.conftest import Command
from tests.ports import free_base_port
from tests.standstill import who_waits

SPUS = 3
# A killed process that writes ends when the disk answers.
ENDS_WITHIN_S = 60.0


@dataclass
class Fleet:
    """A cluster whose SPUs the test starts, as processes on hosts of their own would be.
    ``settings`` are further lines of every spu.yaml."""

    command: Command
    base: int = 0
    settings: str = ""
    spus: int = SPUS
    proxies: list[PeerProxy] = field(default_factory=list)
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.command.home

    @property
    def address(self) -> str:
        return f"localhost:{self.base}"

    def start(self) -> None:
        """The SC, the proxies, and all SPUs."""
        self.base = free_base_port(self.home / "local", self.spus)
        self.start_sc()
        for spu in range(self.spus):
            public = self.base + 10 + 3 * spu
            proxy = PeerProxy(public + 1)
            self.proxies.append(proxy)
            self.command(
                "apply",
                "-f",
                "-",
                stdin=f"""
apiVersion: runnel/v1
kind: Spu
metadata: {{name: spu-{spu}}}
spec:
  spuId: {spu}
  spuType: custom
  publicEndpoint: {{port: {public}, ingress: [{{hostname: 127.0.0.1}}]}}
  privateEndpoint: {{port: {proxy.port}, host: 127.0.0.1}}
""",
            )
            self._configuration(spu).write_text(
                f"""
spuId: {spu}
logDir: {self.home / f"spu-{spu}"}
controller: 127.0.0.1:{self.base + 1}
public: {{host: 127.0.0.1, port: {public}}}
private: {{host: 127.0.0.1, port: {public + 1}}}
http: {{host: 127.0.0.1, port: {public + 2}}}
{self.settings}
"""
            )
            self.start_spu(spu)
        # A topic that the cluster itself makes has as many replicas as there are SPUs online.
        self.until(self.is_complete, "all SPUs are online")

    def start_sc(self) -> None:
        self.command("cluster", "start", "--spus", "0", "--base-port", str(self.base))

    def sc_pid(self) -> int:
        pid = self.command.json("cluster", "status")["sc"][0]["pid"]
        assert isinstance(pid, int), "the SC does not run"
        return pid

    def kill_sc(self) -> None:
        """Kill the SC, and wait until its ports are free."""
        process = psutil.Process(self.sc_pid())
        process.kill()
        self.until(lambda: _has_ended(process), "the killed SC has ended")

    def stall_sc(self, for_s: float) -> None:
        """Have the SC stand still for a while."""
        pid = self.sc_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(for_s)
        finally:
            os.kill(pid, signal.SIGCONT)

    def start_spu(self, spu: int) -> None:
        with (self.home / f"spu-{spu}.log").open("ab") as log:
            self.processes[spu] = subprocess.Popen(
                [sys.executable, "-m", "spu", "-c", str(self._configuration(spu))],
                env=self.command.environment,
                stdout=log,
                stderr=log,
            )

    def kill_spu(self, spu: int) -> None:
        process = self.processes[spu]
        process.kill()
        process.wait(ENDS_WITHIN_S)

    def freeze(self, spu: int) -> None:
        self.processes[spu].send_signal(signal.SIGSTOP)

    def thaw(self, spu: int) -> None:
        self.processes[spu].send_signal(signal.SIGCONT)

    def cut(self, one: int, other: int) -> None:
        """Let two SPUs not hear each other: the one with the lower id is dialled."""
        self.proxies[min(one, other)].cut(max(one, other))

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()

    def leader(self, partition: str) -> int | None:
        leader = self.command.json("get", "partition", partition)["status"].get("leader")
        return leader if isinstance(leader, int) else None

    def sessions(self) -> str:
        """What the SC said about sessions, the last of it."""
        said = self.command("cluster", "logs", "sc-0")
        return "\n".join([line for line in said.splitlines() if "connected" in line][-20:])

    def elected(self, topic: str) -> dict[str, tuple[object, object, object]]:
        """Leader, term and live replicas of each partition of a topic."""
        items = self.command.json("get", "partitions")["items"]
        return {
            item["metadata"]["name"]: tuple(item["status"][k] for k in ("leader", "term", "lrs"))
            for item in items
            if item["metadata"]["name"].startswith(f"{topic}-")
        }

    def is_complete(self) -> bool:
        """Whether all SPUs are online."""
        found = self.command.json("get", "spus")["items"]
        return [item["status"]["resolution"] for item in found] == ["online"] * self.spus

    def is_online(self, partition: str) -> bool:
        """Whether a partition has a leader that serves."""
        status = self.command.json("get", "partition", partition)["status"]
        return bool(status["resolution"] == "online")

    def is_whole(self, topic: str) -> bool:
        """All partitions of a topic are online, with everybody in the live replica set."""
        found = self.command.run("get", "partitions", "--show-system", "-o", "json")
        if found.returncode:
            return False
        items = [
            item["status"]
            for item in json.loads(found.stdout)["items"]
            if item["metadata"]["name"].startswith(f"{topic}-")
        ]
        return bool(items) and all(
            status["resolution"] == "online" and len(status["lrs"]) == SPUS for status in items
        )

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 90.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                partitions = self.command.run("get", "partitions", "-o", "wide").stdout.decode()
                said = f"not within {timeout_s:g} s: {what}\n{partitions}\n{who_waits()}"
                raise AssertionError(said)
            time.sleep(0.2)

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(ENDS_WITHIN_S)
        for proxy in self.proxies:
            proxy.close()
        self.command.run("cluster", "stop")

    def _configuration(self, spu: int) -> Path:
        return self.home / f"spu-{spu}.yaml"


def _has_ended(process: psutil.Process) -> bool:
    """Also of one that nobody has waited for, once its last thread has closed its files."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() == 1
    except psutil.NoSuchProcess:
        return True
