"""The view of a controller: the local store and the live sessions.

The state of a session holds what its SPU reported and asked for, and ends with the session; the SPU
sends it again when it reconnects. Controllers read a view and never change it.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from sc.store.buckets import Buckets
from sc.store.local_store import LocalStore
from sc.store.records import Records
from sc.store.suspicions import RECONNECT_MS, Suspicions
from schemas.control.messages import (
    ElectionRequest,
    LrsRequest,
    ReplicaReport,
    Tombstone,
    UnreachablePeer,
)
from schemas.control.statistics import ReplicaNumbers
from schemas.ids import Term, make_term, next_election
from schemas.objects.partition import Partition
from schemas.objects.spu import SpuSpec


class Liveness(Enum):
    """Whether an SPU is alive: it has a session, it may be alive without one, or it is gone."""

    ONLINE = "online"
    UNKNOWN = "unknown"
    OFFLINE = "offline"


#: How long an SPU that said that it stops is given no partition to lead: more than a clean stop
#: takes. If it is still there then, its stop hangs, and it may serve as well as any.
STOPS_MS = 60_000

#: What the view shows of an owner of partitions that has records: revisions of its bell and its
#: object, how often its partitions changed, and by segment into how many parts its load asks to be
#: split.
Mark = tuple[int, int, int, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is to be done for an owner while the view shows it as ``mark`` says, and before
    ``until_ms`` (of ``now_ms``), if that is given."""

    mark: Mark
    until_ms: int | None = None

    def holds(self, mark: Mark, now_ms: int) -> bool:
        return self.mark == mark and (self.until_ms is None or now_ms < self.until_ms)


@dataclass(frozen=True, slots=True)
class ElectionAsked:
    """A request for an election, and the revision of its partition when it came: a later change of
    the partition may have resolved it."""

    request: ElectionRequest
    revision: int


@dataclass(slots=True)
class SessionState:
    """One live SPU session.

    ``complete``: the SPU has confirmed the full list of its partitions in this session, so that
    only differences need sending. ``free_bytes``: the free space of its disk, if it reported that.
    ``deleted`` are deletions it has confirmed whose tombstones are still in the store, and
    ``undeleted`` says of others, by uid, why it could not do them when it was asked last.
    ``strangers`` are uids in ``reports`` of which neither the store nor a tombstone knows. Only a
    few are kept, and ``unheard`` counts the reports of others. ``lrs_requests`` and ``elections``
    hold its newest request for each partition, by uid, until the partition has changed since.
    ``unreachable`` are the SPUs that it has to connect to and cannot, and ``stalled`` the uids of
    partitions that it leads and has committed nothing of for a while, although records wait.
    ``unknown_leads``: for each partition that it was elected to lead before the session began, and
    whose replica reported at its beginning to know nothing of that, the term, by uid. Either the
    order to lead never came, or its disk forgot that it did. ``seals``: its version knows how to
    seal logs. ``stops_ms``: when it said that it stops, if it did.
    """

    spu_id: int
    generation: int
    complete: bool = False
    free_bytes: int | None = None
    reports: dict[str, ReplicaReport] = field(default_factory=dict)
    strangers: set[str] = field(default_factory=set)
    unheard: int = 0
    deleted: dict[str, Tombstone] = field(default_factory=dict)
    undeleted: dict[str, str] = field(default_factory=dict)
    lrs_requests: dict[str, LrsRequest] = field(default_factory=dict)
    elections: dict[str, ElectionAsked] = field(default_factory=dict)
    unreachable: Mapping[int, UnreachablePeer] = field(default_factory=dict)
    stalled: frozenset[str] = frozenset()
    unknown_leads: dict[str, Term] = field(default_factory=dict)
    seals: bool = False
    stops_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Provisioned:
    """An SPU that a provisioner manages: the spec it was given, and what prevents its process
    from running, if anything does. ``ended_session`` is the session of the process that ran by the
    spec before. ``unable``: the trouble is of the process or the spec itself; nobody killed it.
    ``spec_known``: False for a process of which nobody knows the spec."""

    spec: SpuSpec
    trouble: str | None = None
    ended_session: int | None = None
    unable: bool = False
    spec_known: bool = True


