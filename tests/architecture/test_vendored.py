"""What of others the dashboard serves: as published, with its licence, and nothing else."""

from __future__ import annotations

import hashlib
import re
import tomllib

import pytest

from tests.architecture.source import ROOT

STATIC = ROOT / "dashboard" / "static"
VENDOR = STATIC / "vendor"
LIBRARIES = tomllib.loads((VENDOR / "VENDORED.toml").read_text())["library"]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: str(library["name"]))
def test_files_are_those_that_were_published(library: dict[str, dict[str, str]]) -> None:
    for name, checksum in library["files"].items():
        assert f"sha256:{hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()}" == checksum


def test_every_file_is_named() -> None:
    named = {"VENDORED.toml"}
    for library in LIBRARIES:
        named |= {*library["files"], library["license_file"]}
        named |= set(library.get("other_license_files", ()))
        assert library["version"]
        assert library["license"]
    assert {path.name for path in VENDOR.iterdir()} == named


def test_no_page_or_script_names_another_host() -> None:
    ours = [path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents]
    assert ours
    for path in ours:
        found = re.findall(r"https?://[^\s\"'`$]+|//[a-z0-9-]+\.[a-z]{2,}", path.read_text())
        assert set(found) <= {"http://www.w3.org/2000/svg"}, path
