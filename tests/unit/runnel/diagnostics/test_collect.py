"""Collecting when there is no SC, or none that leads, and no working directory."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runnel.admin.http import ScClient
from runnel.diagnostics.archive import open_archive
from runnel.diagnostics.collect import Source, collect
from runnel.diagnostics.redaction import Redactor
from runnel.net.address import Address, parse_address
from tests.ports import free_ports
from tests.unit.runnel.fake_sc import FakeSc


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
    assert answered.away == [f"SC 127.0.0.1:{port}"]
    with tarfile.open(file) as tar:
        member = tar.extractfile("a/host.json")
        assert member is not None
        (disk,) = json.loads(member.read())["disks"]
    assert disk["directory"] == str(tmp_path)


@pytest.mark.parametrize(("leads", "waits"), [(True, True), (False, False)])
async def test_given_no_sc_that_leads_then_no_question_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads: bool, waits: bool
) -> None:
    """There are hundreds of them."""
    patience: list[float] = []

    async def statistics(client: ScClient) -> dict[str, object]:
        patience.append(client.not_ready_s)
        return {}

    monkeypatch.setattr("runnel.diagnostics.collect._statistics", statistics)
    monkeypatch.setattr("runnel.admin.calls.NOT_READY_S", 0.1)
    sc = FakeSc()
    sc.leads = leads
    await sc.start()
    source = Source((parse_address(sc.address),), "test", _check)
    with open_archive(tmp_path / "a.tar.gz", Redactor(), datetime.now(UTC)) as archive:
        answered = await collect(source, archive, lambda _: None)
    await sc.stop()
    assert ([one > 0 for one in patience], answered.away) == ([waits], [])


async def test_given_one_of_two_scs_then_the_other_is_named_as_away(tmp_path: Path) -> None:
    sc = FakeSc()
    await sc.start()
    gone = Address("127.0.0.1", *free_ports(1))
    source = Source((gone, parse_address(sc.address)), "test", _check)
    with open_archive(tmp_path / "a.tar.gz", Redactor(), datetime.now(UTC)) as archive:
        answered = await collect(source, archive, lambda _: None)
    await sc.stop()
    assert answered.away == [f"SC {gone}"]
