"""The SPU's log directory: who owns it, and which partitions it holds.

::

    <log dir>/lock                      held with flock while a process uses the directory
    <log dir>/identity.json             format version, cluster uid, SPU id
    <log dir>/journal                   see `spu.storage.journal`
    <log dir>/controllers.json          the SCs that ran when an SC let the SPU in last
    <log dir>/run.json                  the boot that an SPU last ran in, and whether it stopped
    <log dir>/partitions/<uid>/         one replica: meta.json, checkpoint, segments, indexes
    <log dir>/aside/<uid>-<time>/       a replica that was set aside, for an operator to look at

A directory belongs to one SPU of one cluster for ever; opening it as another SPU is refused before
anything is read. The cluster is unknown until the SC has named it. A partition directory appears
with all its files or not at all, and is renamed before it is deleted. So a crash leaves only whole
directories, and leftovers whose names begin with a dot.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pydantic import TypeAdapter

from schemas.daemon.logs import get_logger
from schemas.errors import InvalidRequestError, StorageFailedError
from schemas.ids import PartitionUid, StorageId
from schemas.objects.topic import LogSettings, SharedLogSettings
from spu.storage.checkpoint import Checkpoint, write_checkpoint
from spu.storage.durable import (
    UNFINISHED,
    is_shortage,
    replace_file,
    sync_directory,
    write_file,
)

FORMAT_VERSION: Final = 1
_LEFTOVER: Final = "."
_LOG_SETTINGS: Final = TypeAdapter[LogSettings](SharedLogSettings)
_IDENTITY: Final = "identity.json"
_RUN: Final = "run.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionMeta:
    """What a partition directory says about itself. It never changes, except for ``storage_id``:
    a replica that is rebuilt takes a new one.

    ``log`` are the settings at its creation; the journal holds the current ones.
    """

    cluster_uid: str
    uid: PartitionUid
    storage_id: StorageId
    name: str
    topic: str
    index: int
    log: LogSettings

    def to_json(self) -> dict[str, Any]:
        return {
            "clusterUid": self.cluster_uid,
            "partitionUid": self.uid,
            "storageId": self.storage_id,
            "name": self.name,
            "topic": self.topic,
            "index": self.index,
            "log": self.log.model_dump(mode="json", by_alias=True),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(
            cluster_uid=data["clusterUid"],
            uid=PartitionUid(data["partitionUid"]),
            storage_id=StorageId(data["storageId"]),
            name=data["name"],
            topic=data["topic"],
            index=data["index"],
            log=_LOG_SETTINGS.validate_python(data["log"]),
        )


@dataclass(frozen=True, slots=True)
class Creation:
    """The directories that were not created, of those that were to be created.

    ``present`` existed before and are untouched; ``failed`` do not exist.
    """

    present: tuple[PartitionUid, ...]
    failed: dict[PartitionUid, OSError]


class DataDir:
    """An open, locked log directory."""

    def __init__(self, path: Path, spu_id: int, cluster_uid: str | None, lock_fd: int) -> None:
        self.path = path
        self.spu_id = spu_id
        self.cluster_uid = cluster_uid
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path, spu_id: int, cluster_uid: str | None = None) -> Self:
        """Lock the directory; create it if it is missing, and make its name durable.

        Raises StorageFailedError if another process holds it, or if it belongs to another SPU or,
        with ``cluster_uid``, to another cluster.
        """
        # For this user only, like the records in it; a directory that exists keeps its mode.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock_fd = _lock(path)
        try:
            known = _read_identity(path)
            if known is not None and known["spuId"] != spu_id:
                raise StorageFailedError(
                    f"{path} belongs to SPU {known['spuId']}, but this is SPU {spu_id};"
                    " give each SPU a log directory of its own"
                )
            directory = cls(path, spu_id, known["clusterUid"] if known else None, lock_fd)
            (path / "partitions").mkdir(mode=0o700, exist_ok=True)
            if known is None:
                _sync_name(path)
                directory._write_identity(None)
            if cluster_uid is not None:
                directory.record_cluster_uid(cluster_uid)
            if directory.cluster_uid is None and any(map(_is_uuid, directory.partition_uids())):
                raise StorageFailedError(
                    f"{path / _IDENTITY} names no cluster but {path} holds partitions; restore the"
                    " file"
                )
            # A process that was killed may have made or removed replicas without waiting for that.
            sync_directory(path / "partitions")
            directory._remove_leftovers()
        except BaseException:
            os.close(lock_fd)
            raise
        return directory

    @property
    def journal_path(self) -> Path:
        return self.path / "journal"

    def partition_path(self, uid: str) -> Path:
        return self.path / "partitions" / uid

    def record_cluster_uid(self, cluster_uid: str) -> None:
        """Durably bind the directory to a cluster. Raises StorageFailedError if it has another, and
        OSError; it is not bound then."""
        if self.cluster_uid == cluster_uid:
            return
        if self.cluster_uid is not None:
            raise StorageFailedError(
                f"{self.path} belongs to cluster {self.cluster_uid}, but the SC to cluster"
                f" {cluster_uid}; connect to the right SC or use an empty log directory"
            )
        self._write_identity(cluster_uid)
        # Only now: after an error, the next welcome of the SC finds it missing, and writes it.
        self.cluster_uid = cluster_uid

    def went_down_uncleanly(self) -> bool:
        """Whether the host has booted since an SPU used this directory and did not stop cleanly:
        the contents of the page cache may be lost."""
        try:
            run = json.loads((self.path / _RUN).read_bytes())
        except FileNotFoundError:
            return False
        except (ValueError, RecursionError):
            return True
        if not isinstance(run, dict):
            return True
        return not run.get("stopped") and run.get("boot") != _boot_id()

    def record_start(self) -> None:
        """Durably note that an SPU uses the directory. Raises OSError."""
        self._record_run(stopped=False)

    def record_stop(self) -> None:
        """Durably note that everything is on the disk. Raises OSError."""
        self._record_run(stopped=True)

    def _record_run(self, *, stopped: bool) -> None:
        run = {"boot": _boot_id(), "stopped": stopped}
        replace_file(self.path / _RUN, json.dumps(run).encode())

    def record_storage(self, meta: PartitionMeta) -> None:
        """Durably give a replica's directory the storage id of ``meta``. Raises OSError."""
        path = self.partition_path(meta.uid) / "meta.json"
        replace_file(path, json.dumps(meta.to_json(), indent=1).encode())

    def partition_uids(self) -> list[PartitionUid]:
        """The uids of all partition directories, in order."""
        names = os.listdir(self.path / "partitions")
        return [PartitionUid(name) for name in sorted(names) if not name.startswith(_LEFTOVER)]

    def read_meta(self, uid: PartitionUid) -> PartitionMeta:
        """The meta of a partition directory.

        Raises StorageFailedError if it cannot be read, or is of another partition or cluster, and
        OSError if the process has no file descriptor or memory left.
        """
        path = self.partition_path(uid) / "meta.json"
        content = _content_of(path)
        try:
            meta = PartitionMeta.from_json(json.loads(content))
            if not _is_uuid(meta.storage_id):
                raise ValueError(f"{meta.storage_id!r} is not a storage id")
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise StorageFailedError(f"{path} cannot be read: {error}") from error
        if meta.uid != uid or meta.cluster_uid != self.cluster_uid:
            raise StorageFailedError(
                f"{path} is of partition {meta.uid} in cluster {meta.cluster_uid},"
                f" not of {uid} in {self.cluster_uid}; it was copied here"
            )
        return meta

    def new_meta(
        self, uid: PartitionUid, name: str, topic: str, index: int, log: LogSettings
    ) -> PartitionMeta:
        """Meta for a replica that does not exist yet, with a fresh storage id."""
        if self.cluster_uid is None:
            raise InvalidRequestError(
                f"{self.path} belongs to no cluster yet; the SC's welcome must come first"
            )
        if not _is_uuid(uid):
            raise InvalidRequestError(f"{uid!r} is not a partition uid")
        return PartitionMeta(self.cluster_uid, uid, new_storage_id(), name, topic, index, log)

    def create_partitions(self, metas: Iterable[PartitionMeta]) -> Creation:
        """Create the directories of new replicas; they are durable when this returns.

        One that cannot be created does not stop the others. A directory that exists already,
        because its creation never reached the journal, is left for the caller to read.
        """
        present: list[PartitionUid] = []
        failed: dict[PartitionUid, OSError] = {}
        for meta in metas:
            try:
                if self.partition_path(meta.uid).exists():
                    present.append(meta.uid)
                else:
                    self._create_partition(meta)
            except OSError as error:
                failed[meta.uid] = error
        # Also for directories that were present: their creation may have ended before this sync.
        sync_directory(self.path / "partitions")
        return Creation(tuple(present), failed)

    def set_aside(self, uid: PartitionUid, now_us: int) -> Path:
        """Move a partition directory out of the way; returns where it is now.

        Nothing reads or deletes it there. Durable when this returns. Raises OSError.
        """
        aside = self.path / "aside"
        aside.mkdir(mode=0o700, exist_ok=True)
        place = aside / f"{uid}-{now_us}"
        os.rename(self.partition_path(uid), place)
        for directory in (aside, self.path / "partitions", self.path):
            sync_directory(directory)
        return place

    def remove_partitions(self, uids: Iterable[PartitionUid]) -> dict[PartitionUid, OSError]:
        """Delete replicas' directories; once they are renamed, the deletion is final.

        Finishes removals that were begun before; ignores directories that do not exist. Returns
        the errors of those that failed: they do not stop the others. Raises OSError if all failed.
        """
        parent = self.path / "partitions"
        failed: dict[PartitionUid, OSError] = {}
        doomed: dict[PartitionUid, Path] = {}
        for uid in uids:
            path = parent / f"{_LEFTOVER}deleted-{uid}"
            try:
                _remove_tree(path)
            except OSError as error:
                failed[uid] = error
                path = _beside(path)
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(parent / uid, path)
                doomed[uid] = path
            except OSError as error:
                failed[uid] = error
        sync_directory(parent)
        for uid, path in doomed.items():
            try:
                _remove_tree(path)
            except OSError as error:
                failed[uid] = error
        return failed

    def close(self) -> None:
        """Release the lock."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _create_partition(self, meta: PartitionMeta) -> None:
        unfinished = self.path / "partitions" / f"{_LEFTOVER}new-{meta.uid}"
        try:
            _remove_tree(unfinished)
        except OSError:
            # `_remove_leftovers` tries again at the next start.
            unfinished = _beside(unfinished)
        try:
            unfinished.mkdir(mode=0o700)
            # Its name is made durable with that of the checkpoint.
            write_file(unfinished / "meta.json", json.dumps(meta.to_json(), indent=1).encode())
            write_checkpoint(unfinished, Checkpoint())
            os.rename(unfinished, self.partition_path(meta.uid))
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    def _write_identity(self, cluster_uid: str | None) -> None:
        identity = {
            "formatVersion": FORMAT_VERSION,
            "clusterUid": cluster_uid,
            "spuId": self.spu_id,
        }
        replace_file(self.path / _IDENTITY, json.dumps(identity, indent=1).encode())

    def _remove_leftovers(self) -> None:
        """Remove what a crash or a disk that could not delete has left. What cannot be removed now
        is no reason to keep the replicas from their clients."""
        for leftover in (self.path / "partitions").glob(f"{_LEFTOVER}*"):
            try:
                _remove_tree(leftover)
            except OSError as error:
                _log.error(
                    "cannot remove what is left of a replica", path=error.filename, why=error
                )
        for file in self.path.glob(f"*{UNFINISHED}"):
            try:
                file.unlink()
            except OSError as error:
                _log.error("cannot remove an unfinished file", path=str(file), why=error)


def new_storage_id() -> StorageId:
    """A storage id that was never used."""
    return StorageId(str(uuid.uuid4()))


def _boot_id() -> str:
    """Random for each boot of the host."""
    return _BOOT_ID.read_text().strip()


def _content_of(path: Path) -> bytes:
    """The content of a file. A shortage of the process stays an OSError."""
    try:
        return path.read_bytes()
    except OSError as error:
        if is_shortage(error):
            raise
        raise StorageFailedError(f"{path} cannot be read: {error}") from error


def _is_uuid(text: object) -> bool:
    try:
        return isinstance(text, str) and str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _sync_name(path: Path) -> None:
    """Make the name of a directory durable, and those of its parents on the same disk: whoever has
    made them just now may not have done that. Raises OSError."""
    device = path.stat().st_dev
    for parent in path.resolve().parents:
        if parent.stat().st_dev != device:
            return
        try:
            sync_directory(parent)
        except PermissionError:
            # Who may not read it has not made it, nor those above it.
            return


def _remove_tree(path: Path) -> None:
    """Remove a directory, if it is there. Raises OSError, with the whole path of the file."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        # It removes files by their names in the open directory.
        if error.filename != str(path):
            error.filename = str(path / Path(error.filename or "").name)
        raise


