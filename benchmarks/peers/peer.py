"""What a system must do to be measured beside others; a module each implements it.

Every peer listens on loopback, keeps its files below the directory that it is given, and has one
topic of one partition with a replica on each broker, which acknowledges a record once all live
replicas hold it. A peer that is not to be had raises `UnavailableError`, which says how to get it.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

TOPIC: Final = "bench"
#: How long a start, an acknowledgement or an arrival may take.
PATIENCE_S: Final = 60.0


class UnavailableError(Exception):
    """The peer cannot be measured here, or not in this way; the text says why."""


@dataclass(frozen=True, slots=True)
class Setup:
    """``fsync``: a record is acknowledged once it is on disks, else once it is in page caches."""

    directory: Path
    brokers: int
    fsync: bool


class Sender(Protocol):
    """Sends from one thread. Errors of records are raised by `flush`."""

    def send(self, value: bytes) -> None:
        """One record, whose acknowledgement the client tells on its own."""

    def send_many(self, values: Sequence[bytes]) -> None:
        """Records by the fastest path of the client that is documented."""

    def push(self) -> None:
        """Nothing more comes for now: what was sent leaves, or waits for the client's linger."""

    def flush(self) -> None:
        """Wait until all that was sent is acknowledged."""

    def close(self) -> None: ...


class Receiver(Protocol):
    """Receives, from one thread, what is sent after it was opened, or all there is."""

    def receive(self) -> Sequence[bytes]:
        """Wait for the next records and give their values; none after `PATIENCE_S`."""

    def close(self) -> None: ...


class Peer(Protocol):
    """One system."""

    @property
    def name(self) -> str: ...

    def version(self) -> str:
        """Of the brokers and of the client. Raises UnavailableError."""

    def start(self, setup: Setup) -> None:
        """Brokers and the topic. Raises UnavailableError for a setup that it does not have."""

    def stop(self) -> None:
        """End all that was started; does nothing if nothing was."""

    def sender(self) -> Sender: ...

    def receiver(self, *, from_beginning: bool) -> Receiver: ...

    def pids(self) -> list[int]:
        """The processes that serve."""

    def kill_leader(self) -> None:
        """``kill -9`` of the broker that leads the partition. Raises UnavailableError."""


def program(variable: str, name: str, how: str) -> str:
    """A program that a variable names, or that is on the PATH. Raises UnavailableError."""
    if found := os.environ.get(variable) or shutil.which(name):
        return found
    raise UnavailableError(f"no {name} on the PATH, nor named by {variable}; {how}")


def client(module: str, package: str) -> Any:
    """A client library. Raises UnavailableError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnavailableError(f"no Python package {package}; pip install {package}") from error
