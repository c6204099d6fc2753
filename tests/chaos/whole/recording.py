"""Files of JSON lines that one process writes and others read while it does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, Unpack


class Entry(TypedDict, total=False):
    """What entries have beside ``do`` and ``t``; `tests.chaos.whole.history` explains them."""

    name: str
    topic: str
    way: str
    below: int
    start: dict[int, int] | None
    offsets: dict[int, int]
    partition: int
    rows: list[tuple[Any, ...]]
    error: str
    kind: str
    what: str
    host: str
    begin: float
    repair: float
    end: float
    in_force: bool
    daemon: str
    code: int
    said: str
    replicas: dict[str, list[int]]


class Recording:
    """Appends entries to a file, each in one write, so that a killed process loses none of them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._lock = threading.Lock()

    def write(self, do: str, **fields: Unpack[Entry]) -> None:
        line = json.dumps({"do": do, "t": round(time.monotonic(), 3), **fields})
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a file. A last line that was cut off is left out."""
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


class Growing:
    """A file that grows: gives what came since it was last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if line.endswith(b"\n"):
                    self._at += len(line)
                    yield json.loads(line)
