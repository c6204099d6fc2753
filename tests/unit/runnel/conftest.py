"""A cluster of one fake SC and one fake SPU, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from runnel import aio
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeLog, FakeSpu
from tests.unit.runnel.served import Served, serve


@dataclass
class World:
    sc: FakeSc
    spu: FakeSpu
    cluster: aio.Cluster

    def log(self, topic: str = "orders", index: int = 0) -> FakeLog:
        return self.spu.logs[self.sc.uids[topic][index]]


@pytest.fixture
async def servers() -> AsyncIterator[tuple[FakeSc, FakeSpu]]:
    sc, spu = FakeSc(), FakeSpu()
    await spu.start()
    sc.endpoints = [("127.0.0.1", spu.port)]
    await sc.start()
    yield sc, spu
    await spu.stop()
    await sc.stop()


@pytest.fixture
async def world(servers: tuple[FakeSc, FakeSpu]) -> AsyncIterator[World]:
    sc, spu = servers
    async with aio.connect(sc.address) as cluster:
        yield World(sc, spu, cluster)


@pytest.fixture
def served() -> Iterator[Served]:
    with serve() as found:
        yield found
