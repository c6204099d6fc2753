"""One connection to an SPU, and the set of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from unittest.mock import Mock

import pytest

import runnel.net.connection as connection_module
import runnel.net.pool as pool_module
from runnel.net.address import Address
from runnel.net.connection import open_connection
from runnel.net.pool import ConnectionPool
from runnel.net.silent_link import LOST_AFTER
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotLeaderError,
    RunnelError,
    UnreachableError,
)
from schemas.wire.protocol import Api
from schemas.wire.record_requests import (
    EARLIEST,
    LATEST,
    Acks,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
)
from schemas.wire.tcp_info import Unacknowledged
from tests.unit.runnel.fake_sc import CLUSTER_UID, FakeSc
from tests.unit.runnel.fake_spu import FakeSpu, Step
from tests.unit.runnel.records.test_cursor import batch

UID = "3f1c1a52-0000-4000-8000-0000000000aa"
LIST = ListOffsetsRequest(UID, LATEST).pack()  # type: ignore[arg-type]
PRODUCE = ProduceRequest(UID, Acks.COMMITTED, 1_000).pack()  # type: ignore[arg-type]
Servers = tuple[FakeSc, FakeSpu]


async def test_given_many_calls_at_once_then_each_gets_its_own_answer(servers: Servers) -> None:
    _sc, spu = servers
    for base in range(20):
        spu.logs[UID].put(batch(base, 1))
    spu.logs[UID].start = 7
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    earliest = ListOffsetsRequest(UID, EARLIEST).pack()  # type: ignore[arg-type]
    answers = await asyncio.gather(
        *(
            connection.request(Api.LIST_OFFSETS, fixed, timeout_s=5)
            for fixed in (LIST, earliest) * 10
        )
    )
    found = [ListOffsetsResponse.unpack(answer.fixed).offset for answer in answers]
    assert found == [20, 7] * 10
    assert (connection.spu_id, connection.cluster_uid) == (1, CLUSTER_UID)
    await connection.close()


async def test_given_a_refusal_then_it_is_raised_as_what_it_is(servers: Servers) -> None:
    _sc, spu = servers
    spu.produce_script.append(NotLeaderError("another leads"))
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    with pytest.raises(NotLeaderError, match="another leads"):
        await connection.request(Api.PRODUCE, PRODUCE, batch(0, 1), timeout_s=5)
    assert connection.usable
    await connection.close()


async def test_given_the_peer_goes_away_then_calls_fail_and_name_the_address(
    servers: Servers,
) -> None:
    _sc, spu = servers
    spu.produce_script.append(Step.DROP)
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{spu.port}"):
        await connection.request(Api.PRODUCE, PRODUCE, batch(0, 1), timeout_s=5)
    assert not connection.usable
    with pytest.raises(UnreachableError):
        await connection.request(Api.LIST_OFFSETS, LIST, timeout_s=5)


@pytest.mark.parametrize("use", ["a-call", "a-post", "a-word", "nothing"])
async def test_given_a_handle_that_is_closed_without_a_word_then_the_connection_is_lost(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    _sc, spu = servers
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    real, handle = connection._transport, Mock()
    assert real is not None
    # As uvloop's transport then.
    handle.writelines.side_effect = RuntimeError("the handler is closed")
    monkeypatch.setattr(connection, "_transport", handle)
    monkeypatch.setattr("runnel.net.connection._CLOSE_S", 0.01)
    match use:
        case "a-call":
            with pytest.raises(UnreachableError, match="the handler is closed"):
                await connection.request(Api.LIST_OFFSETS, LIST, timeout_s=5)
        case "a-post":
            await connection.post(Api.CREDIT, b"", timeout_s=5)
        case "a-word":
            connection.tell(Api.CREDIT, b"")
    if use != "nothing":
        await asyncio.sleep(0)
        assert not connection.usable
        handle.abort.assert_called_once_with()
    # It need not be told once more that it is gone.
    async with asyncio.timeout(10):
        await connection.close()
    assert not connection.usable
    real.close()


async def test_given_silence_until_the_deadline_then_the_connection_is_given_up(
    servers: Servers,
) -> None:
    _sc, spu = servers
    spu.produce_script.append(Step.SILENCE)
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    with pytest.raises(DeadlineExceededError, match="did not answer within"):
        await connection.request(Api.PRODUCE, PRODUCE, batch(0, 1), timeout_s=0.02)
    assert not connection.usable
    await connection.close()


async def test_given_other_answers_before_the_deadline_then_the_connection_stays(
    servers: Servers,
) -> None:
    _sc, spu = servers
    spu.produce_script.append(Step.SILENCE)
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    late = await connection.start(Api.PRODUCE, PRODUCE, batch(0, 1), timeout_s=0.05)
    await asyncio.sleep(0.005)
    await connection.request(Api.LIST_OFFSETS, LIST, timeout_s=5)
    with pytest.raises(DeadlineExceededError):
        await late
    assert connection.usable
    await connection.close()


async def test_given_a_frame_beyond_the_peers_limit_then_it_is_not_sent(servers: Servers) -> None:
    _sc, spu = servers
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    with pytest.raises(InvalidRequestError, match="send smaller batches"):
        await connection.start(Api.PRODUCE, PRODUCE, bytes(70 << 20), timeout_s=5)
    await connection.close()


async def test_given_bytes_that_are_no_frame_then_the_connection_ends() -> None:
    ended = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()
        ended.set()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(UnreachableError, match="sent bytes that are not a frame"):
        await open_connection(Address("127.0.0.1", port), 5)
    await ended.wait()
    server.close()
    await server.wait_closed()


async def test_given_a_port_without_a_listener_then_the_error_names_it() -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(UnreachableError, match=f"no SPU answers at 127.0.0.1:{port}"):
        await open_connection(Address("127.0.0.1", port), 5)


async def test_given_two_users_of_one_address_then_they_share_a_connection(
    servers: Servers,
) -> None:
    _sc, spu = servers
    address = Address("127.0.0.1", spu.port)
    connections = ConnectionPool(CLUSTER_UID, lambda: 0.5)
    first, second = await asyncio.gather(connections.get(address, 5), connections.get(address, 5))
    assert first is second
    await first.close()
    assert await connections.get(address, 5) is not first
    await connections.close()
    with pytest.raises(UnreachableError, match="client is closed"):
        await connections.get(Address("127.0.0.1", 1), 5)


async def test_given_many_that_lost_one_spu_then_one_attempt_tells_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each asks the SC again then: if each made an attempt of its own, the last of ten partitions
    waited seconds for its turn to meet the same refusal."""
    attempts, refuse = list[Address](), asyncio.Event()

    async def refused(address: Address, _timeout_s: float) -> None:
        attempts.append(address)
        await refuse.wait()
        raise UnreachableError("connection refused")

    monkeypatch.setattr(pool_module, "open_connection", refused)
    connections = ConnectionPool(CLUSTER_UID, lambda: 0.5)
    address = Address("127.0.0.1", 1)
    waiting = [asyncio.create_task(connections.get(address, 30)) for _ in range(20)]
    await asyncio.sleep(0)
    refuse.set()
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert {str(outcome) for outcome in outcomes} == {"connection refused"}
    assert len(attempts) == 1
    # Who comes later makes another attempt, after the backoff.
    with pytest.raises(UnreachableError):
        await connections.get(address, 30)
    assert len(attempts) == 2