@dataclass(frozen=True, slots=True)
class Provisioning:
    """The state of a provisioner. The ports of SPUs that share a host differ by ``port_step``;
    ``ports`` and group names in ``groups`` are taken there. Replicas are kept below one of
    ``directories`` only; a relative directory of replicas is below ``relative_to``."""

    port_step: int
    spus: Mapping[str, Provisioned]
    ports: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()
    directories: tuple[str, ...] = ()
    relative_to: str = "/"

    def allows(self, log_dir: str) -> bool:
        """Whether replicas may be kept in a directory, by its name: symbolic links are followed
        only where the directory is used."""
        if not self.directories or "\0" in log_dir:
            return not self.directories
        path = posixpath.normpath(posixpath.join(self.relative_to, log_dir))
        return any(
            path == directory or path.startswith(f"{directory.rstrip('/')}/")
            for directory in self.directories
        )


@dataclass(slots=True)
class PreferredElections:
    """When elections that gave a partition to its preferred leader were decided, written or not:
    the last one for each SPU, and for each partition by uid, with its leader and its term, in the
    order of their times."""

    by_spu: dict[int, int] = field(default_factory=dict)
    by_partition: dict[str, tuple[int, int, Term]] = field(default_factory=dict)

    def decided(self, spu_id: int, uid: str, term: Term, now_ms: int, forget_ms: int) -> None:
        """Note one, and forget those of partitions that are older than ``forget_ms``."""
        times = self.by_partition
        times.pop(uid, None)
        times[uid] = now_ms, spu_id, term
        self.by_spu[spu_id] = now_ms
        # Only as many as there are to forget: a topic has thousands of elections at its creation.
        while times[oldest := next(iter(times))][0] <= now_ms - forget_ms:
            del times[oldest]


