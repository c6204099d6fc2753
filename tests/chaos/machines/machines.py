"""Machines of a network of their own: a namespace each, one bridge between them, names for all.

Run in a network and a mount namespace that were made for this (``unshare --map-root-user --net
--mount``). The directories ``/var/lib`` and ``/etc/hosts`` are then this namespace's own, so that a
page's commands run as they are written. All machines see the same files.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

NETWORK: Final = "10.77.0."
STOP_S: Final = 10.0
#: An Ethernet address that no machine has.
NOBODY: Final = "02:00:00:00:00:01"


@dataclass
class Machines:
    """Machines by name. ``home`` holds what the commands leave behind."""

    home: Path
    environment: Mapping[str, str]
    _hosts: Mapping[str, str]
    _numbers: Mapping[str, int]
    _aliases: dict[str, str] = field(default_factory=dict)
    _holders: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, machine: str, command: str, log: str = "") -> subprocess.Popen[bytes]:
        """Start a daemon on a machine; its output goes to a file of the machine, or to ``log``."""
        with (self.home / f"{log or machine}.log").open("ab") as output:
            process = subprocess.Popen(
                [*self._on(machine), *command.split()],
                cwd=self._directory(machine),
                env=dict(self.environment),
                stdout=output,
                stderr=output,
            )
        self._daemons.append(process)
        return process

    def run(self, machine: str, commands: str) -> subprocess.CompletedProcess[str]:
        """Run shell commands on a machine, in its directory."""
        return subprocess.run(
            [*self._on(machine), "bash", "-e", "-c", commands],
            cwd=self._directory(machine),
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def write(self, machine: str, name: str, text: str) -> None:
        (self._directory(machine) / name).write_text(text)

    def address(self, machine: str) -> str:
        return f"{NETWORK}{self._numbers[self._hosts[machine]]}"

    def cut(self, sender: str, receiver: str) -> None:
        """Drop in silence what one machine sends to another."""
        neighbour = f"neighbour replace {self.address(receiver)} lladdr {NOBODY}"
        self._ip_of(sender, f"{neighbour} dev {self._device(sender)} nud permanent")

    def heal(self, sender: str, receiver: str) -> None:
        """Deliver again what one machine sends to another."""
        address = self.address(receiver)
        self._ip_of(sender, f"neighbour delete {address} dev {self._device(sender)}")

    def slow_down(self, machine: str, kilobits: int) -> bool:
        """Have a machine send slowly: packets wait for each other, and are dropped when too many
        wait. Returns whether the kernel can do it."""
        shape = f"tbf rate {kilobits}kbit burst 16kb latency 400ms"
        try:
            self._run_on(machine, f"tc qdisc replace dev eth0 root {shape}")
        except (FileNotFoundError, subprocess.CalledProcessError):
            return False
        return True

    def speed_up(self, machine: str) -> None:
        """Have a machine send as fast as it can again."""
        with suppress(FileNotFoundError, subprocess.CalledProcessError):
            self._run_on(machine, "tc qdisc delete dev eth0 root")

    def rename(self, alias: str, host: str) -> None:
        """Let a name mean another host, on all machines."""
        self._aliases[alias] = host
        self._write_hosts()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End a daemon and wait for its end."""
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)
        self._daemons.remove(process)

    def _write_hosts(self) -> None:
        lines = [f"{NETWORK}{number} {host}" for host, number in self._numbers.items()]
        lines += [
            f"{NETWORK}{self._numbers[host]} {alias}" for alias, host in self._aliases.items()
        ]
        # In place: this file is what is mounted as /etc/hosts.
        (self.home / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def _directory(self, machine: str) -> Path:
        directory = self.home / machine
        directory.mkdir(exist_ok=True)
        return directory

    def _device(self, machine: str) -> str:
        """By which a machine sends: the first one is where the bridge is."""
        return "eth0" if machine in self._holders else "machines"

    def _on(self, machine: str) -> list[str]:
        holder = self._holders.get(machine)
        return [] if holder is None else ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]

    def _add(self, machine: str, number: int) -> None:
        """Give a machine a namespace, in which a process that sleeps keeps it."""
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[machine] = holder
        own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + STOP_S
        while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{machine} got no network namespace")
            time.sleep(0.01)
        link = f"m{number}"
        _ip(f"link add {link} type veth peer name eth0 netns {holder.pid}")
        _ip(f"link set {link} master machines up")
        for command in (
            "link set lo up",
            f"addr add {NETWORK}{number}/24 dev eth0",
            "link set eth0 up",
        ):
            self._ip_of(machine, command)

    def _ip_of(self, machine: str, command: str) -> None:
        self._run_on(machine, f"ip {command}")

    def _run_on(self, machine: str, command: str) -> None:
        subprocess.run([*self._on(machine), *command.split()], check=True, capture_output=True)


@contextmanager
def machines_of(
    home: Path, names: Mapping[str, str], aliases: Mapping[str, str] | None = None
) -> Iterator[Machines]:
    """The machines of these host names, by name; the first is the one that this process is on.
    ``aliases`` are further names of hosts."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "hosts").touch()
    subprocess.run(["mount", "--bind", str(home / "hosts"), "/etc/hosts"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/var/lib"], check=True)
    Path("/var/lib/runnel").mkdir()
    _ip("link set lo up")
    _ip("link add machines type bridge")
    _ip(f"addr add {NETWORK}1/24 dev machines")
    _ip("link set machines up")
    tools = home / "bin"
    tools.mkdir()
    # All machines see the same files.
    scp = tools / "scp"
    scp.write_text('#!/bin/sh\nexec cp -p "$2" "${3#*:}"\n')
    scp.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "RUNNEL_HOME": str(home / "profile"),
    }
    numbers = {host: number for number, host in enumerate(names.values(), 1)}
    machines = Machines(home, environment, dict(names), numbers, dict(aliases or {}))
    machines._write_hosts()
    try:
        for number, name in enumerate(names, 1):
            if number > 1:
                machines._add(name, number)
        yield machines
    finally:
        for process in tuple(machines._daemons):
            with suppress(subprocess.TimeoutExpired):
                machines.stop(process)
        for holder in machines._holders.values():
            holder.kill()
            holder.wait(STOP_S)


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)
