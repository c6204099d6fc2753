"""The public port over real sockets: the protocol, its bounds, and what goes wrong."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from runnel.net import connection as client_connection
from runnel.net import pool as pool_module
from runnel.net.address import Address
from runnel.net.connection import open_connection
from runnel.net.pool import ConnectionPool
from schemas.control.messages import DeleteReplicas, Tombstone
from schemas.errors import (
    CorruptBatchError,
    ErrorCode,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
    OverloadedError,
    ProtocolError,
    RunnelError,
    UnreachableError,
    UnsupportedError,
)
from schemas.wire.keepalive import VANISHED
from schemas.wire.protocol import (
    FRAME_HEADER,
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    PREFIX,
    Api,
    HelloRequest,
    pack_frame,
)
from schemas.wire.record_requests import (
    EARLIEST,
    LATEST,
    Acks,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ProduceRequest,
    ProduceResponse,
)
from spu.server import connection as connection_module
from spu.server import listener as listener_module
from spu.server import turns
from spu.server.connection import MAX_IN_FLIGHT
from tests.integration.spu.client import Client
from tests.integration.spu.served import Served, serve
from tests.polling import eventually
from tests.unit.spu.builders import (
    CLUSTER,
    DEADLINE_S,
    STAMP,
    UID,
    assignment_of,
    batch_of,
    headers,
    new_uid,
    open_spu,
    settings_of,
    until,
)


async def test_given_a_hello_then_the_spu_says_who_it_is(served: Served) -> None:
    async with await Client.connect(served.port, hello=False) as client:
        response, cluster = await client.hello()
        assert (response.version, response.spu_id) == (1, 1)
        assert response.max_frame_bytes == MAX_FRAME_BYTES
        assert cluster == CLUSTER


async def test_given_records_then_they_are_produced_fetched_and_found(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        assert await client.produce(batch_of(3, time_us=2_000_000_000_000_000)) == ProduceResponse(
            1, 3
        )
        response, data = await client.fetch(1)
        assert (response.log_start, response.lac) == (0, 3)
        assert [header.base_offset for header in headers(data)] == [1]
        assert (await client.list_offsets(EARLIEST)).offset == 0
        assert (await client.list_offsets(LATEST)).offset == 4
        assert (await client.list_offsets(2_000_000_000_000_000)).offset == 1
        with pytest.raises(InvalidRequestError):
            await client.list_offsets(-9)
    counters = served.listener.counters
    assert counters.requests == {"hello": 1, "produce": 1, "fetch": 1, "list_offsets": 4}
    assert counters.errors == {"INVALID_REQUEST": 1}
    assert counters.bytes_in > 200
    assert counters.bytes_out > 200


async def test_given_a_large_batch_then_it_arrives_and_returns_whole(served: Served) -> None:
    batch = batch_of(9, bytes(range(256)) * (20 << 10))
    async with await Client.connect(served.port) as client:
        await client.produce(bytearray(batch))
        await client.produce(batch_of())
        _, data = await client.fetch(5, max_bytes=1)
        assert bytes(data[24:]) == bytes(batch[24:])
        response, data = await client.fetch(1, max_bytes=32 << 20)
        assert len(headers(data)) == 2
        assert response.lac == 10


async def test_given_a_long_poll_then_a_produce_wakes_it(served: Served) -> None:
    async with (
        await Client.connect(served.port) as reader,
        await Client.connect(served.port) as writer,
    ):
        waiting = asyncio.create_task(reader.fetch(1, max_wait_ms=60_000, min_bytes=200))
        far = FetchRequest(UID, 3, 1 << 20, 1, 60_000)
        await until(lambda: len(served.replica._records) == 1)
        await writer.produce(batch_of())
        await asyncio.sleep(0)
        assert not waiting.done()
        await writer.produce(batch_of())
        _, data = await waiting
        assert [header.base_offset for header in headers(data)] == [1, 2]
        # An offset above the end is not out of range: it will exist.
        reader.send(Api.FETCH, 9, far.pack())
        await until(lambda: len(served.replica._records) == 1)
        await writer.produce(batch_of())
        header, _, tail = await reader.receive()
        assert header.correlation == 9
        assert [header.base_offset for header in headers(tail)] == [3]


async def test_given_a_long_poll_in_vain_then_it_ends_empty(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        response, data = await client.fetch(1, max_wait_ms=20)
        assert (response.lac, len(data)) == (0, 0)
        assert len(served.replica._records) == 0


async def test_given_a_client_that_leaves_then_nothing_waits_for_it(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        for correlation in range(20):
            request = FetchRequest(UID, 1, 1 << 20, 1, 60_000)
            client.send(Api.FETCH, correlation, request.pack())
        await until(lambda: len(served.replica._records) == 20)
    await until(lambda: len(served.replica._records) == 0)
    assert served.listener.counters.connections == 0


async def test_given_many_requests_then_they_are_appended_in_order_and_all_answered(
    served: Served,
) -> None:
    count = 3 * MAX_IN_FLIGHT
    async with await Client.connect(served.port) as client:
        request = ProduceRequest(UID, Acks.COMMITTED, 10_000).pack()
        for correlation in range(count):
            client.send(Api.PRODUCE, correlation, request, batch_of())
        offsets = {}
        for _ in range(count):
            header, fixed, _ = await client.receive()
            assert header.status == 0
            offsets[header.correlation] = ProduceResponse.unpack(fixed).base_offset
    assert offsets == {correlation: correlation + 1 for correlation in range(count)}


async def test_given_answers_in_any_order_then_a_quick_one_overtakes(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        client.send(Api.FETCH, 1, FetchRequest(UID, 9, 100, 1, 60_000).pack())
        client.send(Api.LIST_OFFSETS, 2, ListOffsetsRequest(UID, EARLIEST).pack())
        header, _, _ = await client.receive()
        assert header.correlation == 2


async def test_given_acks_none_then_no_answer_but_appended(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        request = ProduceRequest(UID, Acks.NONE, 0).pack()
        client.send(Api.PRODUCE, 1, request, batch_of())
        broken = batch_of()
        broken[120] ^= 1
        client.send(Api.PRODUCE, 2, request, broken)
        assert (await client.produce(batch_of())).base_offset == 2


@pytest.mark.parametrize(
    ("api", "fixed", "error"),
    [
        pytest.param(99, b"", UnsupportedError, id="given-an-unknown-api-then-unsupported"),
        pytest.param(
            Api.FETCH,
            FetchRequest(new_uid(), 0, 1, 1, 0).pack(),
            NotFoundError,
            id="given-an-unknown-partition-then-not-found",
        ),
        pytest.param(
            Api.FETCH,
            FetchRequest(UID, -3, 1, 1, 0).pack(),
            InvalidRequestError,
            id="given-a-negative-offset-then-invalid",
        ),
        pytest.param(
            Api.PRODUCE,
            ProduceRequest(UID, Acks.LEADER, 0).pack(),
            CorruptBatchError,
            id="given-no-batch-then-corrupt",
        ),
    ],
)
async def test_given_a_refusal_then_the_connection_lives(
    served: Served, api: int, fixed: bytes, error: type[RunnelError]
) -> None:
    async with await Client.connect(served.port) as client:
        with pytest.raises(error):
            await client.call(api, 5, fixed)
        assert (await client.produce(batch_of())).base_offset == 1


async def test_given_an_unknown_version_then_unsupported_and_the_connection_lives(
    served: Served,
) -> None:
    async with await Client.connect(served.port) as client:
        client.writer.write(PREFIX.pack(FRAME_HEADER.size) + FRAME_HEADER.pack(2, 9, 0, 4, 0))
        error = await client.last_error()
        assert isinstance(error, UnsupportedError)
        assert error.details["correlation"] == 4
        await client.hello()


async def test_given_a_corrupt_batch_then_refused_and_the_connection_lives(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        for size in (100, 400_000):
            batch = batch_of(1, bytes(size))
            batch[-1] ^= 1
            with pytest.raises(CorruptBatchError, match="CRC32C"):
                await client.produce(batch)
        assert (await client.produce(batch_of())).base_offset == 1


@pytest.mark.parametrize(
    ("sent", "text", "correlation"),
    [
        pytest.param(
            PREFIX.pack(MAX_FRAME_BYTES + 1) + bytes(16), "more than", 0, id="given-a-huge-length"
        ),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "more than", 0, id="given-http"),
        pytest.param(PREFIX.pack(3) + b"abc", "shorter", 0, id="given-a-short-length"),
        pytest.param(
            PREFIX.pack(FRAME_HEADER.size) + FRAME_HEADER.pack(2, 1, 0, 6, 999),
            "does not fit into the frame",
            0,
            id="given-a-fixed-part-beyond-the-frame",
        ),
        pytest.param(
            b"".join(map(bytes, pack_frame(Api.PRODUCE, 6, b"short"))),
            "needs",
            6,
            id="given-a-short-fixed-part",
        ),
        pytest.param(
            b"".join(map(bytes, pack_frame(Api.PRODUCE, 6, bytes(16) + b"\x09" + bytes(15)))),
            "bad produce request",
            6,
            id="given-unknown-acks",
        ),
    ],
)
async def test_given_bytes_that_are_no_frame_then_answered_and_closed(
    served: Served, sent: bytes, text: str, correlation: int
) -> None:
    async with await Client.connect(served.port) as client:
        client.writer.write(sent)
        error = await client.last_error()
        assert isinstance(error, ProtocolError)
        assert text in error.message
        assert error.details["correlation"] == correlation
        assert await client.closed()


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        pytest.param(
            pack_frame(Api.LIST_OFFSETS, 1, ListOffsetsRequest(UID, EARLIEST).pack())[0],
            ProtocolError,
            id="given-no-hello-then-protocol-error",
        ),
        pytest.param(
            pack_frame(Api.HELLO, 1, HelloRequest(7, 9).pack())[0],
            UnsupportedError,
            id="given-newer-versions-then-unsupported",
        ),
        pytest.param(
            pack_frame(Api.HELLO, 1, b"KAFK" + bytes(4))[0],
            ProtocolError,
            id="given-another-magic-then-protocol-error",
        ),
    ],
)
async def test_given_a_bad_start_then_answered_and_closed(
    served: Served, sent: bytes, error: type[RunnelError]
) -> None:
    async with await Client.connect(served.port, hello=False) as client:
        client.writer.write(sent)
        assert isinstance(await client.last_error(), error)
        assert await client.closed()


async def test_given_silence_instead_of_a_hello_then_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "HELLO_TIMEOUT_S", 0.01)
    async with await Client.connect(served.port, hello=False) as client:
        assert isinstance(await client.last_error(), ProtocolError)
        assert await client.closed()


async def test_given_too_many_connections_then_the_next_is_told(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path)
    async with serve(spu, max_connections=1) as served:
        async with await Client.connect(served.port) as first:
            async with await Client.connect(served.port, hello=False) as second:
                assert isinstance(await second.last_error(), OverloadedError)
                assert await second.closed()
            await first.hello()
        await until(lambda: served.listener.counters.connections == 0)
        async with await Client.connect(served.port) as third:
            await third.hello()


async def test_given_a_client_that_does_not_read_then_its_memory_is_bounded(
    served: Served,
) -> None:
    # All answers are ten times what may be held for the client.
    size, count = 1 << 20, 25
    async with await Client.connect(served.port) as writer:
        for _ in range(16):
            await writer.produce(batch_of(2, bytes(size)), Acks.LEADER)
        await until(lambda: served.replica.lac == 32)
    async with await Client.connect(served.port, hello=False) as slow:
        slow.send(Api.HELLO, 0, HelloRequest(1, 1).pack())
        for correlation in range(count):
            request = FetchRequest(UID, 1, 16 << 20, 1, 0)
            slow.send(Api.FETCH, correlation, request.pack())
        # Socket buffers take some; what they do not take stops the connection from reading on.
        await until(lambda: any(not one._writable for one in served.listener._connections))
        (stalled,) = [one for one in served.listener._connections if not one._writable]
        assert stalled._transport is not None
        # Each request of another client is a turn in which more could be answered.
        async with await Client.connect(served.port) as other:
            for _ in range(count):
                await other.list_offsets(-1)
        assert stalled._transport.get_write_buffer_size() < 40 << 20
        await slow.receive()
        answered = []
        for _ in range(count):
            header, _, tail = await slow.receive()
            answered.append(header.correlation)
            assert len(tail) > 15 * size
        # In whatever order: what had to be read from the disk comes later.
        assert sorted(answered) == list(range(count))


async def test_given_long_polls_woken_for_a_client_that_does_not_read_then_answers_wait(
    served: Served,
) -> None:
    async with await Client.connect(served.port, hello=False) as slow:
        slow.send(Api.HELLO, 0, HelloRequest(1, 1).pack())
        for correlation in range(20):
            request = FetchRequest(UID, 1, 16 << 20, 12 << 20, 60_000)
            slow.send(Api.FETCH, correlation, request.pack())
        await until(lambda: len(served.replica._records) == 20)
        async with await Client.connect(served.port) as writer:
            for _ in range(3):
                await writer.produce(batch_of(2, bytes(4 << 20)))
        await until(lambda: any(not one._writable for one in served.listener._connections))
        (stalled,) = [one for one in served.listener._connections if not one._writable]
        assert stalled._transport is not None
        assert stalled._transport.get_write_buffer_size() < 30 << 20
        await slow.receive()
        for _ in range(20):
            header, _, tail = await slow.receive()
            assert header.status == 0
            assert len(tail) > 12 << 20


async def test_given_more_requests_than_may_be_unanswered_then_the_rest_waits(
    served: Served,
) -> None:
    async with await Client.connect(served.port) as client:
        for correlation in range(MAX_IN_FLIGHT + 50):
            client.send(Api.FETCH, correlation, FetchRequest(UID, 1, 100, 1, 60_000).pack())
        await until(lambda: len(served.replica._records) == MAX_IN_FLIGHT)
        (connection,) = served.listener._connections
        assert not connection._reading
        async with await Client.connect(served.port) as writer:
            await writer.produce(batch_of())
        answered = {(await client.receive())[0].correlation for _ in range(MAX_IN_FLIGHT + 50)}
        assert answered == set(range(MAX_IN_FLIGHT + 50))


async def test_given_old_data_on_disk_then_many_fetches_are_served_from_threads(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=1 << 12)))
    await spu.serve()
    async with serve(spu) as served, await Client.connect(served.port) as client:
        for _ in range(100):
            await client.produce(batch_of(1, bytes(200)), Acks.LEADER)
        await until(lambda: spu.replica.lac == 100)
        for offset in range(1, 100):
            request = FetchRequest(UID, offset, 1, 1, 0)
            client.send(Api.FETCH, offset, request.pack())
        for _ in range(1, 100):
            header, fixed, tail = await client.receive()
            assert header.status == 0
            assert FetchResponse.unpack(fixed).lac == 100
            assert headers(tail)[0].base_offset == header.correlation


async def test_given_a_deleted_partition_then_waiting_clients_are_told(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        waiting = asyncio.create_task(client.fetch(1, max_wait_ms=60_000))
        await until(lambda: len(served.replica._records) == 1)
        tombstone = Tombstone(uid=UID, spu_id=1)
        await served.spu.host.delete(DeleteReplicas(tombstones=(tombstone,), stamp=STAMP))
        with pytest.raises(NotFoundError):
            await waiting
        with pytest.raises(NotFoundError):
            await client.produce(batch_of())


async def test_given_a_truncated_log_then_fetch_names_the_first_offset(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        await client.produce(batch_of(5))
        served.replica._log.truncate_prefix(1)
        served.replica.tick(served.spu.now_us)
        await until(lambda: served.replica.log_start == 1)
        with pytest.raises(OffsetOutOfRangeError, match="first available offset is 1"):
            await client.fetch(0)


async def test_given_a_close_then_clients_see_the_end(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        client.send(Api.FETCH, 1, FetchRequest(UID, 1, 100, 1, 60_000).pack())
        await until(lambda: len(served.replica._records) == 1)
        async with asyncio.timeout(DEADLINE_S):
            await served.listener.close()
        assert await client.closed()


async def test_given_a_long_first_frame_then_refused_before_anything_of_it_comes(
    served: Served,
) -> None:
    async with await Client.connect(served.port, hello=False) as client:
        client.writer.write(PREFIX.pack(MAX_FIRST_FRAME_BYTES + 1))
        error = await client.last_error()
        assert isinstance(error, ProtocolError)
        assert "more than the 4096 allowed" in error.message
        assert await client.closed()


async def test_given_announced_frames_that_do_not_come_then_they_cost_what_came_and_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CHECK_EVERY_S", 0.2)
    clients = [await Client.connect(served.port) for _ in range(40)]
    for client in clients:
        client.writer.write(PREFIX.pack(MAX_FRAME_BYTES) + bytes(96))
    await until(lambda: all(one._bytes_in > 96 for one in served.listener._connections))
    assert served.listener._budget.used_bytes == 0
    async with await Client.connect(served.port) as other:
        await other.produce(batch_of(9, bytes(3 << 20)))
    for client in clients:
        error = await client.last_error()
        assert isinstance(error, ProtocolError)
        assert "stopped arriving" in error.message
        assert await client.closed()
        await client.close()


async def test_given_a_client_that_sends_nothing_then_it_is_no_frame_that_stopped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CHECK_EVERY_S", 0.01)
    async with await Client.connect(served.port) as client:
        await asyncio.sleep(0.05)
        assert (await client.produce(batch_of())).base_offset == 1


async def test_given_a_full_budget_then_large_frames_take_turns_and_all_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "FRAME_BUDGET_BYTES", 1 << 20)
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    async with serve(spu) as served:
        clients = [await Client.connect(served.port) for _ in range(8)]
        produced = [client.produce(batch_of(9, bytes(3 << 20))) for client in clients]
        answers = await asyncio.gather(*produced)
        assert sorted(answer.base_offset for answer in answers) == list(range(1, 73, 9))
        for client in clients:
            await client.close()
        await until(lambda: not served.listener._connections)
        assert served.listener._budget.used_bytes == 0


async def test_given_silent_connections_then_clients_get_in(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    async with serve(spu, max_connections=100) as served:
        silent = [await Client.connect(served.port, hello=False) for _ in range(49)]
        async with await Client.connect(served.port) as client:
            await client.produce(batch_of())
            # One more from the same host is more than its share, whoever it is.
            async with await Client.connect(served.port, hello=False) as one_more:
                assert isinstance(await one_more.last_error(), OverloadedError)
        for one in silent:
            await one.close()


async def test_given_a_frame_that_stops_while_others_have_their_turn_then_it_ends_all_the_same(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CHECK_EVERY_S", 0.3)
    # Each piece that arrives waits for its turn.
    monkeypatch.setattr(turns, "ROUND_S", 0.0)
    announced = PREFIX.pack(1 << 20) + FRAME_HEADER.pack(Api.PRODUCE, 1, 0, 1, 0)
    async with await Client.connect(served.port) as client:
        client.writer.write(announced)
        error = asyncio.create_task(client.last_error())
        async with asyncio.timeout(5):
            while not error.done():
                client.writer.write(b"x")
                await asyncio.sleep(0.01)
        assert "stopped arriving" in str(await error)


async def test_given_thousands_of_requests_then_others_have_their_turn_meanwhile(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In one turn of the event loop one request is served.
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(turns, "ROUND_S", 0.0)
    count, unknown = 2_000, 99
    async with await Client.connect(served.port) as many, await Client.connect(served.port) as one:
        many.writer.write(b"".join(pack_frame(unknown, 1, b"")) * count)
        await eventually(lambda: served.listener.counters.errors.get("UNSUPPORTED", 0) > 0)
        await one.list_offsets(-1)
        assert served.listener.counters.errors["UNSUPPORTED"] < count
        for _ in range(count):
            header, _fixed, _tail = await many.receive()
            assert header.status == ErrorCode.UNSUPPORTED
        await many.list_offsets(-1)


def _tcp(transport: asyncio.BaseTransport, option: int) -> int:
    value: int = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, option)
    return value


async def test_given_a_connection_then_both_ends_ask_whether_the_other_is_still_there(
    served: Served,
) -> None:
    client = await open_connection(Address("127.0.0.1", served.port), DEADLINE_S)
    try:
        for transport in (client._transport, served.connection._transport):
            assert transport is not None
            found = transport.get_extra_info("socket")
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if sys.platform == "linux":
                assert _tcp(transport, socket.TCP_KEEPIDLE) == VANISHED.idle_s
                assert _tcp(transport, socket.TCP_KEEPINTVL) == VANISHED.interval_s
                assert _tcp(transport, socket.TCP_KEEPCNT) == VANISHED.probes
                assert _tcp(transport, socket.TCP_USER_TIMEOUT) == VANISHED.unacknowledged_ms
    finally:
        await client.close()


async def test_given_a_client_that_is_silent_for_long_then_it_frees_its_slot_and_a_live_one_stays(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CHECK_EVERY_S", 0.05)
    monkeypatch.setattr(connection_module, "IDLE_LIMIT_S", 1.0)
    monkeypatch.setattr(client_connection, "PING_EVERY_S", 0.02)
    live = await open_connection(Address("127.0.0.1", served.port), DEADLINE_S)
    try:
        async with await Client.connect(served.port) as silent:
            error = await silent.last_error()
            assert isinstance(error, UnreachableError)
            assert "nothing came from the client" in error.message
            assert await silent.closed()
        assert live.usable
        assert served.connection._frames_in > 2
    finally:
        await live.close()


async def test_given_too_many_connections_then_a_client_says_so_at_once_and_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def must_not_be_called(*_: object) -> None:
        raise AssertionError("there was no time for an attempt")

    spu = await open_spu(tmp_path)
    async with serve(spu, max_connections=1) as served, await Client.connect(served.port):
        pool = ConnectionPool(CLUSTER, lambda: 0.99)
        address = Address("127.0.0.1", served.port)
        with pytest.raises(OverloadedError, match="has 1 connections"):
            await pool.get(address, DEADLINE_S)
        monkeypatch.setattr(pool_module, "open_connection", must_not_be_called)
        with pytest.raises(OverloadedError, match="has 1 connections"):
            await pool.get(address, 0.001)
        await pool.close()
