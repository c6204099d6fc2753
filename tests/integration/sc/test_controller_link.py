"""The SPU's end of a session over real sockets: it knows why it is not let in, and tries again."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from connection_manager import client, manager
from connection_manager.client import ControllerLink
from connection_manager.heartbeat import Lateness
from connection_manager.manager import start_private_server
from connection_manager.private_port import PrivatePort
from connection_manager.session import Session
from schemas.control.messages import (
    IDENTIFY_PROTOCOL,
    LOAD_PROTOCOL,
    PROTOCOLS,
    UNCLEAN_PROTOCOL,
    Challenge,
    Envelope,
    Heartbeat,
    Peers,
    Reject,
    decode_envelope,
)
from schemas.control.proof import Verifier
from schemas.control.session_end import SessionEnd
from schemas.errors import InvalidRequestError, UnreachableError
from tests.integration.sc.connections import PRIVATE_LIMITS, bench_of
from tests.polling import eventually
from tests.silent_port import silent_port
from tests.simulated_spu import SimulatedSpu
from tests.unit.sc.builders import partition_of, report_of

SECRET = "s" * 43


@asynccontextmanager
async def linked(link: ControllerLink) -> AsyncIterator[None]:
    task = asyncio.create_task(link.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_given_unregistered_spu_then_its_link_knows_why_and_gets_in_once_registered() -> None:
    async with bench_of() as bench, SimulatedSpu(5, bench.address) as spu:
        await eventually(lambda: "SPU 5 is not registered" in str(spu.link.trouble))
        bench.manager.register("spu-5", 5)
        await eventually(lambda: spu.link.trouble is None)


async def test_given_another_session_with_the_same_sc_then_it_is_known_how_late_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Lateness | None] = []

    class Watched(Session):
        def __init__(self, *args: Any, lateness: Lateness | None = None, **more: Any) -> None:
            found.append(lateness)
            super().__init__(*args, lateness=lateness, **more)

    monkeypatch.setattr(client, "Session", Watched)
    async with bench_of() as bench, SimulatedSpu(1, bench.address) as spu:
        await eventually(lambda: spu.session is not None)
        assert spu.session is not None
        spu.session._monitor.silent_ticks = 4
        spu.session.close("silent", SessionEnd.SILENT)
        await eventually(lambda: len(found) == 2)
    assert found[0] is not None
    assert found[0] is found[1]
    assert found[0].allowed == 7


async def test_an_sc_gives_all_spus_the_same_time_and_none_more_for_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Session] = []

    class Watched(Session):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            found.append(self)

    monkeypatch.setattr(manager, "Session", Watched)
    async with bench_of() as bench:
        bench.manager.register("spu-2", 2)
        async with SimulatedSpu(1, bench.address), SimulatedSpu(2, bench.address):
            await eventually(lambda: len(found) == 2)
            lateness = found[0]._monitor.lateness
            assert lateness is not None
            assert lateness is found[1]._monitor.lateness
            for spu_id in (1, 2):
                # The first heartbeat comes before the answer, and would be a late one.
                await eventually(lambda spu_id=spu_id: ("opened", spu_id, 1) in bench.events.log)
                await bench.manager.request(spu_id, Peers(peers=()))
            found[0]._monitor.silent_ticks = 4
            found[0].close("silent", SessionEnd.SILENT)
            await eventually(lambda: len(found) == 3)
            assert lateness.allowed < 7


async def test_given_sc_that_does_not_know_the_secret_then_the_link_leaves_it() -> None:
    async with bench_of() as bench:
        bench.events.verifiers[1] = Verifier.of(SECRET)
        bench.events.sc_proof = "00" * 32
        spu = SimulatedSpu(1, bench.address)
        spu.held_secret = SECRET
        async with spu:
            await eventually(lambda: "does not know the secret" in str(spu.link.trouble))
            assert spu.session is None
            bench.events.sc_proof = None
            await eventually(lambda: spu.session is not None)


async def test_given_a_secret_that_cannot_be_used_then_the_sc_hears_who_it_is_and_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench_of() as bench:
        spu = SimulatedSpu(1, bench.address)
        why = "others may read its secret; protect it: chmod 600 " + "long/" * 40

        def unusable() -> str:
            raise InvalidRequestError(why)

        with monkeypatch.context() as patch:
            patch.setattr(spu, "secret", unusable)
            async with spu:
                await eventually(lambda: spu.link.trouble == why)
                await eventually(lambda: 1 in bench.manager.refusals)
                reason = bench.manager.refusals[1]
                assert reason.startswith("SPU 1: it left before the message 'prove', saying:")
                assert "chmod 600" in reason
                assert bench.events.authenticated == []
                patch.undo()
                await eventually(lambda: spu.session is not None)
        assert bench.manager.refusals == {}


async def test_given_many_replicas_then_the_hello_comes_in_parts_and_whole() -> None:
    async with bench_of() as bench:
        spu = SimulatedSpu(1, bench.address)
        reports = [report_of(partition_of("t", index, (1,)), 1) for index in range(2_500)]
        spu.replicas = {report.uid: report for report in reports}
        async with spu:
            await eventually(lambda: len(bench.events.hellos) == 1)
        assert bench.events.hellos[0].replicas == tuple(reports)


async def test_given_an_older_sc_then_the_link_says_everything_in_its_hello(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It offers no subprotocol, and knows no message of the new handshake."""
    monkeypatch.setattr("connection_manager.manager.PROTOCOLS", ("one", "another"))
    async with bench_of() as bench:
        spu = SimulatedSpu(1, bench.address)
        spu.held_secret = SECRET
        async with spu:
            await eventually(lambda: spu.session is not None)
        assert bench.events.authenticated == [(1, False)]


