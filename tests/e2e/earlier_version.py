"""The version before this one, as its users have it: its wheel in an environment of its own.

It is the last release that this tree follows; before there is a release, the commit `PINNED`. The
wheel is built of that commit by the build backend of that commit, and its dependencies are those of
the environment that runs this, so nothing is downloaded.

To move the pin, put the full hash of a commit of the main branch here and run
``tests/e2e/test_version_skew.py``. Move it only when an older version is no longer promised to work
with this one: `docs/reference/versioning.md` says which versions are.
"""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source import ROOT
from tests.e2e.installed_wheel import build_wheel, install

#: SPUs that tell no statistics, and daemons that keep no log lines.
PINNED: Final = "653bade4806d20c7b79e7cc014c809f7135343eb"
RELEASES: Final = "v[0-9]*"
_GIT_S: Final = 60


def earlier_version() -> str:
    """The tag of the last release before this tree, or the pinned commit.

    Skips where the sources are not a clone with that commit; `.ci/run` says so once more.
    """
    inside = _git("rev-parse", "--is-inside-work-tree")
    if inside.returncode:
        pytest.skip(f"no earlier version to test with: git says {inside.stderr.decode().strip()}")
    tag = _git("describe", "--tags", "--abbrev=0", "--match", RELEASES, "HEAD^")
    commit = PINNED if tag.returncode else tag.stdout.decode().strip()
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode:
        pytest.skip(
            f"no earlier version to test with: this clone lacks the commit {commit}; "
            "run: git fetch --unshallow --tags"
        )
    return commit


def install_earlier_version(directory: Path) -> Path:
    """The interpreter of a new environment below ``directory`` with the earlier version."""
    commit = earlier_version()
    archive = directory / "sources.tar"
    written = _git("archive", "--output", str(archive), commit)
    assert written.returncode == 0, written.stderr.decode()
    with tarfile.open(archive) as sources:
        sources.extractall(directory / "sources", filter="data")
    archive.unlink()
    return install(
        build_wheel(directory / "sources", directory / "wheel"), directory / "environment"
    )


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, timeout=_GIT_S, check=False
    )
