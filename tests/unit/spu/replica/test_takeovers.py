"""A replica that takes over: batches before the record that begins its term is committed."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from schemas.errors import (
    DeadlineExceededError,
    FencedError,
    NotEnoughReplicasError,
    NotLeaderError,
    NotReadyError,
    RunnelError,
    SealedError,
    StorageFailedError,
    StorageFullError,
)
from schemas.ids import Term, make_term
from schemas.wire.record_requests import EARLIEST, LATEST, Acks, ProduceRequest, ProduceResponse
from spu.storage import durable
from spu.storage import file_pool as file_pool_module
from tests.unit.spu.builders import (
    TERM,
    Spu,
    assign,
    assignment_of,
    batch_of,
    fetch_request,
    open_spu,
    produce,
    produce_request,
    settings_of,
    until,
)
from tests.unit.spu.stuck_sync import StuckSync


async def test_given_an_uncommitted_control_record_then_batches_follow_it_and_wait(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = StuckSync(monkeypatch)
    await spu.lead()
    replica = spu.replica
    with pytest.raises(DeadlineExceededError):
        await produce(replica, batch_of(), produce_request(timeout_ms=1))
    waiting = [
        asyncio.create_task(produce(replica, batch_of(), produce_request(acks)))
        for acks in (Acks.COMMITTED, Acks.LEADER, Acks.COMMITTED)
    ]
    await asyncio.sleep(0.01)
    assert [one.done() for one in waiting] == [False, True, False]
    with pytest.raises(NotReadyError):
        replica.offsets.list_offsets(LATEST)
    assert replica.offsets.list_offsets(EARLIEST).offset == 0
    assert replica.leo == 5
    found = replica.fetch(fetch_request(7))
    assert (len(found.data), found.enough, found.response.lac) == (0, False, -1)
    stuck.release()
    await until(lambda: replica.is_serving)
    assert [(await one).base_offset for one in waiting] == [2, 3, 4]
    await until(lambda: replica.offsets.list_offsets(LATEST).offset == 5)


@pytest.mark.parametrize(
    ("sequence", "epoch", "error"),
    [
        pytest.param(5, 1, NotReadyError, id="given-one-before-it-is-missing"),
        pytest.param(0, 0, FencedError, id="given-its-epoch-was-replaced"),
    ],
)
async def test_given_an_uncommitted_control_record_then_what_the_log_says_against_a_batch_waits(
    spu: Spu, monkeypatch: pytest.MonkeyPatch, sequence: int, epoch: int, error: type[Exception]
) -> None:
    """Until the live replicas agree, the log may lack what was committed."""
    replica = await spu.serve()
    await produce(replica, batch_of(producer_id=1, producer_epoch=1))
    stuck = StuckSync(monkeypatch)
    await spu.lead(term=make_term(1, 2), revision=7)
    batch = batch_of(producer_id=1, producer_epoch=epoch, sequence=sequence)
    refused = asyncio.create_task(produce(replica, bytearray(batch)))
    await until(lambda: stuck.runs == 1)
    await asyncio.sleep(0.01)
    assert not refused.done()
    with pytest.raises(error):
        await produce(replica, bytearray(batch), produce_request(Acks.LEADER))
    stuck.release()
    with pytest.raises(error):
        await refused


async def test_given_a_batch_before_the_order_to_lead_then_it_is_synced_with_the_control_record(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = StuckSync(monkeypatch)
    early = asyncio.create_task(produce(spu.replica, batch_of()))
    await asyncio.sleep(0.01)
    await spu.lead()
    await until(lambda: stuck.runs == 1)
    assert (spu.replica.leo, spu.replica.is_serving) == (2, False)
    stuck.release()
    assert await early == ProduceResponse(1, 1)
    assert stuck.runs == 1


@pytest.mark.parametrize(
    ("leader", "term", "waits"),
    [
        pytest.param(1, TERM, True, id="given-it-is-named-then-they-wait-for-the-order"),
        pytest.param(2, TERM, False, id="given-another-is-named-then-refused"),
        pytest.param(None, TERM, False, id="given-nobody-is-named-then-refused"),
    ],
)
async def test_requests_before_the_order_to_lead(
    tmp_path: Path, leader: int | None, term: Term, *, waits: bool
) -> None:
    spu = await open_spu(tmp_path, assignment_of(leader=leader, term=term))
    asked = asyncio.create_task(produce(spu.replica, batch_of()))
    await asyncio.sleep(0.01)
    assert asked.done() != waits
    if waits:
        await spu.lead(term=term)
        assert await asked == ProduceResponse(1, 1)
    else:
        with pytest.raises(NotLeaderError):
            await asked
    await spu.host.close()


async def test_given_requests_that_wait_when_another_leads_then_they_are_refused(
    spu: Spu,
) -> None:
    held = asyncio.create_task(produce(spu.replica, batch_of()))
    await asyncio.sleep(0.01)
    assert not held.done()
    await spu.host.assign(assign(assignment_of(leader=2, term=make_term(1, 2), revision=8)))
    with pytest.raises(NotLeaderError):
        await held
    assert spu.replica.leo == 0


async def test_given_an_early_batch_when_another_leads_then_it_is_refused(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = StuckSync(monkeypatch)
    await spu.lead()
    early = asyncio.create_task(produce(spu.replica, batch_of()))
    await until(lambda: spu.replica.leo == 2)
    await spu.host.assign(assign(assignment_of(leader=2, term=make_term(1, 2), revision=8)))
    with pytest.raises(NotLeaderError):
        await early
    stuck.release()


@pytest.mark.parametrize(
    ("number", "writes", "acknowledged"),
    [
        pytest.param(errno.ENOSPC, 0, 0, id="given-no-room-for-its-first-record"),
        pytest.param(errno.EIO, 0, 0, id="given-a-bad-disk-at-its-first-record"),
        pytest.param(errno.ENOSPC, 2, 1, id="given-no-room-for-the-second-batch"),
        pytest.param(errno.EIO, 2, 0, id="given-a-bad-disk-at-the-second-batch"),
    ],
)
async def test_given_a_disk_that_takes_no_more_then_each_request_that_waits_is_answered_once(
    spu: Spu, monkeypatch: pytest.MonkeyPatch, number: int, writes: int, acknowledged: int
) -> None:
    answers: list[list[ProduceResponse | RunnelError]] = [[], [], []]
    for told in answers:
        assert spu.replica.produce(produce_request(), memoryview(batch_of()), told.append)
    left = writes

    def write(fd: int, data: bytes, position: int) -> None:
        nonlocal left
        if not left:
            raise OSError(number, "the disk takes no more")
        left -= 1
        durable.write_all(fd, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(file_pool_module, "write_all", write)
        await spu.lead()
        await until(lambda: all(answers))
    await asyncio.sleep(0.01)
    assert [len(told) for told in answers] == [1, 1, 1]
    failures = [told[0] for told in answers if not isinstance(told[0], ProduceResponse)]
    assert len(failures) == len(answers) - acknowledged
    # The log goes on if only a batch found no room.
    assert {type(one) for one in failures} == {
        StorageFullError if acknowledged else StorageFailedError
    }


@pytest.mark.parametrize(
    "restarted", [False, True], ids=["given-it-was-told-now", "given-a-restart-since"]
)
async def test_given_a_log_that_is_to_be_sealed_then_no_early_batch_comes_before_the_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarted: bool
) -> None:
    """An unclean election may have removed the seal; readers that saw it have ended there."""
    spu = await open_spu(tmp_path, assignment_of(sealed=True))
    if restarted:
        await spu.host.close()
        spu = await open_spu(tmp_path)
    stuck = StuckSync(monkeypatch)
    both = (Acks.COMMITTED, Acks.LEADER)
    early = [
        asyncio.create_task(produce(spu.replica, batch_of(), produce_request(a))) for a in both
    ]
    await asyncio.sleep(0.01)
    await spu.lead()
    early += [
        asyncio.create_task(produce(spu.replica, batch_of(), produce_request(a))) for a in both
    ]
    await until(lambda: stuck.runs == 1)
    await asyncio.sleep(0.01)
    assert (spu.replica.leo, [one.done() for one in early]) == (1, [False] * 4)
    stuck.release()
    for one in early:
        with pytest.raises(SealedError, match="ends at offset 1"):
            await one
    await spu.host.close()


async def test_given_a_refusal_that_waits_when_another_leads_then_it_is_not_told(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be proof of a loss, from a log that may lack what was committed."""
    replica = await spu.serve()
    await produce(replica, batch_of(producer_id=1))
    stuck = StuckSync(monkeypatch)
    await spu.lead(term=make_term(1, 2), revision=7)
    refused = asyncio.create_task(produce(replica, batch_of(producer_id=1, sequence=5)))
    await until(lambda: stuck.runs == 1)
    await asyncio.sleep(0.01)
    assert not refused.done()
    await spu.host.assign(assign(assignment_of(leader=2, term=make_term(1, 3), revision=8)))
    with pytest.raises(NotLeaderError):
        await refused
    stuck.release()


