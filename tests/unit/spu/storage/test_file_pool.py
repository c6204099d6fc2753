"""Files that logs share."""

from __future__ import annotations

import os
from pathlib import Path

from spu.storage.file_pool import FilePool


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


def test_given_more_files_than_fit_then_those_in_use_stay_open(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        Path(path).write_bytes(path.encode())
    pool = FilePool(2)
    pinned = pool.pin(paths[0])
    for path in paths[1:]:
        with pool.open(path) as fd:
            assert os.pread(fd, 99, 0) == path.encode()
    assert os.pread(pinned, 99, 0) == paths[0].encode()
    assert len(pool) == 2
    pool.unpin(paths[0])
    pool.close()
    assert len(pool) == 0
