"""Files that are replaced whole: by two at once, and on a disk that is full."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spu.storage import durable
from spu.storage.durable import replace_file


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
