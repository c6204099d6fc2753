"""Starting, inspecting and stopping the local cluster in a data directory.

``cluster.json`` in the data directory names the processes; the data itself stays when the cluster
stops. If a start fails, the daemons that it started are stopped again, and of a first start only
logs are left. The start of a cluster that
has data fails only without its SC or without any SPU: one lost disk must not take away the
partitions that other SPUs hold. What came up then runs on, and the caller hears what did not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from runnel.admin.one_shot import OneShotCalls
from runnel.contexts import forget_cluster, remember_cluster
from runnel.local import offline_admin
from runnel.local.etcd import find_etcd
from runnel.local.plan import DASHBOARD, HOST, OWN_KVS, SPU_GROUP, ClusterPlan, Daemon
from runnel.local.processes import port_is_free
from runnel.local.rolling import order_of, require_kv, restart_spus
from runnel.local.signals import shielded
from runnel.local.starting import Progress, Startup
from runnel.local.state import LOCK, ClusterState, DataDirectory, is_ours, remove
from schemas.daemon.kv_url import without_password
from schemas.daemon.process import ProcessId, runs_with, stop, until_ended
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    RunnelError,
    StorageFailedError,
    UnreachableError,
)
from schemas.objects.spu import CONNECTED

#: How long SCs have to say what they do.
ANSWER_S: Final = 3.0


class IncompleteError(RunnelError):
    """The cluster runs, but without some of its SPUs."""


class ClusterDaemons:
    """The daemons of the cluster in one data directory, running or not."""

    def __init__(self, data_dir: Path) -> None:
        try:
            self.data_dir = data_dir.expanduser().absolute()
        except RuntimeError as error:
            raise InvalidRequestError(
                f"{data_dir}: the home directory that ~ stands for is not known; name another with"
                " --data-dir"
            ) from error
        #: Notes of the last start for the user.
        self.notes: list[str] = []
        self.directory = DataDirectory(self.data_dir)

    def load(self) -> ClusterState | None:
        """The cluster that was started here; None if none ever was. Raises InvalidRequestError."""
        return self.directory.load()

    def require(self) -> ClusterState:
        """The cluster that was started here. Raises NotFoundError if none ever was."""
        state = self.load()
        if state is None:
            raise NotFoundError(
                f"there is no cluster in {self.data_dir}; start one: runnel cluster start"
            )
        return state

    def require_something(self) -> None:
        """Raise NotFoundError unless there is a cluster, or the rest of a failed start."""
        if self.data_dir.is_dir() and any(map(is_ours, (p.name for p in self.data_dir.iterdir()))):
            return
        self.require()

    # -- start --------------------------------------------------------------------------------

    def plan(
        self,
        spus: int | None = None,
        base_port: int | None = None,
        kv: str | None = None,
        name: str | None = None,
        *,
        dashboard: bool | None = None,
        scs: int | None = None,
    ) -> ClusterPlan:
        """The plan of a start: the arguments, else the settings of the last start here, else
        defaults.

        Raises InvalidRequestError for an impossible plan, ConflictError for one that would leave
        data behind.
        """
        before = self.load()
        last = before or ClusterState()
        plan = ClusterPlan(
            self.data_dir,
            base_port=last.base_port if base_port is None else base_port,
            spus=last.spus if spus is None else spus,
            kv=last.kv if kv is None else kv,
            cluster=last.name if name is None else name,
            with_dashboard=last.dashboard if dashboard is None else dashboard,
            scs=last.scs if scs is None else scs,
        )
        if before is None:
            return plan
        if plan.spus < before.spus:
            raise ConflictError(
                f"the cluster in {self.data_dir} had {before.spus} SPUs when it was started last,"
                f" and starting {plan.spus} could leave partitions without their leader; start it"
                " without --spus, then have the last SPUs give their replicas away:"
                f" runnel scale spugroup {SPU_GROUP} --replicas {plan.spus}"
            )
        if plan.kv != before.kv:
            raise ConflictError(
                f"the objects of the cluster in {self.data_dir} are in"
                f" {without_password(before.kv)}; move them first:"
                f" runnel cluster migrate --kv {without_password(plan.kv)}"
            )
        if plan.cluster != before.name:
            raise ConflictError(
                f"the cluster in {self.data_dir} is called {before.name!r}; choose another"
                " --data-dir for a new one"
            )
        return plan

    def start(self, plan: ClusterPlan, progress: Progress, *, remember: bool = True) -> bool:
        """Start the daemons that do not run yet, and wait until the cluster takes records.

        ``remember``: the cluster becomes the context in use.

        False if everything ran already, and is online. Raises ConflictError (a port is in use, it
        runs with other settings, or the KV holds another cluster of this name), UnreachableError (a
        daemon died, with the end of its log), DeadlineExceededError, NotFoundError (no program
        etcd), StorageFailedError (a file cannot be written). Raises IncompleteError if some SPUs
        did not come although the cluster has been started before; the others run on then, and the
        SC goes on trying to start those.
        """
        self.directory.check()
        with self.directory.exclusive():
            before, there = self.load(), self.directory.names()
            state = before or ClusterState.of(plan, {})
            alive = state.alive(self.data_dir)
            if alive and state.base_port != plan.base_port:
                raise ConflictError(
                    f"this cluster runs at base port {state.base_port}; stop it before moving it"
                    f" to {plan.base_port}: runnel cluster stop"
                )
            extra = sorted(
                name
                for name in alive.keys() - {one.name for one in plan.daemons}
                if name.startswith("sc-")
            )
            if extra:
                raise ConflictError(
                    f"this cluster runs with {state.scs} SCs; to run fewer, stop it first:"
                    " runnel cluster stop"
                )
            missing = [d for d in plan.daemons if d.name not in alive]
            running = {s.name: s for s in self.directory.spus() if self.directory.runs(s)}
            wanted = {f"{SPU_GROUP}-{i}": plan.spu_ports(i) for i in range(plan.spus)}
            absent = [(name, ports) for name, ports in wanted.items() if name not in running]
            lacks_dashboard = plan.with_dashboard and DASHBOARD not in alive
            if not missing and not absent and _all_there(plan, wanted):
                if lacks_dashboard:
                    self._add_dashboard(plan, alive, progress)
                return False
            if plan.kv == "etcd":
                find_etcd()
            # Those of killed daemons, which may still close their ports.
            until_ended([*state.processes.values(), *(s.process for s in self.directory.spus())])
            check_ports([*((d.name, d.ports) for d in missing), *absent])
            if before is None:
                _check_new(plan)
            startup = Startup(self.directory, plan, ClusterState.of(plan, alive), progress)
            startup.again = before is not None
            if before is not None and plan.spus <= before.spus:
                # The user did not ask for more: the group keeps the number that is in its spec now.
                startup.keep_spus = True
            try:
                startup.bring_up(missing)
            except BaseException:
                with shielded():
                    # The SC first: it would start its SPUs again.
                    stop(reversed(startup.started))
                    spus = filter(self.directory.runs, self.directory.spus())
                    stop(s.process for s in spus if s.name not in running)
                    if before is not None:
                        # On a full disk what is there stays: processes that ended are known as
                        # such, and the first error says what to do.
                        with suppress(StorageFailedError):
                            self.directory.save(replace(before, processes=alive))
                    else:
                        self.directory.remove_new(there)
                        self.directory.forget()
                        _erase_external(plan)
                raise
            if lacks_dashboard:
                startup.bring_up_dashboard()
            if before is not None and before.base_port != plan.base_port:
                startup.notes.insert(
                    0,
                    f"its ports were replaced: from {before.base_port} on, now from"
                    f" {plan.base_port} on; clients and other hosts may know its SC at"
                    f" {before.plan(self.data_dir).sc_address}",
                )
            # Also if we started no daemon, but the SC started SPUs.
            plan = replace(plan, spus=startup.spus)
            self.directory.save(ClusterState.of(plan, startup.processes))
            self.notes = startup.notes
            if remember:
                remember_cluster(plan.cluster, plan.sc_address, self.data_dir)
            if startup.absent:
                raise IncompleteError(_incomplete(plan, startup))
            return True

    def _add_dashboard(
        self, plan: ClusterPlan, alive: dict[str, ProcessId], progress: Progress
    ) -> None:
        """Start the dashboard beside a cluster that runs."""
        startup = Startup(self.directory, plan, ClusterState.of(plan, alive), progress)
        startup.bring_up_dashboard()
        self.notes = startup.notes

    # -- start again --------------------------------------------------------------------------

    def start_again(self, plan: ClusterPlan, progress: Progress) -> None:
        """Start the SC, and other missing daemons, next to the processes that run."""
        alive = self.require().alive(self.data_dir)
        # A process that was asked to stop and still runs would end while we wait for it.
        stop(alive.pop(one.name) for one in plan.controllers if one.name in alive)
        startup = self._bring_up(plan, [d for d in plan.daemons if d.name not in alive], progress)
        self.notes += [*startup.notes, *(f"it runs without {one}" for one in startup.absent)]

    def restart(self, progress: Progress) -> list[str]:
        """Restart the daemons one after the other, while clients go on; gives the names of those
        that were restarted. Those that do not run are started first: a restart before this one may
        have been interrupted. Raises RunnelError; what was restarted runs on then."""
        with self.directory.exclusive():
            plan = self.require().plan(self.data_dir)
            running = self.require().alive(self.data_dir)
            if not any(name.startswith("sc-") for name in running):
                raise ConflictError(
                    f"the cluster in {self.data_dir} does not run; start it: runnel cluster start"
                )
            missing = [one for one in plan.daemons if one.name not in running]
            until_ended(self.require().processes.values())
            lack_kv = any(one.program == "etcd" for one in missing)
            if lack_kv:
                self._bring_up(plan, missing, progress)
            require_kv(
                {
                    one.name: OneShotCalls(f"{HOST}:{one.ports['public']}")
                    for one in plan.controllers
                    if one.name in running
                }
            )
            if missing and not lack_kv:
                self._bring_up(plan, missing, progress)
            done = [one.name for one in missing]
            for name in order_of(_sc_roles(plan), running):
                progress(f"restarting {name}")
                # As a trial: one that is stopped while nothing can be written stays away.
                self.directory.save(self.require())
                stop([running[name]])
                again = [one for one in plan.controllers if one.name == name]
                self._bring_up(plan, again, progress)
                done.append(name)
            client = OneShotCalls(plan.sc_address, "runnel cluster restart")
            return [*done, *restart_spus(self.directory, client, progress)]

    def _bring_up(self, plan: ClusterPlan, missing: list[Daemon], progress: Progress) -> Startup:
        """Start daemons that do not run, beside those that do."""
        alive = self.require().alive(self.data_dir)
        startup = Startup(self.directory, plan, ClusterState.of(plan, alive), progress)
        startup.again = True
        # The user did not ask for more SPUs: the group keeps the number that is in its spec now.
        startup.keep_spus = True
        startup.bring_up(missing)
        return startup

    # -- stop, delete, look ---------------------------------------------------------------------

    def stop(self) -> list[str]:
        """Stop the running daemons; the data stays. Gives the names of those that were stopped.

        Raises StorageFailedError, when all have stopped, if that cannot be written down.
        """
        self.require()
        with self.directory.exclusive():
            return self._stop()

    def delete(self, *, keep_objects: bool = False) -> None:
        """Stop the cluster and delete its files; the directory too, if nothing else is in it.

        Also deletes its objects in an etcd that runs elsewhere, unless ``keep_objects``. Raises
        UnreachableError, with nothing deleted, if that etcd does not answer.
        """
        self.require_something()
        with self.directory.exclusive():
            plan = (self.load() or ClusterState()).plan(self.data_dir)
            # A full disk takes no state, and gets room by what follows.
            with suppress(StorageFailedError):
                self._stop()
            if plan.kv not in OWN_KVS and not keep_objects:
                try:
                    offline_admin.erase_kv(plan.kv_url, plan.cluster)
                except RetryableError as error:
                    raise UnreachableError(
                        f"{error}\nNothing was deleted; if that etcd is gone for good, add"
                        f" --keep-objects"
                    ) from error
            for path in self.data_dir.iterdir():
                if not is_ours(path.name) or path.name == LOCK:
                    continue
                remove(path)
            forget_cluster(self.data_dir)
            # While it is held: a process that waits for the lock finds the file gone.
            (self.data_dir / LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            self.data_dir.rmdir()

    def _stop(self) -> list[str]:
        state = self.load() or ClusterState()
        alive = state.alive(self.data_dir)
        # The SC would start its SPUs again, even while it stops, so stop it before them; its KV
        # goes last.
        stop(process for name, process in alive.items() if name.startswith(("sc-", DASHBOARD)))
        spus = {s.name: s.process for s in self.directory.spus() if self.directory.runs(s)}
        stop(spus.values())
        stop(process for name, process in alive.items() if name.startswith("etcd-"))
        stopped = [*sorted(alive), *spus]
        if state.processes:
            try:
                self.directory.save(replace(state, processes={}))
            except StorageFailedError as error:
                # It names processes that have ended, which does no harm.
                what = f"{', '.join(stopped)} stopped" if stopped else "nothing runs"
                raise StorageFailedError(f"{what}, but {error.message}") from error
        return stopped

    def status(self) -> dict[str, Any]:
        """Ids, pids, ports and states of all daemons. Raises NotFoundError."""
        state = self.require()
        plan = state.plan(self.data_dir)
        roles = _sc_roles(plan)
        answering = [f"{HOST}:{o.ports['public']}" for o in plan.controllers if o.name in roles]
        resolutions = _spu_resolutions(",".join(answering)) if answering else None

        def row(
            number: int,
            name: str,
            ports: dict[str, int],
            process: ProcessId | None,
            state_name: str,
        ) -> dict[str, Any]:
            alive = runs_with(process, self.data_dir)
            return {
                "id": number,
                "name": name,
                "pid": process.pid if process is not None and alive else None,
                "ports": ports,
                "state": state_name if alive else "stopped",
            }

        def daemon(found: Daemon, state_name: str) -> dict[str, Any]:
            process = state.processes.get(found.name)
            return row(0, found.name, found.ports, process, state_name)

        sc_alive = any(
            runs_with(state.processes.get(one.name), self.data_dir) for one in plan.controllers
        )
        silent = "unknown: no SC answers" if sc_alive else "unknown: the SC is stopped"

        def resolution(spu: str) -> str:
            if resolutions is None:
                return silent
            # After a restore of a backup from before it was there, for example.
            return resolutions.get(spu, "unknown: the SC knows no SPU of this name")

        return {
            "cluster": plan.cluster,
            "address": plan.sc_address,
            "dataDir": str(self.data_dir),
            "kv": without_password(plan.kv),
            "etcd": [daemon(plan.etcd, "running")] if plan.kv == "etcd" else [],
            "dashboard": [daemon(plan.dashboard, "running")] if plan.with_dashboard else [],
            "sc": [daemon(one, roles.get(one.name, "does not answer")) for one in plan.controllers],
            "spus": [
                row(s.spu_id, s.name, s.ports, s.process, resolution(s.name))
                for s in self.directory.spus()
            ],
        }

    def log_file(self, name: str) -> Path:
        return self.directory.log_file(name)

    def log_names(self) -> list[str]:
        return sorted(f.stem for f in (self.data_dir / "logs").glob("*.log"))

    def log_tail(self, name: str, lines: int) -> list[str]:
        """The last lines of a daemon's log."""
        try:
            text = self.log_file(name).read_text(errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines:] if lines else []


