"""What tests of replicas share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.spu.builders import Spu, assignment_of, open_spu


@pytest.fixture
async def spu(tmp_path: Path) -> AsyncIterator[Spu]:
    """An SPU that is assigned the partition `UID`, and does not lead it yet."""
    opened = await open_spu(tmp_path / "spu", assignment_of())
    yield opened
    await opened.host.close()
