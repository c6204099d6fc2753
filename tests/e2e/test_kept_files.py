"""Files of an earlier version: a cluster of today opens them, and finds what was written."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.e2e.conftest import Command
from tests.fixtures.make_data_directory import SPUS, snapshot
from tests.ports import free_base_port

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "data_directory.tar.xz"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_given_files_of_an_earlier_version_then_all_of_it_is_read_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    command = Command(home)
    base = free_base_port(home / "local", SPUS)
    try:
        command("cluster", "start", "--base-port", str(base))
        assert snapshot(command) == json.loads((home / "expected.json").read_text())
        command("produce", "copied", stdin="of today\n")
        assert "of today" in command("consume", "copied", "--name", "billing", "--no-follow")
    finally:
        command.run("cluster", "stop")