def _incomplete(plan: ClusterPlan, startup: Startup) -> str:
    """What to tell about a start in which some SPUs did not come."""
    missing, came = len(startup.absent), startup.spus - len(startup.absent)
    what = (
        f"{missing} of {startup.spus} SPUs did not come online; the SC at {plan.sc_address} and"
        f" {came} {'SPU' if came == 1 else 'SPUs'} run"
    )
    todo = (
        "The SC goes on trying: mend what is named above, then see: runnel cluster check. If a disk"
        f" is lost, move the SPU's directory in {plan.data_dir / 'spus'} away: it starts empty, and"
        " gets its replicas from other SPUs"
    )
    return "\n".join([what, *startup.absent, *startup.notes, todo])


def check_ports(daemons: list[tuple[str, dict[str, int]]]) -> None:
    """Raise ConflictError if one of these ports is in use."""
    for name, ports in daemons:
        for use, port in ports.items():
            if not port_is_free(port):
                raise ConflictError(
                    f"port {port} ({name}, {use}) is in use; choose another with"
                    " --base-port, or stop what listens there"
                )


def _check_new(plan: ClusterPlan) -> None:
    """Raise ConflictError if an etcd that runs elsewhere holds a cluster of this name."""
    if plan.kv not in OWN_KVS:
        found = offline_admin.inspect_kv(plan.kv_url, plan.cluster)
        if found["keys"]:
            raise ConflictError(
                f"{without_password(plan.kv)} holds a cluster {plan.cluster!r} already"
                f" ({found['keys']} keys); give this one a --name of its own"
            )


