"""Brokers of Kafka that are also its KRaft controllers, on loopback and in one directory; and one
alone, whose jars Maven gets.
"""

from __future__ import annotations

import base64
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.maven_jars import maven_jars
from benchmarks.own_daemons import Daemon
from benchmarks.peers.peer import PATIENCE_S, UnavailableError
from benchmarks.peers.ports import free_ports

KAFKA_VERSION: Final = "4.1.0"
SCALA_VERSION: Final = "2.13"
#: What Kafka's own start script gives a broker.
_HEAP: Final = ("-Xms1g", "-Xmx1g")
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_AGAIN_S: Final = 0.5


def java_program(name: str = "java") -> str:
    """``java`` or another program of its JDK. Raises UnavailableError."""
    if (found := shutil.which(name)) is None:
        raise UnavailableError(f"no {name} on the PATH")
    return found


def broker_jars() -> Path:
    """From the cache, or by Maven. Raises UnavailableError."""
    names = (f"kafka_{SCALA_VERSION}", "kafka-tools")
    kafka = [f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in names]
    return maven_jars(f"kafka-{KAFKA_VERSION}", [*kafka, "org.slf4j:slf4j-simple:1.7.36"])


def java_command(java: str, libs: Path) -> list[str]:
    """To which the name of a class of Kafka is added, and its arguments."""
    return [java, *_HEAP, QUIET, "-cp", f"{libs}/*"]


def kafka_brokers(
    java: Sequence[str],
    directory: Path,
    ports: Sequence[int],
    controllers: Sequence[int],
    settings: Mapping[str, object],
) -> list[Daemon]:
    """A broker for each of ``ports``, over formatted storage, not started yet.

    ``java`` is a `java_command`. ``controllers`` are the ports of the brokers' controllers.
    """
    voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode().replace("-", "a")
    brokers = []
    for number, (port, controller) in enumerate(zip(ports, controllers, strict=True)):
        config = directory / f"broker-{number}.properties"
        lines = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": directory / f"broker-{number}",
            "offsets.topic.replication.factor": len(ports),
            **settings,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        log = directory / f"broker-{number}.log"
        formatted = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
        with log.open("ab") as output:
            done = subprocess.run([*java, *formatted], stdout=output, stderr=output)
        if done.returncode != 0:
            raise RuntimeError(f"Kafka formats no directory:\n{log.read_text()[-2_000:]}")
        brokers.append(Daemon([*java, "kafka.Kafka", str(config)], log))
    return brokers


class Broker:
    """A running broker of one node on loopback."""

    def __init__(
        self, java: str, libs: Path, directory: Path, settings: Mapping[str, object]
    ) -> None:
        port, controller = free_ports(2)
        self._java = java_command(java, libs)
        self.address = f"127.0.0.1:{port}"
        (self._daemon,) = kafka_brokers(self._java, directory, [port], [controller], settings)
        self._daemon.start()

    @property
    def pid(self) -> int:
        return self._daemon.pid

    def create_topic(self, name: str, partitions: int) -> None:
        """Waits for a broker that still starts; raises RuntimeError."""
        command = [*self._java, "org.apache.kafka.tools.TopicCommand", "--create"]
        command += ["--if-not-exists", "--bootstrap-server", self.address, "--topic", name]
        command += ["--partitions", str(partitions), "--replication-factor", "1"]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._daemon.check()
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kafka makes no topic:\n{(done.stdout + done.stderr)[-2_000:]}")
            time.sleep(_AGAIN_S)

    def end(self) -> None:
        self._daemon.end(signal.SIGKILL)


@contextmanager
def running_broker(
    java: str, libs: Path, settings: Mapping[str, object] | None = None
) -> Iterator[Broker]:
    """In a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-kafka-") as directory:
        broker = Broker(java, libs, Path(directory), settings or {})
        try:
            yield broker
        finally:
            broker.end()