@dataclass(slots=True)
class View:
    """Everything a reconcile may depend on, besides its key and the time.

    ``registered`` maps the names of the SPUs that the connection manager lets in to their ids;
    ``refusals`` says by id why it turned one that is away away when it tried to connect last;
    until ``grace_until_ms`` (same clock as ``now_ms``) an SPU that has had no session is unknown,
    not offline, and so is a suspect one. ``provisioning`` is None if nothing starts managed SPUs.
    ``incarnation`` is the cluster's; while it is ``recovering`` from a KV that was restored from a
    backup, nothing is deleted. ``records`` are those that were read for this very pass; ``numbers``
    gives the latest that its leader told of a partition's log in its session of now, and ``size``
    those that say best how many bytes a replica takes; ``buckets`` says which owners this SC
    works for; ``settled`` says of which owners no records need be read, by uid
    (`sc.controllers.actions.Settle`).
    """

    store: LocalStore = field(default_factory=LocalStore)
    sessions: Mapping[int, SessionState] = field(default_factory=dict)
    registered: Mapping[str, int] = field(default_factory=dict)
    grace_until_ms: int = 0
    provisioning: Provisioning | None = None
    elected: Counter[int] = field(default_factory=Counter)
    incarnation: int = 0
    recovering: bool = False
    suspicions: Suspicions = field(default_factory=Suspicions)
    preferred_elections: PreferredElections = field(default_factory=PreferredElections)
    refusals: Mapping[int, str] = field(default_factory=dict)
    records: Records | None = None
    numbers: Callable[[Partition], ReplicaNumbers | None] = field(default=lambda _: None)
    size: Callable[[Partition], ReplicaNumbers | None] = field(default=lambda _: None)
    buckets: Buckets = field(default_factory=Buckets)
    settled: dict[str, Settled] = field(default_factory=dict)

    def with_records(self, records: Records) -> View:
        """The view of a pass that has read these; everything else is shared."""
        return replace(self, records=records)

    def observe(self, now_ms: int) -> None:
        """Notice whether the SC lags. Not for controllers: call this before they are asked."""
        waiting = self.grace_until_ms > self.suspicions.observed_ms
        if self.suspicions.observe(now_ms) and waiting:
            # SPUs had no chance to connect during the lag.
            self.grace_until_ms = max(self.grace_until_ms, now_ms + RECONNECT_MS)

    def liveness(self, spu_id: int, now_ms: int) -> Liveness:
        if spu_id in self.sessions:
            return Liveness.ONLINE
        if self.store.spu(spu_id) is not None and now_ms < self._unknown_until_ms(spu_id):
            return Liveness.UNKNOWN
        return Liveness.OFFLINE

    def stops_until_ms(self, spu_id: int) -> int:
        """Until when an SPU is about to be gone, because it said that it stops; 0 if it did not."""
        session = self.sessions.get(spu_id)
        stops_ms = None if session is None else session.stops_ms
        return 0 if stops_ms is None else stops_ms + STOPS_MS

    def refusal(self, spu_id: int) -> str | None:
        """That an SPU that is away was turned away, and why; None if it was not."""
        if spu_id in self.sessions or (why := self.refusals.get(spu_id)) is None:
            return None
        return f"its last attempt to connect was refused: {why}"

    def undeleted(self, spu_id: int) -> str:
        """What to add where it is said that an SPU deletes replicas: why it cannot, if it cannot,
        and what helps."""
        session = self.sessions.get(spu_id)
        why = None if session is None else next(iter(session.undeleted.values()), None)
        if why is None:
            return ""
        return f", but cannot: {why}; or stop the SPU: nobody waits for it then"

    def unreachable_from(self, spu_id: int) -> list[str]:
        """Which SPUs that are online an SPU cannot reach, in words."""
        session = self.sessions.get(spu_id)
        peers = () if session is None else session.unreachable.values()
        # One that is away has a reason of its own.
        return [_cannot_reach(spu_id, peer) for peer in peers if peer.spu_id in self.sessions]

    def cut_off(self, one: int, other: int) -> str | None:
        """Why two SPUs that are online cannot replicate with each other; None if nothing is known
        to be in the way. One of the two connects to the other, and only that one can tell."""
        if one not in self.sessions or other not in self.sessions:
            return None
        for spu_id, peer_id in ((one, other), (other, one)):
            if (peer := self.sessions[spu_id].unreachable.get(peer_id)) is not None:
                return _cannot_reach(spu_id, peer)
        return None

    def decided_at_ms(self, spu_ids: Iterable[int], now_ms: int) -> int | None:
        """When the next of these SPUs that are unknown will be known to be offline, unless they
        come back before; None if none is unknown."""
        return min(
            (
                self._unknown_until_ms(spu_id)
                for spu_id in spu_ids
                if self.liveness(spu_id, now_ms) is Liveness.UNKNOWN
            ),
            default=None,
        )

    def _unknown_until_ms(self, spu_id: int) -> int:
        until_ms = self.suspicions.until_ms(spu_id)
        return until_ms if self.suspicions.is_gone(spu_id) else max(self.grace_until_ms, until_ms)

    def report(self, spu_id: int, uid: str) -> ReplicaReport | None:
        """The last report of a live SPU about its replica of a partition."""
        session = self.sessions.get(spu_id)
        return session.reports.get(uid) if session is not None else None

    def knows(self, report: ReplicaReport, partition: Partition) -> bool:
        """Whether a replica knows the current state of its partition. Revisions of an earlier
        incarnation say nothing, however high they are."""
        known = report.incarnation, report.revision
        return known >= (self.incarnation, partition.revision) and report.assigned

    def next_term(self, term: int) -> Term:
        """The election term after ``term``, of the cluster's incarnation at least."""
        return next_election(max(term, make_term(self.incarnation, 0)))

    def leading_count(self, spu_id: int) -> int:
        """How many partitions an SPU leads, or will lead once the decided changes are written."""
        return self.store.leading_count(spu_id) + self.elected[spu_id]


def _cannot_reach(spu_id: int, peer: UnreachablePeer) -> str:
    return f"SPU {spu_id} cannot reach SPU {peer.spu_id} at {peer.host}:{peer.port}: {peer.reason}"