def _erase_external(plan: ClusterPlan) -> None:
    """Remove what a failed first start wrote to an etcd that runs elsewhere."""
    if plan.kv not in OWN_KVS:
        with suppress(RunnelError):
            # One leadership is ours: if another SC has led too, the cluster belongs to someone else
            # now.
            offline_admin.erase_kv(plan.kv_url, plan.cluster, most_offices=1)


def _all_there(plan: ClusterPlan, names: Collection[str]) -> bool:
    """Whether the SC answers, and says of no SPU whose process runs that it is not there: it may
    end again and again, or be turned away."""
    there = {resolution.value for resolution in CONNECTED}
    found = _spu_resolutions(plan.sc_address)
    if found is None:
        return False
    return all(state in there for name, state in found.items() if name in names)


def _sc_roles(plan: ClusterPlan) -> dict[str, str]:
    """What the SCs do, by the names of those that answer soon: one that stands still is not waited
    for."""
    found: dict[str, str] = {}

    def ask(one: Daemon) -> None:
        calls = OneShotCalls(f"{HOST}:{one.ports['public']}")
        try:
            role = calls.call("GET", "/health").get("role", "leader")
            found[one.name] = "running" if plan.scs == 1 else str(role)
        except UnreachableError:
            pass
        except RunnelError:
            found[one.name] = "not ready"

    asking = [threading.Thread(target=ask, args=(one,), daemon=True) for one in plan.controllers]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + ANSWER_S
    for thread in asking:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def _spu_resolutions(address: str) -> dict[str, str] | None:
    """Resolutions of SPUs by name; None if no SC answers."""
    try:
        spus = OneShotCalls(address).call("GET", "/v1/spus")["items"]
    except RunnelError:
        return None
    return {s["metadata"]["name"]: s["status"]["resolution"] for s in spus}
