"""Starting, inspecting and stopping the local cluster in a data directory.

``cluster.json`` in the data directory says what runs; the data itself stays where it is when the
cluster stops. Starting is all or nothing: what was started is stopped again when the rest fails.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from runnel.local.home import Profile, forget_profile, save_profile, write_json
from runnel.local.plan import DEFAULT_BASE_PORT, DEFAULT_SPUS, ClusterPlan, Daemon
from runnel.local.processes import ProcessId, is_alive, port_is_free, start_daemon, stop
from runnel.sc_client import ScClient
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    RunnelError,
    UnreachableError,
)

START_TIMEOUT_S = 60.0
POLL_S = 0.05
LOG_TAIL_LINES = 15

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
        with (self.data_dir / "lock").open("w") as lock:
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
        plan = ClusterPlan(
            self.data_dir,
            base_port=base_port or (before.base_port if before else DEFAULT_BASE_PORT),
            spus=spus or (before.spus if before else DEFAULT_SPUS),
            kv=kv or (before.kv if before else "sqlite"),
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
        with self._exclusive():
            state = self.load() or ClusterState(plan.base_port, plan.spus, plan.kv)
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
                self._save(ClusterState(plan.base_port, plan.spus, plan.kv, alive))
                raise
            save_profile(Profile(sc=plan.sc_address, data_dir=str(self.data_dir)))
            return True

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
            process = start_daemon(daemon, config, self.log_file(daemon.name))
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
                await self._until_ready(client, state, plan)
        except TimeoutError:
            raise DeadlineExceededError(
                f"the cluster was not ready within {START_TIMEOUT_S:g} s; see: runnel cluster logs"
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
                await client.call("PUT", f"/v1/spus/{spu.name}", body=spu.to_json())

    async def _until_ready(self, client: ScClient, state: ClusterState, plan: ClusterPlan) -> None:
        """All SPUs online, and every partition that one of them leads online again."""
        names = {plan.spu(i).name for i in range(plan.spus)}
        while True:
            self._check_alive(state)
            spus = (await client.call("GET", "/v1/spus"))["items"]
            online = {s["metadata"]["name"] for s in spus if s["status"]["resolution"] == "online"}
            if names <= online:
                partitions = (await client.call("GET", "/v1/partitions"))["items"]
                taking_over = [
                    p for p in partitions if "taking over" in str(p["status"].get("reason"))
                ]
                waiting = [
                    p
                    for p in partitions
                    if p["status"]["resolution"] == "offline"
                    and "is offline" in str(p["status"].get("reason"))
                ]
                if not taking_over and not waiting:
                    return
            await asyncio.sleep(POLL_S)

    def _check_alive(self, state: ClusterState) -> None:
        for name, process in state.processes.items():
            if not is_alive(process):
                tail = "\n".join(self.log_tail(name, LOG_TAIL_LINES))
                raise UnreachableError(f"{name} ended; the end of {self.log_file(name)}:\n{tail}")

    # -- stop, delete, look ---------------------------------------------------------------------

    def stop(self) -> list[str]:
        """Stop what runs, SPUs first; the data stays. Gives the names of what was stopped."""
        state = self.load()
        if state is None:
            raise NotFoundError(f"there is no cluster in {self.data_dir}")
        with self._exclusive():
            alive = {n: p for n, p in state.processes.items() if is_alive(p)}
            stop(p for n, p in alive.items() if n.startswith("spu-"))
            stop(p for n, p in alive.items() if not n.startswith("spu-"))
            state.processes = {}
            self._save(state)
            return sorted(alive)

    def delete(self) -> None:
        """Stop the cluster and delete its data."""
        self.stop()
        shutil.rmtree(self.data_dir)
        forget_profile(self.data_dir)

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

        sc_state = "running" if resolutions is not None else "starting"
        spus = [
            row(i, plan.spu(i), (resolutions or {}).get(plan.spu(i).name, "starting"))
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
