"""Crashes between any two file operations, of the process alone or with the power.

`every_crash` runs a piece of work in copies of a directory, once for each of its file operations,
and stops before that one. A killed process leaves what it did. A power cut may take back any of
what was not synced, each for itself: names that were made, replaced or removed until their
directory is synced, the content of files until they are.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.laws import sampled

_CHANGES = ("open", "unlink", "rename", "pwrite", "ftruncate", "fsync", "fdatasync")


class Stopped(Exception):  # noqa: N818 - the end of a process, not an error of it
    """The process ends before an operation."""


@dataclass(frozen=True)
class Crash:
    """What a crash left in ``path``, after the work was done or before."""

    what: str
    done: bool
    path: Path


@dataclass(frozen=True)
class Undo:
    """How a power cut takes one operation back: ``name`` held ``before`` (None: was not there).

    ``moved_to`` is the name that a renamed file had, ``inode`` that of changed content.
    """

    name: str
    before: bytes | None
    moved_to: str | None = None
    inode: int | None = None


class Recorder:
    """Stands in for `os`: counts operations that change the disk, stops before one of them."""

    def __init__(self, stop_before: int) -> None:
        self.count = 0
        self.undos: list[Undo] = []
        self._stop_before = stop_before
        self._os = {name: getattr(os, name) for name in _CHANGES}

    def _step(self) -> None:
        if self.count == self._stop_before:
            raise Stopped
        self.count += 1

    def open(self, path: Any, flags: int, mode: int = 0o777, **kwargs: Any) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            self._step()
            self.undos.append(Undo(Path(path).name, None))
        fd: int = self._os["open"](path, flags, mode, **kwargs)
        return fd

    def unlink(self, path: Any, **kwargs: Any) -> None:
        before = Path(path).read_bytes() if os.path.exists(path) else None
        self._step()
        self._os["unlink"](path, **kwargs)
        self.undos.append(Undo(Path(path).name, before))

    def rename(self, source: Any, target: Any, **kwargs: Any) -> None:
        self._step()
        before = Path(target).read_bytes() if os.path.exists(target) else None
        self._os["rename"](source, target, **kwargs)
        self.undos.append(Undo(Path(target).name, before, moved_to=Path(source).name))

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        self._step()
        self._changed(fd)
        written: int = self._os["pwrite"](fd, data, position)
        return written

    def ftruncate(self, fd: int, size: int) -> None:
        self._step()
        self._changed(fd)
        self._os["ftruncate"](fd, size)

    def fsync(self, fd: int) -> None:
        self._synced(fd)
        self._os["fsync"](fd)

    def fdatasync(self, fd: int) -> None:
        self._synced(fd)
        self._os["fdatasync"](fd)

    def _changed(self, fd: int) -> None:
        found = os.fstat(fd)
        before = Path(f"/proc/self/fd/{fd}").read_bytes()
        self.undos.append(Undo("", before, inode=found.st_ino))

    def _synced(self, fd: int) -> None:
        self._step()
        found = os.fstat(fd)
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            self.undos = [undo for undo in self.undos if undo.inode is not None]
        else:
            self.undos = [undo for undo in self.undos if undo.inode != found.st_ino]


def every_crash(
    directory: Path, scratch: Path, work: Callable[[Path], Callable[[], None]]
) -> Iterator[Crash]:
    """What every crash leaves, the last ones when all was done. Of the power cuts at one operation,
    which differ in what they take back, `make test` takes a sample.

    ``work`` is given a copy of ``directory`` to open, and gives what is to be done there.
    """
    for stop_before in itertools.count():
        path = scratch / f"{stop_before}"
        shutil.copytree(directory, path)
        job = work(path)
        recorder = Recorder(stop_before)
        ended = _run(job, recorder)
        names = {os.stat(file).st_ino: file.name for file in path.iterdir()}
        # What was not synced when all was done is little, and tells the most.
        every = 1 if ended else 9
        for number, taken_back in enumerate(sampled(_subsets(recorder.undos), every=every)):
            left = scratch / f"{stop_before}-{number}"
            shutil.copytree(path, left)
            for undo in reversed(taken_back):
                if undo.inode is not None and undo.inode in names:
                    (left / names[undo.inode]).write_bytes(undo.before or b"")
            for undo in reversed(taken_back):
                if undo.inode is None:
                    _take_back(left, undo)
            yield Crash(f"before operation {stop_before}, without {taken_back}", ended, left)
            shutil.rmtree(left)
        shutil.rmtree(path)
        if ended:
            return


def _run(job: Callable[[], None], recorder: Recorder) -> bool:
    with mock.patch.multiple(os, **{name: getattr(recorder, name) for name in _CHANGES}):
        try:
            job()
        except Stopped:
            return False
    return True


def _subsets(undos: list[Undo]) -> Iterator[tuple[Undo, ...]]:
    for size in range(len(undos) + 1):
        yield from itertools.combinations(undos, size)


def _take_back(directory: Path, undo: Undo) -> None:
    path = directory / undo.name
    if undo.moved_to is not None and path.exists():
        path.rename(directory / undo.moved_to)
    if undo.before is not None:
        path.write_bytes(undo.before)
    else:
        path.unlink(missing_ok=True)
