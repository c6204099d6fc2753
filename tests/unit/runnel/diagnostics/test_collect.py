"""Collecting when there is neither an SC nor a working directory."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runnel.diagnostics.archive import open_archive
from runnel.diagnostics.collect import Source, collect
from runnel.diagnostics.redaction import Redactor
from runnel.net.address import Address
from tests.ports import free_ports


async def _check() -> Sequence[Mapping[str, str]]:
    return []


def test_given_a_working_directory_that_was_deleted_then_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    (port,) = free_ports(1)
    source = Source((Address("127.0.0.1", port),), "test", _check, directories=[tmp_path])
    file = tmp_path / "a.tar.gz"
    with open_archive(file, Redactor(), datetime.now(UTC)) as archive:
        answered = asyncio.run(collect(source, archive, lambda _: None))
    assert answered.away == ["sc"]
    with tarfile.open(file) as tar:
        member = tar.extractfile("a/host.json")
        assert member is not None
        (disk,) = json.loads(member.read())["disks"]
    assert disk["directory"] == str(tmp_path)
