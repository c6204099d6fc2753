"""Brokers of Kafka that are also its KRaft controllers, on loopback and in one directory."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.own_daemons import Daemon

#: What Kafka's own start script gives a broker.
_HEAP: Final = ("-Xms1g", "-Xmx1g")
_QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def java_command(java: str, libs: Path) -> list[str]:
    """To which the name of a class of Kafka is added, and its arguments."""
    return [java, *_HEAP, _QUIET, "-cp", f"{libs}/*"]


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
