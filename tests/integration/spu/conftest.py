"""What tests of the public port share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.spu.served import Served, serve
from tests.unit.spu.builders import assignment_of, open_spu, settings_of


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """An SPU that leads the partition `UID`, all of it in one segment; offset 0 is its control
    record."""
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=64 << 20)))
    await spu.serve()
    async with serve(spu) as found:
        yield found
