"""A fake SC and a fake SPU that serve from a thread of their own, for blocking clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runnel.loop_thread import LoopThread
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeSpu


@dataclass
class Served:
    sc: FakeSc
    spu: FakeSpu


@contextmanager
def serve() -> Iterator[Served]:
    """Serve until the end of the block."""
    thread = LoopThread("servers")

    async def start() -> Served:
        found = Served(FakeSc(), FakeSpu())
        await found.spu.start()
        found.sc.endpoints = [("127.0.0.1", found.spu.port)]
        await found.sc.start()
        return found

    async def stop(found: Served) -> None:
        await found.spu.stop()
        await found.sc.stop()

    found = thread.call(start())
    yield found
    thread.call(stop(found))
    thread.stop()
