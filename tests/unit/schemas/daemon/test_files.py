"""Small files are replaced as a whole, and are for those they are meant for."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.daemon.files import write_json
from schemas.daemon.secret_file import write_secret


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def _narrow_umask() -> object:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_given_nothing_there_then_written_with_its_directories(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "x.json"
    write_json(file, {"name": "ö", "ids": [1, 2]})
    assert json.loads(file.read_text()) == {"name": "ö", "ids": [1, 2]}
    assert file.read_text().endswith("]\n}\n")
    assert mode(file) == 0o644
    assert list(file.parent.iterdir()) == [file]


def test_given_a_file_then_another_takes_its_place(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_json(file, ["much longer than what comes next"])
    with file.open() as before:
        write_json(file, [])
        # Who had it open reads on undisturbed: it was replaced, not written over.
        assert json.load(before) == ["much longer than what comes next"]
    assert json.loads(file.read_text()) == []


@pytest.mark.parametrize("left", [None, 0o666], ids=["given-nothing-left", "given-one-left-open"])
def test_a_secret_is_for_this_user_only(tmp_path: Path, left: int | None) -> None:
    file = tmp_path / "x.json"
    if left is not None:
        # What a process that was killed left behind.
        file.with_suffix(".tmp").touch()
        file.with_suffix(".tmp").chmod(left)
    write_json(file, "secret", mode=0o600)
    assert mode(file) == 0o600


def test_given_data_that_is_not_json_then_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_json(file, "before")
    with pytest.raises(TypeError):
        write_json(file, object())
    assert json.loads(file.read_text()) == "before"


def test_given_names_that_differ_before_the_last_dot_then_they_do_not_meet(tmp_path: Path) -> None:
    for name in ("a.process", "b.process", "a"):
        write_json(tmp_path / f"{name}.json", name)
    assert {json.loads(f.read_text()) for f in tmp_path.iterdir()} == {
        "a.process",
        "b.process",
        "a",
    }


@pytest.mark.parametrize("step", ["fsync", "fchmod"])
@pytest.mark.parametrize("write", [write_json, write_secret])
def test_given_a_full_disk_then_the_file_stays_alone_and_the_error_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path, str], None],
    step: str,
) -> None:
    file = tmp_path / "x.json"
    write(file, "s" * 43)
    before = file.read_bytes()

    def full(*_: object) -> None:
        # As a write says it: without a file.
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match=f"No space left on device: '{file}'$"):
        write(file, "t" * 43)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_given_a_name_that_cannot_be_taken_then_nothing_unfinished_is_left(tmp_path: Path) -> None:
    taken = tmp_path / "x.json"
    taken.mkdir()
    with pytest.raises(IsADirectoryError, match=str(taken)):
        write_json(taken, {})
    assert list(tmp_path.iterdir()) == [taken]