async def test_given_an_sc_without_parts_then_the_link_proves_itself_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It selects the subprotocol that it knows, and takes reports in parts all the same."""
    monkeypatch.setattr("connection_manager.manager.PROTOCOLS", (IDENTIFY_PROTOCOL,))
    async with bench_of() as bench, SimulatedSpu(1, bench.address) as spu:
        await eventually(lambda: spu.session is not None)
        assert bench.events.authenticated == [(1, True)]
        assert spu.session is not None
        assert spu.session.protocol == IDENTIFY_PROTOCOL


@pytest.mark.parametrize("known", [PROTOCOLS, PROTOCOLS[1:]], ids=["this SC", "the one before"])
async def test_the_session_says_what_its_sc_understands(
    monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...]
) -> None:
    monkeypatch.setattr("connection_manager.manager.PROTOCOLS", known)
    async with bench_of() as bench, SimulatedSpu(1, bench.address) as spu:
        await eventually(lambda: spu.session is not None)
        assert spu.session is not None
        assert spu.session.protocol == known[0]


async def test_given_scs_that_start_during_a_session_then_its_spu_hears_of_them() -> None:
    async with bench_of() as bench, SimulatedSpu(1, bench.address) as spu:
        bench.controllers[:] = ["a:1"]
        await eventually(lambda: len(bench.events.hellos) == 1)
        for running, heard in (
            (["a:1", "b:1"], ("a:1", "b:1")),
            # One that is gone may be back before the one that says so is gone.
            (["a:1"], ("a:1", "b:1")),
            (["a:1", "c:1"], ("a:1", "c:1")),
        ):
            bench.controllers[:] = running
            bench.manager.controllers_changed()
            # What the session sends comes in order.
            await bench.manager.request(1, Peers(peers=()))
            assert spu.heard == heard
        assert len(bench.events.hellos) == 1


async def test_given_an_sc_that_started_while_the_spu_was_let_in_then_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench_of() as bench:
        bench.controllers[:] = ["a:1"]
        serve = bench.manager._serve_session

        async def late(*args: Any) -> None:
            bench.controllers.append("b:1")
            bench.manager.controllers_changed()
            await serve(*args)

        monkeypatch.setattr(bench.manager, "_serve_session", late)
        async with SimulatedSpu(1, bench.address) as spu:
            await eventually(lambda: spu.heard == ("a:1", "b:1"))
        assert len(bench.events.hellos) == 1


async def test_given_an_older_spu_then_it_is_told_nothing_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("connection_manager.client.PROTOCOLS", (UNCLEAN_PROTOCOL,))
    async with bench_of() as bench, SimulatedSpu(1, bench.address) as spu:
        await eventually(lambda: len(bench.events.hellos) == 1)
        bench.controllers[:] = ["b:1"]
        bench.manager.controllers_changed()
        await bench.manager.request(1, Peers(peers=()))
        assert spu.heard == ()
        assert len(bench.events.hellos) == 1


async def test_given_nobody_listens_then_the_link_names_the_address(unused_port: int) -> None:
    link = ControllerLink(
        lambda: [f"127.0.0.1:{unused_port}"], SimulatedSpu(1, ""), rng=lambda: 0.0
    )
    async with linked(link):
        await eventually(
            lambda: f"cannot reach the SC at 127.0.0.1:{unused_port}" in str(link.trouble)
        )


@pytest.mark.parametrize(
    ("of", "call"),
    [(aiohttp.ClientSession, "_ws_connect"), (aiohttp.ClientWebSocketResponse, "send_str")],
    ids=["as-it-connects", "as-it-sends"],
)
async def test_given_a_handle_that_is_closed_without_a_word_then_the_link_tries_again(
    monkeypatch: pytest.MonkeyPatch, of: type, call: str
) -> None:
    do, failures = getattr(of, call), [RuntimeError("handler is closed")]

    async def do_later(*arguments: Any, **options: Any) -> Any:
        if failures:
            # As uvloop's transport.
            raise failures.pop()
        return await do(*arguments, **options)

    monkeypatch.setattr(of, call, do_later)
    async with bench_of() as bench:
        bench.manager.register("spu-1", 1)
        async with SimulatedSpu(1, bench.address) as spu:
            await eventually(lambda: spu.link.trouble is None)
    assert not failures


async def test_given_a_cut_network_then_attempts_to_connect_are_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long one would sleep on after the network has healed."""
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.05)
    with silent_port() as port:
        link = ControllerLink(lambda: [f"127.0.0.1:{port}"], SimulatedSpu(1, ""), rng=lambda: 0.0)
        async with linked(link):
            await eventually(lambda: "cannot reach the SC" in str(link.trouble), timeout_s=3.0)


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
        lambda: [f"127.0.0.1:{runner.addresses[0][1]}"], SimulatedSpu(1, ""), rng=lambda: 0.0
    )
    try:
        async with linked(link):
            await eventually(lambda: trouble in str(link.trouble))
    finally:
        await runner.cleanup()


