"""A site of two SPUs behind a line that is cut, then bad, then flaps, under producers and readers.

    unshare --map-root-user --net --mount python -m tests.chaos.edge.live_on_a_line DIRECTORY

Prints what was seen as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import runnel as library
from tests.architecture.source import ROOT
from tests.chaos.edge.link import BAD, GOOD, SiteLink
from tests.chaos.edge.numbering import note
from tests.chaos.machines.machines import Machines, machines_of

SPUS: Final = (1, 7, 8)
HOSTS: Final = {"sc": "sc.example"} | {f"edge-{n}": f"edge-{n}.example" for n in SPUS}
#: Of the machines, SPUs 7 and 8 are the third and the fourth.
SITE: Final = (3, 4)
SC: Final = "sc.example:9003"
SC_YAML: Final = """\
cluster: lab
kv: sqlite:/var/lib/runnel/kv.db
public: {host: 0.0.0.0, port: 9003}
allowedHosts: [sc.example]
private: {host: 0.0.0.0, port: 9004}
"""
SPU_YAML: Final = """\
spuId: NUMBER
logDir: /var/lib/runnel/spu-NUMBER
controller: sc.example:9004
public: {host: 0.0.0.0, port: 9005}
private: {host: 0.0.0.0, port: 9006}
http: {host: 0.0.0.0, port: 9007}
"""
SPU: Final = """\
---
apiVersion: runnel/v1
kind: Spu
metadata: {name: edge-NUMBER}
spec:
  spuId: NUMBER
  publicEndpoint: {port: 9005, ingress: [{hostname: edge-NUMBER.example}]}
  privateEndpoint: {port: 9006, host: edge-NUMBER.example}
