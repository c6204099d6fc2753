"""Follows ``docs/howto/three-hosts.md`` and ``docs/howto/hosts.md`` word for word on four machines.

    unshare --map-root-user --net --mount python -m tests.chaos.machines.follow_three_hosts \
        DIRECTORY ETCD

Prints what the commands said as JSON. Every command and every file is taken from the pages; only
the numbers of the hosts differ, and who is lost is decided here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.architecture.source import ROOT
from tests.chaos.machines.machines import Machines, machines_of
from tests.chaos.machines.page import Page

HOWTO: Final = ROOT / "docs" / "howto"
HOSTS: Final = {f"host-{n}": f"host-{n}.example" for n in (1, 2, 3, 4)}
PATIENCE_S: Final = 60.0


def on_host(number: int, text: str) -> str:
    """What a page says for host 1, for another one. Lines that name all hosts stay."""
    return "".join(
        line if "host-2" in line else _own(line, number) for line in text.splitlines(True)
    )


def _own(line: str, number: int) -> str:
    for before in ("host-1", "spu-1"):
        line = line.replace(before, before.replace("1", str(number)))
    return line.replace("spuId: 1", f"spuId: {number}")


class Follower:
    """Keeps what each step said, and which daemons run where."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.said: dict[str, list[object]] = {}
        self.daemons: dict[str, list[subprocess.Popen[bytes]]] = {}

    def step(self, name: str, commands: str, host: str = "host-1") -> None:
        begun = time.monotonic()
        done = self.machines.run(host, commands)
        took_s = time.monotonic() - begun
        self.said[name] = [done.returncode, done.stdout, done.stderr, round(took_s, 1)]

    def until(self, host: str, commands: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (done := self.machines.run(host, commands)).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{commands}: {done.stdout}{done.stderr}{self.said}")
            time.sleep(0.3)

    def start(self, host: str, command: str) -> None:
        self.daemons.setdefault(host, []).append(self.machines.start(host, command))

    def lose(self, host: str, in_silence: bool = False) -> None:
        """End all daemons of a host, without a chance to say so. Its kernel then refuses whoever
        asks for them; ``in_silence`` nobody answers, as where a host has no power."""
        if in_silence:
            for sender, receiver in self._links(host):
                self.machines.cut(sender, receiver)
        for process in self.daemons.pop(host):
            process.kill()
            self.machines.stop(process)

    def connect(self, host: str) -> None:
        """A host that was lost in silence is there again, without its daemons."""
        for sender, receiver in self._links(host):
            self.machines.heal(sender, receiver)

    def _links(self, host: str) -> list[tuple[str, str]]:
        others = [other for other in HOSTS if other != host]
        return [pair for other in others for pair in ((host, other), (other, host))]


class ThreeHosts:
    """The page of three hosts, and the one that goes on from there."""

    def __init__(self, etcd: Path) -> None:
        first, second = Page(HOWTO / "three-hosts.md"), Page(HOWTO / "hosts.md")
        self.sc_yaml, self.manifest, self.spu_yaml = first.yaml
        self.directories, start_etcd, self.context, self.join = first.shell[:4]
        self.wait, self.records = first.shell[4:]
        (members,) = first.plain
        command = " ".join(start_etcd.split()).replace("CLUSTER", members.strip())
        assert command.startswith("etcd --name host-1 ")
        # It is not on the PATH of every machine that tests.
        self.etcd = f"{etcd}{command.removeprefix('etcd')}"
        self.health = first.command("curl --fail http://host-1.example:2379/health")
        self.run_sc = first.command("runnel sc run -c sc.yaml")
        self.run_spu = first.command("runnel spu run -c spu.yaml")
        self.replace, self.new_context, self.replaced = second.shell
        assert second.command("runnel spu run -c spu.yaml") == self.run_spu

    def run(self, follower: Follower) -> None:
        machines = follower.machines
        for number in (1, 2, 3):
            follower.step(f"directories {number}", on_host(number, self.directories))
            follower.start(f"host-{number}", self.etcd_on(number))
        follower.until("host-1", self.health)
        for number in (1, 2, 3):
            machines.write(f"host-{number}", "sc.yaml", on_host(number, self.sc_yaml))
            follower.start(f"host-{number}", self.run_sc)
        follower.step("context", self.context)
        follower.until("host-1", "runnel get spus")
        for number in (1, 2, 3):
            machines.write("host-1", f"host-{number}.yaml", on_host(number, self.manifest))
            follower.step(f"join {number}", on_host(number, self.join))
            machines.write(f"host-{number}", "spu.yaml", on_host(number, self.spu_yaml))
            follower.start(f"host-{number}", self.run_spu)
        for number in (1, 2, 3):
            follower.step(f"online {number}", on_host(number, self.wait))
        follower.step("records", self.records)
        # The last replica may join after the topic is writable.
        follower.until("host-1", "runnel cluster check | grep 'all with a leader'")
        self.lose_one_host_after_the_other(follower)
        self.replace_a_host(follower)

    def etcd_on(self, number: int) -> str:
        """The members of the cluster stay as they are; only the member's own names differ."""
        own, members = self.etcd.split("--initial-cluster ")
        return f"{on_host(number, own)}--initial-cluster {members}"

    def start_again(self, follower: Follower, number: int) -> None:
        for command in (self.etcd_on(number), self.run_sc, self.run_spu):
            follower.start(f"host-{number}", command)
        follower.until(f"host-{number}", "runnel cluster check")

    def lose_one_host_after_the_other(self, follower: Follower) -> None:
        for number, value, in_silence in ((3, 22, False), (1, 23, True), (2, 24, True)):
            lost, other = f"host-{number}", f"host-{number % 3 + 1}"
            follower.lose(lost, in_silence)
            follower.step(
                f"{lost} is lost",
                f'echo "{value}.5" | runnel produce readings\n'
                "runnel consume readings --from-beginning --no-follow\n"
                "runnel get controllers",
                other,
            )
            if in_silence:
                follower.connect(lost)
            self.start_again(follower, number)

    def replace_a_host(self, follower: Follower) -> None:
        machines = follower.machines
        follower.lose("host-3")
        subprocess.run(["rm", "-r", "/var/lib/runnel/spu-3"], check=True)
        moved = on_host(3, self.manifest).replace("host-3.example", "host-4.example")
        machines.write("host-1", "host-3.yaml", moved)
        Path("/var/lib/runnel/spu-3").mkdir(mode=0o700)
        follower.step("replace", self.replace)
        own = self.sc_yaml.replace("advertisedHost: host-1", "advertisedHost: host-4")
        machines.write("host-4", "sc.yaml", own)
        machines.write("host-4", "spu.yaml", on_host(3, self.spu_yaml))
        follower.start("host-4", self.run_sc)
        follower.start("host-4", self.run_spu)
        follower.step("new context", self.new_context)
        follower.until("host-1", "runnel cluster check")
        follower.step("replaced", self.replaced)
        # All replicas are on the new host.
        follower.until(
            "host-1",
            "! runnel get partitions -o json | tr -d ' \\n' | grep -q '\"lrs\":\\[[12],[12]\\]'",
        )
        follower.step("verify", "runnel partition verify readings")
        follower.step("balance", "runnel cluster rebalance")


def run(home: Path, etcd: Path) -> dict[str, list[object]]:
    """Exit code, output, errors and seconds of each step."""
    with machines_of(home, HOSTS) as machines:
        follower = Follower(machines)
        ThreeHosts(etcd).run(follower)
        return follower.said


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), Path(sys.argv[2]))))
