"""Reading by push over real sockets: what is sent, when nothing is, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from schemas.control.messages import (
    AssignPartitions,
    DeleteReplicas,
    Lead,
    LeadPartitions,
    Tombstone,
)
from schemas.daemon import page_cache
from schemas.daemon.page_cache import CAN_REFUSE_TO_WAIT
from schemas.errors import (
    DivergedError,
    InvalidRequestError,
    NotFoundError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OverloadedError,
    ProtocolError,
    RunnelError,
)
from schemas.ids import PartitionUid
from schemas.objects.partition import LiveReplica
from schemas.wire.protocol import Api
from schemas.wire.record_requests import NO_FLAGS, FetchFlags, FetchRequest
from schemas.wire.subscription_requests import (
    Grant,
    PushResponse,
    SubscribeRequest,
    SubscriptionEntry,
    pack_numbers,
)
from spu.replica.replica import Found, Replica
from spu.server import subscriptions as subscriptions_module
from spu.server.listener import Listener
from spu.server.subscriptions import QUANTUM_BYTES
from spu.storage import reader as reader_module
from tests.integration.spu.client import Subscriber
from tests.integration.spu.cluster import Cluster
from tests.integration.spu.served import Served, serve
from tests.unit.spu.builders import (
    DEADLINE_S,
    STAMP,
    TERM,
    UID,
    assign,
    assignment_of,
    batch_of,
    headers,
    new_uid,
    open_spu,
    produce,
    settings_of,
    until,
)

MANY = 1 << 20


def entry(
    number: int = 1,
    offset: int = 0,
    credit: int = MANY,
    uid: PartitionUid = UID,
    term: int = 0,
    flags: FetchFlags = NO_FLAGS,
) -> SubscriptionEntry:
    return SubscriptionEntry(number, uid, offset, term, credit, flags)


def assigned(*uids: PartitionUid) -> AssignPartitions:
    return assign(
        *(
            assignment_of(uid, name=f"many-{index}", index=index, log=settings_of(segment=64 << 20))
            for index, uid in enumerate(uids)
        )
    )


async def test_given_records_then_they_are_pushed_and_so_are_those_that_come(
    served: Served,
) -> None:
    await produce(served.spu.replica, batch_of(3))
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(entry())
        number, bounds, data = await client.pushed()
        assert (number, bounds) == (1, PushResponse(0, 3, 4))
        assert [one.base_offset for one in headers(data)] == [0, 1]
        for index in range(3):
            batch = batch_of(2, b"%d" % index)
            await produce(served.spu.replica, bytearray(batch))
            _, bounds, data = await client.pushed()
            assert bounds == PushResponse(0, 5 + 2 * index, 6 + 2 * index)
            assert bytes(data[24:]) == bytes(batch[24:]), "verbatim, but for the leader's part"
        # What is read next is asked for in the term of what was sent.
        assert served.connection._requests._subscriptions._open[1].term == TERM


async def test_given_nothing_new_then_the_bounds_are_told_once(served: Served) -> None:
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(offset=1), entry(2, offset=99))
        for number, offset in ((1, 1), (2, 99)):
            found, bounds, data = await client.pushed()
            assert (found, bounds, len(data)) == (number, PushResponse(0, 0, offset), 0)
        await client.nothing_came()
        await produce(served.spu.replica, batch_of(1))
        assert (await client.pushed())[0] == 1
        await client.nothing_came()


async def test_given_an_offset_inside_a_batch_then_its_batch_is_pushed(served: Served) -> None:
    await produce(served.spu.replica, batch_of(5))
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(offset=3))
        _, bounds, data = await client.pushed()
        assert [one.base_offset for one in headers(data)] == [1]
        assert bounds.next_offset == 6


async def test_given_no_more_credit_then_nothing_is_pushed_until_there_is_some(
    served: Served,
) -> None:
    replica = served.spu.replica
    size = len(batch_of(1, bytes(1_000)))
    for _ in range(5):
        await produce(replica, batch_of(1, bytes(1_000)))
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(offset=1, credit=0))
        await client.pushed()
        assert client.offsets[1] == [1], "at least one batch"
        await client.nothing_came()
        client.grant(Grant(1, size - 1))
        await client.nothing_came()
        client.grant(Grant(1, 1), Grant(99, 1))
        assert len((await client.pushed())[2]) == size
        assert client.offsets[1] == [1, 2]
        client.grant(Grant(1, 3 * size - 1))
        await client.pushed()
        assert client.offsets[1] == [1, 2, 3, 4], "what is left of the credit counts"


async def test_given_entries_that_are_refused_then_the_others_go_on(served: Served) -> None:
    replica = served.spu.replica
    await produce(replica, batch_of(5))
    other = new_uid()
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(
            entry(1, uid=other),
            entry(2, offset=-3),
            entry(3, offset=5, term=TERM + 1),
            entry(4, offset=1),
        )
        found = {}
        for _ in range(4):
            try:
                number, _, _ = await client.pushed()
            except RunnelError as error:
                found[error.details["number"]] = error
            else:
                assert number == 4
        assert isinstance(found[1], NotFoundError)
        assert isinstance(found[2], InvalidRequestError)
        with pytest.raises(DivergedError) as fetching:
            replica.fetch(FetchRequest(UID, 5, 1, 1, 0, TERM + 1))
        assert isinstance(found[3], DivergedError)
        assert found[3].diverged_at == fetching.value.diverged_at
        await client.nothing_came()
        await produce(replica, batch_of(1))
        assert (await client.pushed())[0] == 4


async def test_given_a_replica_that_does_not_lead_then_only_followers_reads_are_taken(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    async with serve(spu) as served, await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(1), entry(2, flags=FetchFlags.FOLLOWER_OK))
        assert isinstance(await client.refused(), NotLeaderError)
        assert (await client.pushed())[0] == 2


async def test_given_a_log_that_is_cut_under_its_reader_then_it_is_told(served: Served) -> None:
    replica = served.spu.replica
    for _ in range(3):
        await produce(replica, batch_of(4))
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(offset=1, credit=1))
        await client.pushed()
        replica._log.truncate_prefix(9)
        replica.tick(served.spu.now_us)
        await until(lambda: replica.log_start == 9)
        client.grant(Grant(1, MANY))
        error = await client.refused()
        assert isinstance(error, OffsetOutOfRangeError)
        assert "first available offset is 9" in error.message
        await client.subscribe(entry(2, offset=9))
        assert (await client.pushed())[1] == PushResponse(9, 12, 13)


async def test_given_a_deleted_partition_then_its_subscriptions_end_and_others_go_on(
    served: Served,
) -> None:
    other = new_uid()
    await served.spu.host.assign(assigned(other))
    await served.spu.serve(other)
    async with await Subscriber.connect(served.port) as client:
        # One waits for records, one for credit.
        await client.subscribe(entry(1, offset=1), entry(2, credit=1), entry(3, 1, uid=other))
        for _ in range(3):
            await client.pushed()
        tombstone = Tombstone(uid=UID, spu_id=1)
        await served.spu.host.delete(DeleteReplicas(tombstones=(tombstone,), stamp=STAMP))
        ended = [await client.refused(), await client.refused()]
        assert all(isinstance(error, NotFoundError) for error in ended)
        assert {error.details["number"] for error in ended} == {1, 2}
        await client.nothing_came()
        assert len(served.connection._requests._subscriptions) == 1


async def test_given_an_end_then_nothing_more_is_pushed(served: Served) -> None:
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(1, 1), entry(2, 1))
        await client.pushed()
        await client.pushed()
        client.send(Api.UNSUBSCRIBE, 7, b"", pack_numbers([1, 77]))
        await client.nothing_came()
        await produce(served.spu.replica, batch_of())
        assert (await client.pushed())[0] == 2
        await client.nothing_came()
    await until(lambda: not served.listener._connections)
    assert not len(served.spu.replica._listeners), "who has gone leaves nothing behind"


async def test_given_a_number_twice_then_nothing_begins(served: Served) -> None:
    async with await Subscriber.connect(served.port) as client:
        with pytest.raises(InvalidRequestError):
            await client.subscribe(entry(1), entry(1))
        await client.subscribe(entry(1))
        await client.pushed()
        with pytest.raises(InvalidRequestError):
            await client.subscribe(entry(2), entry(1))
        await produce(served.spu.replica, batch_of())
        assert (await client.pushed())[0] == 1
        await client.nothing_came()


async def test_given_too_many_subscriptions_then_the_rest_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions_module, "MAX_SUBSCRIPTIONS", 2)
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(1), entry(2), entry(3))
        error = await client.refused()
        assert isinstance(error, OverloadedError)
        assert error.details["number"] == 3
        assert {(await client.pushed())[0] for _ in range(2)} == {1, 2}


@pytest.mark.parametrize(
    ("api", "fixed", "tail"),
    [
        (Api.SUBSCRIBE, b"", b""),
        (Api.SUBSCRIBE, SubscribeRequest(48).pack(), bytes(47)),
        (Api.SUBSCRIBE, SubscribeRequest(47).pack(), bytes(47)),
        (Api.SUBSCRIBE, SubscribeRequest(0).pack(), b""),
        (Api.CREDIT, b"", bytes(7)),
        (Api.UNSUBSCRIBE, b"", bytes(3)),
    ],
    ids=[
        "given-no-length-of-entries-then-the-end",
        "given-half-an-entry-then-the-end",
        "given-short-entries-then-the-end",
        "given-entries-of-no-bytes-then-the-end",
        "given-half-a-grant-then-the-end",
        "given-half-a-number-then-the-end",
    ],
)
async def test_what_makes_no_sense(served: Served, api: Api, fixed: bytes, tail: bytes) -> None:
    async with await Subscriber.connect(served.port) as client:
        client.send(api, 9, fixed, tail)
        error = await client.last_error()
        assert isinstance(error, ProtocolError)
        assert error.details["correlation"] == 9
        assert await client.closed()


async def test_given_longer_entries_then_what_is_known_of_them_counts(served: Served) -> None:
    async with await Subscriber.connect(served.port) as client:
        tail = entry(1).pack() + bytes(8) + entry(2, 1).pack() + bytes(8)
        client.send(Api.SUBSCRIBE, 5, SubscribeRequest(56).pack(), tail)
        assert (await client.receive())[0].api == Api.SUBSCRIBE
        assert {(await client.pushed())[0] for _ in range(2)} == {1, 2}


async def test_given_much_in_several_partitions_then_they_take_turns(served: Served) -> None:
    others = [UID, new_uid(), new_uid()]
    await served.spu.host.assign(assigned(*others[1:]))
    for uid in others[1:]:
        await served.spu.serve(uid)
    for uid in others:
        for _ in range(6):
            await produce(served.spu.host.replica(uid), batch_of(1, bytes(QUANTUM_BYTES)))
    async with await Subscriber.connect(served.port) as client:
        await client.subscribe(*(entry(n, 1, 1 << 30, uid) for n, uid in enumerate(others)))
        assert [(await client.pushed())[0] for _ in range(18)] == [0, 1, 2] * 6


@pytest.mark.parametrize(
    "cold", [False, True], ids=["given-records-in-memory", "given-records-on-the-disk"]
)
async def test_given_a_client_that_does_not_read_then_its_memory_is_bounded(
    served: Served, cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [UID, *(new_uid() for _ in range(19))]
    await served.spu.host.assign(assigned(*others[1:]))
    for uid in others[1:]:
        await served.spu.serve(uid)
    for uid in others:
        for _ in range(4):
            await produce(served.spu.host.replica(uid), batch_of(1, bytes(1 << 20)))
    if cold:
        read_at = page_cache.read_at

        def from_disk(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
            if not wait:
                raise BlockingIOError
            return read_at(fd, view, position, wait=True)

        monkeypatch.setattr(reader_module, "read_at", from_disk)
    async with await Subscriber.connect(served.port) as slow:
        fixed = SubscribeRequest(48).pack()
        tail = b"".join(entry(n, 1, 1 << 30, uid).pack() for n, uid in enumerate(others))
        slow.send(Api.SUBSCRIBE, 5, fixed, tail)
        await until(lambda: bool(served.listener._connections))
        await until(lambda: not served.connection._writable)
        transport = served.connection._transport
        assert transport is not None
        for _ in range(100):
            # While threads could go on reading.
            await asyncio.sleep(0.001)
        assert transport.get_write_buffer_size() < 13 << 20, "of the 80 MB that are due"
        await slow.receive()
        while any(slow.offsets.get(n, [0])[-1] < 4 for n in range(20)):
            await slow.pushed()
        assert slow.offsets == {n: [1, 2, 3, 4] for n in range(20)}


async def test_given_hundreds_of_partitions_in_one_request_then_each_is_pushed(
    tmp_path: Path,
) -> None:
    uids = [new_uid() for _ in range(500)]
    spu = await open_spu(tmp_path)
    await spu.host.assign(assigned(*uids))
    leads = [
        Lead(
            uid=uid,
            term=TERM,
            lrs=(LiveReplica(spu_id=1, storage_id=spu.storage_id(uid)),),
            revision=6,
        )
        for uid in uids
    ]
    await spu.host.lead(LeadPartitions(leads=tuple(leads), stamp=STAMP))
    await until(lambda: all(spu.host.replica(uid).is_serving for uid in uids))
    async with serve(spu) as served, await Subscriber.connect(served.port) as client:
        await client.subscribe(*(entry(n, 1, uid=uid) for n, uid in enumerate(uids)))
        for _ in uids:
            assert not len((await client.pushed())[2])
        await client.nothing_came()
        assert served.listener.counters.requests == {"hello": 1, "subscribe": 2}
        for n in (499, 3, 250):
            await produce(spu.host.replica(uids[n]), batch_of(1, b"%d" % n))
            assert (await client.pushed())[0] == n
        await client.nothing_came()


async def test_given_old_data_on_the_disk_then_it_is_read_in_threads_and_others_go_on(
    tmp_path: Path,
) -> None:
    cold, hot = UID, new_uid()
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=1 << 12)))
    await spu.serve()
    await spu.host.assign(assigned(hot))
    await spu.serve(hot)
    for _ in range(100):
        await produce(spu.host.replica(cold), batch_of(1, bytes(200)))
    async with serve(spu) as served, await Subscriber.connect(served.port) as client:
        # Offset 2 of a completed segment: its index is on the disk.
        await client.subscribe(entry(1, 2, uid=cold), entry(2, 2, uid=cold), entry(3, 1, uid=hot))
        await produce(spu.host.replica(hot), batch_of())
        async with asyncio.timeout(DEADLINE_S):
            while not (
                client.offsets.get(1, [0])[-1] == client.offsets.get(2, [0])[-1] == 100
                and client.offsets.get(3)
            ):
                await client.pushed()
        assert client.offsets[1] == client.offsets[2] == list(range(2, 101))


@pytest.mark.parametrize(
    ("missed", "reads"),
    [
        pytest.param(0, 1, id="given-the-index-alone-on-the-disk-then-one-read-finds-the-place"),
        pytest.param(1, 9, id="given-one-miss-then-memory-is-tried-again-after-eight-reads"),
    ],
)
async def test_how_often_the_disk_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: int, reads: int
) -> None:
    if not CAN_REFUSE_TO_WAIT:
        pytest.skip("this system cannot read without waiting")
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=1 << 12)))
    replica = await spu.serve()
    for _ in range(100):
        await produce(replica, batch_of(1, bytes(200)))
    read, left = replica.fetch, missed
    waits: list[bool] = []

    def fetch(request: FetchRequest, *, wait: bool = False) -> Found:
        nonlocal left
        found = read(request, wait=wait)
        if not wait and left:
            left -= 1
            raise BlockingIOError
        waits.append(wait)
        return found

    monkeypatch.setattr(Replica, "fetch", lambda _replica, *given, **more: fetch(*given, **more))
    async with serve(spu) as served, await Subscriber.connect(served.port) as client:
        # Offset 2 of a completed segment: its index is on the disk, and all else in memory.
        await client.subscribe(entry(1, 2, 1 << 10))
        while client.offsets.get(1, [0])[-1] != 100:
            await client.pushed()
            client.grant(Grant(1, 1 << 10))
    assert client.offsets[1] == list(range(2, 101))
    assert waits.count(True) == reads
    assert waits.count(False) > reads


async def test_given_threads_that_are_all_busy_with_old_data_then_others_are_served(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(segment=1 << 12)))
    replica = await spu.serve()
    for index in range(100):
        await produce(replica, batch_of(1, bytes(200), time_us=2_000_000_000_000_000 + index))
    free = threading.Event()
    busy = [spu.host.client_reads.submit(free.wait) for _ in range(20)]
    async with serve(spu) as served, await Subscriber.connect(served.port) as client:
        await client.subscribe(entry(1, 2), entry(2, 101))
        assert (await client.pushed())[0] == 2, "the other one needs the disk"
        await produce(replica, batch_of(1))
        assert (await client.pushed())[0] == 2
        # A look into the log that needs a thread, as those for followers do.
        assert (await client.list_offsets(2_000_000_000_000_049)).offset == 50
        free.set()
        assert all(one.result(DEADLINE_S) for one in busy)
        while client.offsets.get(1, [0])[-1] != 101:
            await client.pushed()
        assert client.offsets[1] == list(range(2, 102))


async def test_given_another_leader_then_subscriptions_end_and_go_on_there(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, 2, settings_of())
    replica = await cluster.begin()
    await cluster.whole()
    await produce(replica, batch_of(4))
    listeners = [Listener(cluster.spus[spu].host) for spu in range(2)]
    ports = [await one.start("127.0.0.1", 0) for one in listeners]
    async with (
        await Subscriber.connect(ports[0]) as client,
        await Subscriber.connect(ports[1]) as other,
    ):
        # One waits for records, one for credit.
        await client.subscribe(entry(1), entry(2, credit=1))
        told = {}
        for _ in range(2):
            number, bounds, _ = await client.pushed()
            told[number] = bounds
        term = replica._log.last_term
        await cluster.elect(1)
        for _ in range(2):
            assert isinstance(await client.refused(), NotLeaderError)
        await client.nothing_came()
        await cluster.whole()
        await produce(cluster.replica(1), batch_of(2))
        at = told[1].next_offset
        await other.subscribe(entry(1, at, term=term))
        while len(other.offsets.get(1, [])) < 2:
            await other.pushed()
        assert other.offsets[1] == [at, at + 1], "the control record of the new term, and the rest"
    for one in listeners:
        await one.close()
    await cluster.close()
