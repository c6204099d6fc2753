"""The log directory: one owner at a time, one SPU of one cluster for ever."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from schemas.errors import InvalidRequestError, StorageFailedError
from schemas.ids import PartitionUid
from schemas.objects.topic import LogSettings, Retention
from spu.storage import data_dir as data_dir_module
from spu.storage.data_dir import DataDir
from spu.storage.durable import UNFINISHED
from tests.unit.spu.builders import CLUSTER, UID, new_uid


def test_given_an_open_directory_then_a_second_opener_is_told_who_holds_it(tmp_path: Path) -> None:
    held = DataDir.open(tmp_path, 1)
    with pytest.raises(StorageFailedError, match=f"in use by process {os.getpid()}"):
        DataDir.open(tmp_path, 1)
    held.close()
    DataDir.open(tmp_path, 1).close()


@pytest.mark.parametrize(
    ("spu_id", "cluster", "text"),
    [
        pytest.param(2, CLUSTER, "belongs to SPU 1, but this is SPU 2", id="given-another-spu"),
        pytest.param(1, "other", f"belongs to cluster {CLUSTER}", id="given-another-cluster"),
    ],
)
def test_given_a_foreign_directory_then_open_refuses(
    tmp_path: Path, spu_id: int, cluster: str, text: str
) -> None:
    DataDir.open(tmp_path, 1, CLUSTER).close()
    with pytest.raises(StorageFailedError, match=text):
        DataDir.open(tmp_path, spu_id, cluster)
    # The refusal must not keep the lock.
    DataDir.open(tmp_path, 1, CLUSTER).close()


def test_given_a_new_directory_then_it_is_for_this_user_and_an_old_one_keeps_its_mode(
    tmp_path: Path,
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    old.chmod(0o755)
    for path, mode in ((tmp_path / "new", 0o700), (old, 0o755)):
        directory = DataDir.open(path, 1, CLUSTER)
        directory.create_partitions(
            [directory.new_meta(UID, "orders-0", "orders", 0, LogSettings())]
        )
        directory.set_aside(UID, 1)
        directory.close()
        assert path.stat().st_mode & 0o777 == mode
        inner = [found for found in path.rglob("*") if found.is_dir()]
        assert len(inner) == 3
        assert {found.stat().st_mode & 0o777 for found in inner} == {0o700}


def test_given_no_cluster_then_it_is_recorded_once_and_replicas_need_it(tmp_path: Path) -> None:
    directory = DataDir.open(tmp_path, 1)
    assert directory.cluster_uid is None
    with pytest.raises(InvalidRequestError, match="no cluster yet"):
        directory.new_meta(UID, "orders-0", "orders", 0, LogSettings())
    directory.record_cluster_uid(CLUSTER)
    directory.close()
    again = DataDir.open(tmp_path, 1)
    assert again.cluster_uid == CLUSTER
    with pytest.raises(StorageFailedError, match="connect to the right SC"):
        again.record_cluster_uid("other")
    again.close()


def test_given_a_partition_then_its_meta_reads_back(tmp_path: Path) -> None:
    directory = DataDir.open(tmp_path, 1, CLUSTER)
    settings = LogSettings(retention=Retention(time=None, size=1 << 30))
    meta = directory.new_meta(UID, "orders-0", "orders", 0, settings)
    directory.create_partitions([meta])
    assert directory.partition_uids() == [UID]
    assert directory.read_meta(UID) == meta
    assert directory.new_meta(UID, "orders-0", "orders", 0, settings).storage_id != meta.storage_id
    assert directory.remove_partitions([UID]) == {}
    assert directory.remove_partitions([UID]) == {}
    assert directory.partition_uids() == []
    directory.close()


def test_given_one_that_exists_and_one_that_fails_then_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataDir.open(tmp_path, 1, CLUSTER)
    before, bad, good = (
        directory.new_meta(uid, "o", "o", 0, LogSettings()) for uid in (UID, new_uid(), new_uid())
    )
    directory.create_partitions([before])
    rename = os.rename

    def failing(source: Path, target: Path) -> None:
        if target == directory.partition_path(bad.uid):
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    again = directory.new_meta(UID, "o", "o", 0, LogSettings())
    outcome = directory.create_partitions([again, bad, good])
    assert outcome.present == (UID,)
    assert {uid: error.errno for uid, error in outcome.failed.items()} == {bad.uid: errno.ENOSPC}
    assert directory.read_meta(UID) == before
    assert directory.partition_uids() == sorted([UID, good.uid])
    assert list((tmp_path / "partitions").glob(".*")) == []
    directory.close()


@pytest.mark.parametrize("uid", ["", "x", "../x", UID.upper()])
def test_given_no_uid_then_no_meta(tmp_path: Path, uid: str) -> None:
    directory = DataDir.open(tmp_path, 1, CLUSTER)
    with pytest.raises(InvalidRequestError, match="is not a partition uid"):
        directory.new_meta(PartitionUid(uid), "o", "o", 0, LogSettings())
    directory.close()


def test_given_a_removal_half_done_then_it_is_finished(tmp_path: Path) -> None:
    directory = DataDir.open(tmp_path, 1, CLUSTER)
    doomed = tmp_path / "partitions" / f".deleted-{UID}"
    doomed.mkdir()
    (doomed / "file").touch()
    assert directory.remove_partitions([UID]) == {}
    assert list((tmp_path / "partitions").iterdir()) == []
    directory.close()


def test_given_no_room_to_note_the_cluster_then_it_is_noted_later_and_no_replica_is_made_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataDir.open(tmp_path, 1)
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(data_dir_module, "replace_file", Mock(side_effect=full))
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                directory.record_cluster_uid(CLUSTER)
    with pytest.raises(InvalidRequestError, match="belongs to no cluster yet"):
        directory.new_meta(UID, "o", "o", 0, LogSettings())
    directory.record_cluster_uid(CLUSTER)
    directory.create_partitions([directory.new_meta(UID, "o", "o", 0, LogSettings())])
    directory.close()
    again = DataDir.open(tmp_path, 1)
    assert again.read_meta(UID).cluster_uid == again.cluster_uid == CLUSTER
    again.close()


def test_given_partitions_of_a_cluster_that_the_directory_does_not_name_then_open_refuses(
    tmp_path: Path,
) -> None:
    # As where that directory is a mount of its own.
    (tmp_path / "partitions" / "lost+found").mkdir(parents=True)
    for _ in range(2):
        DataDir.open(tmp_path, 1).close()
    (tmp_path / "partitions" / UID).mkdir()
    with pytest.raises(StorageFailedError, match=r"names no cluster but .* holds partitions"):
        DataDir.open(tmp_path, 1)
    # As an operator may say which it is.
    DataDir.open(tmp_path, 1, CLUSTER).close()
    DataDir.open(tmp_path, 1).close()


def test_given_leftovers_of_a_crash_then_open_removes_them(tmp_path: Path) -> None:
    DataDir.open(tmp_path, 1, CLUSTER).close()
    for name in (".new-x", ".deleted-y"):
        (tmp_path / "partitions" / name).mkdir()
        (tmp_path / "partitions" / name / "file").touch()
    (tmp_path / f"run.json.0123abcd{UNFINISHED}").write_bytes(b"half")
    directory = DataDir.open(tmp_path, 1)
    assert list((tmp_path / "partitions").iterdir()) == []
    assert not list(tmp_path.glob(f"*{UNFINISHED}"))
    directory.close()


def test_given_leftovers_that_cannot_be_removed_then_it_opens_and_a_deletion_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataDir.open(tmp_path, 1, CLUSTER).close()
    doomed, unfinished = (tmp_path / "partitions" / f".{how}-{UID}" for how in ("deleted", "new"))
    for leftover in (doomed, unfinished):
        leftover.mkdir()
        (leftover / "meta.json").touch()
    (tmp_path / f"run.json.0123abcd{UNFINISHED}").write_bytes(b"half")

    def refuses(path: str, *, dir_fd: int | None = None) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    with monkeypatch.context() as immutable:
        immutable.setattr("os.unlink", refuses)
        directory = DataDir.open(tmp_path, 1)
        meta = directory.new_meta(UID, "o", "o", 0, LogSettings())
        failed = directory.remove_partitions([UID])
        # What comes to have the same names is made and deleted all the same.
        assert directory.create_partitions([meta]).failed == {}
        assert set(directory.remove_partitions([UID])) == {UID}
        assert not directory.partition_path(UID).exists()
    assert failed[UID].filename == str(doomed / "meta.json")
    assert directory.remove_partitions([UID]) == {}
    assert not doomed.exists()
    directory.close()
    DataDir.open(tmp_path, 1).close()
    assert list((tmp_path / "partitions").iterdir()) == []


def test_given_a_removal_that_a_crash_met_then_its_name_is_gone_for_good_before_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataDir.open(tmp_path, 1, CLUSTER).close()
    doomed = tmp_path / "partitions" / ".deleted-y"
    doomed.mkdir()
    synced: list[tuple[Path, bool]] = []
    monkeypatch.setattr(
        data_dir_module, "sync_directory", lambda path: synced.append((path, doomed.exists()))
    )
    DataDir.open(tmp_path, 1).close()
    assert synced == [(tmp_path / "partitions", True)]
    assert not doomed.exists()


def test_given_a_directory_copied_from_elsewhere_then_it_is_not_taken(tmp_path: Path) -> None:
    directory = DataDir.open(tmp_path, 1, CLUSTER)
    directory.create_partitions([directory.new_meta(UID, "o", "o", 0, LogSettings())])
    other = new_uid()
    os.rename(directory.partition_path(UID), directory.partition_path(other))
    with pytest.raises(StorageFailedError, match="copied here"):
        directory.read_meta(other)
    directory.close()


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        pytest.param("{", "not JSON", id="given-no-json"),
        pytest.param('{"formatVersion": 9}', "format version 9", id="given-another-format"),
        pytest.param('{"formatVersion": 1}', "names no SPU", id="given-missing-fields"),
    ],
)
def test_given_a_bad_identity_then_open_says_so(tmp_path: Path, identity: str, text: str) -> None:
    (tmp_path / "identity.json").write_text(identity)
    with pytest.raises(StorageFailedError, match=text):
        DataDir.open(tmp_path, 1)


def test_given_partitions_without_identity_then_open_refuses(tmp_path: Path) -> None:
    (tmp_path / "partitions" / UID).mkdir(parents=True)
    with pytest.raises(StorageFailedError, match="is missing but"):
        DataDir.open(tmp_path, 1)


def test_identity_says_what_it_is_for_people(tmp_path: Path) -> None:
    DataDir.open(tmp_path, 7, CLUSTER).close()
    assert json.loads((tmp_path / "identity.json").read_text()) == {
        "formatVersion": 1,
        "clusterUid": CLUSTER,
        "spuId": 7,
    }


@pytest.mark.parametrize("made", ["by-itself", "by-somebody-else"])
def test_given_a_new_directory_then_its_name_and_those_of_its_parents_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    synced: list[Path] = []

    def sync(path: Path) -> None:
        if path == tmp_path.parent:
            raise PermissionError
        if path.name != "partitions":
            synced.append(path)

    monkeypatch.setattr(data_dir_module, "sync_directory", sync)
    path = tmp_path / "a" / "b"
    if made == "by-somebody-else":
        path.mkdir(parents=True)
    for _ in range(2):
        DataDir.open(path, 1).close()
    # Once, and no further than one may read.
    assert synced == [tmp_path / "a", tmp_path]


def test_given_a_directory_on_a_disk_of_its_own_then_no_other_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, inside = Path.stat, tmp_path / "disk"

    def elsewhere(path: Path, **options: bool) -> object:
        found = stat(path, **options)
        return SimpleNamespace(st_dev=2, st_mode=found.st_mode) if path == inside else found

    synced: list[Path] = []
    monkeypatch.setattr(data_dir_module, "sync_directory", synced.append)
    monkeypatch.setattr(Path, "stat", elsewhere)
    DataDir.open(inside, 1).close()
    assert synced == [inside / "partitions"]
