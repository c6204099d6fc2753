"""SPU sessions over real sockets: who is let in, who is turned away, and how sessions end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from connection_manager.client import ControllerLink
from connection_manager.manager import ClusterIdentity, ConnectionManager, start_private_server
from sc.controller import Controller
from sc.kv.interface import KV, Put
from sc.office import take_office
from sc.store.codec import encode_object
from schemas.errors import ConflictError, FencedError, RunnelError, UnreachableError
from schemas.ids import next_election
from schemas.keys import ClusterKeys
from schemas.messages import (
    Ask,
    AssignPartitions,
    Envelope,
    FindPeers,
    Heartbeat,
    Hello,
    Message,
    Peers,
    Reject,
    Reply,
    Report,
    Stamp,
    Welcome,
    decode_envelope,
)
from schemas.messages import (
    Peer as PeerAddress,
)
from schemas.partition import LiveReplica, Partition
from schemas.spu import SpuResolution
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu
from tests.unit.sc.builders import (
    election_request_of,
    live,
    lrs_request_of,
    partition_of,
    spu_of,
)

STAMP = Stamp(revision=2, office="office")
IDENTITY = ClusterIdentity("test", "uid-of-this-cluster", STAMP)
ASSIGN = AssignPartitions(stamp=STAMP)


@dataclass
class Events:
    """Writes down what the connection manager says."""

    log: list[tuple[str, int, int]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    peers: list[FindPeers] = field(default_factory=list)
    refusal: RunnelError | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    checking: asyncio.Event = field(default_factory=asyncio.Event)

    async def check(self, hello: Hello) -> None:
        self.checking.set()
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal

    def opened(self, generation: int, hello: Hello) -> None:
        self.log.append(("opened", hello.spu_id, generation))

    def closed(self, spu_id: int, generation: int, reason: str) -> None:
        self.log.append(("closed", spu_id, generation))
        self.reasons.append(reason)

    def reported(self, spu_id: int, generation: int, report: Report) -> None:
        self.log.append(("reported", spu_id, generation))
        self.reports.append(report)

    def asked(self, spu_id: int, generation: int, ask: Ask) -> None:
        self.log.append(("asked", spu_id, generation))
        self.asks.append(ask)

    def asked_peers(self, spu_id: int, generation: int, asked: FindPeers) -> None:
        self.log.append(("asked peers", spu_id, generation))
        self.peers.append(asked)


class Peer:
    """The other end of one connection, by hand: says nothing that the test does not say."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, body: Message, *, request_id: int | None = None) -> None:
        await self.socket.send_str(Envelope(id=request_id, cause="test", body=body).encode())

    async def hear(self) -> Message | None:
        """The next message that is not a heartbeat; None once the connection is closed."""
        async with asyncio.timeout(15):
            while True:
                message = await self.socket.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return None
                body = decode_envelope(message.data).body
                if not isinstance(body, Heartbeat):
                    return body

    async def rejected(self) -> Reject:
        body = await self.hear()
        assert isinstance(body, Reject), body
        assert await self.hear() is None
        return body

    async def welcomed(self) -> Welcome:
        body = await self.hear()
        assert isinstance(body, Welcome), body
        return body


@dataclass
class Bench:
    """A connection manager behind a real port."""

    manager: ConnectionManager
    events: Events
    address: str
    http: aiohttp.ClientSession

    @asynccontextmanager
    async def peer(self, hello: Message | None = None) -> AsyncIterator[Peer]:
        async with self.http.ws_connect(f"http://{self.address}/session") as socket:
            peer = Peer(socket)
            if hello is not None:
                await peer.say(hello)
            yield peer


