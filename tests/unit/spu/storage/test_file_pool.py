"""Files that logs share."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from spu.storage import file_pool as file_pool_module
from spu.storage.file_pool import FilePool


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Files that hold their own names."""
    found = [str(tmp_path / name) for name in "abcdef"]
    for path in found:
        Path(path).write_bytes(path.encode())
    return found


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that the pool syncs by itself, in order."""
    found: list[str] = []

    def sync(fd: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(file_pool_module, "sync_log_file", sync)
    return found


def open_here(paths: list[str]) -> set[str]:
    """Which of these this process has open."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return found & set(paths)


def test_given_a_forgotten_path_in_use_then_its_name_may_be_used_again_at_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    pool = FilePool(4)
    with pool.open(str(path)) as old:
        path.unlink()
        pool.forget(str(path))
        path.write_bytes(b"new")
        with pool.open(str(path)) as new:
            assert os.pread(new, 3, 0) == b"new"
            assert os.pread(old, 3, 0) == b"old"
        identity = os.fstat(old)
    # The last user closed it: the descriptor is free, or another file's.
    assert not os.path.exists(f"/proc/self/fd/{old}") or not os.path.samestat(
        os.fstat(old), identity
    )
    assert len(pool) == 1
    pool.close()


def test_given_more_files_than_fit_then_those_in_use_stay_open(paths: list[str]) -> None:
    pool = FilePool(2)
    with pool.open(paths[0]) as used:
        for path in paths[1:]:
            with pool.open(path) as fd:
                assert os.pread(fd, 99, 0) == path.encode()
        assert os.pread(used, 99, 0) == paths[0].encode()
        assert len(pool) == 2
    pool.close()
    assert len(pool) == 0
    assert not open_here(paths)


def test_given_held_and_idle_files_then_idle_ones_go_first_and_nothing_is_synced(
    paths: list[str], synced: list[str]
) -> None:
    pool = FilePool(3)
    pool.write(paths[0], b"x", 0)
    pool.write(paths[1], b"x", 0)
    for path in paths[2:]:
        with pool.open(path):
            pass
    assert open_here(paths) == {paths[0], paths[1], paths[-1]}
    assert synced == []
    pool.close()


def test_given_more_held_files_than_fit_then_the_oldest_are_synced_and_closed(
    paths: list[str], synced: list[str]
) -> None:
    pool = FilePool(2)
    for number, path in enumerate(paths):
        pool.write(path, b"%d" % number, 0)
        assert len(pool) <= 2
    assert synced == paths[:-2]
    assert open_here(paths) == set(paths[-2:])
    for number, path in enumerate(paths):
        with pool.open(path) as fd:
            assert os.pread(fd, 1, 0) == b"%d" % number
    pool.close()


def test_given_a_released_file_then_it_goes_without_an_fsync(
    paths: list[str], synced: list[str]
) -> None:
    pool = FilePool(2)
    pool.write(paths[0], b"x", 0)
    pool.write(paths[1], b"x", 0)
    pool.release(paths[0])
    pool.write(paths[2], b"x", 0)
    assert synced == []
    assert open_here(paths) == {paths[1], paths[2]}
    pool.close()


def test_given_a_file_whose_sync_failed_then_its_log_hears_of_it_and_others_go_on(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    pool = FilePool(1)
    pool.write(paths[0], b"x", 0)
    with monkeypatch.context() as patch:
        patch.setattr(file_pool_module, "sync_log_file", fail)
        pool.write(paths[1], b"x", 0)
    for _ in range(2):
        # However often it is tried: a second fsync would say that all is well.
        with pytest.raises(OSError, match="Input/output error"), pool.open(paths[0]):
            pass
        with pytest.raises(OSError, match="Input/output error"):
            pool.write(paths[0], b"x", 1)
    with pool.open(paths[1]) as fd:
        assert os.pread(fd, 1, 0) == b"x"
    # A file that was replaced is another one.
    pool.forget(paths[0])
    with pool.open(paths[0]):
        pass
    pool.close()


def test_given_an_fsync_that_failed_then_every_later_one_of_that_file_fails(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.EIO, "Input/output error")]

    def once(_fd: int) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(file_pool_module, "sync_log_file", once)
    pool = FilePool(4)
    pool.write(paths[0], b"x", 0)
    pool.write(paths[1], b"x", 0)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            pool.sync(paths[0])
    pool.sync(paths[1])
    assert pool.failure(paths[0]) is not None
    assert pool.failure(paths[1]) is None
    pool.close()


def test_given_fsyncs_of_a_file_at_once_then_a_failure_of_one_is_not_lost_for_the_other(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FilePool(1)
    told: list[OSError | None] = []

    def of_the_log() -> None:
        try:
            pool.sync(paths[0])
        except OSError as error:
            told.append(error)
        else:
            told.append(None)

    other = threading.Thread(target=of_the_log)
    runs: list[int] = []

    def sync(fd: int) -> None:
        runs.append(fd)
        if len(runs) > 1:
            # The kernel has told of the failure.
            return
        other.start()
        while other.is_alive() and pool._files[paths[0]].users < 2:
            time.sleep(0.001)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_pool_module, "sync_log_file", sync)
    pool.write(paths[0], b"acknowledged", 0)
    # To make room, the pool syncs the first file.
    with pool.open(paths[1]):
        other.join(20)
    assert "Input/output error" in str(told[0])
    assert len(runs) == 1
    pool.close()


def test_given_a_write_during_the_pools_fsync_then_it_is_synced_again_before_it_is_closed(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FilePool(1)
    contents: list[bytes] = []

    def sync(fd: int) -> None:
        contents.append(os.pread(fd, 2, 0))
        if len(contents) == 1:
            pool.write(paths[0], b"2", 1)

    monkeypatch.setattr(file_pool_module, "sync_log_file", sync)
    pool.write(paths[0], b"1", 0)
    with pool.open(paths[1]):
        pass
    assert contents[-1] == b"12"
    assert len(contents) == 2
    pool.close()


def test_given_no_descriptors_left_then_the_pool_makes_do_with_what_it_has(
    paths: list[str], synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def limited(path: str, flags: int, mode: int = 0o777) -> int:
        if len(open_here(paths)) >= 2:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", limited)
    pool = FilePool(100)
    with pool.open(paths[0]):
        pass
    for path in paths:
        pool.write(path, b"x", 0)
    assert len(pool) == 2
    assert synced == paths[:-2]
    with (
        pool.open(paths[0]),
        pool.open(paths[1]),
        pytest.raises(OSError, match="Too many open files"),
    ):
        pool.write(paths[2], b"x", 0)
    pool.close()


def test_given_a_new_file_then_it_is_there_and_only_once(tmp_path: Path) -> None:
    pool = FilePool(4)
    path = str(tmp_path / "new")
    pool.create(path)
    pool.write(path, b"x", 0)
    with pytest.raises(FileExistsError):
        pool.create(path)
    pool.close()
    assert Path(path).read_bytes() == b"x"


def test_given_writers_and_readers_in_threads_then_all_that_was_written_is_there(
    paths: list[str],
) -> None:
    pool = FilePool(3)
    failures: list[BaseException] = []

    def work(mine: list[str]) -> None:
        try:
            for number in range(200):
                for path in mine:
                    pool.write(path, b"%03d" % number, 0)
                    with pool.open(path) as fd:
                        assert os.pread(fd, 3, 0) == b"%03d" % number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(paths[n::3],)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    # Of each thread one may be in use beyond the bound.
    assert len(pool) <= 3 + len(threads)
    pool.close()
    assert not open_here(paths)
