"""A cluster of processes that a stranger may attack, with one SPU that is registered and away."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from schemas.control.messages import (
    IDENTIFY_PROTOCOL,
    Challenge,
    Envelope,
    Hello,
    Identify,
    Prove,
    Welcome,
    decode_envelope,
)
from schemas.control.proof import Exchange, spu_proof
from tests.chaos.attacks.strangers import ABSENT, Exposed
from tests.chaos.replication.clients import TOPIC
from tests.e2e.conftest import Command
from tests.ports import free_base_port

SPUS = 3
PARTITIONS = 6


@dataclass(frozen=True)
class Scene:
    """The cluster: how to reach it, its processes by name, and the log of its SC."""

    command: Command
    exposed: Exposed
    processes: dict[str, int]
    log: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.exposed.sc}"

    def get(self, path: str) -> Any:
        """The JSON that the SC answers."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return json.load(answer)

    def decided(self) -> object:
        """What attacks must not change: incarnation, recoveries, leaders, terms, live replicas."""
        cluster = self.get("/v1/cluster")
        partitions = {
            item["metadata"]["name"]: [item["status"].get(k) for k in ("leader", "term", "lrs")]
            for item in self.get("/v1/partitions")["items"]
        }
        return cluster["office"], cluster["recovering"], cluster["recovery"], partitions

    def sessions_ended(self) -> int:
        """How many sessions of the SPUs that run have ended, by the log of the SC."""
        lines = self.log.read_text().splitlines()
        ends = [json.loads(line) for line in lines if '"SPU disconnected"' in line]
        return sum(end["spu"] < len(self.exposed.spus) for end in ends)

    def is_whole(self) -> bool:
        """All partitions are online, with all SPUs in their live replica sets."""
        statuses = [item["status"] for item in self.get("/v1/partitions")["items"]]
        spus = len(self.exposed.spus)
        return bool(statuses) and all(len(status.get("lrs", ())) == spus for status in statuses)


@contextmanager
def scene_in(home: Path, spus: int = SPUS, kv: str = "sqlite") -> Iterator[Scene]:
    """A cluster with a replicated topic, until the block ends."""
    home.mkdir(parents=True, exist_ok=True)
    command = Command(home, kv)
    base = free_base_port(home / "local", spus)
    command("cluster", "start", "--spus", str(spus), "--base-port", str(base))
    try:
        status = command.json("cluster", "status")
        processes = {one["name"]: one["pid"] for one in (*status["sc"], *status["spus"])}
        public = tuple(one["ports"]["public"] for one in status["spus"])
        exposed = Exposed(base, base + 1, public, "", "", ("", ""))
        scene = Scene(command, exposed, processes, home / "local" / "logs" / "sc-0.log")
        partitions = ("--partitions", str(PARTITIONS), "--replication-factor", str(spus))
        command("create", "topic", TOPIC, *partitions)
        until(scene.is_whole, "the topic is replicated")
        yield scene
    finally:
        command.run("cluster", "stop")


async def expose_an_absent_spu(scene: Scene) -> Scene:
    """Register an SPU, have it prove itself once, and tell strangers what was said."""
    scene.command("apply", "-f", "-", stdin=_MANIFEST)
    base, uid = f"http://{scene.address}", scene.get("/v1/cluster")["clusterUid"]
    async with aiohttp.ClientSession() as http:
        async with http.post(
            f"{base}/v1/spus/spu-{ABSENT}/secret", headers={"Content-Type": "application/json"}
        ) as made:
            secret = (await made.json())["secret"]
        identity = Identify(software="x", spu_id=ABSENT, instance="honest", nonce="once")
        said = [Envelope(cause="x", body=identity).encode()]
        url = f"http://127.0.0.1:{scene.exposed.private}/session"
        async with http.ws_connect(url, protocols=(IDENTIFY_PROTOCOL,)) as socket:
            await socket.send_str(said[0])
            challenge = decode_envelope((await socket.receive()).data).body
            assert isinstance(challenge, Challenge), challenge
            exchange = Exchange(uid, ABSENT, "honest", "once", challenge.nonce)
            said.append(Envelope(cause="x", body=Prove(proof=spu_proof(secret, exchange))).encode())
            hello = Hello(software="x", spu_id=ABSENT, instance="honest")
            for text in (said[1], Envelope(cause="x", body=hello).encode()):
                await socket.send_str(text)
            welcome = decode_envelope((await socket.receive()).data).body
            assert isinstance(welcome, Welcome), welcome
    exposed = Exposed(
        scene.exposed.sc, scene.exposed.private, scene.exposed.spus, uid, secret, (said[0], said[1])
    )
    return Scene(scene.command, exposed, scene.processes, scene.log)


def until(condition: Any, what: str, timeout_s: float = 60.0) -> None:
    """Wait for something that other processes bring about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)


_MANIFEST = f"""
apiVersion: runnel/v1
kind: Spu
metadata: {{name: spu-{ABSENT}}}
spec:
  spuId: {ABSENT}
  spuType: custom
  publicEndpoint: {{port: 1, ingress: [{{hostname: 127.0.0.1}}]}}
  privateEndpoint: {{port: 2, host: 127.0.0.1}}
"""