@asynccontextmanager
async def bench_of(heartbeat_ms: int = 60_000) -> AsyncIterator[Bench]:
    events = Events()
    events.gate.set()
    manager = ConnectionManager(events, IDENTITY, heartbeat_ms=heartbeat_ms, misses=3)
    manager.register("spu-1", 1)
    runner, port = await start_private_server(manager, "127.0.0.1", 0)
    async with aiohttp.ClientSession() as http:
        try:
            yield Bench(manager, events, f"127.0.0.1:{port}", http)
        finally:
            manager.close()
            await runner.cleanup()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with bench_of() as made:
        yield made


def hello_of(spu_id: int = 1, **fields: object) -> Hello:
    known = {"software": "test", "spu_id": spu_id, "instance": "one"}
    return Hello.model_validate(known | fields)


async def test_given_registered_spu_then_welcomed_with_what_it_must_know(bench: Bench) -> None:
    async with bench.peer(hello_of()) as peer:
        welcome = await peer.welcomed()
    assert welcome == Welcome(
        version=1,
        cluster="test",
        cluster_uid="uid-of-this-cluster",
        generation=1,
        heartbeat_ms=60_000,
        misses=3,
        stamp=STAMP,
    )
    await eventually(lambda: bench.events.log == [("opened", 1, 1), ("closed", 1, 1)])


@pytest.mark.parametrize(
    ("hello", "code", "message"),
    [
        pytest.param(
            hello_of(7),
            "UNAUTHORIZED",
            "SPU 7 is not registered; register it first: apply a kind: Spu with spuId: 7",
            id="given-unregistered-spu-then-told-how-to-register",
        ),
        pytest.param(
            hello_of(min_version=2, max_version=3),
            "UNSUPPORTED",
            "SPU 1 speaks session versions 2 to 3, this SC 1 to 1; run the same release on both",
            id="given-newer-spu-then-both-versions-named",
        ),
        pytest.param(
            hello_of(min_version=0, max_version=0),
            "UNSUPPORTED",
            "SPU 1 speaks session versions 0 to 0, this SC 1 to 1; run the same release on both",
            id="given-older-spu-then-both-versions-named",
        ),
        pytest.param(
            hello_of(cluster_uid="other"),
            "UNAUTHORIZED",
            "SPU 1 holds data of cluster other, this is uid-of-this-cluster",
            id="given-data-of-another-cluster-then-both-named",
        ),
        pytest.param(
            Heartbeat(),
            "UNSUPPORTED",
            "the first message must be a hello, not heartbeat",
            id="given-no-hello-then-said-what-came",
        ),
    ],
)
async def test_turned_away(bench: Bench, hello: Message, code: str, message: str) -> None:
    async with bench.peer(hello) as peer:
        assert await peer.rejected() == Reject(code=code, message=message)
    assert bench.events.log == []


async def test_given_hello_that_does_not_parse_then_said_so(bench: Bench) -> None:
    async with bench.peer() as peer:
        await peer.socket.send_str('{"cause": "x", "body": {"type": "hello", "spuIdd": 1}}')
        assert "the hello does not parse" in (await peer.rejected()).message


async def test_given_no_hello_in_time_then_turned_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connection_manager.manager.HELLO_TIMEOUT_S", 0.01)
    async with bench.peer() as peer:
        assert "no hello within" in (await peer.rejected()).message


