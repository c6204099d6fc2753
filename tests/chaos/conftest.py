"""A cluster of processes, for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.replication.spus import Fleet
from tests.e2e.conftest import Command


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(Command(tmp_path / "home"))
    fleet.home.mkdir(parents=True)
    yield fleet
    fleet.stop()
