"""What a crash leaves of a log at any of its writes, and at any byte of a write.

A log is written, synced, rolled, truncated at either end and written again, over a disk that is
a model: which names and which bytes there are, and which of them would survive a power cut. Every
state that a killed process or a power cut may leave is recovered. A crash never makes a log unfit;
what was durable is read as it was written, and nothing that was cut away comes back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from schemas.wire.batch import HEADER_SIZE, set_offset_and_term, verify
from spu.storage import checkpoint as checkpoint_module
from spu.storage import index as index_module
from tests.unit.spu.builders import TERM, OpenLog, batch_of, new_log_directory, open_log

Names = dict[str, bytes]
_PATCHED = ("open", "pwrite", "rename", "unlink", "ftruncate", "fsync", "fdatasync")


@dataclass
class Content:
    """A file's bytes now, and those that are on the disk."""

    now: bytes = b""
    synced: bytes = b""

    def only_size(self) -> bytes:
        """As after a power cut that saved the size of the file and not its data."""
        return self.synced[: len(self.now)].ljust(len(self.now), b"\0")


@dataclass
class Promise:
    """What a reader may rely on: below ``durable`` every record is there, from ``end`` on none
    is, and what stands at an offset is one of ``batches``."""

    durable: int = 0
    end: int = 0
    batches: dict[int, set[bytes]] = field(default_factory=dict)

    def copy(self) -> Promise:
        batches = {offset: set(found) for offset, found in self.batches.items()}
        return Promise(self.durable, self.end, batches)


@dataclass(frozen=True)
class Left:
    """What a crash left, and what was promised when it came."""

    files: Names
    promise: Promise
    what: str


class Disk:
    """Stands in for `os` below one directory, and notes every state that a crash may leave."""

    def __init__(self, directory: Path, stride: int) -> None:
        self.promise = Promise()
        self.left: list[Left] = []
        self._directory = str(directory)
        self._stride = stride
        self._seen: set[tuple[Any, ...]] = set()
        self._os = {name: getattr(os, name) for name in _PATCHED}
        self._names: dict[str, Content] = {}
        self._synced_names: dict[str, Content] = {}
        self._open: dict[int, Content] = {}
        for path in directory.iterdir():
            data = path.read_bytes()
            self._names[path.name] = self._synced_names[path.name] = Content(data, data)

    def patched(self) -> Any:
        return mock.patch.multiple(os, **{name: getattr(self, name) for name in _PATCHED})

    def open(self, path: Any, flags: int, mode: int = 0o777, **kwargs: Any) -> int:
        name = os.path.basename(path)
        ours = os.path.dirname(path) == self._directory and not flags & os.O_DIRECTORY
        if ours and flags & os.O_CREAT and name not in self._names:
            self._crash(f"before {name} is made")
            self._names[name] = Content()
        elif ours and flags & os.O_TRUNC:
            self._names[name].now = b""
        fd: int = self._os["open"](path, flags, mode, **kwargs)
        if ours:
            self._open[fd] = self._names[name]
        else:
            self._open.pop(fd, None)
        return fd

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        content, new = self._open[fd], bytes(data)
        before = content.now
        for length in range(0, len(new), self._stride):
            content.now = before[:position].ljust(position, b"\0") + new[:length]
            self._crash(f"{length} bytes into a write")
        content.now = before[:position].ljust(position, b"\0") + new
        content.now += before[position + len(new) :]
        written: int = self._os["pwrite"](fd, data, position)
        return written

    def rename(self, source: Any, target: Any, **kwargs: Any) -> None:
        self._crash(f"before {target} is replaced")
        self._names[os.path.basename(target)] = self._names.pop(os.path.basename(source))
        self._os["rename"](source, target, **kwargs)

    def unlink(self, path: Any, **kwargs: Any) -> None:
        self._crash(f"before {path} is removed")
        self._os["unlink"](path, **kwargs)
        self._names.pop(os.path.basename(path))

    def ftruncate(self, fd: int, size: int) -> None:
        self._crash("before a file is cut")
        self._open[fd].now = self._open[fd].now[:size].ljust(size, b"\0")
        self._os["ftruncate"](fd, size)

    def fsync(self, fd: int) -> None:
        self._crash("before an fsync")
        if fd in self._open:
            self._open[fd].synced = self._open[fd].now
        else:
            self._synced_names = dict(self._names)

    fdatasync = fsync

    def _crash(self, what: str) -> None:
        """Note what would be left if the process or the power went now."""
        for how, files in self._states():
            key = (tuple(sorted(files.items())), self.promise.durable, self.promise.end)
            if key not in self._seen:
                self._seen.add(key)
                self.left.append(Left(files, self.promise.copy(), f"{how}, {what}"))

    def _states(self) -> Iterator[tuple[str, Names]]:
        names, synced = self._names, self._synced_names
        yield "process killed", {name: one.now for name, one in names.items()}
        yield "nothing unsynced left", {name: one.synced for name, one in synced.items()}
        yield "only names left", {name: one.synced for name, one in names.items()}
        yield "sizes without data", {name: one.only_size() for name, one in names.items()}
        for kept, content in names.items():
            if content.now != content.synced:
                others = {name: one.synced for name, one in synced.items()}
                yield f"only {kept} left", others | {kept: content.now}


