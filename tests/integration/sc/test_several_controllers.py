"""Several SCs over one KV: one leads, the others stand by, and no client notices who leads."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from urllib.parse import quote

import pytest

from sc.controller import Controller
from sc.controllers.actions import ProvisionAction, WriteStatus
from sc.dispatch.changes import ChangeFeed
from sc.dispatch.fences import LeaderFence
from sc.dispatch.kv_updater import KvUpdater
from sc.kv.interface import KV, ModRevisionIs, Put
from sc.provisioning import Provisioner
from sc.store.view import Provisioning
from schemas.errors import ConflictError, FencedError, UnreachableError
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic
from tests.integration.sc.conftest import manifest
from tests.integration.sc.linked_spu import LinkedSpu
from tests.integration.sc.several import (
    LEASE_MS,
    RunningNode,
    leader_of,
    make_stale,
    others,
    running_node,
)
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu

pytestmark = pytest.mark.timeout(60)


async def offices(kv: KV, node: RunningNode) -> int:
    return len((await kv.range(node.mirror.keys.office(""))).items)


async def test_given_three_then_one_leads_and_each_knows_all(nodes: list[RunningNode]) -> None:
    leader = await leader_of(nodes)
    names = sorted(one.name for one in nodes)
    for one in nodes:
        await eventually(lambda one=one: len(one.mirror.controllers) == 3)
        _, found = await one.call("GET", "/v1/controllers")
        assert [item["name"] for item in found["items"]] == names
        roles = {item["name"]: item["role"] for item in found["items"]}
        assert roles == dict.fromkeys(names, "standby") | {leader.name: "leader"}
        status, health = await one.call("GET", "/health")
        assert (status, health["role"]) == (200, roles[one.name])
        assert (await one.call("GET", "/health?role=leader"))[0] == (200 if one is leader else 503)


async def test_given_an_sc_that_is_about_to_lead_then_it_is_not_healthy_until_it_does(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it shows of SPUs is what its predecessor wrote, and nobody would correct it."""
    go_on = asyncio.Event()
    begin = Controller.begin

    async def slow(controller: Controller) -> None:
        await go_on.wait()
        await begin(controller)

    monkeypatch.setattr(Controller, "begin", slow)
    async with running_node(kv) as one:
        await eventually(lambda: one.mirror.leader_entry is not None)
        status, error = await one.call("GET", "/health")
        assert (status, error["code"]) == (503, "NOT_READY")
        assert "no SC leads yet" in error["message"]
        go_on.set()

        async def healthy() -> bool:
            return (await one.call("GET", "/health"))[0] == 200

        await eventually(healthy)


async def test_given_the_leader_dies_then_another_one_leads_and_spus_go_there(
    nodes: list[RunningNode], kv: KV
) -> None:
    leader = await leader_of(nodes)
    await leader.call("POST", "/v1/spus", manifest("Spu", "spu-1", {"spuId": 1}))
    await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
    spu = LinkedSpu(1, [*others(nodes, leader), leader])
    async with spu:
        await eventually(lambda: _term(leader, "t-0") is not None)
        term = _term(leader, "t-0")
        before = await offices(kv, leader)
        await leader.die()
        remaining = others(nodes, leader)
        successor = await leader_of(remaining)
        await eventually(lambda: 1 in successor.controller.view.sessions)
        await eventually(
            lambda: successor.mirror.store.get(Spu, "spu-1").status.resolution == "online"  # type: ignore[union-attr]
        )
        assert _term(successor, "t-0") == term, "nobody was elected because of it"
        assert await offices(kv, successor) == before + 1


async def test_given_scs_that_started_during_its_session_then_an_spu_goes_there(kv: KV) -> None:
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(running_node(kv))
        await leader_of([leader])
        await leader.call("POST", "/v1/spus", manifest("Spu", "spu-1", {"spuId": 1}))
        spu = await stack.enter_async_context(SimulatedSpu(1, leader.private))
        await eventually(lambda: 1 in leader.controller.view.sessions)
        later = [await stack.enter_async_context(running_node(kv)) for _ in range(2)]
        await eventually(lambda: {one.private for one in later} <= {*spu.heard})
        await leader.die()
        successor = await leader_of(later)
        await eventually(lambda: 1 in successor.controller.view.sessions)


def _term(node: RunningNode, name: str) -> int | None:
    found = node.mirror.store.get(Partition, name)
    return found.status.term if found is not None and found.status.resolution == "online" else None