async def test_given_peer_that_hangs_up_before_its_hello_then_no_error_is_left(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        async with bench.peer():
            pass
    async with bench.peer(hello_of()) as peer:
        await peer.welcomed()
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == []


async def test_given_events_refuse_then_turned_away_with_their_words(bench: Bench) -> None:
    bench.events.refusal = ConflictError("the KV was restored from an older backup")
    async with bench.peer(hello_of()) as peer:
        rejected = await peer.rejected()
    assert (rejected.code, rejected.message) == (
        "CONFLICT",
        "the KV was restored from an older backup",
    )


async def test_given_spu_deleted_while_it_is_checked_then_not_let_in(bench: Bench) -> None:
    bench.events.gate.clear()
    async with bench.peer(hello_of()) as peer:
        await asyncio.wait_for(bench.events.checking.wait(), 15)
        bench.manager.unregister("spu-1")
        bench.events.gate.set()
        assert "SPU 1 is not registered" in (await peer.rejected()).message
    assert bench.events.log == []


async def test_given_another_process_with_the_same_id_then_turned_away_while_the_first_lives(
    bench: Bench,
) -> None:
    async with bench.peer(hello_of()) as first:
        await first.welcomed()
        async with bench.peer(hello_of(instance="two")) as second:
            rejected = await second.rejected()
            assert rejected.message == "another process is connected as SPU 1"
        await first.say(Report(), request_id=1)
        assert await first.hear() is not None
    await eventually(lambda: bench.events.log[-1] == ("closed", 1, 1))
    async with bench.peer(hello_of(instance="two")) as second:
        assert (await second.welcomed()).generation == 2


async def test_given_the_same_process_again_then_it_replaces_its_older_connection(
    bench: Bench,
) -> None:
    async with bench.peer(hello_of()) as first, bench.peer(hello_of()) as second:
        generations = {(await peer.welcomed()).generation for peer in (first, second)}
        assert generations == {1, 2}
        opened = [g for what, _, g in bench.events.log if what == "opened"]
        assert opened == [1, 2]
        await eventually(lambda: ("closed", 1, 1) in bench.events.log)
        assert bench.events.reasons == ["replaced by a newer connection"]
        asking = asyncio.create_task(bench.manager.request(1, ASSIGN))
        await asyncio.sleep(0)
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_given_report_then_passed_on_with_its_generation(bench: Bench) -> None:
    for generation in (1, 2):
        async with bench.peer(hello_of()) as peer:
            await peer.welcomed()
            await peer.say(Report(), request_id=5)
            assert await peer.hear() is not None
            assert bench.events.log[-1] == ("reported", 1, generation)
        await eventually(lambda: bench.events.log[-1][0] == "closed")


async def test_given_ask_then_passed_on_with_its_generation_and_answered(bench: Bench) -> None:
    partition = partition_of("t", 0, (1, 2), leader=1, lrs=(live(1), live(2)))
    ask = Ask(
        lrs=(lrs_request_of(partition, live(1)),), elections=(election_request_of(partition),)
    )
    async with bench.peer(hello_of()) as peer:
        await peer.welcomed()
        await peer.say(ask, request_id=5)
        assert await peer.hear() == Reply()
        assert bench.events.log[-1] == ("asked", 1, 1)
        assert bench.events.asks == [ask]


async def test_given_question_for_peers_then_passed_on_with_its_generation_and_answered(
    bench: Bench,
) -> None:
    asked = FindPeers(spu_ids=(2, 3))
    async with bench.peer(hello_of()) as peer:
        await peer.welcomed()
        await peer.say(asked, request_id=5)
        assert await peer.hear() == Reply()
        assert bench.events.log[-1] == ("asked peers", 1, 1)
        assert bench.events.peers == [asked]


async def test_given_request_that_is_not_for_an_sc_then_refused_and_the_session_stays(
    bench: Bench,
) -> None:
    async with bench.peer(hello_of()) as peer:
        await peer.welcomed()
        await peer.say(ASSIGN, request_id=1)
        reply = await peer.hear()
        assert "an SC does not serve assign" in str(reply)
        await peer.say(Report(), request_id=2)
        assert await peer.hear() is not None


async def test_given_no_session_then_requests_say_so(bench: Bench) -> None:
    with pytest.raises(UnreachableError, match="SPU 1 is not connected"):
        await bench.manager.request(1, ASSIGN)


async def test_given_spu_deleted_then_its_session_ends_and_it_is_not_let_in_again(
    bench: Bench,
) -> None:
    async with bench.peer(hello_of()) as peer:
        await peer.welcomed()
        bench.manager.unregister("spu-1")
        assert await peer.hear() is None
    await eventually(lambda: bench.events.reasons == ["the SPU was deleted"])
    async with bench.peer(hello_of()) as peer:
        assert "not registered" in (await peer.rejected()).message


async def test_given_unknown_name_unregistered_then_nothing(bench: Bench) -> None:
    bench.manager.unregister("absent")
    assert bench.manager.registered == {"spu-1": 1}


async def test_given_silent_spu_then_its_session_ends() -> None:
    async with bench_of(heartbeat_ms=10) as bench, bench.peer(hello_of()) as peer:
        await peer.welcomed()
        await eventually(lambda: bench.events.reasons == ["SPU 1 missed 3 heartbeats"])


async def test_given_spu_that_beats_then_its_session_stays_and_it_hears_beats() -> None:
    async with bench_of(heartbeat_ms=20) as bench, bench.peer(hello_of()) as peer:
        await peer.welcomed()
        for _ in range(12):
            message = await peer.socket.receive(15)
            assert isinstance(decode_envelope(message.data).body, Heartbeat)
            await peer.say(Heartbeat())
        assert bench.events.log == [("opened", 1, 1)]


async def test_given_stopping_sc_then_sessions_end_and_newcomers_are_told(bench: Bench) -> None:
    async with bench.peer(hello_of()) as peer:
        await peer.welcomed()
        bench.manager.close()
        assert await peer.hear() is None
    await eventually(lambda: bench.events.reasons == ["the SC is stopping"])
    async with bench.peer(hello_of()) as peer:
        assert (await peer.rejected()).message == "the SC is stopping"


# -- the SPU's side of it -----------------------------------------------------------------------


@asynccontextmanager
async def linked(link: ControllerLink) -> AsyncIterator[None]:
    task = asyncio.create_task(link.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_given_unregistered_spu_then_its_link_knows_why_and_gets_in_once_registered(
    bench: Bench,
) -> None:
    spu = SimulatedSpu(5, bench.address)
    async with spu:
        await eventually(lambda: "SPU 5 is not registered" in str(spu.link.trouble))
        bench.manager.register("spu-5", 5)
        await eventually(lambda: spu.link.trouble is None)


async def test_given_nobody_listens_then_the_link_names_the_address(unused_port: int) -> None:
    link = ControllerLink(f"127.0.0.1:{unused_port}", SimulatedSpu(1, ""), rng=lambda: 0.0)
    async with linked(link):
        await eventually(
            lambda: f"cannot reach the SC at 127.0.0.1:{unused_port}" in str(link.trouble)
        )


@pytest.fixture
async def unused_port() -> int:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        pytest.param("{", "does not answer like an SC", id="given-garbage-then-said-so"),
        pytest.param(
            Envelope(cause="x", body=Heartbeat()).encode(),
            "answered heartbeat to a hello",
            id="given-another-message-then-said-which",
        ),
        pytest.param(None, "closed the connection", id="given-hang-up-then-said-so"),
    ],
)
async def test_server_that_is_no_sc(answer: str | None, trouble: str) -> None:
    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        if answer is not None:
            await socket.send_str(answer)
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/session", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    link = ControllerLink(
        f"127.0.0.1:{runner.addresses[0][1]}", SimulatedSpu(1, ""), rng=lambda: 0.0
    )
    try:
        async with linked(link):
            await eventually(lambda: trouble in str(link.trouble))
    finally:
        await runner.cleanup()