def life(disk: Disk, opened: OpenLog) -> None:
    """Some of all that happens to a log."""
    log, promise = opened.log, disk.promise

    def append(count: int, term: int) -> None:
        for _ in range(count):
            batch = batch_of(1, b"%d %d" % (log.leo, term), producer_id=7, sequence=log.leo)
            promise.end = log.leo + 1
            set_offset_and_term(batch, log.leo, TERM + term)
            promise.batches.setdefault(log.leo, set()).add(bytes(batch))
            opened.append(batch, TERM + term)

    def sync(*, checkpoint: bool = False) -> None:
        opened.sync(lac=log.leo - 1, checkpoint=checkpoint)
        promise.durable = log.leo

    append(2, 0)
    sync()
    append(2, 0)
    sync(checkpoint=True)
    log.roll(1)
    append(2, 0)
    append(1, 1)
    sync()
    append(2, 1)
    log.truncate_prefix(4)
    sync()
    append(1, 1)
    promise.durable = 8
    log.truncate_suffix(8)
    promise.end = 8
    for offset in (8, 9):
        promise.batches.pop(offset)
    append(2, 2)
    sync()
    append(2, 2)
    sync(checkpoint=True)


def crashes(directory: Path, stride: int) -> list[Left]:
    opened = open_log(new_log_directory(directory))
    disk = Disk(directory, stride)
    with disk.patched():
        life(disk, opened)
    opened.crash()
    return disk.left


def check(directory: Path, left: Left) -> int:
    """Recover what a crash left; gives the end of the log."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        if path.name not in left.files:
            path.unlink()
    for name, data in left.files.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    opened = open_log(directory)
    log, promise = opened.log, left.promise
    try:
        assert opened.found.unfit is None
        assert promise.durable <= log.leo <= promise.end
        for offset in range(log.log_start, log.leo):
            data = bytes(log.read(offset, HEADER_SIZE, log.leo, wait=True).data)
            assert verify(data).base_offset == offset
            assert data in promise.batches[offset]
        return log.leo
    except AssertionError as error:
        error.add_note(left.what)
        raise
    finally:
        opened.crash()


@pytest.mark.parametrize(
    "stride",
    [
        pytest.param(31, id="given-some-bytes"),
        pytest.param(1, id="given-every-byte", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_given_a_crash_at_any_write_then_what_was_durable_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    monkeypatch.setattr(checkpoint_module, "VERIFY_AGAIN_BYTES", 300)
    monkeypatch.setattr(index_module, "INDEX_INTERVAL_BYTES", 100)
    left = crashes(tmp_path / "log", stride)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    ends = {check(tmp_path / "left", one) for one in left}
    assert ends == set(range(13))