"""
TOPIC: Final = """\
---
apiVersion: runnel/v1
kind: Topic
metadata: {name: NAME}
spec: {assignment: [ROWS], minInSyncReplicas: 1}
"""
#: The topics with clients at the site.
OF_SITE: Final = ("alone", "site")
FAR_PARTITIONS: Final = 20
#: So many are acknowledged, and read, over the bad line.
FAR_RECORDS: Final = 20
#: For what takes a moment on a machine that has nothing else to do.
PATIENCE_S: Final = 150.0
BAD_S: Final = 20.0
FLAPS: Final = 2
UP_S, DOWN_S = 10.0, 5.0


def topic(name: str, *rows: str) -> str:
    numbered = ", ".join(f"{{id: {i}, replicas: {row}}}" for i, row in enumerate(rows))
    return TOPIC.replace("NAME", name).replace("ROWS", numbered)


class Site:
    """The machines and their line; ``seen`` is what the test judges."""

    def __init__(self, machines: Machines, link: SiteLink) -> None:
        self.machines, self.link = machines, link
        self.seen: dict[str, Any] = {}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    # Processes

    def start_spu(self, number: int) -> None:
        name = f"edge-{number}"
        self.machines.write(name, "spu.yaml", SPU_YAML.replace("NUMBER", str(number)))
        self.daemons[name] = self.machines.start(name, "runnel spu run -c spu.yaml")

    def apply(self, text: str) -> None:
        self.machines.write("sc", "objects.yaml", text)
        done = self.machines.run("sc", f"runnel apply -f objects.yaml --sc {SC}")
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def client(self, machine: str, work: str, rate: int, *topics: str) -> None:
        """Start producers or readers on a machine of the site."""
        arguments = f"{work} {rate} {self.machines.home} {' '.join(topics)}"
        command = f"{sys.executable} -m tests.chaos.edge.numbering {arguments}"
        process = self.machines.start(machine, f"env PYTHONPATH={ROOT} {command}")
        self._clients.append(process)

    def at_home(self, work: str, rate: int, topic: str) -> None:
        """Start a producer or a reader in this process."""
        arguments = (self.machines.home, work, topic, rate, self._over)
        thread = threading.Thread(target=note, args=arguments, name=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def end_clients(self) -> None:
        self._over.set()
        for process in self._clients:
            process.terminate()
        for process in self._clients:
            process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def noted(self, name: str) -> list[str]:
        path = self.machines.home / f"{name}.txt"
        return path.read_text().splitlines() if path.exists() else []

    # What the SC says

    def states(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["status"]["resolution"] for one in _get("spus")}

    def online(self) -> bool:
        return set(self.states().values()) == {"online"} and all(
            one["status"]["resolution"] == "online" for one in _get("partitions")
        )

    def led(self) -> dict[str, tuple[int, int]]:
        """The leader and the election term of each partition that the site leads."""
        found = ((one["metadata"]["name"], one["status"]) for one in _get("partitions"))
        return {name: (s["leader"], s["term"]) for name, s in found if s.get("leader") in (7, 8)}

    def sessions_ended(self) -> int:
        """How many sessions of SPUs have ended so far."""
        return (self.machines.home / "sc.log").read_text().count('"event": "SPU disconnected"')

    # Growth

    def growth(self) -> dict[str, dict[str, int]]:
        """For each daemon: its memory in KiB, its open files and sockets, lines of its log."""
        return {name: self._size(name, process.pid) for name, process in self.daemons.items()}

    def _size(self, name: str, pid: int) -> dict[str, int]:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        memory = next(line.split()[1] for line in status if line.startswith("VmRSS"))
        lines = (self.machines.home / f"{name}.log").read_text().count("\n")
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return {"memory": int(memory), "files": files, "lines": lines}


def _get(kind: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://{SC}/v1/{kind}", timeout=10) as answer:
        items: list[dict[str, Any]] = json.load(answer)["items"]
    return items


def begin(site: Site) -> None:
    site.machines.write("sc", "sc.yaml", SC_YAML)
    site.daemons["sc"] = site.machines.start("sc", "runnel sc run -c sc.yaml")
    for number in SPUS:
        site.start_spu(number)
    until("the SC answers", lambda: _answers(site))
    site.apply("".join(SPU.replace("NUMBER", str(number)) for number in SPUS))
    until("all SPUs are online", site.online)
    site.apply(topic("alone", "[7]") + topic("site", "[7, 8]") + topic("home", "[1]"))
    until("all topics are there", lambda: len(_get("partitions")) == 3 and site.online())
    site.client("edge-7", "send", 20, *OF_SITE)
    site.client("edge-8", "read", 0, *OF_SITE)
    until("the clients work", lambda: all(len(site.noted(f"read-{t}")) > 20 for t in OF_SITE))


def cut(site: Site) -> None:
    """The line is cut, and the leader dies and comes back while it is."""
    before = site.led()
    site.link.cut()
    until("the SC misses the site", lambda: site.states()["edge-7"] == "offline")
    site.seen["offline at home"] = site.states()
    goes_on(site, "while the line is cut")
    site.daemons["edge-7"].kill()
    site.daemons["edge-7"].wait()
    site.start_spu(7)
    goes_on(site, "after a restart")
    site.link.heal()
    site.seen["online after the cut"] = until("all is online again", site.online)
    time.sleep(5)
    site.seen["elections after the cut"] = {
        name: [before[name], now] for name, now in site.led().items() if now != before.get(name)
    }


def bad(site: Site) -> None:
    """100 kbit/s, a round trip of 600 ms, 5 % lost: and users at home go on."""
    before = site.sessions_ended()
    site.link.shape(BAD)
    site.apply(topic("far", *["[7]"] * FAR_PARTITIONS))
    site.seen["far topic usable"] = until(
        "the far topic is there", lambda: len(site.led()) == FAR_PARTITIONS + 2 and site.online()
    )
    site.at_home("send", 5, "far")
    site.at_home("read", 0, "far")
    began = time.monotonic()
    while (passed := time.monotonic() - began) < PATIENCE_S:
        worked = all(len(site.noted(name)) > FAR_RECORDS for name in ("send-far", "read-far"))
        if worked and passed >= BAD_S:
            break
        time.sleep(0.25)
    site.seen["sessions ended on a bad line"] = site.sessions_ended() - before
    site.seen["acknowledged over a bad line"] = len(site.noted("send-far"))
    site.seen["read over a bad line"] = len(site.noted("read-far"))
    site.link.shape(GOOD)


def flapping(site: Site) -> None:
    """The line comes and goes."""
    before = site.growth()
    for _ in range(FLAPS):
        time.sleep(UP_S)
        site.link.cut()
        time.sleep(DOWN_S)
        site.link.heal()
    site.seen["online after flapping"] = until("all is online again", site.online)
    after = site.growth()
    site.seen["growth"] = {
        name: {what: after[name][what] - was for what, was in sizes.items()}
        for name, sizes in before.items()
    }


def verify(site: Site) -> None:
    """All that was acknowledged is there, once and in order."""
    site.end_clients()
    site.seen["kept"] = {}
    with library.connect(SC) as cluster:
        for subject in (*OF_SITE, "far"):
            with cluster.consumer(subject, start="earliest", stop="latest") as consumer:
                records = [bytes(record.value or b"").decode() for record in consumer]
            sent = site.noted(f"send-{subject}")
            acknowledged = [number for number in sent if not number.startswith("failed")]
            site.seen["kept"][subject] = {
                "acknowledged": len(acknowledged),
                "failed": [line for line in sent if line.startswith("failed")],
                "lost": sorted(set(acknowledged) - set(records)),
                "twice": len(records) - len(set(records)),
                "in order": subject == "far" or records == sorted(records, key=int),
                "read twice": len(site.noted(f"read-{subject}"))
                - len(set(site.noted(f"read-{subject}"))),
            }


def goes_on(site: Site, when: str) -> None:
    """Records are acknowledged and read at the site."""
    for subject in OF_SITE:
        for name in (f"send-{subject}", f"read-{subject}"):
            more = len(site.noted(name)) + 40
            until(f"{name} goes on {when}", partial(_has, site, name, more))


def _has(site: Site, name: str, count: int) -> bool:
    return len(site.noted(name)) >= count


def _answers(site: Site) -> bool:
    try:
        site.states()
    except OSError:
        return False
    return True


def until(what: str, holds: Callable[[], bool]) -> float:
    """Wait; how many seconds it took. Raises TimeoutError."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() > began + PATIENCE_S:
            raise TimeoutError(what)
        time.sleep(0.1)
    return round(time.monotonic() - began, 1)


def run(home: Path) -> dict[str, Any]:
    with machines_of(home, HOSTS) as machines:
        link = SiteLink(SITE)
        try:
            site = Site(machines, link)
            for scene in (begin, cut, bad, flapping, verify):
                began = time.monotonic()
                try:
                    scene(site)
                except Exception as error:
                    raise RuntimeError(f"{scene.__name__}: {error}; {site.seen}") from error
                site.seen[f"seconds of {scene.__name__}"] = round(time.monotonic() - began)
            return site.seen
        finally:
            link.close()


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
