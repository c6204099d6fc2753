"""An SPU behind its public port, and pauses that are over soon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.spu.served import Served, serve
from tests.unit.spu.builders import assignment_of, open_spu, settings_of


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPUs look around and ask again much sooner than real ones, for tests in which something
    waits for that and nothing is about when it happens."""
    monkeypatch.setattr("spu.host.host.TICK_S", 0.05)
    monkeypatch.setattr("spu.replica.runner.TICK_MS", 50)
    for module in ("leader", "unproven_leader", "attachments"):
        monkeypatch.setattr(f"spu.replication.{module}.RETRY_MS", 100)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """An SPU that leads the partition `UID`, all of it in one segment; offset 0 is its control
    record."""
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=64 << 20)))
    await spu.serve()
    async with serve(spu) as found:
        yield found
