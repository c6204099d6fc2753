"""A cluster whose daemons and clients are of different versions, each of an interpreter of its own.

Neighbour: `earlier_version.py` makes the interpreter of the version before.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.e2e.conftest import Command
from tests.ports import free_ports

STOP_S: Final = 30.0
PATIENCE_S: Final = 90.0
#: What both versions have: sends numbered records until its standard input ends, and says how many.
PRODUCE: Final = """
import select, sys
import runnel

sc, topic, name = sys.argv[1:]
sent = 0
with runnel.connect(sc) as cluster, cluster.producer(topic) as producer:
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        producer.send(f"{name}:{sent}".encode(), key=f"{name}{sent % 8}".encode())
        sent += 1
    producer.flush()
print(sent)
"""
#: Prints every record as it comes, until it is ended.
CONSUME: Final = """
import sys
import runnel

sc, topic = sys.argv[1:]
with runnel.connect(sc) as cluster:
    for record in cluster.consumer(topic, start="earliest"):
        print(record.key.decode(), record.value.decode(), flush=True)
"""


@dataclass(frozen=True)
class Producing:
    """A program that sends until it is told to end."""

    name: str
    process: subprocess.Popen[str]

    def end(self) -> int:
        """How many records it has sent; all of them are acknowledged, or this fails."""
        out, err = self.process.communicate("\n", PATIENCE_S)
        assert self.process.returncode == 0, f"{self.name}: {err}"
        return int(out)


@dataclass(frozen=True)
class Consuming:
    """A program that writes what it reads to a file."""

    process: subprocess.Popen[bytes]
    output: Path

    def read(self) -> list[tuple[str, str]]:
        """Key and value of all that it has read so far."""
        lines = self.output.read_text().splitlines(keepends=True)
        pairs = [line.split() for line in lines if line.endswith("\n")]
        assert self.process.poll() is None, self.output.with_suffix(".err").read_text()
        return [(key, value) for key, value in pairs]


@dataclass
class MixedCluster:
    """One SC and some SPUs, each of the version that it is started with."""

    home: Path
    spus: int
    sc: str = ""
    _ports: list[int] = field(default_factory=list)
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _clients: list[subprocess.Popen[bytes] | subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        self._ports = free_ports(2 + 3 * self.spus)
        self.sc = f"127.0.0.1:{self._ports[0]}"
        self._write(
            "sc",
            f"""
cluster: mixed
kv: sqlite:{self.home / "kv.db"}
public: {{host: 127.0.0.1, port: {self._ports[0]}}}
private: {{host: 127.0.0.1, port: {self._ports[1]}}}
""",
        )
        for spu in range(self.spus):
            public, private, http = self._ports[2 + 3 * spu :][:3]
            self._write(
                f"spu-{spu}",
                f"""
spuId: {spu}
logDir: {self.home / f"spu-{spu}"}
controller: 127.0.0.1:{self._ports[1]}
public: {{host: 127.0.0.1, port: {public}}}
private: {{host: 127.0.0.1, port: {private}}}
http: {{host: 127.0.0.1, port: {http}}}
""",
            )

    def command(self, python: Path) -> Command:
        """The command of a version, in a home of its own."""
        return Command(self.home / "profile", python=str(python), directory=self.home)

    def start(self, daemon: str, python: Path) -> None:
        """Start ``sc`` or ``spu-N`` in a version; one that runs ends first, as at an upgrade."""
        self._end(daemon)
        words = ("sc", "run") if daemon == "sc" else ("spu", "run")
        self._daemons[daemon] = self._popen(
            [str(python), "-P", "-m", "runnel.cli.main", *words, "-c", f"{daemon}.yaml"], daemon
        )

    def register(self, spu: int, python: Path) -> None:
        """Tell the SC of an SPU, by the command of a version."""
        public, private, _ = self._ports[2 + 3 * spu :][:3]
        manifest = f"""
apiVersion: runnel/v1
kind: Spu
metadata: {{name: spu-{spu}}}
spec:
  spuId: {spu}
  spuType: custom
  publicEndpoint: {{port: {public}, ingress: [{{hostname: 127.0.0.1}}]}}
  privateEndpoint: {{port: {private}, host: 127.0.0.1}}
"""
        self.command(python)("apply", "-f", "-", "--sc", self.sc, stdin=manifest)

    def until_well(self, python: Path) -> None:
        """Return once ``runnel cluster check`` of a version finds nothing wrong."""
        command, said = self.command(python), b""

        def well() -> bool:
            nonlocal said
            done = command.run("cluster", "check", "--sc", self.sc)
            said = done.stdout + done.stderr
            return done.returncode == 0

        self.until(well, lambda: said.decode() + self._last_words())

    def until(self, condition: Callable[[], bool], why: Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, why()
            time.sleep(0.2)

    def produce(self, topic: str, name: str, python: Path) -> Producing:
        """A producer of a version, which names its records."""
        process = subprocess.Popen(
            [str(python), "-P", "-c", PRODUCE, self.sc, topic, name],
            cwd=self.home,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._clients.append(process)
        return Producing(name, process)

    def consume(self, topic: str, name: str, python: Path) -> Consuming:
        """A consumer of a version, from the first record on."""
        process = self._popen([str(python), "-P", "-c", CONSUME, self.sc, topic], name)
        self._clients.append(process)
        return Consuming(process, self.home / f"{name}.out")

    def stop(self) -> None:
        """End everything that was started here."""
        for process in self._clients:
            process.kill()
            process.communicate()
        for daemon in sorted(self._daemons, reverse=True):
            self._end(daemon)

    @property
    def _environment(self) -> Mapping[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNNEL_")}
        return {**inherited, "RUNNEL_HOME": str(self.home / "profile")}

    def _popen(self, words: list[str], name: str) -> subprocess.Popen[bytes]:
        with (
            (self.home / f"{name}.out").open("ab") as out,
            (self.home / f"{name}.err").open("ab") as err,
        ):
            return subprocess.Popen(
                words, cwd=self.home, env=self._environment, stdout=out, stderr=err
            )

    def _write(self, daemon: str, text: str) -> None:
        (self.home / f"{daemon}.yaml").write_text(text)

    def _end(self, daemon: str) -> None:
        process = self._daemons.pop(daemon, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)

    def _last_words(self) -> str:
        logs = sorted(self.home.glob("*.err")) + sorted(self.home.glob("*.out"))
        return "".join(f"\n{log.name}: {log.read_text()[-2_000:]}" for log in logs)