@asynccontextmanager
async def standing_by(leader: str | None) -> AsyncIterator[str]:
    """The private port of an SC that stands by, and names a leader."""
    spus = PrivatePort(lambda: leader)
    runner, port = await start_private_server(spus.serve, "127.0.0.1", 0, PRIVATE_LIMITS)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_given_a_standby_then_the_link_goes_where_it_says() -> None:
    async with bench_of() as bench, standing_by(bench.address) as standby:
        bench.manager.register("spu-1", 1)
        spu = SimulatedSpu(1, standby)
        async with spu:
            await eventually(lambda: spu.link.trouble is None)


@pytest.mark.parametrize("protocol", [None, LOAD_PROTOCOL])
async def test_given_an_older_spu_then_a_standby_says_it_in_words_only(
    protocol: str | None,
) -> None:
    async with standing_by("sc:9004") as standby, aiohttp.ClientSession() as http:
        protocols = [] if protocol is None else [protocol]
        async with http.ws_connect(f"http://{standby}/session", protocols=protocols) as socket:
            await socket.send_str("anything")
            text = (await socket.receive()).data
    reject = decode_envelope(text).body
    assert isinstance(reject, Reject)
    assert (reject.code, reject.leader) == ("NOT_LEADER", None)
    assert "sc:9004 leads" in reject.message
    assert "leader" not in json.loads(text)["body"]


async def test_given_several_then_all_are_tried_and_each_says_why(unused_port: int) -> None:
    async with standing_by(None) as standby:
        addresses = [f"127.0.0.1:{unused_port}", standby]
        link = ControllerLink(lambda: addresses, SimulatedSpu(1, ""), rng=lambda: 0.0)
        async with linked(link):
            await eventually(lambda: "no SC leads at the moment" in str(link.trouble))
            assert f"cannot reach the SC at {addresses[0]}" in str(link.trouble)


async def test_given_a_leader_that_is_wrong_then_the_link_goes_on_to_others() -> None:
    """Two that name each other, and themselves: nobody is asked for ever."""
    async with bench_of() as bench:
        bench.manager.register("spu-1", 1)
        named: list[str] = [""]
        spus = PrivatePort(lambda: named[0])
        runner, port = await start_private_server(spus.serve, "127.0.0.1", 0, PRIVATE_LIMITS)
        named[0] = f"127.0.0.1:{port}"
        spu = SimulatedSpu(1, "")
        spu.link = ControllerLink(lambda: [named[0], bench.address], spu, rng=lambda: 0.0)
        try:
            async with spu:
                await eventually(lambda: spu.link.trouble is None)
        finally:
            await runner.cleanup()


async def test_given_an_sc_that_accepts_and_says_nothing_then_others_are_asked_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "GREETING_TIMEOUT_S", 0.2)
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 3_600.0)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        # The kernel accepts for a process that stands still.
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        async with bench_of() as bench:
            bench.manager.register("spu-1", 1)
            spu = SimulatedSpu(1, "")
            spu.link = ControllerLink(lambda: [address, bench.address], spu, rng=lambda: 0.0)
            async with spu:
                await eventually(lambda: spu.link.trouble is None)


