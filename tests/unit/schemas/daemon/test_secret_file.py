"""The file of an SPU's secret: for its owner alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schemas.daemon.secret_file import read_secret, write_secret
from schemas.errors import InvalidRequestError

SECRET = "s" * 43


def test_given_a_secret_then_written_for_the_owner_alone_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "secret"
    before = os.umask(0)
    try:
        write_secret(file, "t" * 43)
        write_secret(file, SECRET)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_secret(file) == SECRET
    assert [path.name for path in file.parent.iterdir()] == ["secret"]


def test_given_no_directory_then_it_is_made_for_this_user_only(tmp_path: Path) -> None:
    write_secret(tmp_path / "spu-0" / "secret", SECRET)
    assert (tmp_path / "spu-0").stat().st_mode & 0o777 == 0o700


def test_given_no_file_then_none(tmp_path: Path) -> None:
    assert read_secret(tmp_path / "secret") is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_given_file_that_others_may_read_then_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    write_secret(file, SECRET)
    file.chmod(mode)
    with pytest.raises(InvalidRequestError, match=f"chmod 600 {file}"):
        read_secret(file)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"short", id="short"),
        pytest.param("ü".encode() * 40, id="not-ascii"),
        pytest.param(b"a" * 40 + b"\n" + b"b" * 40, id="two-lines"),
        pytest.param(b"a" * 40 + b"\xff", id="not-text"),
    ],
)
def test_given_file_without_a_secret_then_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    write_secret(file, SECRET)
    file.write_bytes(content)
    said = f"runnel spu secret NAME. A secret has 32 or more printable ASCII characters: {file}"
    with pytest.raises(InvalidRequestError, match=said):
        read_secret(file)