def _beside(path: Path) -> Path:
    """Another name for what cannot have that of a directory which the disk does not remove."""
    return path.with_name(f"{path.name}-{uuid.uuid4().hex[:8]}")


def _lock(path: Path) -> int:
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise StorageFailedError(
            f"{path} is in use by process {holder}; stop that SPU first,"
            " or give this one another log directory"
        ) from error
    os.truncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _read_identity(path: Path) -> dict[str, Any] | None:
    file = path / _IDENTITY
    try:
        identity = json.loads(file.read_bytes())
    except FileNotFoundError:
        if any(_is_uuid(found.name) for found in (path / "partitions").glob("*")):
            raise StorageFailedError(
                f"{file} is missing but {path} holds partitions; restore the file"
            ) from None
        return None
    except (ValueError, RecursionError) as error:
        raise StorageFailedError(f"{file} is not JSON: {error}; restore the file") from error
    if not isinstance(identity, dict):
        raise StorageFailedError(f"{file} names no SPU and cluster; restore the file")
    if identity.get("formatVersion") != FORMAT_VERSION:
        raise StorageFailedError(
            f"{file} has format version {identity.get('formatVersion')}, this SPU reads"
            f" {FORMAT_VERSION}; use the matching version of Runnel"
        )
    if not {"spuId", "clusterUid"} <= identity.keys():
        raise StorageFailedError(f"{file} names no SPU and cluster; restore the file")
    return identity
