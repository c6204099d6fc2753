"""Managed SPUs as supervised processes on the SC's host.

::

    <dir>/spus/<name>/              what the SPU stores, unless its template names a directory
    <dir>/spus/<name>.yaml          the configuration it was started with
    <dir>/spus/<name>.process.json  its process, its ports and its spec
    <dir>/spus/<name>/secret        its secret (in the directory that its template names, if any)
    <dir>/logs/<name>.log           what it printed

An SPU outlives the SC. The next SC adopts running SPUs, by those files or by the command line of
the process, so that none runs twice; one whose spec changed is restarted. A process that ends is
started again, after a growing delay if it keeps ending, and the reason is reported. An SC that
leads no more, and may have been stopped while another one took over, starts and stops nothing. It
waits for those that it is stopping, and the next SC may be stopping the same ones by then.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from sc.controllers.actions import EndSpu, ProvisionAction, ProvisionSpu
from sc.provisioning import Provisioner, SecretIssuer
from sc.provisioning.crash_loop import CrashLoop
from sc.store.codec import CONTROLLERS
from sc.store.view import Provisioned, Provisioning
from schemas.daemon.files import replace_text, write_json
from schemas.daemon.installation import Program, program_command
from schemas.daemon.logs import get_logger
from schemas.daemon.process import (
    ProcessId,
    is_alive,
    is_ending,
    runs_with,
    spu_processes,
    started_at,
    stop,
)
from schemas.daemon.secret_file import DEFAULT_FILE, read_secret, write_secret
from schemas.daemon.trouble import last_trouble
from schemas.errors import RunnelError
from schemas.objects.quantities import short
from schemas.objects.spu import SpuSpec

PORT_STEP = 3
POLL_S = 0.1
#: A process that ran this long is no longer in trouble.
STEADY_S = 5.0
HOST = "127.0.0.1"
#: Other daemons that may have their logs in the directory.
DAEMONS = frozenset({"sc", "etcd"})

log = get_logger(__name__)


class _ForbiddenError(Exception):
    """Why an SPU is never started with its present spec."""


@dataclass(slots=True)
class _Managed:
    """One SPU under supervision."""

    spec: SpuSpec
    process: ProcessId | None
    #: False for a process that was found by its command line: its spec stands for none.
    spec_known: bool = True
    task: asyncio.Task[None] | None = None
    child: subprocess.Popen[bytes] | None = None


class LocalProvisioner(Provisioner):
    """SPUs below one directory. ``controller`` is the SC's private address, ``controllers`` gives
    those of all SCs that run, ``leads`` whether this one leads, ``ports`` are those that the SC
    uses; ``on_change`` is called with the name of an SPU when its trouble changes or it has ended;
    ``secrets`` makes the secrets of SPUs. Replicas are kept below ``directory`` and
    ``allowed_dirs`` only."""

    def __init__(
        self,
        directory: Path,
        controller: str,
        ports: frozenset[int],
        on_change: Callable[[str], None],
        secrets: SecretIssuer,
        controllers: Callable[[], tuple[str, ...]],
        leads: Callable[[], bool],
        *,
        allowed_dirs: Sequence[Path] = (),
    ) -> None:
        self._secrets = secrets
        # SPUs have another working directory, and the next SC finds them by this path.
        self._directory = directory.resolve()
        self._controller = controller
        self._controllers = controllers
        self._leads = leads
        self._on_change = on_change
        self._managed: dict[str, _Managed] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._spus: dict[str, Provisioned] = {}
        self._provisioning = Provisioning(
            PORT_STEP,
            self._spus,
            ports,
            DAEMONS,
            tuple(str(place.resolve()) for place in (self._directory, *allowed_dirs)),
            str(self._directory / "spus"),
        )

    @property
    def provisioning(self) -> Provisioning:
        return self._provisioning

    async def adopt(self) -> None:
        by_config = await asyncio.to_thread(spu_processes)
        for file in sorted((self._directory / "spus").glob("*.yaml")):
            name = file.stem
            try:
                data: dict[str, Any] = json.loads(self._state_file(name).read_text())
                process: ProcessId | None = ProcessId(**data["process"])
                spec, known = SpuSpec.model_validate(data["spec"]), True
            except (OSError, ValueError, KeyError, TypeError):
                # The file may be missing after a start: the spec is unknown, so replace it.
                if (process := by_config.get(str(file))) is None:
                    continue
                spec, known = SpuSpec(spu_id=0), False
            ending = process is not None and is_ending(process)
            if not ending and not runs_with(process, file.parent):
                # It has ended, or is one of the directory of which this one is a copy.
                process = by_config.get(str(file))
                if process is not None and known:
                    try:
                        self._note(name, spec, process)
                    except OSError as error:
                        log.warning("its file names another process", spu=name, why=str(error))
            log.info("adopted", spu=name, pid=None if process is None else process.pid)
            self._spus[name] = Provisioned(spec, spec_known=known)
            self._take_care(name, _Managed(spec, process, known))
            self._on_change(name)

    def carry_out(self, action: ProvisionAction) -> None:
        match action:
            case ProvisionSpu(spu, session):
                before = self._managed.get(spu.name)
                if before is not None and before.spec == spu.spec:
                    return
                told = self._spus.get(spu.name)
                ends = None if before is None else session
                self._spus[spu.name] = Provisioned(spu.spec, ended_session=ends)
                if before is not None:
                    self._end(spu.name, before)
                self._take_care(spu.name, _Managed(spu.spec, None))
                if told is not None and told.trouble is not None:
                    self._on_change(spu.name)
            case EndSpu(name):
                managed = self._managed.pop(name, None)
                if managed is not None:
                    self._end(name, managed)

    def end(self) -> None:
        for managed in self._managed.values():
            if managed.task is not None:
                managed.task.cancel()

    async def close(self) -> None:
        self.end()
        tasks = [m.task for m in self._managed.values() if m.task is not None]
        await asyncio.gather(*tasks, *self._ending.values(), return_exceptions=True)

    def _take_care(self, name: str, managed: _Managed) -> None:
        """Run an SPU by its spec, once its earlier processes have ended."""
        self._managed[name] = managed
        managed.task = asyncio.create_task(
            self._supervise(name, managed, self._ending.get(name)), name=f"supervise {name}"
        )

    async def _supervise(
        self, name: str, managed: _Managed, before: asyncio.Task[None] | None
    ) -> None:
        """Keep one SPU running until cancelled."""
        if before is not None:
            await asyncio.wait([before])
        loop = CrashLoop()
        while True:
            began = time.monotonic()
            what, unable = "its process ended", False
            try:
                log_begins = _size(self._log_file(name))
                if managed.spec_known:
                    await self._provide_secret(name, managed.spec)
                if not is_alive(managed.process):
                    if not self._leads():
                        return
                    self._start(name, managed)
                await self._until_ended(name, managed, began)
                code = managed.child.poll() if managed.child is not None else None
                why = why_ended(code, partial(last_trouble, self._log_file(name), log_begins))
                unable = code is not None and code > 0
            except _ForbiddenError as error:
                # Only another spec, or another configuration of the SC, changes that.
                log.error("an SPU is not started", spu=name, why=str(error))
                self._say(name, str(error), unable=True)
                return
            except OSError as error:
                why = f"it cannot be started: {error}"
            except Exception as error:
                # A fault of ours: say so, and go on. The process may run.
                log.error("the supervision of an SPU failed", spu=name, exc_info=error)
                what = "its supervision failed"
                why = f"internal error, see the SC's log: {short(error)}"
            delay = loop.ended(time.monotonic() - began)
            log.warning(what, spu=name, why=why, ends=loop.ends, delay_s=delay)
            if delay:
                text = f"{what} {loop.ends} times in a row: {why}"
                text = f"{text}; the next start is {delay:.1f} s after the last end"
                self._say(name, text, unable=unable)
            await asyncio.sleep(delay)

    async def _until_ended(self, name: str, managed: _Managed, began: float) -> None:
        """Wait until the process has ended; one that keeps running is no longer in trouble."""
        while is_alive(managed.process):
            if managed.child is not None:
                # This notices its end and leaves no zombie.
                managed.child.poll()
            if self._spus[name].trouble is not None and time.monotonic() - began > STEADY_S:
                self._say(name, None)
            await asyncio.sleep(POLL_S)

    def _say(self, name: str, trouble: str | None, *, unable: bool = False) -> None:
        if name not in self._managed:
            return
        told = self._spus[name]
        if (told.trouble, told.unable) != (trouble, unable):
            self._spus[name] = replace(told, trouble=trouble, unable=unable)
            self._on_change(name)

    async def _provide_secret(self, name: str, spec: SpuSpec) -> None:
        """Give an SPU a secret, unless it has one that the SC knows. A running SPU finds it when it
        connects next. An SPU runs without one rather than not at all: the KV may not answer."""
        file = self._data(name, spec) / DEFAULT_FILE
        try:
            self._check_log_dir(spec.storage.log_dir)
            held = await asyncio.to_thread(read_secret, file)
            if held is None or not await self._secrets.knows(spec.spu_id, held):
                secret = await self._secrets.issue(spec.spu_id, CONTROLLERS)
                await asyncio.to_thread(write_secret, file, secret)
        except (OSError, RunnelError, _ForbiddenError) as error:
            log.warning("an SPU gets no secret", spu=name, why=str(error))

    def _data(self, name: str, spec: SpuSpec) -> Path:
        return self._directory / "spus" / (spec.storage.log_dir or name)

    def _start(self, name: str, managed: _Managed) -> None:
        """Start the process. Raises OSError, _ForbiddenError."""
        spec = managed.spec
        self._check_log_dir(spec.storage.log_dir)
        port, private = spec.public_endpoint.port, spec.private_endpoint.port
        config_file, log_file = self._config_file(name), self._log_file(name)
        config = {
            "spuId": spec.spu_id,
            "logDir": str(self._data(name, spec)),
            "storageSize": spec.storage.size,
            "catchUpRate": spec.catch_up_rate,
            "controller": self._addresses(),
            "public": {"host": HOST, "port": port},
            "private": {"host": HOST, "port": private},
            "http": {"host": HOST, "port": port + 2},
        }
        for directory in (config_file.parent, log_file.parent):
            directory.mkdir(parents=True, exist_ok=True)
        replace_text(config_file, yaml.safe_dump(config, sort_keys=False))
        with log_file.open("ab") as output:
            managed.child = subprocess.Popen(
                program_command(Program.SPU, "-c", str(config_file)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=config_file.parent,
            )
        try:
            managed.process = ProcessId(managed.child.pid, started_at(managed.child.pid))
        except OSError:
            # It would not be recognised: the next attempt must not start a second one.
            managed.child.kill()
            managed.child.wait()
            raise
        self._note(name, spec, managed.process)
        log.info("started", spu=name, pid=managed.child.pid, port=port)

    def _note(self, name: str, spec: SpuSpec, process: ProcessId) -> None:
        """Write down which process an SPU is, for the next SC and for other programs."""
        port, private = spec.public_endpoint.port, spec.private_endpoint.port
        state = {
            "spuId": spec.spu_id,
            "process": asdict(process),
            "ports": {"public": port, "private": private, "http": port + 2},
            "spec": spec.to_json(),
        }
        write_json(self._state_file(name), state)

    def _addresses(self) -> str | list[str]:
        """Where an SPU finds an SC: this one may be gone before the SPU has connected."""
        others = sorted({*self._controllers()} - {self._controller})
        return [self._controller, *others] if others else self._controller

    def _check_log_dir(self, log_dir: str | None) -> None:
        """Raises _ForbiddenError. Links are followed: the directory counts, not what it is called.

        Admission refuses such a group, but one may be stored since before it did.
        """
        if log_dir is None:
            return
        try:
            place = str((self._directory / "spus" / log_dir).resolve())
        except (ValueError, RuntimeError, OSError) as error:
            raise _ForbiddenError(f"storage.logDir {short(log_dir)}: {error}") from error
        if not self._provisioning.allows(place):
            raise _ForbiddenError(
                f"it is not started: storage.logDir {short(log_dir)} is not below"
                f" {', '.join(self._provisioning.directories)}; name its directory in"
                " provisioning.allowedDirs of the SC's configuration, and restart the SC"
            )

    def _end(self, name: str, managed: _Managed) -> None:
        """Begin to stop an SPU, after earlier ones of its name that are still stopping."""
        before = self._ending.get(name)
        self._ending[name] = asyncio.create_task(
            self._stop(name, managed, before), name=f"end of {name}"
        )

    async def _stop(self, name: str, managed: _Managed, before: asyncio.Task[None] | None) -> None:
        """Stop an SPU. Unless it is wanted again, delete its files, but not a replica directory."""
        if managed.task is not None:
            managed.task.cancel()
            await asyncio.wait([managed.task])
        if before is not None:
            await asyncio.wait([before])
        if not self._leads():
            return
        await self._kill(name, managed)
        if not self._leads():
            # The next SC may have adopted it, and need its files.
            return
        wanted = name in self._managed
        if not wanted:
            await asyncio.to_thread(self._remove_files, name)
            wanted = name in self._managed
        if self._ending.get(name) is asyncio.current_task():
            del self._ending[name]
        log.info("ended", spu=name)
        if not wanted:
            self._spus.pop(name, None)
            self._on_change(name)

    async def _kill(self, name: str, managed: _Managed) -> None:
        """End the process of an SPU. One that waits in the kernel, as for a disk, ends no earlier:
        it is tried again for as long as this SC leads, since nothing else may use its files."""
        while managed.process is not None:
            await asyncio.to_thread(stop, [managed.process])
            if managed.child is not None:
                # Not waited for: a thread that waits without a bound keeps the SC from ending.
                managed.child.poll()
            if not is_alive(managed.process):
                return
            pid = managed.process.pid
            log.error("an SPU does not end, although it was killed", spu=name, pid=pid)
            if not self._leads():
                return
            await asyncio.sleep(POLL_S)

    def _remove_files(self, name: str) -> None:
        data = self._directory / "spus" / name
        try:
            self._config_file(name).unlink(missing_ok=True)
            self._state_file(name).unlink(missing_ok=True)
            if not any((data / "partitions").glob("*")):
                shutil.rmtree(data, ignore_errors=True)
        except OSError as error:
            log.warning("files of an ended SPU stay", spu=name, why=str(error))

    def _config_file(self, name: str) -> Path:
        return self._directory / "spus" / f"{name}.yaml"

    def _state_file(self, name: str) -> Path:
        return self._directory / "spus" / f"{name}.process.json"

    def _log_file(self, name: str) -> Path:
        return self._directory / "logs" / f"{name}.log"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def why_ended(code: int | None, said: Callable[[], str]) -> str:
    """Why a process ended. What it complained of last is no reason if somebody killed it."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", by a user or for want of memory" if code == -signal.SIGKILL else ""
        return f"it was killed by {name}{hint}"
    reason = said() or "it logged no reason"
    return reason if code is None else f"exit code {code}: {reason}"
