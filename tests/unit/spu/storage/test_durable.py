"""Files that are replaced whole, by two at once or on a full disk; and what a failed fsync is."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from spu.storage import durable
from spu.storage.durable import (
    FsyncFailedError,
    is_no_room,
    is_shortage,
    replace_file,
    sync_log_directory,
    sync_log_file,
)


def test_given_two_threads_that_replace_one_file_then_both_do_and_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both have written, neither has renamed.
    barrier = threading.Barrier(2, timeout=30)
    monkeypatch.setattr(durable, "sync_file", lambda _fd: barrier.wait())
    path = tmp_path / "00000000000000000000.index"
    contents = [b"a" * 100, b"b" * 200]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda data: replace_file(path, data), contents))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_given_a_full_disk_then_the_old_content_stays_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    replace_file(path, b"old")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "sync_file", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_given_a_failed_fsync_of_a_log_then_it_is_no_shortage_whatever_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(FsyncFailedError, match="No space left") as got:
            sync_log_file(0) if kind == "file" else sync_log_directory(tmp_path)
    assert not is_shortage(got.value)
    assert not is_no_room(got.value)


def test_given_no_descriptor_for_the_fsync_of_a_directory_then_it_is_a_shortage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        with pytest.raises(OSError, match="Too many") as got:
            sync_log_directory(tmp_path)
    assert is_shortage(got.value)
