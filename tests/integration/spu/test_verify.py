"""VERIFY over real sockets: an SPU verifies its own replica while it serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.control.messages import ReplicaRole
from schemas.errors import (
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    StorageFailedError,
)
from schemas.ids import PartitionUid
from schemas.objects.topic import Durability
from schemas.wire.log_requests import VerifyRequest, VerifyResponse
from schemas.wire.protocol import Api
from schemas.wire.record_requests import EARLIEST, NO_FLAGS, NO_OFFSET, FetchFlags
from spu.server import verifications
from spu.server.listener import Listener
from spu.storage.readable_log import ReadableLog
from spu.storage.reader import ReadResult
from spu.storage.verification import Verification
from tests.integration.spu.client import Client
from tests.integration.spu.cluster import Cluster
from tests.integration.spu.served import Served, serve
from tests.unit.spu.builders import (
    UID,
    assignment_of,
    batch_of,
    new_uid,
    open_spu,
    produce,
    settings_of,
    until,
)
from tests.unit.spu.storage.test_verification import flip

WAIT_MS = 60_000


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A leader of some segments with records; offset 0 is its control record."""
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=1_024)))
    replica = await spu.serve()
    for _ in range(20):
        await produce(replica, batch_of(2, b"x" * 160))
    async with serve(spu) as found:
        yield found


async def ask(
    client: Client,
    offset: int = EARLIEST,
    *,
    wait_ms: int = WAIT_MS,
    start: int = 0,
    upto: int = 1 << 40,
    uid: PartitionUid = UID,
) -> tuple[VerifyResponse, list[dict[str, Any]]]:
    request = VerifyRequest(uid, offset, start, upto, wait_ms)
    fixed, tail = await client.call(Api.VERIFY, 7, request.pack())
    return VerifyResponse.unpack(fixed), json.loads(bytes(tail))["problems"]


