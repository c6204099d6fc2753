"""Waiting in tests for something that other tasks or processes bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

INTERVAL_S = 0.01


async def eventually(
    condition: Callable[[], Awaitable[bool]] | Callable[[], bool], timeout_s: float = 15.0
) -> None:
    """Return once the condition holds; fail after ``timeout_s``."""
    async with asyncio.timeout(timeout_s):
        while True:
            found = condition()
            if (await found) if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(INTERVAL_S)
