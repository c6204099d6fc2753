"""The saved state of a local cluster in its data directory, and the lock on it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from runnel.local.plan import (
    DASHBOARD,
    DEFAULT_BASE_PORT,
    DEFAULT_KV,
    DEFAULT_NAME,
    DEFAULT_SCS,
    DEFAULT_SPUS,
    ClusterPlan,
)
from schemas.daemon.files import write_json
from schemas.daemon.process import ProcessId, processes_of, runs_with, spu_processes
from schemas.errors import ConflictError, InvalidRequestError, StorageFailedError

LOCK = "lock"
LOGS = "logs"
#: Written by the SC's provisioner.
_PROCESS = ".process.json"


@dataclass(slots=True)
class ClusterState:
    """The content of ``cluster.json``."""

    base_port: int = DEFAULT_BASE_PORT
    spus: int = DEFAULT_SPUS
    kv: str = DEFAULT_KV
    name: str = DEFAULT_NAME
    dashboard: bool = True
    scs: int = DEFAULT_SCS
    processes: dict[str, ProcessId] = field(default_factory=dict)

    def alive(self, data_dir: Path) -> dict[str, ProcessId]:
        """The processes that still run, and belong to the cluster in ``data_dir``: a copy of its
        directory names them as well."""
        found = {
            n: process for n, process in self.processes.items() if runs_with(process, data_dir)
        }
        # A killed command may have had no time to record the processes that it started.
        names = ("etcd-0", DASHBOARD, *(f"sc-{number}" for number in range(self.scs)))
        configs = {name: data_dir / f"{name}.yaml" for name in names}
        if missing := {name: path for name, path in configs.items() if name not in found}:
            found.update(processes_of(missing))
        return found

    def plan(self, data_dir: Path) -> ClusterPlan:
        return ClusterPlan(
            data_dir, self.base_port, self.spus, self.kv, self.name, self.dashboard, self.scs
        )

    @classmethod
    def of(cls, plan: ClusterPlan, processes: dict[str, ProcessId]) -> ClusterState:
        return cls(
            plan.base_port,
            plan.spus,
            plan.kv,
            plan.cluster,
            plan.with_dashboard,
            plan.scs,
            processes,
        )


@dataclass(frozen=True, slots=True)
class SpuProcess:
    """An SPU that the SC started: its process, which may have ended, and its ports."""

    name: str
    spu_id: int
    process: ProcessId
    ports: dict[str, int]


class DataDirectory:
    """The files of a local cluster, except those of its daemons."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def _state_file(self) -> Path:
        return self.path / "cluster.json"

    def load(self) -> ClusterState | None:
        """The saved state; None if no cluster was ever started. Raises InvalidRequestError."""
        try:
            data: dict[str, Any] = json.loads(self._state_file.read_text())
            processes = {name: ProcessId(**p) for name, p in data.pop("processes").items()}
            return ClusterState(**data, processes=processes)
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise InvalidRequestError(self._not_a_directory()) from error
        except OSError as error:
            raise InvalidRequestError(
                f"{self._state_file} cannot be read: {error.strerror}"
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(f"{self._state_file} is damaged: {error}") from error

    def _not_a_directory(self) -> str:
        file = next((p for p in (self.path, *self.path.parents) if p.exists()), self.path)
        return f"{self.path} cannot hold a cluster: {file} is a file; name a directory"

    def save(self, state: ClusterState) -> None:
        """Save the state, readable by this user only, because a KV's URL may hold a password.
        Raises StorageFailedError."""
        saved = asdict(state)
        if state.dashboard:
            # Versions without a dashboard read the file, too.
            del saved["dashboard"]
        if state.scs == DEFAULT_SCS:
            del saved["scs"]
        try:
            write_json(self._state_file, saved, mode=0o600)
        except OSError as error:
            raise cannot_write(self._state_file, error) from error

    def forget(self) -> None:
        self._state_file.unlink(missing_ok=True)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One start, stop, move or delete at a time. Raises ConflictError, and InvalidRequestError
        for a directory that cannot be made or written to.

        If it leaves nothing in a directory that it had to make, that is removed again.
        """
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        with self._lock_file() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(lock.fileno()), os.stat(self.path / LOCK)):
                    raise BlockingIOError
            except (BlockingIOError, FileNotFoundError):
                # Another command holds it, or deleted it with its cluster after it was opened.
                raise ConflictError(
                    f"another command is starting or stopping the cluster in {self.path}"
                ) from None
            try:
                yield
            finally:
                self._remove_empty(made)

    def _lock_file(self) -> IO[str]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return (self.path / LOCK).open("w")
        except OSError as error:
            raise InvalidRequestError(
                f"{self.path} cannot hold a cluster: {error.strerror}; name another directory"
            ) from error

    def _remove_empty(self, made: Sequence[Path]) -> None:
        """Remove the lock, while it is held, if there is nothing else, and then these directories,
        the innermost first, while they are empty."""
        with suppress(OSError):
            if made and self.names() == {LOCK}:
                (self.path / LOCK).unlink()
                for path in made:
                    path.rmdir()

    def names(self) -> frozenset[str]:
        """What is in the directory."""
        return frozenset(path.name for path in self.path.iterdir())

    def remove_new(self, before: Collection[str]) -> None:
        """Remove what a failed start has added to the names ``before``, except logs, which say why
        it failed. If an SPU holds a replica by now, everything stays."""
        if any(self.path.glob("spus/*/partitions/*")):
            return
        for name in self.names() - frozenset(before) - {LOCK, LOGS}:
            remove(self.path / name)

    def check(self) -> None:
        """Raise ConflictError rather than mix a cluster with other files of the user."""
        if self.path.is_dir() and not self._state_file.exists():
            foreign = sorted(p.name for p in self.path.iterdir() if not is_ours(p.name))
            if foreign:
                raise ConflictError(
                    f"{self.path} is not empty and holds no cluster (it holds {foreign[0]!r});"
                    " choose another --data-dir"
                )

    def spus(self) -> list[SpuProcess]:
        """SPUs that the SC has started here, in the order of their ids."""
        found = {}
        for file in (self.path / "spus").glob(f"*{_PROCESS}"):
            # A file that does not parse was being written: the command line gives the rest.
            with suppress(OSError, ValueError, TypeError, KeyError):
                data: dict[str, Any] = json.loads(file.read_text())
                process = ProcessId(**data["process"])
                name = file.name.removesuffix(_PROCESS)
                found[name] = SpuProcess(name, data["spuId"], process, data["ports"])
        # The SC follows links.
        places = {self.path / "spus", self.path.resolve() / "spus"}
        for config, process in spu_processes().items():
            name = Path(config).stem
            if Path(config).parent in places and (name not in found or not self.runs(found[name])):
                found[name] = SpuProcess(
                    name, found[name].spu_id if name in found else -1, process, {}
                )
        return sorted(found.values(), key=lambda spu: spu.spu_id)

    def runs(self, spu: SpuProcess) -> bool:
        """Whether the process of an SPU still runs."""
        return runs_with(spu.process, self.path)

    def config_file(self, daemon: str) -> Path:
        return self.path / f"{daemon}.yaml"

    def log_file(self, daemon: str) -> Path:
        return self.path / LOGS / f"{daemon}.log"


def cannot_write(path: Path, error: OSError) -> StorageFailedError:
    """The error for a user who can make that a file of the cluster can be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    todo = "make room on its disk" if full else "mend that"
    return StorageFailedError(
        f"{path} cannot be written: {error.strerror or error}; {todo}, and repeat the command"
    )


def remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it; of a link only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def is_ours(name: str) -> bool:
    """Whether a name in a data directory belongs to a local cluster."""
    pattern = (
        r"cluster\.(json|tmp)|lock|logs|spus|(sc|etcd)-\d+(\.(yaml|tmp))?|dashboard\.(yaml|tmp)"
    )
    return bool(re.fullmatch(pattern, name))