async def test_given_a_whole_replica_then_it_is_verified_to_its_durable_end(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        found, problems = await ask(client)
    assert problems == []
    assert (found.finished, found.end, found.next_offset) == (1, 41, 41)
    assert (found.batches, found.records, found.compared_from) == (21, 40, 0)
    assert (found.log_start, found.lac) == (0, 40)
    assert found.checked_bytes == found.size_bytes == served.replica.size_bytes
    assert found.segments > 4
    assert served.listener.counters.requests["verify"] == 1


async def test_it_goes_on_where_it_was(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifications, "SLICE_BYTES", 1)
    async with await Client.connect(served.port) as client:
        found, _ = await ask(client, wait_ms=0)
        assert (found.finished, found.next_offset, found.end) == (0, NO_OFFSET, 41)
        steps = 0
        while not found.finished:
            found, _ = await ask(client, found.next_offset, wait_ms=1)
            steps += 1
        assert steps > 1
        assert (found.batches, found.next_offset) == (21, 41)
        whole, _ = await ask(client)
        assert whole.digest == found.digest


@pytest.mark.parametrize(
    ("offset", "uid", "error"),
    [
        pytest.param(5, UID, InvalidRequestError, id="given-another-offset"),
        pytest.param(EARLIEST, new_uid(), NotFoundError, id="given-another-partition"),
    ],
)
async def test_steps_that_are_refused(
    served: Served, offset: int, uid: PartitionUid, error: type[Exception]
) -> None:
    async with await Client.connect(served.port) as client:
        await ask(client, wait_ms=0)
        with pytest.raises(error):
            await ask(client, offset, uid=uid)


async def test_given_no_beginning_then_refused(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        with pytest.raises(InvalidRequestError, match="begin with -2"):
            await ask(client, NO_OFFSET)


async def test_one_step_of_a_connection_at_a_time(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        for correlation in (1, 2):
            client.send(Api.VERIFY, correlation, VerifyRequest(UID, EARLIEST, 0, 0, WAIT_MS).pack())
        error = await client.last_error()
        assert isinstance(error, OverloadedError)
        assert error.details["correlation"] == 2
        header, _fixed, _tail = await client.receive()
        assert (header.correlation, header.status) == (1, 0)


async def test_two_connections_take_turns_and_both_end(served: Served) -> None:
    async with await Client.connect(served.port) as one, await Client.connect(served.port) as two:
        (first, _), (second, _) = await asyncio.gather(ask(one), ask(two))
    assert first.digest == second.digest
    assert first.finished == second.finished == 1


async def test_records_are_taken_and_served_meanwhile(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifications, "SLICE_BYTES", 1)
    async with (
        await Client.connect(served.port) as verifier,
        await Client.connect(served.port) as client,
    ):
        verification = asyncio.create_task(ask(verifier))
        for number in range(5):
            assert (await client.produce(batch_of())).base_offset == 41 + number
            assert (await client.fetch(0))[0].lac == 41 + number
        found, problems = await verification
    assert problems == []
    assert found.next_offset == 41


async def test_given_damage_then_it_is_told_and_the_replica_is_unfit(
    served: Served, tmp_path: Path
) -> None:
    flip(tmp_path / "partitions" / UID / f"{0:020d}.log", 700)
    async with await Client.connect(served.port) as client:
        found, (problem,) = await ask(client)
        assert (problem["file"], problem["severity"]) == (f"{0:020d}.log", "damage")
        assert problem["position"] < 700
        assert found.finished == 1
        assert found.next_offset < found.end
        assert not served.replica.fit
        assert not served.spu.reports[-1].fit
        with pytest.raises(StorageFailedError, match="client CRC32C"):
            await ask(client)


async def test_given_a_damaged_index_then_it_is_built_again_and_reads_go_on(
    served: Served, tmp_path: Path
) -> None:
    index = tmp_path / "partitions" / UID / f"{0:020d}.index"
    index.write_bytes(b"nothing of it")
    async with await Client.connect(served.port) as client:
        found, (problem,) = await ask(client)
        assert problem["rebuilt"] is True
        assert found.next_offset == found.end
        assert served.replica.fit
        assert (await ask(client))[1] == []
        assert (await client.fetch(1))[0].lac == 40


async def test_given_too_many_open_files_then_nothing_is_concluded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Verification, log: object, max_bytes: int) -> None:
        raise OSError(24, "Too many open files")

    async with await Client.connect(served.port) as client:
        with monkeypatch.context() as patched:
            patched.setattr(Verification, "advance", fails)
            with pytest.raises(OverloadedError, match="Too many open files"):
                await ask(client)
        assert served.replica.fit
        assert (await ask(client))[0].finished == 1


async def test_given_a_client_that_leaves_then_its_verification_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Verification] = []
    close = Verification.close

    def noted(self: Verification) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(verifications, "SLICE_BYTES", 1)
    client = await Client.connect(served.port)
    found, _ = await ask(client, wait_ms=1)
    assert not found.finished
    client.send(Api.VERIFY, 2, VerifyRequest(UID, found.next_offset, 0, 0, WAIT_MS).pack())
    await client.fetch(0)
    monkeypatch.setattr(Verification, "close", noted)
    await client.close()
    await until(lambda: bool(closed) and not served.listener._verifying.locked())
    assert not closed[-1].finished


@pytest.mark.parametrize("durability", list(Durability), ids=lambda one: one.value)
async def test_replicas_are_alike_and_a_damaged_follower_heals(
    tmp_path: Path, durability: Durability, short_pauses: None
) -> None:
    cluster = Cluster(tmp_path, 2, settings_of(segment=1_024, durability=durability))
    leader = await cluster.begin()
    await cluster.whole()
    for _ in range(20):
        await produce(leader, batch_of(2, b"x" * 160))
    await cluster.whole()
    listeners = [Listener(spu.host) for spu in cluster.spus.values()]
    ports = [await listener.start("127.0.0.1", 0) for listener in listeners]

    async def both() -> list[tuple[VerifyResponse, list[dict[str, Any]]]]:
        found = []
        for port in ports:
            async with await Client.connect(port) as client:
                found.append(await ask(client, upto=leader.lac + 1))
        return found

    (one, _), (other, _) = await both()
    assert one.digest == other.digest
    assert one.next_offset == other.next_offset == leader.lac + 1

    flip(tmp_path / "1" / "partitions" / UID / f"{0:020d}.log", 700)
    (_, fine), (_, wrong) = await both()
    assert (fine, len(wrong)) == ([], 1)
    await cluster.whole()
    (one, _), (other, wrong) = await both()
    assert wrong == []
    assert one.digest == other.digest
    for listener in listeners:
        await listener.close()
    await cluster.close()


async def test_given_a_log_that_is_cut_then_the_verification_begins_anew(served: Served) -> None:
    async with await Client.connect(served.port) as client:
        found, _ = await ask(client, wait_ms=0)
        log, _end = served.replica.verifiable()
        log.truncate_suffix(9)
        with pytest.raises(NotReadyError):
            await ask(client, found.next_offset)
        with pytest.raises(InvalidRequestError):
            await ask(client, found.next_offset)


async def test_given_a_fetch_of_verified_batches_then_damage_makes_the_replica_unfit(
    served: Served,
) -> None:
    segment = served.replica._log.segments[1]
    second = segment.base_offset + 2
    async with await Client.connect(served.port) as client:
        plain, verified = [
            await client.fetch(second, flags=flags) for flags in (NO_FLAGS, FetchFlags.VERIFIED)
        ]
        assert verified == plain
        assert not len((await client.fetch(served.replica.leo, flags=FetchFlags.VERIFIED))[1])
        # A bit of a record of the third batch: an SPU reads only headers, so it does not notice.
        size = segment.size // ((segment.end_offset - segment.base_offset) // 2)
        flip(segment.path, 3 * size - 40)
        assert len((await client.fetch(second))[1]) == len(plain[1])
        assert served.replica.fit
        with pytest.raises(StorageFailedError, match=rf"at byte {2 * size}: .*CRC32C") as refused:
            await client.fetch(second, flags=FetchFlags.VERIFIED)
        assert segment.path in refused.value.message
    report = served.replica.report()
    assert (report.fit, report.role) == (False, ReplicaRole.STOPPED)


async def test_given_a_fetch_of_verified_batches_that_are_being_cut_then_nothing_is_damaged(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, read = served.replica._log, ReadableLog.read

    def cut(self: ReadableLog, *args: Any, **options: Any) -> ReadResult:
        found = read(self, *args, **options)
        found.data[-1] ^= 1
        # As if the log was cut in this segment after the read.
        self._segments = tuple(
            replace(one, end_offset=one.end_offset - 2) for one in self._segments
        )
        return found

    monkeypatch.setattr(ReadableLog, "read", cut)
    async with await Client.connect(served.port) as client:
        with pytest.raises(NotReadyError, match="cut"):
            await client.fetch(log.segments[1].base_offset, flags=FetchFlags.VERIFIED)
    assert served.replica.fit
