"""What an SPU proves before the SC looks at its state, and how little a stranger can have of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from connection_manager import guarded_site
from connection_manager.guarded_site import ConnectionGuard, ConnectionLimits
from schemas.control.messages import (
    Envelope,
    HelloPart,
    Message,
    Prove,
)
from schemas.control.proof import Verifier, accepts_sc, spu_proof
from tests.integration.sc.connections import (
    Bench,
    bench_of,
    hello_of,
    identity_of,
)
from tests.polling import eventually
from tests.unit.sc.builders import (
    partition_of,
    report_of,
)

SECRET = "s" * 43


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with bench_of() as made:
        yield made


async def test_given_spu_that_proves_itself_then_welcomed_with_the_proof_of_the_sc(
    bench: Bench,
) -> None:
    bench.events.verifiers[1] = Verifier.of(SECRET)
    async with bench.peer(identity_of(), identifies=True) as peer:
        exchange = await peer.challenged()
        await peer.say(Prove(proof=spu_proof(SECRET, exchange)))
        replica = report_of(partition_of("t", 0, (1,)), 1)
        other = report_of(partition_of("t", 1, (1,)), 1)
        await peer.say(hello_of(replicas=(replica,), more=1))
        await peer.say(HelloPart(replicas=(other,)))
        welcome = await peer.welcomed()
        assert accepts_sc(SECRET, exchange, welcome.proof or "")
        assert bench.manager.unproven == ()
    assert bench.events.proven == [True]
    assert [hello.replicas for hello in bench.events.hellos] == [(replica, other)]


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param(identity_of(7), "SPU 7 is not registered", id="given-unregistered"),
        pytest.param(identity_of(cluster_uid="x"), "holds data of cluster x", id="given-stranger"),
        pytest.param(
            identity_of(min_version=2, max_version=3), "versions 2 to 3", id="given-newer"
        ),
        pytest.param(hello_of(), "must be 'identify', not 'hello'", id="given-hello-at-once"),
        pytest.param(identity_of(software="x" * 4096), "characters", id="given-long-identity"),
    ],
)
async def test_given_identity_that_is_refused_then_not_even_challenged(
    bench: Bench, identity: Message, message: str
) -> None:
    async with bench.peer(identity, identifies=True) as peer:
        assert message in (await peer.rejected()).message
    assert bench.events.authenticated == []


async def test_given_another_process_that_identifies_itself_then_not_even_challenged(
    bench: Bench,
) -> None:
    async with bench.peer(hello_of()) as first:
        await first.welcomed()
        async with bench.peer(identity_of(instance="two"), identifies=True) as second:
            assert "another process" in (await second.rejected()).message
    assert bench.events.authenticated == [(1, False)]


@pytest.mark.parametrize("secret", [SECRET, None], ids=["proven", "without a secret"])
async def test_given_a_slow_line_then_a_hello_has_the_time_that_its_parts_need(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    """The time of a request head is over before a part is there, and before all messages are."""
    monkeypatch.setattr(guarded_site, "HEADER_TIMEOUT_S", 1.5)
    monkeypatch.setattr("connection_manager.introduction.HELLO_TIMEOUT_S", 1.5)
    monkeypatch.setattr("connection_manager.introduction.LAST_WORD_S", 0.0)
    # A second more for each part.
    monkeypatch.setattr("connection_manager.introduction.SLOWEST_BYTES_S", 1 << 20)
    if secret is not None:
        bench.events.verifiers[1] = Verifier.of(secret)
    async with bench.peer(identifies=True) as peer:
        await asyncio.sleep(0.6)
        await peer.say(identity_of())
        exchange = await peer.challenged()
        await asyncio.sleep(0.6)
        await peer.say(Prove(proof=None if secret is None else spu_proof(secret, exchange)))
        await asyncio.sleep(1.6)
        await peer.say(hello_of(more=1))
        await asyncio.sleep(1.6)
        await peer.say(HelloPart(replicas=()))
        await peer.welcomed()


@pytest.mark.parametrize(
    ("secret", "waits"), [(SECRET, False), (None, True)], ids=["proven", "without a secret"]
)
async def test_given_a_hello_that_is_coming_then_only_who_has_proven_nothing_makes_room(
    monkeypatch: pytest.MonkeyPatch, secret: str | None, waits: bool
) -> None:
    guards: list[ConnectionGuard] = []

    def guard(limits: ConnectionLimits) -> ConnectionGuard:
        guards.append(ConnectionGuard(limits))
        return guards[-1]

    monkeypatch.setattr("connection_manager.manager.ConnectionGuard", guard)
    async with bench_of() as bench:
        if secret is not None:
            bench.events.verifiers[1] = Verifier.of(secret)
        async with bench.peer(identity_of(), identifies=True) as peer:
            exchange = await peer.challenged()
            assert guards[0].waiting == 1
            await peer.say(Prove(proof=None if secret is None else spu_proof(secret, exchange)))
            await peer.say(hello_of(more=1))
            await eventually(lambda: guards[0].waiting == waits)
            await asyncio.sleep(0.05)
            assert guards[0].waiting == waits
            await peer.say(HelloPart(replicas=()))
            await peer.welcomed()
            assert guards[0].waiting == 0


async def test_given_an_identity_and_nothing_more_then_turned_away_in_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connection_manager.introduction.HELLO_TIMEOUT_S", 0.05)
    async with bench.peer(identity_of(), identifies=True) as peer:
        await peer.challenged()
        assert "no message 'prove' within 0.05 s" in (await peer.rejected()).message
    monkeypatch.setattr("connection_manager.introduction.SLOWEST_BYTES_S", 1 << 30)
    async with bench.peer(identity_of(), identifies=True) as peer:
        await peer.challenged()
        await peer.say(Prove())
        assert "no message 'hello' within" in (await peer.rejected()).message


@pytest.mark.parametrize("proof", [None, "", "00" * 32, "f" * 63, "x"])
async def test_given_no_proof_or_a_wrong_one_then_its_state_is_not_looked_at(
    bench: Bench, proof: str | None
) -> None:
    bench.events.verifiers[1] = Verifier.of(SECRET)
    async with bench.peer(identity_of(), identifies=True) as peer:
        await peer.challenged()
        await peer.say(Prove(proof=proof))
        await peer.say(hello_of(kv_revision=10**12))
        assert "has not proven itself" in (await peer.rejected()).message
    assert bench.events.checks == 0


async def test_given_proof_that_was_overheard_then_it_serves_no_second_time(bench: Bench) -> None:
    bench.events.verifiers[1] = Verifier.of(SECRET)
    async with bench.peer(identity_of(), identifies=True) as peer:
        overheard = spu_proof(SECRET, await peer.challenged())
        await peer.say(Prove(proof=overheard))
        await peer.say(hello_of())
        await peer.welcomed()
    await eventually(lambda: bench.events.log[-1] == ("closed", 1, 1))
    async with bench.peer(identity_of(), identifies=True) as peer:
        await peer.challenged()
        await peer.say(Prove(proof=overheard))
        assert "has not proven itself" in (await peer.rejected()).message


@pytest.mark.parametrize("fields", [{"spu_id": 2}, {"instance": "two"}], ids=str)
async def test_given_hello_of_another_than_was_proven_then_turned_away(
    bench: Bench, fields: dict[str, Any]
) -> None:
    bench.manager.register("spu-2", 2)
    async with bench.peer(identity_of(), identifies=True) as peer:
        await peer.challenged()
        await peer.say(Prove())
        await peer.say(hello_of(**fields))
        assert "SPU 1 sends the hello of" in (await peer.rejected()).message
    assert bench.events.checks == 0


@pytest.mark.parametrize("more", [-1, 1_001])
async def test_given_hello_of_too_many_parts_then_turned_away(bench: Bench, more: int) -> None:
    async with bench.peer(identity_of(), identifies=True) as peer:
        await peer.challenged()
        await peer.say(Prove())
        await peer.say(hello_of(more=more))
        assert f"a hello of {more} parts" in (await peer.rejected()).message


@pytest.mark.parametrize("most", [1_000, 10_000])
async def test_given_a_large_state_without_a_proof_then_turned_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("connection_manager.introduction.MAX_OLDER_SPU_MESSAGE_BYTES", most)
    async with bench.peer(identity_of(), identifies=True) as peer:
        await peer.challenged()
        await peer.say(Prove())
        await peer.say(hello_of(more=8))
        report = report_of(partition_of("t", 0, (1,)), 1)
        for _ in range(8):
            await peer.say(HelloPart(replicas=(report,)))
        if most > 1_000:
            assert (await peer.welcomed()).cluster_uid
        else:
            assert "has a secret only: runnel spu secret" in (await peer.rejected()).message


def large(spu_id: int) -> str:
    """A hello of an older version that is large, and wrong in the end."""
    text = Envelope(cause="x", body=hello_of(spu_id)).encode()
    assert text.endswith('"replicas":[]}}')
    return text[: -len("]}}")] + "[" * 5_000


@pytest.mark.parametrize(
    ("spu_id", "message"),
    [(7, "SPU 7 is not registered"), (1, "has not proven itself"), (2, "does not parse")],
)
async def test_given_large_hello_of_an_older_spu_then_parsed_only_if_it_may_come_in(
    bench: Bench, spu_id: int, message: str
) -> None:
    bench.manager.register("spu-2", 2)
    bench.events.verifiers[1] = Verifier.of(SECRET)
    async with bench.peer() as peer:
        await peer.socket.send_str(large(spu_id))
        assert message in (await peer.rejected()).message


async def test_given_small_hello_of_an_older_spu_that_is_unknown_then_the_kv_is_not_asked(
    bench: Bench,
) -> None:
    async with bench.peer() as peer:
        await peer.say(hello_of(7))
        assert "SPU 7 is not registered" in (await peer.rejected()).message
    assert bench.events.authenticated == []


async def test_given_large_hello_that_hides_its_id_then_turned_away(bench: Bench) -> None:
    async with bench.peer() as peer:
        text = f'{{"body":{{"software":"{"x" * 5_000}","type":"hello","spuId":1}}}}'
        await peer.socket.send_str(text)
        assert "begins with its id" in (await peer.rejected()).message
