"""A failed fsync is never forgotten, whatever else stops the replica or its SPU meanwhile: after it
nobody knows what the disk holds, and another fsync would succeed."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from schemas.control.messages import DeleteReplicas, Tombstone
from schemas.errors import StorageFailedError
from schemas.objects.topic import Durability
from schemas.wire.record_requests import Acks
from spu.host import recovery
from spu.replica.replica import Replica
from spu.replication.messages import Append, Truncate
from spu.storage import durable, sync_plan
from spu.storage import journal as journal_module
from spu.storage.journal import Journal
from tests.unit.spu.builders import (
    STAMP,
    TERM,
    UID,
    Spu,
    assign,
    assignment_of,
    batch_of,
    new_uid,
    open_spu,
    produce,
    produce_request,
    settings_of,
    until,
)
from tests.unit.spu.gate import gate
from tests.unit.spu.other_spu import LATER, batches_of, follow
from tests.unit.spu.stuck_sync import StuckSync

BROKEN = OSError(errno.EIO, "Input/output error")
FULL = OSError(errno.ENOSPC, "No space left on device")


def fail_fsyncs_of_logs(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Nothing but a segment is affected."""
    sync_file = durable.sync_file

    def failing(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            raise error
        sync_file(fd)

    monkeypatch.setattr(durable, "sync_file", failing)


async def unsynced(path: Path, monkeypatch: pytest.MonkeyPatch, **more: int) -> Spu:
    """A leader with a record that was acknowledged and never synced."""
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    log = settings_of(durability=Durability.REPLICATED)
    spu = await open_spu(path, assignment_of(log=log), **more)
    replica = await spu.serve()
    # The name of its first segment, and the control record.
    await until(lambda: not replica._log.needs_sync)
    await produce(replica, batch_of(), produce_request(Acks.LEADER))
    assert replica._log.needs_sync
    return spu


def was_clean(path: Path) -> bool:
    """Whether the SPU says of the directory that everything is on the disk."""
    return bool(json.loads((path / "run.json").read_bytes())["stopped"])


async def found_again(path: Path) -> Replica:
    """The replica after a start of the SPU."""
    again = await open_spu(path)
    replica = again.replica
    await again.host.close()
    return replica


@pytest.mark.parametrize("fails", ["while-it-is-halted", "as-it-is-opened-again"])
async def test_given_a_replica_halted_by_a_full_disk_then_an_fsync_that_had_begun_makes_it_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    monkeypatch.setattr(recovery, "_REOPEN_S", 0.0)
    spu, other, boot = await follow(tmp_path, monkeypatch)
    halted = spu.replica
    await until(lambda: not halted._log.needs_sync)
    stuck = StuckSync(monkeypatch)
    records = batches_of(*[b"acknowledged"] * 7)
    other.says(Append(TERM, 1, boot, records[5:6], 1, 0))
    await until(lambda: stuck.runs == 1)
    with monkeypatch.context() as patch:
        patch.setattr(spu.host.space, "require_last_room", Mock(side_effect=FULL))
        other.says(Append(TERM, 1, boot, records[6:], 1, 0))
    assert halted.awaits_room
    if fails == "while-it-is-halted":
        stuck.release(BROKEN)
        await until(lambda: "fsync failed" in str(halted.entry.hard_state.unfit))
        await spu.host.reopen_halted()
    else:
        with gate(monkeypatch, Journal, "append") as (written, write):
            opening = asyncio.create_task(spu.host.reopen_halted())
            await asyncio.sleep(0.01)
            stuck.release(BROKEN)
            await until(written.is_set)
            await asyncio.sleep(0.05)
            assert not opening.done()
            write.set()
            await opening
    assert spu.replica is not halted
    assert (spu.replica.is_halted, spu.replica.fit) == (False, False)
    await spu.host.close()


async def test_given_no_descriptors_for_an_fsync_then_the_replica_waits_and_stays_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await unsynced(tmp_path, monkeypatch)
    halted = spu.replica
    none_left = OSError(errno.EMFILE, "Too many open files")
    with monkeypatch.context() as patch:
        patch.setattr(sync_plan.SyncPlan, "run", Mock(side_effect=none_left))
        halted._runner.commit.sync_now()
        await until(lambda: halted.is_halted)
        await halted.close()
    assert (halted.awaits_room, halted.entry.hard_state.unfit) == (True, None)
    await spu.host.close()


async def test_given_an_fsync_of_the_directory_that_fails_for_a_checkpoint_then_it_is_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a segment that was begun meanwhile may be lost."""
    spu = await unsynced(tmp_path, monkeypatch)
    sync = durable.sync_log_directory

    def failing(path: Path) -> None:
        if "partitions" in path.parts:
            raise durable.FsyncFailedError(FULL.errno, FULL.strerror)
        sync(path)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_log_directory", failing)
        await spu.host.close()
    assert "fsync failed" in str((await found_again(tmp_path)).entry.hard_state.unfit)


@pytest.mark.parametrize("error", [BROKEN, FULL], ids=["bad-disk", "full-disk"])
async def test_given_an_fsync_that_fails_as_the_spu_stops_then_the_next_start_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    spu = await unsynced(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        fail_fsyncs_of_logs(patch, error)
        await spu.host.close()
    # The journal says what is not on the disk.
    assert was_clean(tmp_path)
    assert "fsync failed" in str((await found_again(tmp_path)).entry.hard_state.unfit)


@pytest.mark.parametrize("fails", ["the-journal", "a-checkpoint"])
async def test_given_a_failure_that_no_journal_tells_of_then_it_was_no_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    spu = await unsynced(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        if fails == "the-journal":
            fail_fsyncs_of_logs(patch, BROKEN)
            patch.setattr(journal_module, "write_all", Mock(side_effect=FULL))
        else:
            patch.setattr(sync_plan, "write_checkpoint", Mock(side_effect=FULL))
        await spu.host.close()
    assert not was_clean(tmp_path)


@pytest.mark.parametrize("synced", [True, False], ids=["of-what-is-cut", "of-what-is-left"])
async def test_given_an_fsync_for_a_cut_that_finds_no_room_then_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, synced: bool
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    durability = Durability.FSYNC if synced else Durability.REPLICATED
    spu, other, boot = await follow(tmp_path, monkeypatch, durability)
    await until(lambda: not spu.replica._log.needs_sync)
    if not synced:
        other.says(Append(TERM, 1, boot, batches_of(*[b"more"] * 6)[5:], 1, 0))
    await other.leads(LATER)
    with monkeypatch.context() as patch:
        fail_fsyncs_of_logs(patch, FULL)
        other.says(Truncate(LATER, 1, boot, TERM, 3))
        await until(lambda: not spu.replica.fit)
    assert not spu.replica.is_halted
    assert "No space left" in str(spu.replica.report().reason)
    await spu.host.close()


async def test_given_a_failed_fsync_that_a_follower_hears_of_as_it_writes_then_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    await until(lambda: not spu.replica._log.needs_sync)
    spu.host._files._failed[spu.replica._log.segments[-1].path] = BROKEN
    other.says(Append(TERM, 1, boot, batches_of(*[b"more"] * 6)[5:], 5, 4))
    # Nothing of what comes after the write is done.
    assert spu.replica._log._wanted_start == 0
    assert (spu.replica.fit, spu.replica.is_halted, spu.replica.leo) == (False, False, 5)
    await spu.host.close()


@pytest.mark.parametrize("use", ["a-write", "none-but-the-end"])
async def test_given_an_fsync_that_fails_to_make_room_for_other_files_then_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    spu = await unsynced(tmp_path, monkeypatch, open_files=1)
    replica, uid = spu.replica, new_uid()
    with monkeypatch.context() as patch:
        fail_fsyncs_of_logs(patch, FULL)
        # Its first record takes the only place of an open file.
        await spu.host.assign(
            assign(assignment_of(uid, log=settings_of(durability=Durability.REPLICATED)))
        )
        await spu.lead(uid)
    assert replica.fit
    if use == "a-write":
        with pytest.raises(StorageFailedError, match="fsync failed"):
            await produce(replica, batch_of())
    else:
        # As after a cut for which there was no room.
        replica._runner.commit.hold()
    await spu.host.close()
    assert "fsync failed" in str(replica.entry.hard_state.unfit)


async def test_given_a_replica_that_was_deleted_then_a_late_failure_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await unsynced(tmp_path, monkeypatch)
    replica = spu.replica
    grave = Tombstone(uid=UID, spu_id=1, storage_id=None)
    assert await spu.host.delete(DeleteReplicas(tombstones=(grave,), stamp=STAMP)) == [grave]
    # A read that began before.
    replica.damaged(OSError(errno.ENOENT, "No such file or directory"))
    await asyncio.sleep(0)
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.host._held.entry(UID) is None
    await again.host.close()