# -- with a whole controller --------------------------------------------------------------------


async def register(sc: RunningSc, spu_id: int) -> None:
    status, body = await sc.create("Spu", f"spu-{spu_id}", {"spuId": spu_id})
    assert status == 201, body


async def test_given_spu_deleted_then_its_session_ends_and_the_spu_is_told_why(
    sc: RunningSc,
) -> None:
    await register(sc, 1)
    async with SimulatedSpu(1, sc.private) as spu:
        await sc.until("spus", "spu-1", "online")
        assert (await sc.call("DELETE", "/v1/spus/spu-1"))[0] == 202
        await eventually(lambda: "SPU 1 is not registered" in str(spu.link.trouble))
        assert 1 not in sc.controller.view.sessions


@asynccontextmanager
async def reign(kv: KV, port: int) -> AsyncIterator[tuple[Controller, int]]:
    """A controller that listens for SPUs on a port of the test's choice."""
    controller = await Controller.take_office(kv, "test", grace_ms=0)
    private, bound = await start_private_server(controller.connections, "127.0.0.1", port)
    work = asyncio.create_task(controller.run())
    try:
        yield controller, bound
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await private.cleanup()


async def test_given_sc_restart_on_the_same_port_then_the_spu_comes_back_by_itself(kv: KV) -> None:
    spu_1 = spu_of(1, SpuResolution.INIT)
    key = ClusterKeys("test").object("spus", spu_1.name)
    await kv.txn([], [Put(key, encode_object(spu_1, "test"))])
    async with AsyncExitStack() as first:
        controller, port = await first.enter_async_context(reign(kv, 0))
        async with SimulatedSpu(1, f"127.0.0.1:{port}") as spu:
            await eventually(lambda: 1 in controller.view.sessions)
            await first.aclose()
            await eventually(lambda: spu.link.trouble is not None)
            async with reign(kv, port) as (second, _port):
                await eventually(lambda: 1 in second.view.sessions)
                assert spu.link.trouble is None


