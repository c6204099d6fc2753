"""Hosts of a network of their own, as network namespaces, for benchmarks that cut links.

A cut drops packets in silence, in one direction: the sender uses an Ethernet address that nobody
has. No process sees an error, and TCP sends again later and later, as in a network that has failed.
Needs Linux, the right to make namespaces, and `ip` of iproute2.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

_SUBNET: Final = "10.77.0"
_NOBODY: Final = "02:00:00:00:00:01"
_CLONE_NEWNET: Final = 0x40000000


@dataclass
class Network:
    """A switch, and hosts that are connected with it."""

    prefix: str
    _numbers: dict[str, int] = field(default_factory=dict)

    def add(self, host: str) -> None:
        """Connect another host."""
        number = len(self._numbers) + 1
        name = self._name(host)
        _ip("netns", "add", name)
        self._numbers[host] = number
        cable = f"v{number}"
        _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", cable)
        _ip("-n", name, "link", "set", cable, "netns", self._name("switch"))
        _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", self._name("switch"), "link", "set", cable, "master", "switch", "up")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")

    def address(self, host: str) -> str:
        return f"{_SUBNET}.{self._numbers[host]}"

    def command(self, host: str, *command: str) -> list[str]:
        """The command that runs ``command`` on a host."""
        return ["ip", "netns", "exec", self._name(host), *command]

    def enter(self, host: str) -> None:
        """Move this thread, and what it starts, to a host."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self._name(host)}", "rb") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter host {host}")

    def cut(self, sender: str, receiver: str) -> None:
        """Drop what one host sends to another."""
        at = ("-n", self._name(sender), "neighbour", "replace", self.address(receiver))
        _ip(*at, "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")

    def heal(self, sender: str, receiver: str) -> None:
        """Deliver again what one host sends to another."""
        at = ("-n", self._name(sender), "neighbour", "delete", self.address(receiver))
        _ip(*at, "dev", "eth0")

    def close(self) -> None:
        for host in ("switch", *self._numbers):
            _ip("netns", "delete", self._name(host))

    def _name(self, host: str) -> str:
        return f"{self.prefix}-{host}"


@contextmanager
def network() -> Iterator[Network]:
    """A switch without hosts yet. Raises RuntimeError if this machine makes no namespaces."""
    made = Network(f"runnel-{os.getpid()}")
    switch = f"{made.prefix}-switch"
    with ExitStack() as stack:
        _ip("netns", "add", switch)
        stack.callback(made.close)
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        yield made


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError("there is no `ip`; install iproute2") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from error
