"""The SPU's side of its session with the SC: carries out orders, reports changes, sends requests.

Reports and requests are coalesced by partition and sent one message of a bounded size at a time.
Reports go first, because the SC judges a request by what was reported. Messages that a session did
not deliver are lost with it: the hello of the next session carries the state of every replica, and
a leader that still needs something asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable
from pathlib import Path

from connection_manager.session import Session
from schemas.causality import caused_by, new_cause
from schemas.control.messages import (
    OBSTACLES_PROTOCOL,
    AssignPartitions,
    Controllers,
    DeleteReplicas,
    ElectionRequest,
    FindPeers,
    Hello,
    LeadPartitions,
    LrsRequest,
    Message,
    Obstacles,
    Peers,
    ReplicaReport,
    Report,
    SpuRequest,
    Tombstone,
    Welcome,
    understands,
)
from schemas.control.older_scs import for_protocol
from schemas.control.parts import question_parts, report_parts, request_parts
from schemas.daemon.logs import get_logger
from schemas.daemon.secret_file import read_secret
from schemas.errors import RunnelError, StorageFailedError, UnsupportedError
from schemas.ids import PartitionUid, Term
from schemas.objects.partition import LiveReplica
from spu.host.host import ReplicaHost
from spu.known_controllers import KnownControllers
from spu.replication.events import RequestElection, RequestLrsChange

#: How often an idle SPU checks how much of its disk is free.
LOOK_AT_DISK_S = 10.0
#: A request that the SC has and did not answer is sent again in the same session after this time.
#: Leaders repeat theirs much sooner, which would keep a busy SC busy.
REPEAT_S = 10.0

log = get_logger(__name__)


def free_changed(told: int, free: int) -> bool:
    """Whether to report the free bytes again: they changed by an eighth or more."""
    return abs(free - told) * 8 >= max(told, free, 1)


class SpuControl:
    """Connects a replica host to SC sessions; the `LinkHandler` of an SPU. ``secret_file`` holds
    the SPU's secret, if it has one; ``controllers`` learns which SCs run."""

    def __init__(
        self,
        spu_id: int,
        software: str,
        secret_file: Path,
        controllers: KnownControllers | None = None,
    ) -> None:
        self._controllers = controllers
        self._secret_file = secret_file
        self._spu_id = spu_id
        self._software = software
        self._instance = secrets.token_hex(8)
        self._host: ReplicaHost | None = None
        self._session: Session | None = None
        self._changed: dict[str, ReplicaReport] = {}
        self._deleted: dict[str, Tombstone] = {}
        self._lrs_requests: dict[str, LrsRequest] = {}
        #: What the SC has and did not answer, and when it was sent.
        self._unanswered: dict[str, tuple[LrsRequest, float]] = {}
        self._elections: dict[str, ElectionRequest] = {}
        self._wanted_peers: set[int] = set()
        self._wakeup = asyncio.Event()
        self._told_free = 0
        self._told_obstacles = Obstacles()

    @property
    def connected(self) -> bool:
        return self._session is not None and not self._session.closed

    def session_with(self, protocol: str) -> Session | None:
        """The open session, if its SC knows what came with ``protocol``."""
        session = self._session
        if session is None or session.closed or not understands(session.protocol, protocol):
            return None
        return session

    def attach(self, host: ReplicaHost) -> None:
        """Set the host to serve; it speaks to the SC by `report`, `ask` and `find_peers`."""
        self._host = host

    def report(self, report: ReplicaReport) -> None:
        """Tell the SC that a replica's state changed."""
        self._changed[report.uid] = report
        self._wakeup.set()

    def ask(self, uid: PartitionUid, request: RequestLrsChange | RequestElection) -> None:
        """Ask the SC for another live replica set, or for another leader."""
        term, reason = Term(request.term), request.reason
        if isinstance(request, RequestElection):
            self._elections[uid] = ElectionRequest(uid=uid, term=term, reason=reason)
        else:
            lrs = tuple(LiveReplica(spu_id=m.spu, storage_id=m.storage) for m in request.lrs)
            change = LrsRequest(
                uid=uid, term=term, revision=request.revision, lrs=lrs, reason=reason
            )
            if self._has(change):
                return
            self._lrs_requests[uid] = change
        self._wakeup.set()

    def _has(self, change: LrsRequest) -> bool:
        """Whether the SC of this session has this request, and may still be about to answer."""
        sent, at = self._unanswered.get(change.uid, (None, 0.0))
        return sent == change and asyncio.get_running_loop().time() - at < REPEAT_S

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        """Ask the SC where these SPUs listen for other SPUs."""
        self._wanted_peers.update(spu_ids)
        self._wakeup.set()

    def obstacles_changed(self) -> None:
        """Tell the SC what keeps records from being committed, if it understands that."""
        self._wakeup.set()

    async def send(self) -> None:
        """Send reports and requests for as long as the SPU runs."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AT_DISK_S):
                    await self._wakeup.wait()
            self._wakeup.clear()
            session = self._session
            if session is None or session.closed:
                continue
            with caused_by(new_cause(f"spu{self._spu_id}")):
                # Made before anything is sent: what changes meanwhile is sent the next time.
                messages: tuple[Message, ...]
                messages = (*self._report(session), *self._asked(), *self._looking_for())
                try:
                    for message in messages:
                        await session.request(for_protocol(message, session.protocol))
                except RunnelError:
                    self._unanswered.clear()

    def _report(self, session: Session) -> Iterable[Report]:
        changed, self._changed = tuple(self._changed.values()), {}
        deleted, self._deleted = tuple(self._deleted.values()), {}
        free = self._replica_host.free_bytes
        obstacles = self._obstacles(session)
        if changed or deleted or free_changed(self._told_free, free):
            self._told_free = free
            told_free = free
        elif obstacles is None:
            return ()
        else:
            told_free = None
        report = Report(
            replicas=changed, deleted=deleted, free_bytes=told_free, obstacles=obstacles
        )
        return report_parts(report)

    def _obstacles(self, session: Session) -> Obstacles | None:
        """The obstacles, if the SC of this session is to be told of a change."""
        found = self._replica_host.obstacles
        if not understands(session.protocol, OBSTACLES_PROTOCOL) or found == self._told_obstacles:
            return None
        self._told_obstacles = found
        return found

    def _asked(self) -> Iterable[SpuRequest]:
        lrs, self._lrs_requests = tuple(self._lrs_requests.values()), {}
        now = asyncio.get_running_loop().time()
        self._unanswered.update((change.uid, (change, now)) for change in lrs)
        elections, self._elections = tuple(self._elections.values()), {}
        return request_parts(SpuRequest(lrs=lrs, elections=elections))

    def _looking_for(self) -> Iterable[FindPeers]:
        wanted, self._wanted_peers = tuple(sorted(self._wanted_peers)), set()
        return question_parts(FindPeers(spu_ids=wanted))

    # -- LinkHandler ------------------------------------------------------------------------

    def hello(self) -> Hello:
        """The state of everything that this SPU holds, including changes not sent yet."""
        self._session = None
        self._told_obstacles = Obstacles()
        self._changed.clear()
        self._deleted.clear()
        self._lrs_requests.clear()
        self._unanswered.clear()
        self._elections.clear()
        host = self._replica_host
        seen = host.seen
        self._told_free = host.free_bytes
        return Hello(
            software=self._software,
            spu_id=self._spu_id,
            instance=self._instance,
            cluster_uid=host.cluster_uid,
            kv_revision=seen.revision if seen is not None else 0,
            stamp=seen.stamp if seen is not None else None,
            free_bytes=self._told_free,
            replicas=tuple(host.reports()),
            seals=True,
        )

    def secret(self) -> str | None:
        try:
            return read_secret(self._secret_file)
        except OSError as error:
            raise StorageFailedError(f"{self._secret_file}: {error.strerror}") from error

    async def welcomed(self, welcome: Welcome, session: Session) -> None:
        # First: the stamp of a foreign cluster must not be kept.
        await self._replica_host.join_cluster(welcome.cluster_uid)
        self._replica_host.heed(welcome.stamp)
        await self._hear(welcome.controllers or ())
        self._session = session
        # Some may listen elsewhere by now, or have a key that they did not have before.
        self._wanted_peers.update(self._replica_host.peers.wanted)
        self._wakeup.set()

    async def handle(self, body: Message) -> None:
        """Carry out a message of the SC. Raises the RunnelError that is returned to it."""
        host = self._replica_host
        match body:
            case AssignPartitions():
                log.info("assigned", count=len(body.assignments), complete=body.complete)
                for uid in (*(found.uid for found in body.assignments), *body.removed):
                    self._unanswered.pop(uid, None)
                await host.assign(body)
            case LeadPartitions():
                log.info("asked to lead", count=len(body.leads))
                await host.lead(body)
            case Peers():
                await host.peers_found(body.peers)
            case Controllers():
                await self._hear(body.addresses)
            case DeleteReplicas():
                for tombstone in await host.delete(body):
                    self._deleted[tombstone.uid] = tombstone
                self._wakeup.set()
            case _:
                raise UnsupportedError(f"an SPU does not serve {body.type}")

    async def _hear(self, controllers: tuple[str, ...]) -> None:
        if self._controllers is not None:
            await asyncio.to_thread(self._controllers.hear, controllers)

    @property
    def _replica_host(self) -> ReplicaHost:
        if self._host is None:
            raise RuntimeError("attach a replica host before connecting")
        return self._host