async def test_given_a_step_down_then_another_one_leads_at_once(nodes: list[RunningNode]) -> None:
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    await eventually(lambda: len(leader.mirror.controllers) == 3)
    async with asyncio.timeout(LEASE_MS / 1000 * 3):
        assert (await standby.call("POST", "/v1/controllers/step-down"))[0] == 200
        await eventually(lambda: not leader.leads)
        successor = await leader_of(nodes)
    assert successor is not leader
    assert not leader.work.done()
    status, error = await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
    assert status == 201, error


async def test_given_a_step_down_of_one_that_leads_no_more_then_its_successor_leads_on(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    await eventually(lambda: len(leader.mirror.controllers) == 3)
    before = leader.controller
    path = f"/v1/controllers/step-down?leader={quote(standby.name)}"
    for asked in (leader, standby):
        status, found = await asked.call("POST", path)
        (leads,) = [one["name"] for one in found["items"] if one["role"] == "leader"]
        assert (status, leads) == (200, leader.name)
    assert leader.controller is before
    path = f"/v1/controllers/step-down?leader={quote(leader.name)}"
    assert (await standby.call("POST", path))[0] == 200
    await eventually(lambda: not leader.leads)


class StoppingSpus(Provisioner):
    """Takes long to stop what runs."""

    def __init__(self) -> None:
        self.ended = 0
        self.closing = False
        self.stopped = asyncio.Event()

    @property
    def provisioning(self) -> Provisioning:
        return Provisioning(3, {}, frozenset(), frozenset(), ("/",), "/spus")

    def carry_out(self, action: ProvisionAction) -> None:
        raise AssertionError(action)

    async def adopt(self) -> None:
        return

    def end(self) -> None:
        self.ended += 1

    async def close(self) -> None:
        self.closing = True
        await self.stopped.wait()


async def test_given_spus_that_are_being_stopped_then_a_step_down_does_not_wait_for_them(
    kv: KV,
) -> None:
    stopping = StoppingSpus()
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(
            running_node(kv, lease_ms=60_000, provisioner=lambda *_: stopping)
        )
        await leader_of([old])
        other = await stack.enter_async_context(running_node(kv, lease_ms=60_000))
        await eventually(lambda: len(old.mirror.controllers) == 2)
        old.node.step_down()
        try:
            await eventually(lambda: other.leads and stopping.closing)
        finally:
            stopping.stopped.set()
        assert stopping.ended == 1


async def test_given_a_leadership_that_is_given_up_as_it_begins_then_it_is_not_shown(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, given_up, shown = Controller.begin, list[Controller](), list[Controller]()

    async def begin_late(controller: Controller) -> None:
        await begin(controller)
        if not given_up:
            given_up.append(controller)
            controller.end("as when the lease is lost")

    run = Controller.run

    async def run_and_show(controller: Controller) -> None:
        shown.append(controller)
        await run(controller)

    monkeypatch.setattr(Controller, "begin", begin_late)
    monkeypatch.setattr(Controller, "run", run_and_show)
    async with running_node(kv) as only:
        await leader_of([only])
        assert given_up
        assert shown == [only.controller]
        assert only.controller is not given_up[0]


async def test_given_a_task_that_does_not_end_then_the_sc_says_so_and_leads_again_without_it(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.election.node.LOOK_S", 0.02)
    monkeypatch.setattr("sc.election.node.END_S", 0.02, raising=False)
    said, over = list[str](), asyncio.Event()
    watch_own_lag = Controller._watch_own_lag

    async def hangs(_: Controller) -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    monkeypatch.setattr(Controller, "_watch_own_lag", hangs)
    async with running_node(kv) as only:
        await leader_of([only])
        first = only.controller
        monkeypatch.setattr(Controller, "_watch_own_lag", watch_own_lag)
        monkeypatch.setattr("sc.election.node.log.error", lambda text, **_: said.append(text))
        first.end("as when the lease is lost")
        try:
            await eventually(lambda: only.leads and only.controller is not first)
            assert len(said) > 1
            assert said[0] == "what worked for a leadership that is over does not end"
            assert not first.leads
        finally:
            over.set()


async def test_given_a_mirror_that_does_not_show_its_election_then_others_get_their_turn(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lags(_feed: ChangeFeed, revision: int) -> None:
        raise UnreachableError(f"revision {revision} does not show")

    monkeypatch.setattr(ChangeFeed, "applied", lags)
    async with running_node(kv) as one:
        await eventually(lambda: one.node._turns.not_before_ms > one.mirror.clock_ms())
        monkeypatch.undo()
        await leader_of([one])


async def test_given_one_alone_then_it_does_not_step_down(kv: KV) -> None:
    async with running_node(kv) as only:
        await leader_of([only])
        status, error = await only.call("POST", "/v1/controllers/step-down")
        assert (status, error["code"]) == (409, "CONFLICT")
        assert "start another one first" in error["message"]
        assert only.leads


async def test_given_another_lease_than_the_one_it_was_elected_with_then_it_does_not_lead(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    old, keeper = leader.controller, leader.node.keeper
    assert old.leads
    keeper.lease += 1
    assert keeper.holds()
    assert not old.leads


async def test_given_one_that_was_stopped_and_goes_on_then_it_says_and_writes_nothing(
    nodes: list[RunningNode], kv: KV
) -> None:
    leader = await leader_of(nodes)
    await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
    old = leader.controller
    # Its lease has ended in the KV as well.
    await kv.lease_revoke(leader.node.keeper.lease)
    leader.jump(LEASE_MS)
    with pytest.raises(Exception, match="lease of this SC has ended"):
        await old._send(1, None)  # type: ignore[arg-type]
    assert not old.leads
    topic = leader.mirror.store.get(Topic, "t")
    assert topic is not None
    updater = KvUpdater(
        leader.mirror.kv,
        leader.mirror.keys,
        LeaderFence(leader.mirror.keys, lambda: old.leadership),
    )
    with pytest.raises(FencedError):
        await updater.carry_out(WriteStatus(topic, topic.status))
    await leader_of(nodes)


async def test_given_an_earlier_process_of_the_same_name_then_its_office_is_taken_at_once(
    kv: KV,
) -> None:
    async with running_node(kv, lease_ms=60_000) as first:
        await leader_of([first])
        me = first.mirror.leader_entry
        assert me is not None
        await first.die()
        async with running_node(kv, lease_ms=60_000) as again:
            # The same name: a process at the same address.
            again.node._me, again.name = me.model_copy(update={"instance": "again"}), me.name
            again.node._predecessor = me.instance
            await leader_of([again])


async def test_given_an_older_sc_without_a_lease_then_it_is_noticed(kv: KV) -> None:
    async with running_node(kv, lease_ms=60_000) as one:
        await leader_of([one])
        old = one.controller
        keys = one.mirror.keys
        await kv.txn([], [Put(keys.current_office, b"older"), Put(keys.office("older"), b"")])
        await eventually(lambda: not old.leads)
        # It lets go, and stands again: the older one finds another leader.
        await eventually(lambda: one.node.controller not in (None, old))
        await leader_of([one])
        # Nothing of a leadership survives it: the mirror wakes nobody there.
        assert (await one.call("POST", "/v1/topics", manifest("Topic", "t", {})))[0] == 201
        assert len(old.queue) == 0
        office = await kv.get(keys.current_office)
        assert office is not None
        assert office.value != b"older"
        result = await kv.txn([ModRevisionIs(keys.current_office, office.mod_revision)], [])
        assert result.succeeded


async def test_given_a_mirror_that_may_have_missed_too_much_then_another_one_is_asked(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    standby, other = others(nodes, leader)
    await eventually(lambda: len(standby.mirror.controllers) == 3)
    await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
    make_stale(standby)
    standby.mirror.store.remove("Topic", "t")
    assert (await standby.call("GET", "/v1/topics/t"))[0] == 200, "by one that knows it"
    # Nobody is asked in a circle, and the one that is asked says how it is.
    passed_on = {"X-Runnel-Via": "sc"}
    for path in ("/v1/topics", "/v1/assignments?topic=t", "/v1/topics?watch=true"):
        status, error = await standby.call("GET", path, **passed_on)
        assert (status, error["code"]) == (503, "NOT_READY")
    status, error = await standby.call("GET", "/health")
    assert (status, error["details"]["role"]) == (503, "standby")
    # What it passes on to the leader needs no mirror.
    assert (await standby.call("GET", "/v1/cluster"))[0] == 200
    await other.die()


async def test_given_another_sc_takes_its_name_then_it_ends_and_says_so(kv: KV) -> None:
    async with running_node(kv) as one:
        await leader_of([one])
        me = one.node._me
        await eventually(lambda: me.name in one.mirror.controllers)
        # Its entry is seen before another one takes its place.
        await asyncio.sleep(0.5)
        other = me.model_copy(update={"instance": "other", "private": "10.0.0.9:9004"})
        key = one.mirror.keys.sc(me.name)
        await kv.txn([], [Put(key, other.model_dump_json(by_alias=True).encode())])
        with pytest.raises(ExceptionGroup) as ended:
            async with asyncio.timeout(10):
                await asyncio.shield(one.work)
        assert ended.group_contains(ConflictError, match="at 10.0.0.9:9004, since")
