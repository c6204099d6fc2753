"""A KV that was restored from a backup: found out, nothing deleted, every partition elected anew
from what its replicas hold, and a recovery that outlives the SC."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from sc.kv import open_kv
from sc.kv.interface import KV, Put, range_all
from sc.store.codec import encode_tombstone
from schemas.control.messages import ReplicaRole, SpuRequest, Stamp, Tombstone
from schemas.ids import PartitionUid, make_term
from schemas.objects.keys import ClusterKeys
from schemas.objects.partition import LiveReplica, Partition
from tests.integration.sc.calls import call, online, register, secret_of
from tests.integration.sc.conftest import RunningSc, run_sc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu
from tests.unit.sc.builders import lrs_request_of

KEYS = ClusterKeys("test")
NOT_YET = ("not connected yet", None)


def mirrored(sc: RunningSc, name: str = "t-0") -> Partition:
    found = sc.controller.view.store.get(Partition, name)
    assert found is not None
    return found


async def backup(kv: KV) -> list[Put]:
    """What a backup holds: keys and values. Revisions of a restored store begin anew."""
    return [Put(i.key, i.value) async for page in range_all(kv, KEYS.root) for i in page.items]


@asynccontextmanager
async def restored(puts: list[Put], *, revision: int = 0) -> AsyncIterator[KV]:
    """A KV that holds a backup, at a revision of at least this one."""
    kv = await open_kv("memory:")
    for put in puts:
        await kv.txn([], [put])
    while await kv.revision() < revision:
        await kv.txn([], [Put("/elsewhere", b"")])
    try:
        yield kv
    finally:
        await kv.close()


class Past:
    """A cluster that was: SPU 1 led ``t-0`` with SPU 2 live when the backup was taken; since then
    SPU 2 has led alone, and holds more than SPU 1."""

    def __init__(self) -> None:
        self.spus: dict[int, SimulatedSpu] = {}
        self.backup: list[Put] = []
        self.revision = 0

    def spu(self, spu_id: int, sc: RunningSc) -> SimulatedSpu:
        """The SPU as it was left, started again."""
        before = self.spus.get(spu_id)
        spu = self.spus[spu_id] = SimulatedSpu(spu_id, sc.private)
        if before is not None:
            spu.held_secret = before.held_secret
            spu.cluster_uid, spu.replicas = before.cluster_uid, before.replicas
            spu.seen_revision, spu.seen_stamp = before.seen_revision, before.seen_stamp
        return spu

    async def happen(self, kv: KV) -> None:
        async with run_sc(kv) as sc, AsyncExitStack() as stack:
            for spu_id in (1, 2):
                await sc.create("Spu", f"spu-{spu_id}", {"spuId": spu_id})
            for spu_id in (1, 2):
                self.spu(spu_id, sc).held_secret = await secret_of(sc, spu_id)
            async with self.spu(1, sc) as one:
                two = await stack.enter_async_context(self.spu(2, sc))
                for spu_id in (1, 2):
                    await sc.until("spus", f"spu-{spu_id}", "online")
                rows = [{"id": 0, "replicas": [1, 2]}]
                await sc.create("Topic", "t", {"assignment": rows, "minInSyncReplicas": 1})
                await sc.until("partitions", "t-0", "online")
                uid = mirrored(sc).uid
                await eventually(lambda: sc.controller.view.report(2, uid) is not None)
                both = tuple(
                    LiveReplica(spu_id=s.spu_id, storage_id=s.replicas[uid].storage_id)
                    for s in (one, two)
                )
                assert one.session is not None
                await one.session.request(SpuRequest(lrs=(lrs_request_of(mirrored(sc), *both),)))
                await eventually(lambda: mirrored(sc).status.lrs == both)
                self.backup = await backup(kv)
            await eventually(lambda: mirrored(sc).status.leader == 2)
            await sc.until("partitions", "t-0", "online")
            term = two.replicas[uid].term
            self._wrote(one, uid, 10, make_term(0, 1, 1))
            self._wrote(two, uid, 8, term)
            self.revision = await kv.revision()

    @staticmethod
    def _wrote(spu: SimulatedSpu, uid: str, leo: int, last_term: int) -> None:
        log = {"leo": leo, "last_term": last_term}
        spu.replicas[uid] = spu.replicas[uid].model_copy(update=log)


@pytest.fixture
async def past(kv: KV) -> Past:
    happened = Past()
    await happened.happen(kv)
    return happened


@pytest.mark.parametrize(
    "ahead", [pytest.param(False, id="kv-behind"), pytest.param(True, id="kv-went-on-differently")]
)
async def test_given_restored_kv_then_all_are_asked_and_the_one_that_holds_most_leads(
    past: Past, ahead: bool
) -> None:
    revision = past.revision + 50 if ahead else 0
    async with restored(past.backup, revision=revision) as kv, run_sc(kv) as sc:
        before = mirrored(sc).status
        assert before.leader == 1
        async with past.spu(2, sc) as two:
            await eventually(lambda: sc.controller.view.recovering)
            await eventually(
                lambda: (mirrored(sc).status.reason or "").startswith(
                    "the KV was restored from a backup, all replicas are needed: SPU 1 is offline;"
                )
            )
            assert mirrored(sc).status.term == before.term
            uid = mirrored(sc).uid
            await eventually(lambda: two.replicas[uid].role is ReplicaRole.IDLE)
            _, cluster = await sc.call("GET", "/v1/cluster")
            assert cluster["recovering"] is True
            async with past.spu(1, sc):
                await sc.until("partitions", "t-0", "online")
                status = mirrored(sc).status
                assert (status.leader, status.term) == (2, make_term(1, 1))
                assert status.unclean_term == status.term
                assert [m.spu_id for m in status.lrs] == [2]
                await eventually(lambda: not sc.controller.view.recovering)
        identity = await kv.get(KEYS.identity)
        assert identity is not None
        assert json.loads(identity.value)["incarnation"] == 1
        assert "recovering" not in json.loads(identity.value)


async def test_given_recovery_then_nothing_is_deleted_before_it_is_over(past: Past) -> None:
    grave = Tombstone(uid=PartitionUid("6e7bc6b2-9a0e-4b43-8c5d-2f57cfb3a0d1"), spu_id=2)
    left = Put(KEYS.tombstone(2, grave.uid), encode_tombstone(grave))
    async with restored([*past.backup, left]) as kv, run_sc(kv) as sc, past.spu(2, sc) as two:
        await eventually(lambda: sc.controller.view.recovering)
        await sc.until("spus", "spu-2", "online")
        await sc.create("Topic", "u", {"partitions": 1})
        await sc.until("partitions", "u-0", "online")
        assert (await sc.call("DELETE", "/v1/topics/u"))[0] == 202
        waits = "it is deleted when the recovery of the cluster is over"
        await eventually(lambda: mirrored(sc, "u-0").status.reason == waits)
        assert two.deleted == []
        async with past.spu(1, sc):
            await sc.until_gone("topics", "u")
            await eventually(lambda: len(two.deleted) == 2)
        assert grave.uid in two.deleted
        assert not sc.controller.view.recovering


async def test_given_sc_restarted_in_a_recovery_then_the_next_one_goes_on(past: Past) -> None:
    async with restored(past.backup) as kv:
        async with run_sc(kv) as sc, past.spu(2, sc):
            await eventually(lambda: sc.controller.view.recovering)
        async with run_sc(kv) as sc:
            assert sc.controller.view.recovering
            async with past.spu(1, sc), past.spu(2, sc):
                await sc.until("partitions", "t-0", "online")
                assert mirrored(sc).status.term == make_term(1, 1)
                await eventually(lambda: not sc.controller.view.recovering)


async def cluster(sc: RunningSc) -> dict[str, Any]:
    return (await sc.call("GET", "/v1/cluster"))[1]


async def test_given_a_second_backup_restored_then_an_operator_decides(past: Past) -> None:
    """The backup is older than the first recovery, of which SPUs tell."""
    async with restored(past.backup) as kv, run_sc(kv) as sc, past.spu(1, sc), past.spu(2, sc):
        await sc.until("partitions", "t-0", "online")
    async with AsyncExitStack() as stack:
        kv = await stack.enter_async_context(restored(past.backup, revision=past.revision + 100))
        sc = await stack.enter_async_context(run_sc(kv))
        one, two = [await stack.enter_async_context(past.spu(spu, sc)) for spu in (1, 2)]
        await eventually(lambda: len(sc.controller.recoveries.divergent) == 2)
        await eventually(lambda: "runnel cluster recover --spu 1" in (one.link.trouble or ""))
        before = await cluster(sc)
        assert (before["office"]["incarnation"], before["recovering"]) == (0, False)
        assert [(d["spu"], d["incarnation"]) for d in before["divergent"]] == [(1, 2), (2, 2)]
        assert (one.session, two.session) == (None, None)
        answer = await call(sc, "POST", "/v1/cluster/recover", {"spu": 1}, by="ann")
        assert (answer[0], answer[1]["recovering"]) == (200, True)
        await sc.until("partitions", "t-0", "online")
        assert mirrored(sc).status.term == make_term(2, 1)
        await eventually(lambda: not sc.controller.view.recovering)
        after = await cluster(sc)
        assert (after["divergent"], after["recovery"]["by"]) == ([], "ann")
        assert "has seen incarnation 1, the KV is in 0" in after["recovery"]["why"]
        # It stays on record for the next SC.
        async with run_sc(kv) as next_sc:
            assert (await cluster(next_sc))["recovery"] == after["recovery"]


async def test_given_nobody_turned_away_then_no_operator_recovers(past: Past) -> None:
    async with restored(past.backup, revision=past.revision) as kv, run_sc(kv) as sc:
        status, answer = await sc.call("POST", "/v1/cluster/recover", {"spu": 1})
        assert (status, answer["code"]) == (409, "CONFLICT")
        assert (await cluster(sc))["office"]["incarnation"] == 0


async def test_given_forged_hellos_then_one_recovery_at_most_and_no_leap(kv: KV) -> None:
    """Somebody speaks as SPUs: as one that is connected, then as one that is not."""
    async with run_sc(kv) as sc, online(sc, 1):
        await register(sc, 2)
        secret = await secret_of(sc, 2)
        await eventually(lambda: 2 in sc.controller.connections.registered.values())
        generation = sc.controller.view.sessions[1].generation

        async def forge(spu_id: int, incarnation: int, secret: str | None = secret) -> str:
            forger = SimulatedSpu(spu_id, sc.private)
            forger.held_secret = secret
            forger.seen_stamp = Stamp(revision=1, office="x", incarnation=incarnation)
            forger.seen_revision = 10**12
            async with forger:
                await eventually(
                    lambda: forger.session is not None or forger.link.trouble not in NOT_YET
                )
                return forger.link.trouble or "welcome"

        assert (
            await forge(1, 0) == await forge(1, 65_000) == "another process is connected as SPU 1"
        )
        assert sc.controller.view.sessions[1].generation == generation
        assert "SPU 2 has not proven who it is" in await forge(2, 0, None)
        assert sc.controller.view.incarnation == 0
        # Even somebody who has stolen the secret cannot use all incarnations up.
        assert "would leap from incarnation 0 to 65001" in await forge(2, 65_000)
        assert sc.controller.view.sessions[1].generation == generation
        assert sc.controller.view.incarnation == 0
        assert await forge(2, 0) == "welcome"
        assert sc.controller.view.incarnation == 1
        await eventually(lambda: 1 in sc.controller.view.sessions)
        generation = sc.controller.view.sessions[1].generation
        for _ in range(3):
            assert "another recovery began" in await forge(2, 1)
        assert sc.controller.view.sessions[1].generation == generation
        assert (await cluster(sc))["office"]["incarnation"] == 1


async def test_given_topic_made_in_a_recovery_then_it_is_led_at_once(past: Past) -> None:
    async with restored(past.backup) as kv, run_sc(kv) as sc, past.spu(2, sc):
        await eventually(lambda: sc.controller.view.recovering)
        await sc.until("spus", "spu-2", "online")
        await sc.create("Topic", "u", {"partitions": 1})
        await sc.until("partitions", "u-0", "online")
        assert mirrored(sc, "u-0").status.term == make_term(1, 1)
        assert mirrored(sc).status.resolution.value == "offline"
        assert sc.controller.view.recovering
