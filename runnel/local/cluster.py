"""Starting, inspecting and stopping the local cluster in a data directory.

``cluster.json`` in the data directory says what runs; the data itself stays where it is when the
cluster stops. Starting is all or nothing: what was started is stopped again when the rest fails.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from runnel.local.plan import DEFAULT_BASE_PORT, DEFAULT_SPUS, ClusterPlan, Daemon
from runnel.local.processes import ProcessId, is_alive, port_is_free, start_daemon, stop
from runnel.profile import Profile, forget_profile, save_profile, write_json
from runnel.sc_client import ScClient
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    RunnelError,
)
from schemas.partition import Partition, PartitionResolution
from schemas.spu import Spu, SpuResolution

START_TIMEOUT_S = 60.0
PARTITIONS_TIMEOUT_S = 20.0
POLL_S = 0.05
LOCK = "lock"

Progress = Callable[[str], None]


@dataclass(slots=True)
class ClusterState:
    """What ``cluster.json`` holds."""

    base_port: int
    spus: int
    kv: str
    processes: dict[str, ProcessId] = field(default_factory=dict)


class LocalCluster:
    """The cluster in one data directory, running or not."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().absolute()
        #: What the last start left to be told, if anything.
        self.note: str | None = None
        # Where the log of each daemon stood when it was started here.
        self._log_begins: dict[str, int] = {}

    # -- state --------------------------------------------------------------------------------

    @property
    def _state_file(self) -> Path:
        return self.data_dir / "cluster.json"

    def load(self) -> ClusterState | None:
        """The saved state; None where no cluster was ever started. Raises InvalidRequestError."""
        try:
            data: dict[str, Any] = json.loads(self._state_file.read_text())
            processes = {name: ProcessId(**p) for name, p in data.pop("processes").items()}
            return ClusterState(**data, processes=processes)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidRequestError(f"{self._state_file} is damaged: {error}") from error

    def _save(self, state: ClusterState) -> None:
        write_json(self._state_file, asdict(state))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One start, stop or delete at a time."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with (self.data_dir / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConflictError(
                    f"another command is starting or stopping the cluster in {self.data_dir}"
                ) from None
            yield

    # -- start --------------------------------------------------------------------------------

    def plan(self, spus: int | None, base_port: int | None, kv: str | None) -> ClusterPlan:
        """What to start: what was asked for, else what was started here before, else defaults.

        Raises InvalidRequestError for a wish that cannot be, ConflictError for one that would
        leave data behind.
        """
        before = self.load()
        last = before or ClusterState(DEFAULT_BASE_PORT, DEFAULT_SPUS, "sqlite")
        plan = ClusterPlan(
            self.data_dir,
            base_port=last.base_port if base_port is None else base_port,
            spus=last.spus if spus is None else spus,
            kv=last.kv if kv is None else kv,
        )
        if before is not None and plan.spus < before.spus:
            raise ConflictError(
                f"the cluster in {self.data_dir} has {before.spus} SPUs with data; starting"
                f" {plan.spus} would leave partitions without their leader"
            )
        return plan

    def start(self, plan: ClusterPlan, progress: Progress) -> bool:
        """Start what does not run yet and wait until records can be taken.

        False where everything ran already. Raises ConflictError (a port is in use, or it runs
        with other settings), UnreachableError (a daemon died, with the end of its log),
        DeadlineExceededError.
        """
        self._check_directory()
        with self._exclusive():
            before = self.load()
            state = before or ClusterState(plan.base_port, plan.spus, plan.kv)
            alive = {n: p for n, p in state.processes.items() if is_alive(p)}
            if alive and state.base_port != plan.base_port:
                raise ConflictError(
                    f"this cluster runs at base port {state.base_port}; stop it before moving it"
                    f" to {plan.base_port}: runnel cluster stop"
                )
            missing = [d for d in plan.daemons if d.name not in alive]
            if not missing:
                return False
            self._check_ports(missing)
            state = ClusterState(plan.base_port, plan.spus, plan.kv, alive)
            started: list[ProcessId] = []
            try:
                asyncio.run(self._bring_up(plan, state, missing, started, progress))
            except BaseException:
                stop(reversed(started))
                if before is not None:
                    self._save(replace(before, processes=alive))
                else:
                    self._state_file.unlink(missing_ok=True)
                raise
            save_profile(Profile(sc=plan.sc_address, data_dir=str(self.data_dir)))
            return True

    def _check_directory(self) -> None:
        """Raise ConflictError rather than mix a cluster with somebody's files."""
        if self.data_dir.is_dir() and not self._state_file.exists():
            foreign = sorted(p.name for p in self.data_dir.iterdir() if not _is_ours(p.name))
            if foreign:
                raise ConflictError(
                    f"{self.data_dir} is not empty and holds no cluster (it holds {foreign[0]!r});"
                    " choose another --data-dir"
                )

    def _check_ports(self, daemons: list[Daemon]) -> None:
        for daemon in daemons:
            for use, port in daemon.ports.items():
                if not port_is_free(port):
                    raise ConflictError(
                        f"port {port} ({daemon.name}, {use}) is in use; choose another with"
                        " --base-port, or stop what listens there"
                    )

    async def _bring_up(
        self,
        plan: ClusterPlan,
        state: ClusterState,
        missing: list[Daemon],
        started: list[ProcessId],
        progress: Progress,
    ) -> None:
        def launch(daemon: Daemon) -> None:
            (self.data_dir / daemon.name).mkdir(parents=True, exist_ok=True)
            config = self.data_dir / f"{daemon.name}.yaml"
            config.write_text(yaml.safe_dump(daemon.config, sort_keys=False))
            log = self.log_file(daemon.name)
            self._log_begins[daemon.name] = log.stat().st_size if log.exists() else 0
            process = start_daemon(daemon, config, log)
            started.append(process)
            state.processes[daemon.name] = process
            self._save(state)

        client = ScClient.parse(plan.sc_address)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                if any(d.module == "sc" for d in missing):
                    progress("starting the SC")
                    launch(plan.sc)
                await self._until_healthy(client, state)
                progress("registering the SPUs")
                await self._register(client, plan)
                for daemon in missing:
                    if daemon.module == "spu":
                        progress(f"starting {daemon.name}")
                        launch(daemon)
                progress("waiting for the SPUs")
                await self._until_online(client, state, plan)
                progress("waiting for the partitions")
                await self._until_led(client, plan)
        except TimeoutError:
            trouble = [
                f"{name}: {text}"
                for name in (d.name for d in plan.daemons)
                if (text := self._last_trouble(name))
            ]
            raise DeadlineExceededError(
                f"the cluster was not ready within {START_TIMEOUT_S:g} s; what its daemons said"
                " last (all of it: runnel cluster logs): " + ("\n".join(trouble) or "nothing")
            ) from None
        finally:
            await client.close()

    async def _until_healthy(self, client: ScClient, state: ClusterState) -> None:
        while True:
            self._check_alive(state)
            try:
                await client.call("GET", "/health")
            except RetryableError:
                await asyncio.sleep(POLL_S)
            else:
                return

    async def _register(self, client: ScClient, plan: ClusterPlan) -> None:
        for number in range(plan.spus):
            spu = plan.spu_object(number)
            try:
                await client.call("POST", "/v1/spus", body=spu.to_json())
            except ConflictError:
                await self._move(client, spu)

    async def _move(self, client: ScClient, wanted: Spu) -> None:
        """Bring the addresses of a registered SPU up to date, and leave the rest to its owner."""
        found = Spu.model_validate(await client.call("GET", f"/v1/spus/{wanted.name}"))
        spec = found.spec.model_copy(
            update={
                "storage": found.spec.storage.model_copy(
                    update={"log_dir": wanted.spec.storage.log_dir}
                ),
                "public_endpoint": wanted.spec.public_endpoint,
                "private_endpoint": wanted.spec.private_endpoint,
            }
        )
        if spec != found.spec:
            moved = found.model_copy(update={"spec": spec})
            await client.call("PUT", f"/v1/spus/{wanted.name}", body=moved.to_json())

    async def _until_online(self, client: ScClient, state: ClusterState, plan: ClusterPlan) -> None:
        names = {plan.spu(i).name for i in range(plan.spus)}
        while True:
            self._check_alive(state)
            items = (await client.call("GET", "/v1/spus"))["items"]
            spus = [Spu.model_validate(item) for item in items]
            if names <= {s.name for s in spus if s.status.resolution is SpuResolution.ONLINE}:
                return
            await asyncio.sleep(POLL_S)

    async def _until_led(self, client: ScClient, plan: ClusterPlan) -> None:
        """Until every partition that only these SPUs hold is online.

        One that cannot be (its disk was replaced, say) must not keep the rest from starting: after
        `PARTITIONS_TIMEOUT_S` the cluster is as ready as it gets, and `note` says so.
        """
        ours = set(range(plan.spus))
        deadline = time.monotonic() + PARTITIONS_TIMEOUT_S
        while True:
            items = (await client.call("GET", "/v1/partitions"))["items"]
            coming = [p for p in map(Partition.model_validate, items) if _is_coming(p, ours)]
            if not coming:
                return
            if time.monotonic() >= deadline:
                first = f"{coming[0].name}: {coming[0].status.reason}"
                self.note = f"{len(coming)} partitions are not online ({first}); see: runnel get p"
                return
            await asyncio.sleep(POLL_S)

    def _check_alive(self, state: ClusterState) -> None:
        for name, process in state.processes.items():
            if not is_alive(process):
                said = self._last_trouble(name) or "it said nothing"
                raise RunnelError(f"{name} ended: {said}\nIts log is {self.log_file(name)}")

    def _last_trouble(self, name: str) -> str:
        """The last warning or error that a daemon logged since it was started here."""
        try:
            with self.log_file(name).open("rb") as file:
                file.seek(self._log_begins.get(name, 0))
                lines = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        for line in reversed(lines):
            try:
                event = json.loads(line)
            except ValueError:
                # Not a log line: the last words of a daemon that cannot run.
                return line
            if event.get("level") in ("warning", "error", "critical"):
                why = event.get("reason") or event.get("why") or event.get("exception") or ""
                return f"{event.get('event')}: {why}" if why else str(event.get("event"))
        return ""

    # -- stop, delete, look ---------------------------------------------------------------------

    def stop(self) -> list[str]:
        """Stop what runs, SPUs first; the data stays. Gives the names of what was stopped."""
        self._require_cluster()
        with self._exclusive():
            return self._stop()

    def delete(self) -> None:
        """Stop the cluster and delete what it made; the directory too, if nothing else is in it."""
        self._require_cluster()
        with self._exclusive():
            self._stop()
            for path in self.data_dir.iterdir():
                if not _is_ours(path.name) or path.name == LOCK:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            forget_profile(self.data_dir)
        (self.data_dir / LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            self.data_dir.rmdir()

    def _require_cluster(self) -> None:
        if self.load() is None:
            raise NotFoundError(f"there is no cluster in {self.data_dir}")

    def _stop(self) -> list[str]:
        state = self.load()
        if state is None:
            return []
        alive = {n: p for n, p in state.processes.items() if is_alive(p)}
        stop(p for n, p in alive.items() if n.startswith("spu-"))
        stop(p for n, p in alive.items() if not n.startswith("spu-"))
        if state.processes:
            self._save(replace(state, processes={}))
        return sorted(alive)

    def status(self) -> dict[str, Any]:
        """Ids, pids, ports and states of all daemons. Raises NotFoundError."""
        state = self.load()
        if state is None:
            raise NotFoundError(
                f"there is no cluster in {self.data_dir}; start one: runnel cluster start"
            )
        plan = ClusterPlan(self.data_dir, state.base_port, state.spus, state.kv)
        resolutions = asyncio.run(_spu_resolutions(plan.sc_address))

        def row(number: int, daemon: Daemon, state_name: str) -> dict[str, Any]:
            process = state.processes.get(daemon.name)
            alive = is_alive(process)
            return {
                "id": number,
                "name": daemon.name,
                "pid": process.pid if process is not None and alive else None,
                "ports": daemon.ports,
                "state": state_name if alive else "stopped",
            }

        sc_alive = is_alive(state.processes.get(plan.sc.name))
        sc_state = "running" if resolutions is not None else "starting"
        unknown = "starting" if sc_alive else "unknown: the SC is stopped"
        spus = [
            row(i, plan.spu(i), (resolutions or {}).get(plan.spu(i).name, unknown))
            for i in range(plan.spus)
        ]
        return {
            "cluster": plan.cluster,
            "address": plan.sc_address,
            "dataDir": str(self.data_dir),
            "kv": plan.kv,
            "sc": [row(0, plan.sc, sc_state)],
            "spus": spus,
        }

    def log_file(self, name: str) -> Path:
        return self.data_dir / "logs" / f"{name}.log"

    def log_names(self) -> list[str]:
        return sorted(f.stem for f in (self.data_dir / "logs").glob("*.log"))

    def log_tail(self, name: str, lines: int) -> list[str]:
        """The last lines of a daemon's log."""
        try:
            text = self.log_file(name).read_text(errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines:] if lines else []


def _is_ours(name: str) -> bool:
    """Whether a name in a data directory is one that a local cluster gives."""
    return bool(re.fullmatch(r"cluster\.(json|tmp)|lock|logs|(sc|spu)-\d+(\.yaml)?", name))


def _is_coming(partition: Partition, ours: set[int]) -> bool:
    """Whether a partition is about to be led by the SPUs that are online now.

    Not so where another SPU holds it, or where its leader reported why it cannot lead.
    """
    if partition.status.resolution is not PartitionResolution.OFFLINE:
        return False
    if not ours.issuperset(partition.spec.replicas):
        return False
    reason = partition.status.reason or ""
    return not any(word in reason for word in ("unfit", "without its data", "cannot lead"))


async def _spu_resolutions(address: str) -> dict[str, str] | None:
    """Resolutions of SPUs by name; None where no SC answers."""
    client = ScClient.parse(address)
    try:
        spus = (await client.call("GET", "/v1/spus"))["items"]
    except RunnelError:
        return None
    finally:
        await client.close()
    return {s["metadata"]["name"]: s["status"]["resolution"] for s in spus}
