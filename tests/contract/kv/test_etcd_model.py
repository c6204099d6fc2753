"""A real etcd against the simple model, under random calls; a new server for each example."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from sc.kv.interface import KV, Watch, WatchBatch
from schemas.errors import CompactedError

from .etcd_server import Member, keeps_compacted_deletions, require_client, require_etcd
from .store import DEADLINE_S
from .test_model import Machine, machine_case

require_client()

from sc.kv.etcd import EtcdKV, EtcdOptions  # noqa: E402 - after the check that it can be imported


class EtcdMachine(Machine):
    reopens = True
    virtual_time = False
    keeps_order = False
    # It is begun by the first read that something is expected of.
    watches_stand_at_the_present: ClassVar[bool] = False
    ttl_ms: ClassVar[int] = 600_000

    def __init__(self) -> None:
        self.member: Member | None = None
        super().__init__()

    async def open(self) -> KV:
        if self.member is None:
            self.member = Member(require_etcd(), self.directory)
            self.member.start()
            self.member.wait_healthy()
        return await EtcdKV.open(EtcdOptions(endpoints=(self.member.endpoint,)))

    async def drain(self, watch: Watch, expected: int) -> tuple[list[WatchBatch], bool]:
        # One too many would be told by the next read of this watch.
        batches: list[WatchBatch] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                # What may be told or not is not counted.
                while len(self.comparable(batches)) < expected:
                    batches.append(await anext(watch))
        except CompactedError:
            return batches, True
        return batches, False

    def teardown(self) -> None:
        self.run(self.kv.close())
        if self.member is not None:
            self.member.close()
        super().teardown()


@pytest.fixture(autouse=True, scope="module")
def binary() -> None:
    EtcdMachine.keeps_compacted_deletions = keeps_compacted_deletions(require_etcd())


TestEtcdAgainstModel = machine_case(EtcdMachine, 12)