async def test_given_too_few_replicas_and_a_log_to_seal_then_the_answer_is_that_of_too_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is certain then that the batch is not in the log."""
    log = settings_of().model_copy(update={"min_in_sync_replicas": 2})
    assignment = assignment_of(sealed=True, log=log)
    spu = await open_spu(tmp_path, assignment)
    stuck = StuckSync(monkeypatch)
    await spu.lead()
    await until(lambda: spu.replica.leo == 1)
    with pytest.raises(NotEnoughReplicasError):
        await produce(spu.replica, batch_of(), produce_request(timeout_ms=1))
    stuck.release()
    await spu.host.close()


async def test_given_an_early_batch_that_the_leader_has_then_it_is_acknowledged_once_more(
    spu: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await spu.serve()
    await produce(replica, batch_of(producer_id=1))
    stuck = StuckSync(monkeypatch)
    await spu.lead(term=make_term(1, 2), revision=7)
    again = asyncio.create_task(produce(replica, batch_of(producer_id=1)))
    await until(lambda: stuck.runs == 1)
    await asyncio.sleep(0.01)
    assert not again.done()
    stuck.release()
    assert (await again).base_offset == 1
    assert replica.leo == 3


@pytest.mark.parametrize(
    ("batch", "asked"),
    [
        pytest.param(
            batch_of(producer_id=1, sequence=5), produce_request(timeout_ms=1), id="given-a-gap"
        ),
        pytest.param(
            batch_of(),
            produce_request(timeout_ms=1, expected=7),
            id="given-another-offset-is-expected",
        ),
        pytest.param(
            batch_of(ids=(3, 3)), produce_request(timeout_ms=1), id="given-an-id-that-is-too-low"
        ),
    ],
)
async def test_given_a_refusal_that_is_not_committed_in_time_then_it_says_so(
    spu: Spu, monkeypatch: pytest.MonkeyPatch, batch: bytearray, asked: ProduceRequest
) -> None:
    replica = await spu.serve()
    await produce(replica, batch_of(ids=(9, 9)))
    await produce(replica, batch_of(producer_id=1))
    stuck = StuckSync(monkeypatch)
    await spu.lead(term=make_term(1, 2), revision=7)
    with pytest.raises(NotEnoughReplicasError, match="did not append this batch now"):
        await produce(replica, batch, asked)
    assert replica.leo == 4
    stuck.release()
