"""Producing to a replica: what is appended, when that is answered, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schemas.errors import (
    ConflictError,
    CorruptBatchError,
    DeadlineExceededError,
    FencedError,
    InvalidRequestError,
    NotEnoughReplicasError,
    NotReadyError,
    RecordTooLargeError,
    RunnelError,
    SealedError,
    TransactionIdTooLowError,
)
from schemas.objects.topic import Durability, LogSettings
from schemas.wire.batch import CONTROL_FLAG
from schemas.wire.record_requests import LATEST, Acks, PositionBy, ProduceResponse
from spu.replication.producer_state import REMEMBERED_BATCHES
from tests.unit.spu.builders import (
    Spu,
    assign,
    assignment_of,
    batch_of,
    fetch_request,
    headers,
    open_spu,
    produce,
    produce_request,
    settings_of,
    until,
)
from tests.unit.spu.stuck_sync import StuckSync


async def test_given_batches_then_offsets_follow_and_are_visible_once_committed(spu: Spu) -> None:
    replica = await spu.serve()
    assert await produce(replica, batch_of(3)) == ProduceResponse(1, 3)
    assert await produce(replica, batch_of(2)) == ProduceResponse(4, 5)
    found = headers(replica.fetch(fetch_request(1)).data)
    assert [header.base_offset for header in found] == [1, 4]


async def test_given_acks_leader_then_answered_before_the_fsync_and_not_visible(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    assert await produce(replica, batch_of(), produce_request(Acks.LEADER)) == ProduceResponse(1, 0)
    assert len(replica.fetch(fetch_request(1)).data) == 0
    stuck.release()
    await until(lambda: replica.lac == 1)


async def test_given_a_sealed_log_then_only_what_it_has_is_answered(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    first = batch_of(3, producer_id=7, sequence=0)
    await produce(replica, bytearray(first))
    stuck = StuckSync(monkeypatch)
    await spu.host.assign(assign(assignment_of(revision=6, sealed=True)))
    assert replica.leo == 5
    short = produce_request(timeout_ms=1)
    # It says that nothing was appended.
    with pytest.raises(NotEnoughReplicasError, match="orders-0 is being sealed: it takes no more"):
        await produce(replica, batch_of(), short)
    late = [
        asyncio.create_task(produce(replica, batch_of(producer_id=7, sequence=n))) for n in (1, 2)
    ]
    await asyncio.sleep(0.01)
    assert not any(one.done() for one in late)
    assert replica.report().sealed is None
    stuck.release()
    await until(lambda: replica.lac == 4)
    for one in late:
        with pytest.raises(SealedError, match="ends at offset 4"):
            await one
    for acks in (Acks.COMMITTED, Acks.LEADER):
        with pytest.raises(SealedError, match="takes no more records, and ends at offset 4"):
            await produce(replica, batch_of(), produce_request(acks))
    assert await produce(replica, bytearray(first)) == ProduceResponse(1, 4)
    assert replica.leo == 5
    assert spu.reports[-1].sealed == replica.report().sealed == 4
    # What it waits for would not come any more, and it never heard of this epoch.
    for epoch, sequence in ((0, 2), (1, 0), (1, 1)):
        with pytest.raises(SealedError):
            await produce(replica, batch_of(producer_id=7, producer_epoch=epoch, sequence=sequence))
    assert replica.offsets.list_offsets(LATEST).offset == 4
    assert replica.offsets.find_offset(spu.now_us + 99, PositionBy.TIMESTAMP).offset == 4
    bounds, _ = replica.offsets.list_segments()
    assert bounds.lac == 3


async def test_given_a_sealed_log_then_a_batch_that_it_may_have_is_not_refused_as_sealed(
    spu: Spu,
) -> None:
    """Its producer would write it to another segment, a second time."""
    replica = await spu.serve()
    for sequence in range(REMEMBERED_BATCHES + 1):
        await produce(replica, batch_of(producer_id=7, producer_epoch=1, sequence=sequence))
    await spu.host.assign(assign(assignment_of(revision=6, sealed=True)))
    await until(lambda: replica.report().sealed is not None)
    with pytest.raises(InvalidRequestError, match="was appended long ago"):
        await produce(replica, batch_of(producer_id=7, producer_epoch=1, sequence=0))
    with pytest.raises(FencedError):
        await produce(replica, batch_of(producer_id=7, producer_epoch=0, sequence=3))
    with pytest.raises(SealedError):
        await produce(replica, batch_of(producer_id=7, producer_epoch=2, sequence=4))


async def test_given_acks_none_then_appended_and_not_answered(spu: Spu) -> None:
    replica = await spu.serve()
    answers: list[object] = []
    replica.produce(produce_request(Acks.NONE), memoryview(batch_of()), answers.append)
    await until(lambda: replica.lac == 1)
    assert answers == []


async def test_given_many_producers_then_they_share_fsyncs(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    waiting = [asyncio.create_task(produce(replica, batch_of())) for _ in range(50)]
    await until(lambda: stuck.runs == 1)
    waiting += [asyncio.create_task(produce(replica, batch_of())) for _ in range(50)]
    await until(lambda: replica.leo == 101)
    stuck.release()
    assert {(await one).base_offset for one in waiting} == set(range(1, 101))
    assert stuck.runs == 2


async def test_given_replicated_durability_then_committed_without_an_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(durability=Durability.REPLICATED)))
    replica = await spu.serve()
    await until(lambda: replica._log.durable_leo == 1)
    stuck = StuckSync(monkeypatch)
    assert await produce(replica, batch_of()) == ProduceResponse(1, 1)
    assert stuck.runs == 0
    stuck.release()
    await spu.host.close()


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.COMMITTED])
async def test_given_a_roll_then_nothing_behind_it_is_acknowledged_before_the_old_segment_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: Acks
) -> None:
    log = settings_of(durability=Durability.REPLICATED, segment=1 << 10)
    spu = await open_spu(tmp_path, assignment_of(log=log))
    replica = await spu.serve()
    await until(lambda: replica._log.durable_leo == 1)
    stuck = StuckSync(monkeypatch)
    await produce(replica, batch_of(1, bytes(800)), produce_request(acks))
    waiting = asyncio.create_task(produce(replica, batch_of(1, bytes(800)), produce_request(acks)))
    await until(lambda: stuck.runs == 1)
    assert not waiting.done()
    stuck.release()
    assert (await waiting).base_offset == 2
    await spu.host.close()


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        pytest.param(
            batch_of(flags=CONTROL_FLAG), InvalidRequestError, "flags", id="given-control"
        ),
        pytest.param(batch_of()[:-8], CorruptBatchError, "bytes", id="given-a-short-batch"),
        pytest.param(batch_of()[:90], CorruptBatchError, "header", id="given-no-header"),
        pytest.param(
            batch_of(1, bytes(40_000)),
            RecordTooLargeError,
            "maxRecordSize 2048",
            id="given-one-large-record",
        ),
    ],
)
async def test_given_a_bad_batch_then_it_is_refused_and_nothing_appended(
    tmp_path: Path, batch: bytearray, error: type[RunnelError], text: str
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(max_record_size=2_048)))
    replica = await spu.serve()
    with pytest.raises(error, match=text):
        await produce(replica, bytearray(batch))
    flipped = batch_of()
    flipped[100] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC32C"):
        await produce(replica, flipped)
    assert replica.leo == 1
    assert (await produce(replica, batch_of(50, bytes(40_000)))).base_offset == 1
    await spu.host.close()


async def test_given_too_few_live_replicas_then_committed_is_refused_with_a_way_out(
    tmp_path: Path,
) -> None:
    log = LogSettings(min_in_sync_replicas=2)
    spu = await open_spu(tmp_path, assignment_of(replicas=(1, 2, 3), log=log))
    await spu.lead()
    with pytest.raises(NotEnoughReplicasError, match="1 live replicas of 3, minInSync"):
        await produce(spu.replica, batch_of())
    assert spu.replica.leo == 1
    ack = await produce(spu.replica, batch_of(), produce_request(Acks.LEADER))
    assert ack.base_offset == 1
    await spu.host.close()


async def test_given_a_set_below_the_minimum_then_nothing_commits(tmp_path: Path) -> None:
    log = LogSettings(min_in_sync_replicas=2)
    spu = await open_spu(tmp_path, assignment_of(log=log))
    await spu.lead()
    await until(lambda: spu.replica._log.durable_leo == 1)
    assert not spu.replica.is_serving
    await spu.host.assign(assign(assignment_of(revision=9)))
    await until(lambda: spu.replica.is_serving)
    await spu.host.close()


async def test_given_no_commit_in_time_then_the_outcome_is_unknown(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    with pytest.raises(DeadlineExceededError, match="may still be"):
        await produce(replica, batch_of(), produce_request(timeout_ms=1))
    stuck.release()
    await until(lambda: replica.lac == 1)


# Duplicates and conditions


def numbered(sequence: int, epoch: int = 0) -> bytearray:
    return batch_of(2, producer_id=7, producer_epoch=epoch, sequence=sequence)


async def test_given_a_duplicate_then_it_gets_its_first_offset_after_a_restart_too(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    assert (await produce(replica, numbered(0))).base_offset == 1
    assert (await produce(replica, numbered(1))).base_offset == 3
    assert (await produce(replica, numbered(0))).base_offset == 1
    assert replica.leo == 5
    await spu.host.close()
    again = await open_spu(tmp_path)
    await until(lambda: again.replica.is_serving)
    assert (await produce(again.replica, numbered(1))).base_offset == 3
    with pytest.raises(NotReadyError, match="from 2 on"):
        await produce(again.replica, numbered(3))
    assert (await produce(again.replica, numbered(2))).base_offset == 5
    assert (await produce(again.replica, numbered(0, epoch=1))).base_offset == 7
    with pytest.raises(FencedError):
        await produce(again.replica, numbered(3))
    await again.host.close()


async def test_given_an_uncommitted_first_then_its_duplicate_waits_as_the_first_one(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    await produce(replica, numbered(0), produce_request(Acks.LEADER))
    again = await produce(replica, numbered(0), produce_request(Acks.LEADER))
    assert again == ProduceResponse(1, 0)
    duplicate = asyncio.create_task(produce(replica, numbered(0)))
    await until(lambda: len(replica._appends._commits) == 1)
    stuck.release()
    assert await duplicate == ProduceResponse(1, 2)
    assert replica.leo == 3


async def test_given_a_wrong_expected_offset_then_conflict_once_the_decider_is_committed(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    assert (await produce(replica, batch_of(), produce_request(expected=1))).base_offset == 1
    with pytest.raises(ConflictError, match="not 1, but 2"):
        await produce(replica, batch_of(), produce_request(expected=1))
    with pytest.raises(ConflictError, match="not 9, but 2"):
        await produce(replica, batch_of(), produce_request(expected=9))
    stuck = StuckSync(monkeypatch)
    await produce(replica, batch_of(), produce_request(Acks.LEADER))
    late = asyncio.create_task(produce(replica, batch_of(), produce_request(expected=2)))
    await until(lambda: len(replica._appends._commits) == 1)
    assert not late.done()
    stuck.release()
    with pytest.raises(ConflictError, match="not 2, but 3"):
        await late
    assert replica.leo == 3


# Transaction ids


async def test_given_an_id_below_the_last_one_then_refused_after_a_restart_too(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    assert (await produce(replica, batch_of(2, ids=(5, 9)))).base_offset == 1
    assert (await produce(replica, batch_of(2))).base_offset == 3
    with pytest.raises(TransactionIdTooLowError, match=r"id 8, but orders-0 is at 9") as refused:
        await produce(replica, batch_of(ids=(8, 12)))
    assert refused.value.last_transaction_id == 9
    assert (await produce(replica, batch_of(ids=(9, 9)))).base_offset == 5
    await spu.host.close()
    again = await open_spu(tmp_path)
    await until(lambda: again.replica.is_serving)
    with pytest.raises(TransactionIdTooLowError):
        await produce(again.replica, batch_of(ids=(8, 8)))
    assert (await produce(again.replica, batch_of(ids=(9, 10)))).base_offset == 6
    await again.host.close()


async def test_given_a_duplicate_below_the_last_id_then_it_gets_its_first_offset(
    spu: Spu,
) -> None:
    replica = await spu.serve()
    batches = [batch_of(ids=(n, n), producer_id=7, sequence=n) for n in range(3)]
    offsets = [(await produce(replica, batch)).base_offset for batch in batches]
    again = batch_of(ids=(0, 0), producer_id=7, sequence=0)
    assert (await produce(replica, again)).base_offset == offsets[0]
    # Refused ones take no sequence: the next one follows the last that stands.
    with pytest.raises(TransactionIdTooLowError):
        await produce(replica, batch_of(ids=(1, 1), producer_id=7, sequence=3))
    last = batch_of(ids=(2, 2), producer_id=7, sequence=3)
    assert (await produce(replica, last)).base_offset == offsets[2] + 1


async def test_given_an_uncommitted_larger_id_then_refused_once_that_is_committed(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    stuck = StuckSync(monkeypatch)
    await produce(replica, batch_of(ids=(5, 9)), produce_request(Acks.LEADER))
    low = asyncio.create_task(produce(replica, batch_of(ids=(4, 4))))
    await until(lambda: len(replica._appends._commits) == 1)
    assert not low.done()
    stuck.release()
    with pytest.raises(TransactionIdTooLowError):
        await low
    assert replica.leo == 2
