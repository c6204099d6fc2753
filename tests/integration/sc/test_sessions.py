"""SPU sessions over real sockets: who is let in, who is turned away, and how sessions end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from connection_manager.manager import start_private_server
from connection_manager.private_port import PrivatePort
from schemas.control.messages import (
    AssignPartitions,
    Challenge,
    FindPeers,
    Heartbeat,
    Message,
    Prove,
    Reject,
    Reply,
    Report,
    SpuRequest,
    Welcome,
    decode_envelope,
)
from schemas.control.proof import Verifier
from schemas.errors import ConflictError, UnreachableError
from tests.integration.sc.connections import (
    PRIVATE_LIMITS,
    STAMP,
    Bench,
    bench_of,
    hello_of,
    identity_of,
)
from tests.polling import eventually
from tests.unit.sc.builders import (
    election_request_of,
    live,
    lrs_request_of,
    partition_of,
    report_of,
)

ASSIGN = AssignPartitions(stamp=STAMP)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with bench_of() as made:
        yield made


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
            "SPU 1 holds data of cluster other; this is cluster uid-of-this-cluster",
            id="given-data-of-another-cluster-then-both-named",
        ),
        pytest.param(
            Heartbeat(),
            "UNSUPPORTED",
            "the next message must be 'hello', not 'heartbeat'",
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
        assert "the message 'hello' does not parse" in (await peer.rejected()).message


async def test_given_no_hello_in_time_then_turned_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connection_manager.introduction.HELLO_TIMEOUT_S", 0.01)
    async with bench.peer() as peer:
        assert "no message 'hello' within" in (await peer.rejected()).message


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
        async with asyncio.timeout(15):
            await bench.events.checking.wait()
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


async def test_given_another_process_with_the_same_id_then_what_it_says_is_not_looked_at(
    bench: Bench,
) -> None:
    async with bench.peer(hello_of()) as first:
        await first.welcomed()
        bench.events.checking.clear()
        async with bench.peer(hello_of(instance="two", kv_revision=10**12)) as second:
            assert "another process" in (await second.rejected()).message
        assert not bench.events.checking.is_set()
    await eventually(lambda: bench.events.log == [("opened", 1, 1), ("closed", 1, 1)])


async def test_given_another_process_that_connects_during_the_check_then_turned_away(
    bench: Bench,
) -> None:
    bench.events.gate.clear()
    async with bench.peer(hello_of()) as first, bench.peer(hello_of(instance="two")) as second:
        async with asyncio.timeout(15):
            await bench.events.checking.wait()
        await eventually(lambda: bench.events.checks == 2)
        bench.events.gate.set()
        heard = [await peer.hear() for peer in (first, second)]
    assert sorted(one.type for one in heard if one is not None) == ["reject", "welcome"]
    assert [what for what, *_ in bench.events.log if what == "opened"] == ["opened"]


async def test_given_request_of_a_web_page_then_forbidden(bench: Bench) -> None:
    for origin in ("http://evil.example", f"http://{bench.address}", "null"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await bench.http.ws_connect(
                f"http://{bench.address}/session", headers={"Origin": origin}
            )
        assert caught.value.status == 403
    assert bench.events.log == []


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


@pytest.mark.parametrize("lasts", [True, False], ids=["given-it-lasts", "given-it-ended"])
async def test_given_a_hello_that_comes_after_that_of_a_newer_connection_then_turned_away(
    bench: Bench, lasts: bool
) -> None:
    async with bench.peer(identity_of(), identifies=True) as older:
        await older.challenged()
        async with bench.peer(hello_of(kv_revision=2)) as newer:
            await newer.welcomed()
            if not lasts:
                await newer.socket.close()
                await eventually(lambda: bench.events.log[-1] == ("closed", 1, 1))
            before = [*bench.events.log]
            await older.say(Prove())
            await older.say(hello_of(kv_revision=1))
            rejected = await older.rejected()
            assert rejected.message == "SPU 1 was let in on a newer connection"
            assert bench.events.log == before
            assert [hello.kv_revision for hello in bench.events.hellos] == [2]
            async with bench.peer(hello_of()) as newest:
                assert (await newest.welcomed()).generation == 2
    assert bench.events.refused_ids == []


async def test_given_an_older_spu_whose_hello_comes_late_then_turned_away(bench: Bench) -> None:
    async with bench.peer() as older, bench.peer(hello_of(kv_revision=2)) as newer:
        await newer.welcomed()
        await older.say(hello_of(kv_revision=1))
        assert "newer connection" in (await older.rejected()).message
    assert [hello.kv_revision for hello in bench.events.hellos] == [2]


async def test_given_a_newer_connection_during_the_check_of_an_older_one_then_the_newer_stays(
    bench: Bench,
) -> None:
    bench.events.gate.clear()
    async with bench.peer(hello_of(kv_revision=1)) as older:
        await eventually(lambda: bench.events.checks == 1)
        held, bench.events.gate = bench.events.gate, asyncio.Event()
        bench.events.gate.set()
        async with bench.peer(hello_of(kv_revision=2)) as newer:
            await newer.welcomed()
            held.set()
            assert "newer connection" in (await older.rejected()).message
            await newer.say(Report(), request_id=5)
            assert await newer.hear() == Reply()
    assert [hello.kv_revision for hello in bench.events.hellos] == [2]


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
    ask = SpuRequest(
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


@pytest.mark.parametrize("in_parts", [True, False], ids=["given-parts", "given-an-older-spu"])
async def test_given_a_report_of_more_than_a_mebibyte_then_only_of_an_older_spu(
    bench: Bench, in_parts: bool
) -> None:
    async with bench.peer(identity_of(), identifies=True, in_parts=in_parts) as peer:
        await peer.challenged()
        await peer.say(Prove())
        await peer.say(hello_of())
        await peer.welcomed()
        large = report_of(partition_of("t", 0, (1,)), 1, reason="r" * (1 << 20))
        await peer.say(Report(replicas=(large,)), request_id=1)
        heard = await peer.hear()
    assert heard == (None if in_parts else Reply())
    assert len(bench.events.reports) == (0 if in_parts else 1)


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


async def test_given_refusals_then_the_last_is_kept_until_the_spu_connects(bench: Bench) -> None:
    bench.events.verifiers[1] = Verifier.of("s" * 43)
    for _ in range(2):
        async with bench.peer(identity_of(), identifies=True) as peer:
            assert isinstance(await peer.hear(), Challenge)
            await peer.say(Prove(proof=None))
            await peer.rejected()
    assert bench.manager.refusals == {1: "SPU 1 has not proven itself"}
    assert bench.events.refused_ids == [1], "told once, because the reason is the same"
    del bench.events.verifiers[1]
    async with bench.peer(hello_of()) as peer:
        await peer.welcomed()
        assert bench.manager.refusals == {}
        async with bench.peer(hello_of(instance="two")) as second:
            await second.rejected()
        assert bench.manager.refusals == {}, "the SPU is connected: nothing is wrong with it"


async def test_given_an_spu_that_leaves_and_says_why_then_that_is_the_reason(bench: Bench) -> None:
    async with bench.peer(identity_of(), identifies=True) as peer:
        assert isinstance(await peer.hear(), Challenge)
        await peer.socket.close(message=b"others may read \x1b its secret")
    await eventually(lambda: 1 in bench.manager.refusals)
    said = "SPU 1: it left before the message 'prove', saying: others may read  its secret"
    assert bench.manager.refusals == {1: said}
    bench.manager.unregister("spu-1")
    assert bench.manager.refusals == {}


async def test_given_changing_and_unregistered_claims_then_a_reason_changes_rarely(
    bench: Bench,
) -> None:
    for version in range(20, 25):
        hello = hello_of(min_version=version, max_version=version)
        async with bench.peer(hello) as peer:
            await peer.rejected()
    async with bench.peer(hello_of(7)) as peer:
        await peer.rejected()
    (reason,) = bench.manager.refusals.values()
    assert "versions 20 to 20" in reason
    assert bench.events.refused_ids == [1]


@pytest.mark.parametrize("stands_by", [False, True], ids=["given-a-leader", "given-a-standby"])
async def test_given_peers_that_are_gone_before_they_are_heard_then_nothing_fails(
    bench: Bench, stands_by: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An SC that was stopped finds many of these when it goes on."""
    standby = PrivatePort(lambda: None)
    runner, port = await start_private_server(standby.serve, "127.0.0.1", 0, PRIVATE_LIMITS)
    if not stands_by:
        standby.manager = bench.manager
    upgrade = (
        "GET /session HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    for _ in range(5):
        # Nothing of the event loop runs meanwhile, as in a process that is stopped.
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(upgrade.encode())
    await asyncio.sleep(0.1)
    await runner.cleanup()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
