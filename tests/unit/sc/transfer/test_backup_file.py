"""The file of a backup: what was written is read, and nothing else."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sc.transfer.backup_file import FORMAT, BackupWriter, Header, read_backup
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    StorageFailedError,
    UnsupportedError,
)

HEADER = Header(
    runnel_backup=FORMAT,
    cluster="c",
    uid="u",
    incarnation=2,
    revision=7,
    at="2026-01-02T03:04:05.678Z",
    version="1.2.3",
)
ITEMS = (
    ("/runnel/c/cluster", b'{"uid": "u"}'),
    ("/runnel/c/objects/topics/t", "Größe \u2028 \n".encode()),
    ("/runnel/c/scs-like", b""),
    ("/runnel-records/c/streams/u/state", b"\xff\x00 no text"),
)


def written(path: Path) -> Path:
    with BackupWriter(path, HEADER) as backup:
        for key, value in ITEMS:
            backup.add(key, value)
    return path


def test_given_a_backup_then_what_was_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "b")
    found = read_backup(path)
    assert (found.header, found.items) == (HEADER, ITEMS)
    assert found.digest.keys == len(ITEMS)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("kept", range(len(ITEMS) + 2))
def test_given_a_file_that_ends_early_then_it_is_not_whole(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path / "b")
    lines = _lines(path)
    cut = "".join(lines[:kept])
    for text in (cut, cut + lines[kept][: len(lines[kept]) // 2], cut + lines[kept][:-1]):
        path.write_text(text, newline="")
        with pytest.raises(InvalidRequestError, match=r"is not whole|is no backup of a cluster"):
            read_backup(path)


def _lines(path: Path) -> list[str]:
    """Lines as the file has them: a value may hold what Python takes for the end of one."""
    return [line + "\n" for line in path.read_text().split("\n")[:-1]]


def changed(at: int, change: Callable[[str], str]) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[:at], change(lines[at]), *lines[at + 1 :]]


def with_field(name: str, value: object) -> Callable[[str], str]:
    return lambda line: json.dumps({**json.loads(line), name: value}) + "\n"


CHANGES: dict[str, tuple[Callable[[list[str]], list[str]], type[RunnelError], str]] = {
    "another value": (
        changed(1, with_field("value", "{}")),
        InvalidRequestError,
        "was changed after it was written: it holds 4 keys",
    ),
    "a key less": (lambda lines: [*lines[:2], *lines[3:]], InvalidRequestError, "holds 3 keys"),
    "keys in another order": (
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        InvalidRequestError,
        "was changed",
    ),
    "a key of another cluster": (
        changed(2, with_field("key", "/runnel/d/objects/topics/t")),
        InvalidRequestError,
        ":3: key '/runnel/d/objects/topics/t' is no key of cluster 'c'",
    ),
    "two values": (
        changed(2, with_field("base64", "")),
        InvalidRequestError,
        ":3: this is no line",
    ),
    "no value": (changed(2, with_field("value", None)), InvalidRequestError, ":3: this is no line"),
    "bad base64": (changed(4, with_field("base64", "%")), InvalidRequestError, ":5: this is no"),
    "no JSON": (changed(2, lambda _: "x\n"), InvalidRequestError, ":3: this is no line"),
    "no last line": (
        changed(5, with_field("bytes", "many")),
        InvalidRequestError,
        ":6: this is no last line",
    ),
    "text after the end": (
        lambda lines: [*lines, lines[1]],
        InvalidRequestError,
        ":7: text after the last line",
    ),
    "a later format": (
        changed(0, with_field("runnelBackup", FORMAT + 1)),
        UnsupportedError,
        "has format 2, this version of Runnel knows 1; upgrade Runnel",
    ),
    "a header with too little": (
        changed(0, lambda _: '{"runnelBackup": 1}\n'),
        InvalidRequestError,
        "is no backup of a cluster",
    ),
    "an incarnation that cannot be": (
        changed(0, with_field("incarnation", 1 << 16)),
        InvalidRequestError,
        "is no backup of a cluster",
    ),
    "a revision that cannot be": (
        changed(0, with_field("revision", -1)),
        InvalidRequestError,
        "is no backup of a cluster",
    ),
    "very deep JSON": (lambda _: ["[" * 100_000], InvalidRequestError, "is no backup of a cluster"),
    "another kind of JSON": (lambda _: ["[1]\n"], InvalidRequestError, "is no backup of a cluster"),
    "an empty file": (lambda _: [], InvalidRequestError, "is no backup of a cluster"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_given_a_file_that_was_changed_then_it_is_refused(tmp_path: Path, name: str) -> None:
    change, error, text = CHANGES[name]
    path = written(tmp_path / "b")
    path.write_text("".join(change(_lines(path))), newline="")
    with pytest.raises(error, match=text.replace("{", r"\{")):
        read_backup(path)


def test_given_bytes_that_are_no_text_then_it_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\xfe" * 100)
    with pytest.raises(InvalidRequestError, match="is no backup of a cluster"):
        read_backup(tmp_path / "b")


def test_given_no_file_or_a_directory_then_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no file"):
        read_backup(tmp_path / "b")
    with pytest.raises(InvalidRequestError, match="is no plain file"):
        read_backup(tmp_path)
    with pytest.raises(StorageFailedError, match=r"cannot read .*: File name too long"):
        read_backup(tmp_path / ("x" * 300))


def test_given_a_file_of_that_name_then_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_text("mine")
    with pytest.raises(ConflictError, match="is there already; name another file"):
        written(path)
    assert path.read_text() == "mine"


def test_given_a_file_that_appears_meanwhile_then_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "b"
    backup = BackupWriter(path, HEADER)
    backup.__enter__()
    path.write_text("mine")
    with pytest.raises(ConflictError, match="is there already"):
        backup.__exit__(None, None, None)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("b", "mine")]


def test_given_a_file_system_without_links_then_it_has_its_name_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_of: str, _name: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = written(tmp_path / "b")
    assert read_backup(path).items == ITEMS
    assert [one.name for one in tmp_path.iterdir()] == ["b"]


def test_given_a_failure_then_nothing_is_left(tmp_path: Path) -> None:
    def fails() -> None:
        with BackupWriter(tmp_path / "b", HEADER) as backup:
            backup.add(*ITEMS[0])
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_given_a_name_that_is_too_long_then_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageFailedError, match=r"cannot write .*: File name too long"):
        written(tmp_path / ("x" * 300))


def test_given_no_directory_then_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageFailedError, match=r"cannot write .*: No such file or directory"):
        written(tmp_path / "none" / "b")
