"""A memory KV for the parts of the loop that touch one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sc.kv import open_kv
from sc.kv.interface import KV


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    yield store
    await store.close()