@asynccontextmanager
async def freezing(after: int) -> AsyncIterator[str]:
    """The private port of an SC that stands still after so many messages of a greeting."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(request)
        for number in range(after):
            await socket.receive()
            if number == 0:
                challenge = Challenge(cluster_uid="u", nonce="n")
                await socket.send_str(Envelope(cause="x", body=challenge).encode())
        assert request.transport is not None
        # Its kernel takes what it has room for.
        request.transport.pause_reading()
        await asyncio.Event().wait()
        return socket

    app = web.Application()
    app.router.add_get("/session", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("replicas", [1_000, 60_000], ids=["all is taken", "more than it takes"])
@pytest.mark.parametrize("after", [1, 2, 3], ids=["identity", "proof", "hello"])
async def test_given_an_sc_that_stands_still_in_a_greeting_then_others_are_asked_soon(
    monkeypatch: pytest.MonkeyPatch, replicas: int, after: int
) -> None:
    """However much it was sent."""
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.3)
    monkeypatch.setattr(client, "SILENT_S", 0.6)
    monkeypatch.setattr(client, "READ_BYTES_S", 1 << 30)
    spu = SimulatedSpu(1, "")
    reports = [report_of(partition_of("t", index, (1,)), 1) for index in range(1_000)]
    many = reports * (replicas // 1_000)
    hello = spu.hello
    async with freezing(after) as address, bench_of() as bench:
        # The other one is told little: it is not about the time that this takes.
        monkeypatch.setattr(
            spu,
            "hello",
            lambda: (
                hello().model_copy(update={"replicas": tuple(many)})
                if spu.link._address in ("", address)
                else hello()
            ),
        )
        spu.link = ControllerLink(lambda: [address, bench.address], spu, rng=lambda: 0.0)
        async with asyncio.timeout(10), spu:
            await eventually(lambda: spu.link.trouble is None, timeout_s=10)


async def test_given_a_line_that_takes_little_at_a_time_then_a_greeting_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 2.0)
    monkeypatch.setattr(client, "SILENT_S", 2.0)
    left = iter(range(1_000_000, 0, -1))
    monkeypatch.setattr(client, "undelivered", lambda _socket: next(left))
    monkeypatch.setattr(client, "LOOK_S", 0.05)
    async with bench_of() as bench:
        bench.events.gate.clear()
        async with SimulatedSpu(1, bench.address) as spu:
            await bench.events.checking.wait()
            await asyncio.sleep(2.5)
            bench.events.gate.set()
            await eventually(lambda: spu.link.trouble is None)
        assert bench.events.checks == 1


async def test_given_an_sc_that_fell_silent_then_it_is_asked_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []
    link = ControllerLink(lambda: ["a:1", "b:2", "c:3"], SimulatedSpu(1, ""), rng=lambda: 0.0)

    async def connect(_http: object, _patience_s: float) -> str:
        tried.append(link._address)
        raise UnreachableError("away")

    monkeypatch.setattr(link, "_connect_once", connect)
    link._address = "b:2"
    await link._try_all(None)  # type: ignore[arg-type]
    link._address, link._fell_silent = "b:2", True
    await link._try_all(None)  # type: ignore[arg-type]
    assert tried == ["b:2", "a:1", "c:3", "a:1", "c:3", "b:2"]


@pytest.mark.parametrize(
    ("known", "rounds"),
    [
        pytest.param(["a:1"], [1, 1, 3, 1, 1, 3], id="given-one-sc-then-every-third"),
        pytest.param(
            ["a:1", "b:2"],
            [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3],
            id="given-several-then-only-after-nine-short-ones",
        ),
    ],
)
async def test_given_attempts_that_fail_then_some_have_more_time(
    known: list[str], rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = ControllerLink(lambda: known, SimulatedSpu(1, ""), rng=lambda: 0.0)
    had: list[tuple[int, float | None]] = []

    async def try_all(http: aiohttp.ClientSession, times_as_long: int) -> str:
        had.append((times_as_long, http.timeout.sock_connect))
        return "away"

    monkeypatch.setattr(link, "_try_all", try_all)
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 1.0)
    link._backoff.cap_ms = 1.0
    async with linked(link):
        await eventually(lambda: len(had) >= len(rounds))
    assert had[: len(rounds)] == [(times, float(times)) for times in rounds]


@pytest.mark.parametrize(
    ("lasted_s", "lines"),
    [
        pytest.param(10.0, 2, id="given-sessions-that-do-not-last-then-each-reason-once"),
        pytest.param(60.0, 6, id="given-sessions-that-last-then-each-end"),
    ],
)
def test_given_reasons_that_take_turns(lasted_s: float, lines: int) -> None:
    link = ControllerLink(list, SimulatedSpu(1, ""), rng=lambda: 0.0)
    link._let_in = True
    with capture_logs() as logs:
        for reason in ("no route", "no answer") * 3:
            link._log(reason, time.monotonic() - lasted_s)
    assert [line["event"] for line in logs].count("not connected to the SC") == lines
