"""The producer against a scripted SPU: order, retries, duplicates, bounds, failures."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from threading import get_ident
from typing import Literal, NoReturn

import pyarrow as pa
import pytest

from runnel.aio import Producer
from runnel.net.routing import TopicRoute
from runnel.produce.settings import ProducerSettings
from runnel.records.record import RecordMetadata
from schemas.errors import (
    CorruptBatchError,
    DeadlineExceededError,
    DivergedError,
    InvalidRequestError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OverloadedError,
    RecordTooLargeError,
    RunnelError,
)
from schemas.ids import Term
from schemas.wire.partitioner import partition_for
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.fake_spu import FakeLog, FakeSpu, Step


async def send_batches(producer: Producer, count: int) -> list[bytes]:
    """One batch for each of some values, without waiting for any."""
    sent = [b"%03d" % index for index in range(count)]
    for value in sent:
        producer.send(value, key=b"k")
        producer._send_buffer.seal_all()
        producer._pump()
    return sent


MISHAPS = [
    Step.OK,
    Step.APPEND_THEN_NOT_READY,
    Step.APPEND_THEN_DROP,
    Step.DROP,
    NotLeaderError("elsewhere"),
    OverloadedError("busy"),
]


@pytest.mark.parametrize(
    "script",
    [pytest.param(pair, id="-".join(str(getattr(s, "name", s)) for s in pair))
     for pair in itertools.product(MISHAPS, repeat=2)],
)  # fmt: skip
async def test_given_mishaps_then_every_record_stands_once_and_in_order(
    world: World, script: tuple[Step | RunnelError, ...]
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        first = producer.send(b"first", key=b"k")
        await first
        world.spu.produce_script.extend(script)
        sent = await send_batches(producer, 8)
        await producer.flush()
        assert world.log().values == [b"first", *sent]
        assert (await first).offset == 0
        assert producer.metrics.records_sent == 9
        assert producer.metrics.buffered_bytes == 0


async def test_given_the_first_batch_is_lost_then_no_later_one_takes_its_place(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.spu.produce_script.append(OverloadedError("busy"))
    async with world.cluster.producer("orders") as producer:
        sent = await send_batches(producer, 6)
        await producer.flush()
    assert world.log().values == sent
    assert producer.metrics.retries >= 1


async def test_given_acknowledged_batches_then_five_are_under_way_and_no_more(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        await producer.send(b"first", key=b"k")
        world.spu.may_answer.clear()
        await send_batches(producer, 9)
        async with asyncio.timeout(10):
            while world.spu.in_flight < 5:  # noqa: ASYNC110 - state of the fake, not an event
                await asyncio.sleep(0)
        world.spu.may_answer.set()
        await producer.flush()
    assert world.spu.most_in_flight == 5


async def test_given_deliveries_then_they_tell_partition_offset_and_timestamp(
    world: World,
) -> None:
    world.sc.add_topic("orders", partitions=2)
    async with world.cluster.producer("orders") as producer:
        deliveries = [producer.send("v", timestamp=index, partition=1) for index in range(3)]
        assert not deliveries[0].done()
        with pytest.raises(RuntimeError, match="await the delivery"):
            deliveries[0].result()
        found = [await delivery for delivery in deliveries]
        assert [(f.partition, f.offset, f.timestamp) for f in found] == [
            (1, 0, 0), (1, 1, 1), (1, 2, 2),
        ]  # fmt: skip
        assert deliveries[0].result().topic == "orders"


async def test_given_a_terminal_error_then_that_batch_fails_and_flush_says_so(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    producer = await world.cluster.producer("orders")
    await producer.send(b"first", key=b"k")
    world.spu.produce_script.append(CorruptBatchError("client CRC32C does not match"))
    bad = producer.send(b"bad", key=b"k")
    with pytest.raises(CorruptBatchError, match=r"1 records for topic 'orders'.*CRC32C"):
        await producer.flush()
    with pytest.raises(CorruptBatchError):
        await bad
    # What comes after is numbered in a new epoch, so the gap does not hold it up.
    await producer.send(b"good", key=b"k")
    await producer.close()
    assert world.log().values == [b"first", b"good"]
    assert world.log().headers()[-1].producer_epoch == 1
    assert producer.metrics.records_failed == 1


async def test_given_no_leader_until_the_deadline_then_the_record_was_not_written(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.sc.endpoints = [None]
    async with world.cluster.producer("orders", delivery_timeout_ms=50) as producer:
        delivery = producer.send(b"v")
        with pytest.raises(DeadlineExceededError, match=r"not written.*no SPU is online"):
            await delivery
        with pytest.raises(DeadlineExceededError):
            await producer.flush()


async def test_given_no_free_connection_until_the_deadline_then_that_is_the_error(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.spu.produce_script.extend([OverloadedError("1,000 connections already")] * 1_000)
    async with world.cluster.producer("orders", delivery_timeout_ms=500) as producer:
        delivery = producer.send(b"v")
        with pytest.raises(OverloadedError, match=r"not written.*connections already"):
            await delivery
        with pytest.raises(OverloadedError):
            await producer.flush()


async def test_given_no_answer_until_the_deadline_then_the_outcome_is_unknown(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.spu.produce_script.extend([Step.APPEND_THEN_NOT_READY] * 1_000)
    producer = await world.cluster.producer("orders", delivery_timeout_ms=500)
    with pytest.raises(DeadlineExceededError, match="outcome is unknown"):
        await producer.send(b"v")
    with pytest.raises(DeadlineExceededError):
        await producer.close()
    assert world.log().values == [b"v"]


async def test_given_the_leader_moved_then_the_record_goes_to_the_new_one(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        await producer.send(b"1")
        other = FakeSpu()
        await other.start()
        uid = world.sc.uids["orders"][0]
        other.logs[uid] = world.log()
        world.sc.endpoints = [("127.0.0.1", other.port)]
        world.spu.produce_script.append(NotLeaderError("I was deposed"))
        await producer.send(b"2")
        assert len(other.produced) == 1
        await other.stop()
    assert world.log().values == [b"1", b"2"]


async def test_given_no_sc_then_a_reconnect_to_the_known_leader_still_works(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        await producer.send(b"1")
        await world.sc.stop()
        world.spu.produce_script.append(Step.DROP)
        assert (await producer.send(b"2")).offset == 1


async def test_given_the_topic_was_made_again_then_the_producer_says_so(world: World) -> None:
    world.sc.add_topic("orders")
    producer = await world.cluster.producer("orders")
    await producer.send(b"1")
    world.sc.remove_topic("orders")
    world.sc.add_topic("orders")
    world.spu.produce_script.append(NotFoundError("unknown uid"))
    with pytest.raises(NotFoundError, match="deleted and created again"):
        await producer.send(b"2")
    await producer.abort()


async def test_given_an_spu_of_another_cluster_then_nothing_is_sent_to_it(world: World) -> None:
    world.sc.add_topic("orders")
    world.spu.cluster_uid = "00000000-0000-4000-8000-00000000000b"
    producer = await world.cluster.producer("orders", delivery_timeout_ms=500)
    with pytest.raises(DeadlineExceededError, match="belongs to cluster"):
        await producer.send(b"1")
    await producer.abort()
    assert world.spu.produced == []


async def test_given_acks_none_then_nothing_is_awaited_or_numbered(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders", acks="none") as producer:
        found = await producer.send(b"v")
        assert found.offset == -1
        async with asyncio.timeout(10):
            while not world.log().batches:  # noqa: ASYNC110 - state of the fake, not an event
                await asyncio.sleep(0)
    assert world.log().headers()[0].producer_id == 0


async def test_given_acks_leader_and_a_new_leader_that_lost_records_then_it_goes_on(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders", acks="leader") as producer:
        for value in (b"1", b"2", b"3"):
            await producer.send(value, key=b"k")
        # The next leader has the first batch only, and waits for the second for ever.
        log = world.log()
        log.batches[1:] = []
        log.end = 1
        for known in log.sequences.values():
            del known[1], known[2]
        world.sc.term = Term(1 << 16)
        world.spu.produce_script.append(NotLeaderError("deposed"))
        async with asyncio.timeout(20):
            await producer.send(b"4", key=b"k")
    assert log.values == [b"1", b"4"]


async def test_given_a_full_buffer_then_send_refuses_until_it_is_drained(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders", buffer_bytes=1_000) as producer:
        world.spu.may_answer.clear()
        producer.send(b"x" * 2_000)
        with pytest.raises(OverloadedError, match=r"await producer\.drain"):
            producer.send(b"y")
        draining = asyncio.create_task(producer.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        world.spu.may_answer.set()
        async with asyncio.timeout(10):
            await draining
        await producer.send(b"y")


async def test_given_a_table_then_its_batches_are_delivered_and_progress_is_told(
    world: World,
) -> None:
    world.sc.add_topic("orders", partitions=3)
    told: list[tuple[int, int]] = []
    table = pa.table({"key": [f"k{n % 7}" for n in range(100)], "value": ["x" * 100] * 100})
    async with world.cluster.producer("orders", batch_bytes=1_000, buffer_bytes=4_000) as producer:
        delivery = await producer.send_table(
            table, on_progress=lambda records, size: told.append((records, size))
        )
        found = await delivery
        assert delivery.done()
    assert sum(batch.records for batch in found) == 100
    assert len(told) > 1
    assert told[-1][0] == 100
    assert sum(len(world.log(index=index).values) for index in range(3)) == 100


async def test_given_a_partition_then_a_whole_table_goes_there(world: World) -> None:
    world.sc.add_topic("orders", partitions=3)
    table = pa.table({"key": [f"k{n % 7}" for n in range(100)], "value": ["x"] * 100})
    async with world.cluster.producer("orders") as producer:
        found = await (await producer.send_table(table, partition=2))
        assert {batch.partition for batch in found} == {2}
        with pytest.raises(InvalidRequestError, match="has the partitions 0 to 2, not 3"):
            await producer.send_table(table, partition=3)


async def test_given_a_row_too_large_then_nothing_of_the_table_is_sent(world: World) -> None:
    world.sc.add_topic("orders", maxRecordSize=10)
    async with world.cluster.producer("orders") as producer:
        with pytest.raises(RecordTooLargeError, match="row 1 "):
            await producer.send_table(pa.table({"value": ["ok", "x" * 11]}))
    assert world.spu.produced == []


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"value": 5}, id="given-a-number"),
        pytest.param({"value": b"v", "key": 5}, id="given-a-key-that-is-a-number"),
        pytest.param({"value": b"v", "timestamp": "now"}, id="given-text-for-a-time"),
        pytest.param({"value": b"v", "headers": [("a", 1)]}, id="given-a-header-of-a-number"),
    ],
)
async def test_given_wrong_types_then_send_says_what_to_give(
    world: World, arguments: dict[str, object]
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        with pytest.raises(InvalidRequestError):
            producer.send(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"acks": "all"},
        {"acks": 1},
        {"batch_bytes": 0},
        {"batch_bytes": "1MB"},
        {"linger_ms": True},
        {"max_in_flight": 6},
        {"compression": "gzip"},
    ],
    ids=lambda options: f"given-{next(iter(options))}-then-refused",
)
def test_settings_out_of_bounds(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        ProducerSettings(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        pytest.param(2, "up to offset 3, are not in the log from offset 2 on", id="given-a-gap"),
        pytest.param(
            0,
            "from offset 0 on.*this batch was written, at offset 0",
            id="given-none-of-its-batches",
        ),
    ],
)
async def test_given_a_leader_that_lost_what_was_acknowledged_then_an_error_at_once(
    world: World, kept: int, said: str
) -> None:
    world.sc.add_topic("orders")
    producer = await world.cluster.producer("orders", delivery_timeout_ms=20_000)
    for value in (b"0", b"1", b"2", b"3"):
        await producer.send(value, key=b"k")
    world.log().go_back(kept)
    async with asyncio.timeout(5):
        with pytest.raises(DivergedError, match=said) as got:
            await producer.send(b"4", key=b"k")
    assert "went back in time" in str(got.value)
    assert got.value.diverged_at == kept
    # It is said once: the user has decided to go on.
    with pytest.raises(DivergedError, match="1 records for topic 'orders' were not delivered"):
        await producer.flush()
    await producer.send(b"5", key=b"k")
    await producer.close()
    assert world.log().values[-1] == b"5"


async def test_given_a_gap_and_another_leader_then_it_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders", delivery_timeout_ms=5_000) as producer:
        for value in (b"0", b"1", b"2"):
            await producer.send(value, key=b"k")
        log, asked = world.log(), []
        whole = list(log.batches)

        async def another_leads(_route: TopicRoute, index: int) -> bool:
            asked.append(index)
            log.go_back(0)
            log.follow(FakeLog(whole))
            return True

        monkeypatch.setattr(TopicRoute, "another_leads", another_leads)
        log.go_back(1)
        await producer.send(b"3", key=b"k")
    assert asked == [0]
    assert log.values == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("acks", ["leader", "committed"])
async def test_given_a_gap_at_a_leader_of_before_then_nothing_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, acks: Literal["leader", "committed"]
) -> None:
    """An SC that is behind names it: its log lacks what came after it."""
    world.sc.add_topic("orders")
    producer = await world.cluster.producer("orders", acks=acks, delivery_timeout_ms=200)
    for value in (b"0", b"1", b"2"):
        await producer.send(value, key=b"k")
    monkeypatch.setattr(producer._sender(0), "_acknowledged_term", Term(9 << 32))
    world.log().go_back(1)
    with pytest.raises(DeadlineExceededError):
        await producer.send(b"3", key=b"k")
    with suppress(DeadlineExceededError):
        await producer.close()


@pytest.mark.parametrize("kept", [0, 1], ids=["given-it-lost-all", "given-it-lost-the-last"])
async def test_given_acks_leader_then_what_it_lost_is_no_error(world: World, kept: int) -> None:
    """Its host lost power, and nobody else could lead meanwhile: the term is the same."""
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders", acks="leader") as producer:
        for value in (b"0", b"1"):
            await producer.send(value, key=b"k")
        world.log().go_back(kept)
        async with asyncio.timeout(20):
            await producer.send(b"2", key=b"k")
    assert world.log().values == [b"0", b"2"][1 - kept :]


@pytest.mark.parametrize("acks", ["leader", "committed"])
async def test_given_a_log_that_lost_the_first_batch_of_an_epoch_then_another_one_begins(
    world: World, acks: Literal["leader", "committed"]
) -> None:
    world.sc.add_topic("orders")
    producer = await world.cluster.producer("orders", acks=acks)
    await producer.send(b"0", key=b"k")
    world.spu.produce_script.append(InvalidRequestError("no"))
    with pytest.raises(InvalidRequestError):
        await producer.send(b"1", key=b"k")
    await producer.send(b"2", key=b"k")
    world.log().go_back(1)
    if acks == "committed":
        with pytest.raises(DivergedError, match=r"up to offset 1, are not in .* offset 1 on"):
            await producer.send(b"3", key=b"k")
    await producer.send(b"4", key=b"k")
    with suppress(RunnelError):
        await producer.close()
    assert world.log().values == [b"0", b"4"]
    assert [one.producer_epoch for one in world.log().headers()] == [0, 2]


async def test_given_acks_leader_and_a_deposed_leader_that_misses_a_batch_then_the_number_stays(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders", acks="leader") as producer:
        await producer.send(b"0", key=b"k")
        elected = Term(1 << 32)

        def deposed() -> NotReadyError:
            world.sc.term = elected
            return NotReadyError("it came before", expectedSequence=1, knownEnd=1)

        world.spu.produce_script.extend([NotLeaderError("again"), deposed])
        await producer.send(b"1", key=b"k")
    assert [(one.producer_epoch, one.sequence) for one in world.log().headers()] == [(0, 0), (0, 1)]


async def test_given_acks_leader_and_a_new_leader_that_is_not_ready_then_the_number_stays(
    world: World,
) -> None:
    """The batch may be in its log: with another number it would be there twice."""
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders", acks="leader") as producer:
        await producer.send(b"0", key=b"k")
        world.sc.term = Term(1 << 16)
        world.spu.produce_script.extend([NotLeaderError("deposed"), NotReadyError("not yet")])
        await producer.send(b"1", key=b"k")
    assert [(one.producer_epoch, one.sequence) for one in world.log().headers()] == [(0, 0), (0, 1)]


async def test_given_added_partitions_then_an_open_producer_sends_to_them(world: World) -> None:
    world.sc.add_topic("orders")
    keys = [b"key-%d" % number for number in range(20)]
    async with world.cluster.producer("orders", metadata_max_age_ms=30) as producer:
        for key in keys:
            producer.send(b"before", key=key)
        world.sc.grow("orders", 3)
        with pytest.raises(InvalidRequestError, match="0 to 0"):
            producer.send(b"chosen", partition=2)
        await eventually(lambda: producer._route.partition_count == 3)
        for key in keys:
            producer.send(b"after", key=key)
        assert (await producer.send(b"chosen", partition=2)).partition == 2
    found = [world.log(index=index).values for index in range(3)]
    assert [each.count(b"before") for each in found] == [20, 0, 0]
    homes = [partition_for(key, 3) for key in keys]
    assert [each.count(b"after") for each in found] == [homes.count(index) for index in range(3)]


async def test_on_delivery_is_told_the_place_of_each_record(world: World) -> None:
    world.sc.add_topic("orders")
    told: list[tuple[RunnelError | None, RecordMetadata | None]] = []
    threads: set[int] = set()

    def called(error: RunnelError | None, metadata: RecordMetadata | None) -> None:
        threads.add(get_ident())
        told.append((error, metadata))

    async with world.cluster.producer("orders") as producer:
        producer.send(b"without")
        sent = [
            producer.send(b"bytes", on_delivery=called),
            producer.send("text", key="k", headers={"h": b"1"}, on_delivery=called),
            producer.send(None, timestamp=7, on_delivery=called),
        ]
        assert told == []
        await producer.flush()
        assert told == [(None, await delivery) for delivery in sent]
        assert [metadata.offset for _, metadata in told if metadata is not None] == [1, 2, 3]
    assert threads == {get_ident()}


async def test_given_a_callback_that_fails_then_it_is_logged_and_sending_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.sc.add_topic("orders")
    told = []

    def fails(_error: RunnelError | None, _metadata: RecordMetadata | None) -> NoReturn:
        raise SystemExit("no")

    async with world.cluster.producer("orders") as producer:
        producer.send(b"1", on_delivery=fails)
        producer.send(b"2", on_delivery=lambda *outcome: told.append(outcome))
        await producer.flush()
        assert (await producer.send(b"3")).offset == 2
    assert len(told) == 1
    assert "on_delivery of a record for topic 'orders' failed" in caplog.text


async def test_given_records_that_are_not_delivered_then_on_delivery_is_told_why(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    told: list[tuple[RunnelError | None, RecordMetadata | None]] = []

    def called(error: RunnelError | None, metadata: RecordMetadata | None) -> None:
        told.append((error, metadata))

    async with world.cluster.producer("orders") as producer:
        world.spu.produce_script.append(CorruptBatchError("damaged"))
        producer.send(b"refused", on_delivery=called)
        with pytest.raises(CorruptBatchError):
            await producer.flush()
        world.sc.endpoints = [None]
        world.spu.produce_script.extend([NotLeaderError("elsewhere")] * 100)
        producer.send(b"abandoned", on_delivery=called)
        await producer.abort()
    assert [type(error) for error, _ in told] == [CorruptBatchError, DeadlineExceededError]
    assert all(metadata is None for _, metadata in told)


async def test_given_a_callback_that_sends_then_it_is_sent_too(world: World) -> None:
    world.sc.add_topic("orders")
    done = asyncio.Event()
    async with world.cluster.producer("orders") as producer:

        def again(_error: RunnelError | None, metadata: RecordMetadata | None) -> None:
            assert metadata is not None
            if metadata.offset < 3:
                producer.send(b"%d" % metadata.offset, on_delivery=again)
            else:
                done.set()

        producer.send(b"first", on_delivery=again)
        async with asyncio.timeout(20):
            await done.wait()
    assert world.log().values == [b"first", b"0", b"1", b"2"]
