"""The archive: bounded, without secrets, complete or not there."""

from __future__ import annotations

import json
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runnel.diagnostics import archive as archives
from runnel.diagnostics.archive import open_archive, shortened
from runnel.diagnostics.contents import CONTENTS, safe_name
from runnel.diagnostics.redaction import Redactor
from schemas.errors import ConflictError, InvalidRequestError, RunnelError

AT = datetime(2026, 11, 23, 22, 30, tzinfo=UTC)


def unpacked(file: Path) -> dict[str, str]:
    """The texts of an archive by their paths."""
    with tarfile.open(file) as tar:
        found = {}
        for member in tar.getmembers():
            folder, _, path = member.name.partition("/")
            assert folder == file.name.removesuffix(".tar.gz")
            assert member.mode == 0o600
            stream = tar.extractfile(member)
            assert stream is not None
            found[path] = stream.read().decode()
        return found


def test_given_texts_then_the_archive_has_them_with_a_manifest_and_a_readme(tmp_path: Path) -> None:
    file = tmp_path / "found.tar.gz"
    with open_archive(file, Redactor(["sesame"]), AT) as archive:
        archive.add("host.json", "open sesame\n")
        archive.add_json("check.json", {"password": "x", "result": "ok"})
        archive.miss("logs.jsonl", "spu-1 does not answer to sesame")
    found = unpacked(file)
    assert found["host.json"] == "open ***\n"
    assert json.loads(found["check.json"]) == {"password": "***", "result": "ok"}
    manifest = json.loads(found["manifest.json"])
    assert manifest["missing"] == {"logs.jsonl": "spu-1 does not answer to ***"}
    assert [(one["path"], one["cut_bytes"]) for one in manifest["files"]] == [
        ("host.json", 0),
        ("check.json", 0),
    ]
    assert manifest["secretsRemoved"] == 3
    for path in CONTENTS:
        assert f"| `{path}` |" in found["README.md"]
    assert "- `logs.jsonl`: spu-1 does not answer to ***\n" in found["README.md"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_given_nothing_is_missing_then_the_readme_says_so(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.tar.gz", Redactor(), AT):
        pass
    assert unpacked(tmp_path / "a.tar.gz")["README.md"].endswith("missing\n\nNothing.\n")


def test_given_a_long_text_then_its_beginning_and_its_end_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 1_000)
    with open_archive(tmp_path / "a.tar.gz", Redactor(), AT) as archive:
        archive.add("x", "first\n" + "m\n" * 5_000 + "last\n")
    found = unpacked(tmp_path / "a.tar.gz")
    assert found["x"].startswith("first\n")
    assert found["x"].endswith("last\n")
    assert "[… 9,011 bytes were left out here …]" in found["x"]
    assert "- `x`: too long; its middle was left out" in found["README.md"]


def test_given_a_full_archive_then_further_files_are_named_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 10)
    with open_archive(tmp_path / "a.tar.gz", Redactor(), AT) as archive:
        archive.add("a", "12345678")
        archive.add("b", "12345678")
        archive.add("c", "12")
    found = unpacked(tmp_path / "a.tar.gz")
    assert sorted(found) == ["README.md", "a", "c", "manifest.json"]
    assert "the archive is full" in json.loads(found["manifest.json"])["missing"]["b"]


def test_given_a_failure_then_no_file_is_left(tmp_path: Path) -> None:
    def interrupted() -> None:
        with open_archive(tmp_path / "a.tar.gz", Redactor(), AT) as archive:
            archive.add("x", "y")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_given_a_file_of_this_name_then_it_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    file.write_text("mine")
    with pytest.raises(ConflictError, match=r"exists already; name another file with -o"):
        open_archive(file, Redactor(), AT).__enter__()
    assert file.read_text() == "mine"


def test_given_two_at_once_then_one_archive_and_a_conflict(tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    later = open_archive(file, Redactor(), AT)
    later.__enter__().add("who", "later")
    with open_archive(file, Redactor(), AT) as first:
        first.add("who", "first")
    with pytest.raises(ConflictError, match="exists already"):
        later.__exit__(None, None, None)
    with tarfile.open(file) as tar:
        member = tar.extractfile("a/who")
        assert member is not None
        assert member.read() == b"first"
    assert list(tmp_path.iterdir()) == [file]


def test_given_a_file_system_without_links_then_the_archive_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    file = tmp_path / "a.tar.gz"
    with open_archive(file, Redactor(), AT):
        pass
    assert list(tmp_path.iterdir()) == [file]


def test_given_no_such_directory_then_it_says_so(tmp_path: Path) -> None:
    file = tmp_path / "none" / "a.tar.gz"
    with pytest.raises(InvalidRequestError, match="cannot be made: No such file or directory"):
        open_archive(file, Redactor(), AT).__enter__()


def test_given_no_file_but_standard_output_then_it_asks_for_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match=r"-o -: the archive needs a file; name one"):
        open_archive(Path("-"), Redactor(), AT).__enter__()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("lines", [1, 20_000], ids=["at-the-end", "in-between"])
def test_given_a_full_disk_then_it_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    def full(*_: object) -> tuple[int, str]:
        return os.open("/dev/full", os.O_WRONLY), str(tmp_path / "partial")

    monkeypatch.setattr("tempfile.mkstemp", full)
    file = tmp_path / "a.tar.gz"
    with (
        pytest.raises(RunnelError, match=f"{file} cannot be written: No space left on device; "),
        open_archive(file, Redactor(), AT) as archive,
    ):
        archive.add("x", "".join(f"{os.urandom(8).hex()}\n" for _ in range(lines)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 5_000])
def test_shortened_loses_exactly_what_it_says(size: int) -> None:
    data = bytes(n % 251 for n in range(size))
    kept, cut = shortened(data, 100)
    note = kept[25:-75] if cut else b""
    assert len(kept) - len(note) + cut == size


@pytest.mark.parametrize(
    ("text", "name"),
    [("spu-0", "spu-0"), ("../etc/x", "_etc_x"), ("[::1]:9003", "_1_9003"), ("..", "_")],
)
def test_names_of_files_leave_no_directory(text: str, name: str) -> None:
    assert safe_name(text) == name