async def test_given_spu_that_saw_a_later_revision_then_all_begin_anew_in_another_incarnation(
    sc: RunningSc,
) -> None:
    for spu_id in (1, 2):
        await register(sc, spu_id)
    async with SimulatedSpu(2, sc.private) as other:
        await sc.until("spus", "spu-2", "online")
        async with sc.http.ws_connect(f"http://{sc.private}/session") as socket:
            peer = Peer(socket)
            await peer.say(hello_of(kv_revision=10_000))
            assert (await peer.welcomed()).stamp.incarnation == 1
        await eventually(lambda: other.seen_stamp == sc.controller.office.stamp)


async def test_given_another_sc_in_office_then_the_first_ends_before_it_tells_of_it(
    sc: RunningSc, kv: KV
) -> None:
    await take_office(kv, ClusterKeys("test"))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(asyncio.shield(sc.work), 15)
    assert ended.group_contains(FencedError, match="another SC took office")
    current = await kv.get(ClusterKeys("test").current_office)
    assert current is not None
    assert sc.controller.view.store.revision < current.mod_revision


class LeadingSpu(SimulatedSpu):
    """One that asks for what a test has it ask for."""

    async def ask(self, ask: Ask | FindPeers) -> None:
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
        told = Peers(peers=(PeerAddress(spu_id=2, host="spu-2.example", port=19_006),))
        await eventually(lambda: spu.peers == [told])
        await spu.ask(FindPeers(spu_ids=(7,)))
        await eventually(lambda: spu.peers == [told, Peers(peers=())])


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

    for spu_id in (1, 2):
        await register(sc, spu_id)
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
            await leader.ask(Ask(lrs=(lrs_request_of(mirrored(), *grown),)))
            await eventually(lambda: mirrored().status.lrs == grown)
            assert mirrored().status.reason is None
            before = mirrored().revision
            await leader.ask(Ask(lrs=(lrs_request_of(mirrored(), member(follower)),)))
            await eventually(lambda: mirrored().revision > before)
            assert mirrored().status.lrs == grown
            refusal = "turned down: SPU 1 leads: only an election may drop it"
            assert mirrored().status.reason == refusal
        await eventually(lambda: mirrored().status.leader == 2)
        await sc.until("partitions", "t-0", "online")
        assert mirrored().status.lrs == (member(follower),)
        assert mirrored().status.term == next_election(alone.status.term)
