"""Two SPUs that listen."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.spu.net.spus import Spu, close, listening


@pytest.fixture
async def zero() -> AsyncIterator[Spu]:
    spu = await listening(0)
    yield spu
    await close(spu)


@pytest.fixture
async def one() -> AsyncIterator[Spu]:
    spu = await listening(1)
    yield spu
    await close(spu)
