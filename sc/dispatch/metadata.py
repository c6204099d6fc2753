"""The metadata dispatcher: the only writer of the state of sessions.

Every change of the mirror and of a session wakes the controllers of the keys that it concerns, and
no others. Neighbour: `sc.dispatch.changes` tells of the changes of the mirror.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sc.controllers.actions import Key
from sc.dispatch.affected import (
    affected_keys,
    keys_of_session,
    keys_that_wait_for_all,
    keys_that_wait_for_restarts,
    keys_that_wait_for_room,
)
from sc.store.local_store import BellRang, Change, ObjectChanged, TombstoneChanged
from sc.store.view import ElectionAsked, SessionState, View
from schemas.causality import current_cause
from schemas.control.messages import (
    STOPS,
    Hello,
    Obstacles,
    ReplicaReport,
    Report,
    SpuRequest,
    Tombstone,
)
from schemas.control.session_end import SessionEnd
from schemas.daemon.logs import get_logger
from schemas.ids import election_term
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition

#: Reports of unknown partitions that are kept in a session.
MAX_STRANGERS: Final = 100

log = get_logger(__name__)

Wake = Callable[[Key, str], None]


class MetadataDispatcher:
    """Keeps the sessions of a view and wakes controllers."""

    def __init__(
        self,
        view: View,
        sessions: dict[int, SessionState],
        wake: Wake,
        *,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._view = view
        self._now_ms = now_ms
        self._sessions = sessions
        self._wake = wake

    # -- objects ----------------------------------------------------------------------------

    def changed(self, change: Change, cause: str) -> None:
        """Follow a change of the mirror."""
        if isinstance(change, TombstoneChanged) and not change.present:
            self._forget_deletion(change.tombstone)
        if isinstance(change, ObjectChanged) and isinstance(change.old, Partition):
            self._forget_requests(change.old, change.new)
        if isinstance(change, BellRang):
            self._view.settled.pop(change.uid, None)
        for key in affected_keys(change, self._view.store):
            self._wake(key, cause)

    # -- sessions ---------------------------------------------------------------------------

    def opened(self, generation: int, hello: Hello) -> None:
        """A session began; the replicas in its hello are its first report."""
        state = SessionState(hello.spu_id, generation, free_bytes=hello.free_bytes)
        state.seals = bool(hello.seals)
        self._sessions[hello.spu_id] = state
        self._keep(state, hello.replicas)
        for replica in hello.replicas:
            partition = self._view.store.partition_by_uid(replica.uid)
            if partition is None or partition.status.leader != hello.spu_id:
                continue
            if election_term(replica.term) < partition.status.term:
                state.unknown_leads[replica.uid] = partition.status.term
        self._wake_session(hello.spu_id)
        if self._view.recovering:
            for key in keys_that_wait_for_all(self._view.store, self._view.incarnation):
                self._wake(key, current_cause())
        for other in sorted(self._view.suspicions.opened(hello.spu_id, self._now_ms())):
            self._wake_session(other)

    def closed(self, spu_id: int, generation: int, end: SessionEnd, quiet: int = 0) -> None:
        """A session ended. The end of an older one than the current changes nothing.

        ``quiet``: of the other SPUs with a session, how many have not been heard for a while.
        """
        state = self._sessions.get(spu_id)
        if state is not None and state.generation == generation:
            del self._sessions[spu_id]
            self._view.suspicions.ended(spu_id, end, self._now_ms(), quiet)
            self._wake_session(spu_id)

    def reported(self, spu_id: int, generation: int, report: Report) -> None:
        """An SPU reported the state of some of its replicas."""
        state = self._sessions.get(spu_id)
        if state is None or state.generation != generation:
            return
        store, cause = self._view.store, current_cause()
        self._keep(state, report.replicas)
        for replica in report.replicas:
            partition = store.partition_by_uid(replica.uid)
            if partition is not None:
                self._wake(Key("Partition", partition.name), cause)
        if any(self._may_end_a_wait(spu_id, replica) for replica in report.replicas):
            for key in keys_that_wait_for_restarts(store):
                self._wake(key, cause)
        waiting = {t.uid for t in store.tombstones_of(spu_id)} if report.deleted else set()
        for tombstone in report.deleted:
            # A second confirmation may come after the tombstone is gone; if it were kept, it
            # would count as a confirmation of the next one.
            if tombstone.uid in waiting:
                state.deleted[tombstone.uid] = tombstone
            state.undeleted.pop(tombstone.uid, None)
            found = state.reports.get(tombstone.uid)
            if found is None or tombstone.storage_id in (None, found.storage_id):
                state.reports.pop(tombstone.uid, None)
                state.strangers.discard(tombstone.uid)
        if report.free_bytes is not None and report.free_bytes != state.free_bytes:
            state.free_bytes = report.free_bytes
            for key in keys_that_wait_for_room(store):
                self._wake(key, cause)
        spu = store.spu(spu_id)
        if report.deleted and spu is not None:
            self._wake(Key("Spu", spu.name), cause)
        if report.obstacles is not None:
            self._note_obstacles(state, report.obstacles)

    def asked(self, spu_id: int, generation: int, ask: SpuRequest) -> None:
        """An SPU asked for other live replica sets, or for elections, as a leader.

        Keeps the newest request for each partition of which the SPU holds a replica, unless the
        partition has changed since: the leader will see the change and decide again.
        """
        state = self._sessions.get(spu_id)
        if state is None or state.generation != generation:
            return
        cause = current_cause()
        for change in ask.lrs:
            partition = self._held_by(spu_id, change.uid)
            if partition is not None and partition.revision <= change.revision:
                state.lrs_requests[change.uid] = change
                self._wake(Key("Partition", partition.name), cause)
        for election in ask.elections:
            if election.reason == STOPS and state.stops_ms is None:
                state.stops_ms = self._now_ms()
            partition = self._held_by(spu_id, election.uid)
            report = state.reports.get(election.uid)
            if partition is None or report is None:
                continue
            if self._view.knows(report, partition):
                state.elections[election.uid] = ElectionAsked(election, partition.revision)
                self._wake(Key("Partition", partition.name), cause)

    def told_everything(self, spu_id: int, generation: int) -> None:
        """The SPU has confirmed the complete list of its partitions in this session."""
        state = self._sessions.get(spu_id)
        if state is not None and state.generation == generation:
            state.complete = True
            self._wake_session(spu_id)

    def refused(self, spu_id: int) -> None:
        """The SPU refused something: look again at everything that concerns it."""
        self._wake_session(spu_id)

    def not_deleted(self, spu_id: int, generation: int, reasons: Mapping[str, str]) -> None:
        """The SPU could not delete these replicas, by uid: keep why, and look at it and at its
        group again. Partitions do not depend on that."""
        state, spu = self._sessions.get(spu_id), self._view.store.spu(spu_id)
        if state is None or state.generation != generation or spu is None:
            return
        waiting = {t.uid for t in self._view.store.tombstones_of(spu_id)}
        state.undeleted |= {uid: why for uid, why in reasons.items() if uid in waiting}
        self._wake(Key("Spu", spu.name), current_cause())
        if spu.spec.group is not None:
            self._wake(Key("SpuGroup", spu.spec.group), current_cause())

    def _keep(self, state: SessionState, replicas: Iterable[ReplicaReport]) -> None:
        """Keep reports of replicas that somebody knows, and of the first few others: an SPU could
        otherwise fill the SC's memory with made-up ones."""
        store = self._view.store
        buried = {tombstone.uid for tombstone in store.tombstones_of(state.spu_id)}
        for replica in replicas:
            uid = replica.uid
            before = state.reports.get(uid)
            if replica.load != (None if before is None else before.load):
                self._wake_owner(uid)
            known = uid in buried or uid in state.reports
            if not known and store.partition_by_uid(uid) is None:
                if len(state.strangers) >= MAX_STRANGERS:
                    state.unheard += 1
                    continue
                state.strangers.add(uid)
            state.reports[uid] = replica
        if state.unheard:
            log.warning(
                "an SPU reports replicas of partitions that do not exist",
                spu=state.spu_id,
                kept=len(state.strangers),
                others=state.unheard,
            )

    def _note_obstacles(self, state: SessionState, found: Obstacles) -> None:
        """Keep what an SPU sees in the way, and look at the partitions for which that changes."""
        store, cause = self._view.store, current_cause()
        before = state.unreachable
        state.unreachable = {peer.spu_id: peer for peer in found.unreachable}
        ids = before.keys() | state.unreachable.keys()
        news = {i for i in ids if before.get(i) != state.unreachable.get(i)}
        known = {uid: store.partition_by_uid(uid) for uid in {*found.stalled, *state.stalled}}
        stalled = frozenset(uid for uid in found.stalled if known[uid] is not None)
        moved = stalled ^ state.stalled
        state.stalled = stalled
        names = {p.name for uid in moved if (p := known[uid]) is not None}
        if news:
            names |= {
                p.name for p in store.partitions_on(state.spu_id) if news & set(p.spec.holders)
            }
            if (spu := store.spu(state.spu_id)) is not None:
                self._wake(Key("Spu", spu.name), cause)
        for name in sorted(names):
            self._wake(Key("Partition", name), cause)

    def _wake_owner(self, uid: str) -> None:
        """The load of a segment asks for something else than before."""
        if (partition := self._view.store.partition_by_uid(uid)) is not None:
            owner = partition.spec.owner
            self._wake(Key(owner.kind, owner.name), current_cause())

    def _forget_deletion(self, tombstone: Tombstone) -> None:
        state = self._sessions.get(tombstone.spu_id)
        if state is not None:
            state.deleted.pop(tombstone.uid, None)
            state.undeleted.pop(tombstone.uid, None)

    def _held_by(self, spu_id: int, uid: str) -> Partition | None:
        partition = self._view.store.partition_by_uid(uid)
        return partition if partition is not None and spu_id in partition.spec.holders else None

    def _forget_requests(self, old: Partition, new: Object | None) -> None:
        """A partition changed: forget the requests that were based on an earlier revision."""
        latest = new.revision if new is not None and new.uid == old.uid else None
        for spu_id in old.spec.holders:
            state = self._sessions.get(spu_id)
            if state is None:
                continue
            for kept in (state.lrs_requests, state.elections):
                asked = kept.get(old.uid)
                if asked is not None and (latest is None or asked.revision < latest):
                    del kept[old.uid]

    def _may_end_a_wait(self, spu_id: int, replica: ReplicaReport) -> bool:
        """Whether an SPU may be restarted now: a live replica is there, or its own is unfit."""
        partition = self._view.store.partition_by_uid(replica.uid)
        if partition is None:
            return False
        return not replica.fit or any(m.spu_id == spu_id for m in partition.status.lrs)

    def _wake_session(self, spu_id: int) -> None:
        cause = current_cause()
        store = self._view.store
        for key in keys_of_session(spu_id, store):
            self._wake(key, cause)
        for other in self._sessions.values():
            # Its reason names this one only while both are online.
            if spu_id in other.unreachable and (spu := store.spu(other.spu_id)) is not None:
                self._wake(Key("Spu", spu.name), cause)
