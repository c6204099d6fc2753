"""A follower whose log is cut or rebuilt: what readers are shown meanwhile, and what may fail."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from schemas.control.messages import DeleteReplicas, Tombstone
from schemas.errors import NotFoundError, NotReadyError, RunnelError
from schemas.objects.topic import Durability
from schemas.wire.record_requests import FetchFlags, FetchRequest
from spu.replica import replica as replica_module
from spu.replica.replica import Replica
from spu.replica.runner import ReplicaRunner
from spu.replication.messages import Append, Reset, Truncate
from spu.storage.data_dir import DataDir, PartitionMeta
from spu.storage.log import PartitionLog
from tests.unit.spu.builders import STAMP, TERM, UID, until
from tests.unit.spu.gate import gate
from tests.unit.spu.other_spu import LATER, NEVER, batches_of, follow


def follower_fetch(offset: int) -> FetchRequest:
    return FetchRequest(UID, offset, 1 << 20, 1, 0, 0, FetchFlags.FOLLOWER_OK)


def fetched(replica: Replica, request: FetchRequest) -> bytes:
    """What a reader is shown; nothing where it is refused."""
    try:
        return bytes(replica.fetch(request, wait=True).data)
    except RunnelError:
        return b""


@pytest.mark.timeout(20)
async def test_given_a_full_disk_during_a_cut_then_it_is_halted_and_the_spu_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No fsync in the background: what is written now stays in the page cache.
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    spu, other, boot = await follow(tmp_path, monkeypatch, Durability.REPLICATED)
    log = spu.replica._log
    await until(lambda: not log.needs_sync)
    other.says(Append(TERM, 1, boot, batches_of(*[NEVER] * 6)[5:], 1, 0))

    def full(log: PartitionLog, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PartitionLog, "truncate_suffix", full)
    assert (await other.leads(LATER)).leo == 6
    other.says(Truncate(LATER, 1, boot, TERM, 3))
    await until(lambda: spu.replica.is_halted)
    assert "No space left" in str(spu.replica.report().reason)
    # There is still something that no fsync has seen, and nothing that could be synced.
    assert log.needs_sync
    await spu.host.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["bad-disk", "full-disk"])
async def test_given_a_rebuild_that_fails_then_it_is_begun_anew_or_halted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    record, calls = DataDir.record_storage, 0

    def fails_once(directory: DataDir, meta: PartitionMeta) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(error, "it failed")
        record(directory, meta)

    monkeypatch.setattr(DataDir, "record_storage", fails_once)
    # It is unfit already when the rebuild fails: that must not hide the second trouble.
    spu.replica.damaged(OSError(errno.EIO, "a bad sector"))
    assert (await other.leads(TERM, 2)).unfit is not None
    other.says(Reset(TERM, 2, boot, 0, 0))
    await until(lambda: calls == 1)
    if error == errno.ENOSPC:
        await until(lambda: spu.replica.is_halted)
        assert "it failed" in str(spu.replica.report().reason)
    else:
        # The failure has ended that attachment; its leader attaches again.
        await until(lambda: spu.replica._runner.state.rebuild is None)
        before = spu.replica.report().storage_id
        assert (await other.leads(TERM, 3)).unfit is not None
        other.says(Reset(TERM, 3, boot, 0, 0))
        await until(lambda: spu.replica.fit)
        assert spu.replica.report().storage_id != before
        assert calls == 2
    await spu.host.close()


async def test_given_a_rebuild_that_began_then_the_old_log_is_shown_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    assert b"second" in fetched(spu.replica, follower_fetch(1))
    with gate(monkeypatch, PartitionLog, "rebuild") as (entered, opened):
        await other.leads(LATER)
        # The new log begins at 100: all before that is committed, but not what this one holds.
        other.says(Reset(LATER, 1, boot, 100, TERM))
        await until(entered.is_set)
        for offset in range(5):
            with pytest.raises(NotReadyError):
                spu.replica.fetch(follower_fetch(offset), wait=True)
        opened.set()
        await until(lambda: spu.replica.log_start == 100)
    assert fetched(spu.replica, follower_fetch(1)) == b""
    await spu.host.close()


async def test_given_a_fetch_in_a_thread_when_a_rebuild_begins_then_it_shows_nothing_uncommitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    replica = spu.replica
    with (
        ThreadPoolExecutor(1) as reader,
        gate(monkeypatch, replica_module, "require_agreement") as (reading, read_on),
        gate(monkeypatch, PartitionLog, "rebuild") as (rebuilding, rebuild),
    ):
        # It was found readable, and has not read the last add confirmed or the log yet.
        request = partial(fetched, replica, follower_fetch(1))
        answer = asyncio.get_running_loop().run_in_executor(reader, request)
        await until(reading.is_set)
        await other.leads(LATER)
        other.says(Reset(LATER, 1, boot, 100, TERM))
        await until(rebuilding.is_set)
        read_on.set()
        assert NEVER not in await answer
        rebuild.set()
        await until(lambda: replica.log_start == 100)
    await spu.host.close()


async def test_given_a_tombstone_of_the_storage_that_is_being_taken_then_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    before = spu.replica.report().storage_id
    with gate(monkeypatch, ReplicaRunner, "_reset_log") as (entered, opened):
        await other.leads(LATER)
        other.says(Reset(LATER, 1, boot, 100, TERM))
        await until(entered.is_set)
        # The SC knows the replica by what is reported, though the directory has the old id yet.
        reported = spu.replica.report().storage_id
        assert reported != before
        tombstone = Tombstone(uid=UID, spu_id=1, storage_id=reported)
        message = DeleteReplicas(tombstones=(tombstone,), stamp=STAMP)
        deletion = asyncio.create_task(spu.host.delete(message))
        # It is compared while there are two; then the work that is begun is waited for.
        await until(lambda: deletion.done() or "was deleted" in str(spu.replica.report().reason))
        opened.set()
        assert await deletion == [tombstone]
    with pytest.raises(NotFoundError):
        spu.host.replica(UID)
    assert not (tmp_path / "partitions" / UID).exists()
    await spu.host.close()


async def test_given_a_rebuild_that_keeps_what_was_taken_away_then_it_is_in_a_place_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    directory = tmp_path / "partitions" / UID
    # As behind damage: no segment of the log that was found.
    (directory / f"{90:020d}.log").write_bytes(b"behind damage")
    await other.leads(LATER)
    other.says(Reset(LATER, 1, boot, 100, TERM, aside=True))
    await until(lambda: spu.replica.log_start == 100)
    (aside,) = directory.glob("aside-*")
    kept = {path.name: path.read_bytes() for path in aside.iterdir()}
    assert NEVER in kept[f"{0:020d}.log"]
    assert kept[f"{90:020d}.log"] == b"behind damage"
    await spu.host.close()