async def test_given_a_caller_whose_time_ends_then_others_still_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = list[float]()

    async def slow(_address: Address, timeout_s: float) -> None:
        attempts.append(timeout_s)
        await asyncio.sleep(timeout_s if len(attempts) == 1 else 0)
        raise UnreachableError("no answer in time")

    monkeypatch.setattr(pool_module, "open_connection", slow)
    connections = ConnectionPool(CLUSTER_UID, lambda: 0.5)
    address = Address("127.0.0.1", 1)
    calls = (connections.get(address, 0.1), connections.get(address, 30))
    await asyncio.gather(*calls, return_exceptions=True)
    assert len(attempts) == 2


async def test_given_another_cluster_then_the_connection_is_refused(servers: Servers) -> None:
    _sc, spu = servers
    connections = ConnectionPool("another", lambda: 0.5)
    with pytest.raises(RunnelError, match="belongs to cluster"):
        await connections.get(Address("127.0.0.1", spu.port), 5)
    await connections.close()


async def test_given_a_network_that_carries_nothing_then_a_call_fails_long_before_its_deadline(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sc, spu = servers
    spu.produce_script.append(Step.SILENCE)
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    monkeypatch.setattr(connection_module, "LOOK_EVERY_S", 0.001)
    said = Unacknowledged(1, LOST_AFTER - 1)
    monkeypatch.setattr(connection_module, "unacknowledged", lambda _transport: said)
    call = await connection.start(Api.PRODUCE, PRODUCE, batch(0, 1), timeout_s=60)
    await asyncio.sleep(0.02)
    assert not call.done()
    said = Unacknowledged(1, LOST_AFTER)
    async with asyncio.timeout(5):
        with pytest.raises(UnreachableError, match="network"):
            await call
    assert not connection.usable
    await connection.close()


async def test_given_a_silent_spu_then_something_is_sent_and_the_call_waits_on(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sc, spu = servers
    spu.produce_script.append(Step.SILENCE)
    connection = await open_connection(Address("127.0.0.1", spu.port), 5)
    monkeypatch.setattr(connection_module, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(connection_module, "unacknowledged", lambda _: Unacknowledged(0, 0))
    told: asyncio.Queue[Api] = asyncio.Queue()
    monkeypatch.setattr(connection, "tell", lambda api, _tail: told.put_nowait(api))
    call = await connection.start(Api.PRODUCE, PRODUCE, batch(0, 1), timeout_s=60)
    async with asyncio.timeout(5):
        assert {await told.get() for _ in range(3)} == {Api.CREDIT}
    assert not call.done()
    assert connection.usable
    await connection.close()
