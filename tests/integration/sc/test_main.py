"""The daemon as `sc.main` assembles it: what its configuration says holds at its ports."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sc.config import Limits, PrivateLimits, ScConfig
from sc.main import serve
from schemas.daemon.daemon import Listen
from tests.polling import eventually
from tests.ports import free_ports


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A daemon tunes the collector of its process: this one has other tests to run."""
    callbacks, thresholds = list(gc.callbacks), gc.get_threshold()
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_given_limits_of_the_private_port_then_they_hold() -> None:
    public, private = free_ports(2)
    config = ScConfig(
        kv="memory:",
        public=Listen(port=public),
        private=Listen(port=private),
        limits=Limits(private=PrivateLimits(waiting_connections_per_address=1)),
    )
    daemon = asyncio.create_task(serve(config))
    try:
        first: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def connected() -> bool:
            with suppress(OSError):
                first.append(await asyncio.open_connection("127.0.0.1", private))
            return bool(first)

        await eventually(connected)
        (oldest, writer) = first[0]
        _reader, newest = await asyncio.open_connection("127.0.0.1", private)
        async with asyncio.timeout(5):
            with suppress(ConnectionError):
                assert await oldest.read(1) == b""
        writer.close()
        newest.close()
    finally:
        daemon.cancel()
        await asyncio.gather(daemon, return_exceptions=True)
