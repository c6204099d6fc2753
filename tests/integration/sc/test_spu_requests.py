"""What SPUs ask of a whole controller: where others listen, and another live replica set."""

from __future__ import annotations

from schemas.control.messages import FindPeers, Peer, Peers, SpuRequest
from schemas.ids import next_election
from schemas.objects.partition import LiveReplica, Partition
from tests.integration.sc.calls import register
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu
from tests.unit.sc.builders import lrs_request_of


class LeadingSpu(SimulatedSpu):
    """One that asks for what a test has it ask for."""

    async def ask(self, ask: SpuRequest | FindPeers) -> None:
        assert self.session is not None
        await self.session.request(ask)


async def test_given_question_for_peers_then_told_where_the_registered_ones_listen(
    sc: RunningSc,
) -> None:
    await register(sc, 1)
    endpoint = {"host": "spu-2.example", "port": 19_006}
    await sc.create("Spu", "spu-2", {"spuId": 2, "privateEndpoint": endpoint})
    async with LeadingSpu(1, sc.private) as spu:
        await sc.until("spus", "spu-1", "online")
        await spu.ask(FindPeers(spu_ids=(2, 7)))
        told = Peers(peers=(Peer(spu_id=2, host="spu-2.example", port=19_006),))
        await eventually(lambda: spu.peers == [told])
        await sc.create(
            "Spu", "spu-3", {"spuId": 3, "publicEndpoint": {"ingress": [{"ip": "10.0.0.3"}]}}
        )
        await spu.ask(FindPeers(spu_ids=(3,)))
        there = Peers(peers=(Peer(spu_id=3, host="10.0.0.3", port=9006),))
        await eventually(lambda: spu.peers == [told, there])
        await spu.ask(FindPeers(spu_ids=(7,)))
        await eventually(lambda: spu.peers == [told, there, Peers(peers=())])


async def test_given_leader_that_asks_then_its_follower_is_live_and_leads_after_it(
    sc: RunningSc,
) -> None:
    def mirrored() -> Partition:
        found = sc.controller.view.store.get(Partition, "t-0")
        assert found is not None
        return found

    def member(spu: SimulatedSpu) -> LiveReplica:
        storage = spu.replicas[mirrored().uid].storage_id
        return LiveReplica(spu_id=spu.spu_id, storage_id=storage)

    await register(sc, 1, 2)
    async with LeadingSpu(2, sc.private) as follower:
        async with LeadingSpu(1, sc.private) as leader:
            for spu_id in (1, 2):
                await sc.until("spus", f"spu-{spu_id}", "online")
            await sc.create("Topic", "t", {"assignment": [{"id": 0, "replicas": [1, 2]}]})
            alone = await sc.until("partitions", "t-0", "online")
            assert alone.status.lrs == (member(leader),)
            await eventually(lambda: mirrored().uid in follower.replicas)
            await eventually(lambda: sc.controller.view.report(2, mirrored().uid) is not None)
            grown = (member(leader), member(follower))
            await leader.ask(SpuRequest(lrs=(lrs_request_of(mirrored(), *grown),)))
            await eventually(lambda: mirrored().status.lrs == grown)
            assert mirrored().status.reason is None
            before = mirrored().revision
            await leader.ask(SpuRequest(lrs=(lrs_request_of(mirrored(), member(follower)),)))
            await eventually(lambda: mirrored().revision > before)
            assert mirrored().status.lrs == grown
            refusal = "turned down: SPU 1 leads: only an election may remove it"
            assert mirrored().status.reason == refusal
        await eventually(lambda: mirrored().status.leader == 2)
        await sc.until("partitions", "t-0", "online")
        assert mirrored().status.lrs == (member(follower),)
        assert mirrored().status.term == next_election(alone.status.term)
