"""Bringing the daemons of a local cluster up, in order, and waiting until it takes records."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import yaml

from runnel.admin.one_shot import OneShotCalls
from runnel.local.etcd import find_etcd, warning_about
from runnel.local.plan import DASHBOARD, HOST, SPU_GROUP, ClusterPlan, Daemon
from runnel.local.processes import port_is_free, start_daemon
from runnel.local.state import ClusterState, DataDirectory, cannot_write
from schemas.daemon.files import replace_text
from schemas.daemon.process import ProcessId, is_alive
from schemas.daemon.trouble import last_trouble
from schemas.errors import DeadlineExceededError, NotFoundError, RetryableError, RunnelError
from schemas.objects.partition import Partition, PartitionResolution
from schemas.objects.spu import CONNECTED, Spu
from schemas.objects.spu_group import CHANGED, NOT_FOLLOWED, SpuGroup, SpuGroupResolution

START_TIMEOUT_S: Final = 60.0
PARTITIONS_TIMEOUT_S: Final = 20.0
#: How long a start waits for SPUs before it goes on without those that do not come.
ONLINE_TIMEOUT_S: Final = START_TIMEOUT_S - PARTITIONS_TIMEOUT_S
#: How long a start without some SPUs waits for partitions: those that only they hold never come.
REDUCED_TIMEOUT_S: Final = 5.0
#: How long a start waits for the next SPU to move to another port.
MOVE_TIMEOUT_S: Final = 30.0
#: How long an SPU may be in trouble before the start gives up.
TROUBLE_S: Final = 3.0
POLL_S: Final = 0.05
#: How long one look at an etcd may take, and how much of its answer is read.
ETCD_ANSWER_S: Final = 2.0
ETCD_ANSWER_BYTES: Final = 4_096

#: Begins the line of an error that names a log.
_LOG_IS: Final = "Its log is "
#: The part of an error that names the command which shows logs.
_LOGS_BY: Final = " (all of it: runnel cluster logs)"

#: Shows in words what a start is doing.
Progress = Callable[[str], None]


class Startup:
    """One start of a cluster: ``state`` gains what it starts, and ``started`` lists that.

    ``notes`` tells the user what to know although the start succeeded. The start of a cluster that
    has data, ``again``, goes on without SPUs that do not come, as long as one does; ``absent`` says
    which did not come and why.
    """

    def __init__(
        self, directory: DataDirectory, plan: ClusterPlan, state: ClusterState, progress: Progress
    ) -> None:
        self.started: list[ProcessId] = []
        #: How many SPUs the cluster's group asks for.
        self.spus = plan.spus
        #: Whether the group keeps its number of SPUs.
        self.keep_spus = False
        self.again = False
        self.absent: list[str] = []
        self.notes: list[str] = []
        self._directory = directory
        self._plan = plan
        self._state = state
        self._progress = progress
        self._doing = "starting"
        # The SPUs that came.
        self._came: frozenset[str] = frozenset()
        # The size of each daemon's log when it was started here.
        self._log_begins: dict[str, int] = {}
        self._deadline = time.monotonic() + START_TIMEOUT_S

    @property
    def processes(self) -> dict[str, ProcessId]:
        """All processes of the cluster, those started here included."""
        return self._state.processes

    def bring_up(self, missing: list[Daemon]) -> None:
        """Start the missing daemons, and wait for all. Raises RunnelError with the last trouble
        that a dead daemon logged, StorageFailedError for a file that cannot be written,
        DeadlineExceededError, NotFoundError for a missing program."""
        with self._limit():
            self._bring_up(OneShotCalls(self._plan.sc_address, "runnel cluster start"), missing)

    def bring_up_dashboard(self) -> None:
        """Start the dashboard if it does not run. The cluster is whole without it: what is in the
        way becomes a note."""
        daemon = self._plan.dashboard
        if daemon.name in self._state.processes:
            return
        port = daemon.ports["http"]
        if not port_is_free(port):
            self.notes.append(
                f"there is no dashboard: port {port} is in use; on another port:"
                f" runnel dashboard --port {port + 10_000 if port < 50_000 else 0}"
            )
            return
        self._launch(daemon)

    def bring_up_etcd(self) -> None:
        """Start the cluster's own etcd alone. Raises as `bring_up` does."""
        with self._limit():
            self._etcd(self._plan.etcd)

    def _begin(self, what: str) -> None:
        """Say what is being done from now on."""
        self._doing = what
        self._progress(what)

    @contextmanager
    def _limit(self) -> Iterator[None]:
        """Bound what `_pause` waits for."""
        self._deadline = time.monotonic() + START_TIMEOUT_S
        try:
            yield
        except TimeoutError:
            trouble = [
                f"{name}: {text}"
                for name in (d.name for d in self._plan.daemons)
                if (text := self._last_trouble(name))
            ]
            raise DeadlineExceededError(
                f"the cluster was not ready within {START_TIMEOUT_S:g} s, still {self._doing}; what"
                f" its daemons said last{_LOGS_BY}: " + ("\n".join(trouble) or "nothing")
            ) from None

    def _bring_up(self, client: OneShotCalls, missing: list[Daemon]) -> None:
        for log in (self._directory.path / "logs").glob(f"{SPU_GROUP}-*.log"):
            self._log_begins[log.stem] = _size(log)
        for daemon in missing:
            if daemon.program == "etcd":
                self._etcd(daemon)
            else:
                self._launch(daemon)
        self._until_ready()
        self._begin("starting the SPUs")
        self._ask_for_spus(client)
        self._begin("waiting for the SPUs")
        self._until_online(client)
        self._until_moved(client)
        self._begin("waiting for the partitions")
        self._until_led(client)

    def _etcd(self, daemon: Daemon) -> None:
        self._launch(daemon)
        self._until_etcd(daemon)
        if (warning := warning_about(find_etcd())) is not None:
            self.notes.append(warning)

    def _launch(self, daemon: Daemon) -> None:
        self._begin(f"starting {daemon.name}")
        config = self._directory.config_file(daemon.name)
        log = self._directory.log_file(daemon.name)
        try:
            if daemon.program != "dashboard":
                (self._directory.path / daemon.name).mkdir(mode=0o700, parents=True, exist_ok=True)
            # For this user only: a KV's URL may hold a password.
            replace_text(config, yaml.safe_dump(daemon.config, sort_keys=False), mode=0o600)
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        except OSError as error:
            raise cannot_write(Path(error.filename or config), error) from error
        self._log_begins[daemon.name] = _size(log)
        process = start_daemon(daemon, config, log)
        self.started.append(process)
        self._state.processes[daemon.name] = process
        self._directory.save(self._state)

    def _until_etcd(self, daemon: Daemon) -> None:
        """Wait until etcd serves, for which it must elect itself leader."""
        while True:
            self._check_alive()
            connection = http.client.HTTPConnection(
                HOST, daemon.ports["client"], timeout=ETCD_ANSWER_S
            )
            with closing(connection), suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/health")
                with closing(connection.getresponse()) as answer:
                    if b'"true"' in answer.read(ETCD_ANSWER_BYTES):
                        return
            self._pause()

    def _until_ready(self) -> None:
        """Wait until every SC is healthy, and none shows what was before the leading one began."""
        controllers = self._plan.controllers
        shown = max((self._until_healthy(one, 0) for one in controllers), default=0)
        for one in controllers:
            self._until_healthy(one, shown)

    def _until_healthy(self, controller: Daemon, revision: int) -> int:
        """Wait until an SC is healthy and shows a revision of the KV; gives the one it shows."""
        client = OneShotCalls(f"{HOST}:{controller.ports['public']}")
        self._begin(f"waiting for {controller.name}")
        while True:
            self._check_alive()
            with suppress(RetryableError):
                shown: int = client.call("GET", "/health")["revision"]
                if shown >= revision:
                    return shown
            self._pause()

    def _ask_for_spus(self, client: OneShotCalls) -> None:
        """Have the SC start the SPUs. Changes by the user to the group stay, except that SPUs are
        added, and that ports follow if the cluster was moved to others."""
        wanted = self._plan.spu_group
        if not wanted.spec.replicas:
            return
        path = f"/v1/{SpuGroup.PLURAL}"
        try:
            found = SpuGroup.model_validate(client.call("GET", f"{path}/{wanted.name}"))
        except NotFoundError:
            client.call("POST", path, body=wanted.to_json())
            return
        ours, theirs = wanted.spec.template, found.spec.template
        template = theirs.model_copy(
            update={
                "public_endpoint": theirs.public_endpoint.model_copy(
                    update={"port": ours.public_endpoint.port}
                ),
                "private_endpoint": theirs.private_endpoint.model_copy(
                    update={"port": ours.private_endpoint.port}
                ),
            }
        )
        old = (theirs.public_endpoint.port, theirs.private_endpoint.port)
        new = (template.public_endpoint.port, template.private_endpoint.port)
        if old != new:
            self.notes.append(
                f"the ports of its SPUs were replaced: {SPU_GROUP}-0 had {old[0]} and {old[1]}, and"
                f" has {new[0]} and {new[1]}, and so on; clients and other hosts may know the old"
                " ones"
            )
        replicas = found.spec.replicas
        if not self.keep_spus:
            replicas = max(replicas, wanted.spec.replicas)
        self.spus = replicas
        spec = found.spec.model_copy(update={"replicas": replicas, "template": template})
        if spec != found.spec:
            changed = found.model_copy(update={"spec": spec})
            client.call("PUT", f"{path}/{wanted.name}", body=changed.to_json())

    def _until_online(self, client: OneShotCalls) -> None:
        """Wait until the SPUs are online, or until it is clear which of them do not come.

        Raises RunnelError if that cannot happen: if none comes, or one does not in a first start.
        """
        group = self._plan.spu_group
        names = {f"{group.name}-{i}" for i in range(self.spus)}
        patience = time.monotonic() + TROUBLE_S
        deadline = time.monotonic() + ONLINE_TIMEOUT_S
        while names:
            self._check_alive()
            found = client.call("GET", f"/v1/{SpuGroup.PLURAL}/{group.name}")
            status = SpuGroup.model_validate(found).status
            if status.resolution is SpuGroupResolution.INVALID:
                raise RunnelError(f"the SPUs cannot be: {status.reason}")
            items = (client.call("GET", "/v1/spus"))["items"]
            spus = [Spu.model_validate(item) for item in items]
            online = {s.name for s in spus if s.status.resolution in CONNECTED}
            self._came = frozenset(names & online)
            if names <= online:
                return
            if self._came:
                self._begin(f"waiting for {', '.join(sorted(names - online))}")
            now = time.monotonic()
            if not _is_trouble(status.reason):
                patience = now + TROUBLE_S
            in_trouble = now > patience
            if self.again and names & online and (in_trouble or now > deadline):
                reasons = {spu.name: spu.status.reason for spu in spus}
                self.absent = [
                    self._why_absent(name, reasons.get(name)) for name in sorted(names - online)
                ]
                return
            if in_trouble:
                logs = self._directory.log_file("…").parent
                raise RunnelError(f"{status.reason}\n{_LOG_IS}in {logs}")
            self._pause()

    def _why_absent(self, name: str, reason: str | None) -> str:
        """What the SC says about an SPU that does not come, and what that SPU logged last."""
        why = reason or "the SC has not started it"
        said = self._last_trouble(name)
        lines = [f"{name}: {why}"]
        if said and said not in why:
            lines.append(f"  it logged last: {said}")
        return "\n".join([*lines, f"  its log is {self._directory.log_file(name)}"])

    def _until_moved(self, client: OneShotCalls) -> None:
        """Wait until the SPUs that came serve at the ports of the plan.

        Those of a cluster that has other ports now move there one after the other, each when all
        replicas are live. That may have to wait for something else: after `MOVE_TIMEOUT_S` without
        another one that has moved, `notes` says so.
        """
        moving = self._at_other_ports()
        while moving:
            self._begin(f"waiting for {', '.join(sorted(moving))} to move to other ports")
            patience = time.monotonic() + MOVE_TIMEOUT_S
            self._deadline = patience + START_TIMEOUT_S
            while moving <= (left := self._still_moving(client, moving)):
                self._check_alive()
                if time.monotonic() > patience:
                    self.notes.append(
                        f"still moving to the ports from {self._plan.base_port}, one after the"
                        f" other: {', '.join(sorted(moving))}; see: runnel cluster status"
                    )
                    return
                self._pause()
            moving = left

    def _still_moving(self, client: OneShotCalls, moving: set[str]) -> set[str]:
        """Which of these SPUs do not serve at their ports of the plan yet."""
        # Before the SC is asked: an answer from before a process was started at its ports says
        # nothing of that one.
        elsewhere = self._at_other_ports()
        items = (client.call("GET", "/v1/spus"))["items"]
        spus = map(Spu.model_validate, items)
        online = {s.name for s in spus if s.status.resolution in CONNECTED}
        return moving & (elsewhere | (moving - online))

    def _at_other_ports(self) -> set[str]:
        """The SPUs that came, and were last started at other ports than those of the plan."""
        plan = self._plan
        wanted = {f"{SPU_GROUP}-{i}": plan.spu_ports(i) for i in range(self.spus)}
        return {
            spu.name
            for spu in self._directory.spus()
            if spu.name in self._came and spu.ports and spu.ports != wanted[spu.name]
        }

    def _until_led(self, client: OneShotCalls) -> None:
        """Wait until every partition that only these SPUs hold is online.

        A partition that cannot be (its disk was replaced, say) must not stop the rest: after
        `PARTITIONS_TIMEOUT_S` the cluster is as ready as it gets, and `notes` says so; without
        some SPUs after `REDUCED_TIMEOUT_S`.
        """
        ours = set(range(self.spus))
        patience_s = REDUCED_TIMEOUT_S if self.absent else PARTITIONS_TIMEOUT_S
        deadline = time.monotonic() + patience_s
        while True:
            items = (client.call("GET", "/v1/partitions"))["items"]
            coming = [p for p in map(Partition.model_validate, items) if _is_coming(p, ours)]
            if not coming:
                return
            if time.monotonic() >= deadline:
                first = f"{coming[0].name}: {coming[0].status.reason}"
                self.notes.append(
                    f"{len(coming)} partitions are not online ({first}); see: runnel get p"
                )
                return
            self._pause()

    def _pause(self) -> None:
        """Wait a little. Raises TimeoutError if this start has taken too long."""
        if time.monotonic() >= self._deadline:
            raise TimeoutError
        time.sleep(POLL_S)

    def _check_alive(self) -> None:
        for name, process in self._state.processes.items():
            if name != DASHBOARD and not is_alive(process):
                said = self._last_trouble(name) or "it said nothing"
                log = self._directory.log_file(name)
                raise RunnelError(f"{name} ended: {said}\n{_LOG_IS}{log}")

    def _last_trouble(self, name: str) -> str:
        """The last warning or error that a daemon logged since it was started here."""
        begin = self._log_begins.get(name)
        return "" if begin is None else last_trouble(self._directory.log_file(name), begin)


def without_logs(message: str) -> str:
    """The message of a start that failed, for a directory that is removed with its logs."""
    lines = [line for line in message.split("\n") if not line.startswith(_LOG_IS)]
    return "\n".join(lines).replace(_LOGS_BY, "")


def _is_trouble(reason: str | None) -> bool:
    """Whether a group says more than that SPUs wait for each other to move to other ports."""
    if reason is None:
        return False
    return not reason.startswith((CHANGED, NOT_FOLLOWED)) or f"; {SPU_GROUP}-" in reason


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _is_coming(partition: Partition, ours: set[int]) -> bool:
    """Whether a partition is about to be led by the SPUs that are online now.

    False if another SPU holds it, or if its leader reported why it cannot lead.
    """
    if partition.status.resolution is not PartitionResolution.OFFLINE:
        return False
    if not ours.issuperset(partition.spec.replicas):
        return False
    reason = partition.status.reason or ""
    return not any(word in reason for word in ("unfit", "without its data", "cannot lead"))
