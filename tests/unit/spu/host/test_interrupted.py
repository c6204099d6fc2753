"""A replica host that is cancelled, crashes or fails between the disk and the journal."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.control.messages import DeleteReplicas, ReplicaRole, Tombstone
from schemas.errors import InvalidRequestError, StorageFailedError
from schemas.ids import PartitionUid, StorageId
from spu.storage.data_dir import DataDir
from spu.storage.journal import Journal
from tests.unit.spu.builders import (
    CLUSTER,
    STAMP,
    UID,
    Spu,
    assign,
    assignment_of,
    new_uid,
    open_spu,
    settings_of,
    until,
)


def grave(uid: PartitionUid, storage_id: str | None = None) -> Tombstone:
    return Tombstone(
        uid=uid, spu_id=1, storage_id=StorageId(storage_id) if storage_id is not None else None
    )


def delete(*tombstones: Tombstone) -> DeleteReplicas:
    return DeleteReplicas(tombstones=tombstones, stamp=STAMP)


def stray(path: Path, uid: PartitionUid, cluster: str = CLUSTER) -> StorageId:
    """Make a directory as a creation does that never reached the journal."""
    directory = DataDir(path, 1, cluster, -1)
    meta = directory.new_meta(uid, "orders-0", "orders", 0, settings_of())
    directory.create_partitions([meta])
    return meta.storage_id


def directories(path: Path) -> set[str]:
    return set(os.listdir(path / "partitions"))


def fail_renames_of(monkeypatch: pytest.MonkeyPatch, which: Callable[[Path, Path], bool]) -> None:
    rename = os.rename

    def failing(source: Path, target: Path) -> None:
        if which(Path(source), Path(target)):
            raise OSError(errno.EIO, "Input/output error", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def deleted_for_good(path: Path, spu: Spu, *uids: PartitionUid) -> None:
    """Delete and see nothing left, neither now nor after a restart."""
    tombstones = [grave(uid) for uid in uids]
    assert await spu.host.delete(delete(*tombstones)) == tombstones
    assert directories(path) == set()
    await spu.host.close()
    journal = Journal.open(path / "journal")
    assert journal.entries == {}
    journal.close()


async def test_given_an_assignment_cancelled_half_way_then_the_next_one_holds_all(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path)
    uids = [new_uid() for _ in range(40)]
    message = assign(*(assignment_of(uid) for uid in uids))
    task = asyncio.create_task(spu.host.assign(message))
    await until(lambda: len(directories(tmp_path)) > 3)
    await cancelled(task)
    made = directories(tmp_path)
    await spu.host.assign(message)
    assert made <= set(uids), "a storage thread went on after the cancellation was raised"
    assert {report.uid for report in spu.host.reports()} == set(uids)
    assert all(report.fit and report.assigned for report in spu.host.reports())
    await spu.serve(uids[0])
    await deleted_for_good(tmp_path, spu, *uids)


async def test_given_an_assignment_cancelled_half_way_then_a_deletion_leaves_nothing(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path)
    uids = [new_uid() for _ in range(40)]
    task = asyncio.create_task(spu.host.assign(assign(*map(assignment_of, uids))))
    await until(lambda: len(directories(tmp_path)) > 3)
    await cancelled(task)
    await deleted_for_good(tmp_path, spu, *uids)


@pytest.mark.parametrize("restart", [False, True], ids=["given-no-restart", "given-a-restart"])
async def test_given_a_directory_without_entry_then_it_is_taken_up(
    tmp_path: Path, restart: bool
) -> None:
    spu = await open_spu(tmp_path)
    storage_id = stray(tmp_path, UID)
    if restart:
        await spu.host.close()
        spu = await open_spu(tmp_path)
    await spu.host.assign(assign(assignment_of()))
    (report,) = spu.host.reports()
    assert (report.storage_id, report.role) == (storage_id, ReplicaRole.IDLE)
    assert spu.reports[-1] == report
    await spu.serve()
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.storage_id() == storage_id
    assert again.replica.entry.assigned
    await again.host.close()


@pytest.mark.parametrize("case", ["no-meta", "another-cluster"])
async def test_given_a_directory_that_cannot_be_taken_up_then_unfit_and_the_others_are_held(
    tmp_path: Path, case: str
) -> None:
    other = new_uid()
    spu = await open_spu(tmp_path)
    if case == "no-meta":
        (tmp_path / "partitions" / UID).mkdir()
    else:
        stray(tmp_path, UID, "another-cluster")
    await spu.host.assign(assign(assignment_of(UID), assignment_of(other)))
    reports = {report.uid: report for report in spu.host.reports()}
    assert (reports[UID].fit, reports[other].fit) == (False, True)
    assert str(tmp_path / "partitions" / UID) in str(reports[UID].reason)
    assert reports[UID] in spu.reports
    await deleted_for_good(tmp_path, spu, UID, other)


async def test_given_one_that_cannot_be_made_then_the_others_are_held_and_it_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, other = UID, new_uid()
    spu = await open_spu(tmp_path)
    message = assign(assignment_of(bad), assignment_of(other))
    with monkeypatch.context() as patch:
        fail_renames_of(patch, lambda _source, target: target.name == bad)
        with pytest.raises(StorageFailedError, match="free or repair the disk"):
            await spu.host.assign(message)
    assert [report.uid for report in spu.host.reports()] == [other]
    await spu.host.assign(message)
    assert {report.uid for report in spu.host.reports()} == {bad, other}
    await spu.host.close()


async def test_given_one_that_is_no_uid_then_the_others_are_held(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path)
    with pytest.raises(InvalidRequestError, match="not a partition uid"):
        await spu.host.assign(assign(assignment_of(PartitionUid("x")), assignment_of(UID)))
    assert [report.uid for report in spu.host.reports()] == [UID]
    await spu.host.close()


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        pytest.param(None, False, id="given-any-storage-then-deleted"),
        pytest.param("its-own", False, id="given-its-storage-then-deleted"),
        pytest.param("other", True, id="given-another-storage-then-kept"),
    ],
)
async def test_tombstone_of_a_directory_that_is_no_replica(
    tmp_path: Path, named: str | None, kept: bool
) -> None:
    spu = await open_spu(tmp_path)
    storage_id = stray(tmp_path, UID)
    tombstone = grave(UID, storage_id if named == "its-own" else named)
    assert await spu.host.delete(delete(tombstone)) == [tombstone]
    assert directories(tmp_path) == ({UID} if kept else set())
    assert [report.storage_id for report in spu.host.reports()] == ([storage_id] if kept else [])
    await spu.host.close()


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        pytest.param(None, False, id="given-any-storage-then-set-aside"),
        pytest.param("its-own", False, id="given-the-storage-that-is-reported-then-set-aside"),
        pytest.param("other", True, id="given-another-storage-then-refused"),
    ],
)
async def test_tombstone_of_a_directory_that_cannot_be_read(
    tmp_path: Path, named: str | None, kept: bool
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    tombstone = grave(UID, spu.storage_id() if named == "its-own" else named)
    await spu.host.close()
    (tmp_path / "partitions" / UID / "meta.json").write_text("{")
    spu = await open_spu(tmp_path)
    if kept:
        with pytest.raises(StorageFailedError, match=r"meta\.json cannot be read: .* other is"):
            await spu.host.delete(delete(tombstone))
        assert directories(tmp_path) == {UID}
        assert [report.uid for report in spu.host.reports()] == [UID]
        await spu.host.close()
        return
    assert await spu.host.delete(delete(tombstone)) == [tombstone]
    (aside,) = (tmp_path / "aside").iterdir()
    assert (aside / "meta.json").read_text() == "{"
    assert spu.host.reports() == []
    await deleted_for_good(tmp_path, spu, UID)


async def test_given_an_operator_took_away_what_cannot_be_read_then_its_tombstone_is_done(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.host.close()
    place = tmp_path / "partitions" / UID
    (place / "meta.json").unlink()
    spu = await open_spu(tmp_path)
    shutil.rmtree(place)
    await deleted_for_good(tmp_path, spu, UID)


@pytest.mark.parametrize("restart", [False, True], ids=["given-no-restart", "given-a-restart"])
async def test_given_a_crash_between_directory_and_journal_then_the_deletion_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()

    def lost(_journal: Journal, _changes: object) -> None:
        raise StorageFailedError("the journal is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", lost)
        with pytest.raises(StorageFailedError, match="the journal is gone"):
            await spu.host.delete(delete(grave(UID)))
    assert directories(tmp_path) == set()
    assert spu.host.reports() == []
    if restart:
        await spu.host.close()
        spu = await open_spu(tmp_path)
        assert spu.host.reports() == []
    await deleted_for_good(tmp_path, spu, UID)


async def test_given_a_deletion_cancelled_half_way_then_it_can_be_repeated(
    tmp_path: Path,
) -> None:
    uids = [new_uid() for _ in range(10)]
    spu = await open_spu(tmp_path, *map(assignment_of, uids))
    task = asyncio.create_task(spu.host.delete(delete(*map(grave, uids))))
    await until(lambda: len(directories(tmp_path)) < 8)
    await cancelled(task)
    assert {report.uid for report in spu.host.reports()} == directories(tmp_path)
    await deleted_for_good(tmp_path, spu, *uids)


async def test_given_a_directory_that_cannot_be_deleted_then_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_uid()
    spu = await open_spu(tmp_path, assignment_of(UID), assignment_of(other))
    message = delete(grave(UID), grave(other))
    with monkeypatch.context() as patch:
        fail_renames_of(patch, lambda source, _target: source.name == UID)
        assert await spu.host.delete(message) == [grave(other)]
        assert directories(tmp_path) == {UID}
        with pytest.raises(StorageFailedError, match="free or repair the disk"):
            await spu.host.delete(delete(grave(UID)))
    await deleted_for_good(tmp_path, spu, UID, other)


async def test_given_a_removal_that_stops_after_the_rename_then_it_is_not_confirmed_until_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    remove = shutil.rmtree

    def failing(path: Path) -> None:
        if Path(path).exists():
            raise OSError(errno.EIO, "Input/output error", str(path))
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", failing)
        for _ in range(2):
            with pytest.raises(StorageFailedError, match="free or repair the disk"):
                await spu.host.delete(delete(grave(UID)))
    assert spu.host.reports() == []
    await deleted_for_good(tmp_path, spu, UID)


async def test_given_a_lost_directory_then_a_tombstone_of_another_storage_keeps_its_terms(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    await spu.serve()
    term = spu.replica.entry.hard_state.term
    await spu.host.close()
    shutil.rmtree(tmp_path / "partitions" / UID)
    again = await open_spu(tmp_path)
    assert await again.host.delete(delete(grave(UID, "other"))) == [grave(UID, "other")]
    await again.host.assign(assign(assignment_of(revision=9)))
    assert again.replica.entry.hard_state.term == term
    await again.host.close()
