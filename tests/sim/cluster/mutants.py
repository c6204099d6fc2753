"""Deliberate bugs: each breaks one rule, and some seed must show it.

Those of the core alone (a restarted leader keeps its term, live replicas and term come of different
revisions, a repaired replica keeps its storage id, the union is lost, and so on) are in
`tests.sim.mutants`; `CORE` names those of them that lives of a cluster are to find as well. Those
here break what the small world does not have: the real SC, its KV and its sessions, producers,
disks that lose and keep, several partitions on one SPU. Where the small world has a rule of its own
in the place of the SC's (the revision check, elections), the SC's is broken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from sc import restored_kv
from sc.controllers import election, live_set, partition, recovery
from sc.controllers.live_set import LiveSet, MemberHealth
from sc.controllers.membership import steps
from sc.dispatch.metadata import MetadataDispatcher
from sc.store.view import View
from schemas.control.messages import LrsRequest, ReplicaReport, SpuRequest
from schemas.ids import election_term, next_election
from schemas.objects.partition import LiveReplica, Partition
from spu.replication import follower, leader
from spu.replication.events import Flushed
from spu.replication.messages import Batch
from spu.replication.producer_state import ProducerTable
from spu.replication.state import LogView, ReplicaState
from tests.sim.cluster import disk, kv, replica
from tests.sim.cluster.disk import ReplicaDisk
from tests.sim.cluster.ledger import Ledger
from tests.sim.cluster.replica import SimReplica, Waiting
from tests.sim.cluster.sc import SimSc
from tests.sim.cluster.spu import SimSpu
from tests.sim.mutants import edited

Mutant = Callable[[], AbstractContextManager[None]]

#: Bugs of `tests.sim.mutants` that only the core has, and that lives of a cluster find as well.
CORE = (
    "a restarted leader keeps its term",
    "a position counts before the cut",
    "a follower acknowledges before it synced",
    "a leader counts itself before it synced",
    "a last add confirmed is adopted before the cut",
    "a repaired replica keeps its storage id",
    "live replicas and term come of different revisions",
    "a damaged follower names a term that it does not know",
    "a leader without the SC hears of no later holders",
    "a leader without the SC knows which replicas are live",
    "an old live replica is told to discard its log",
    "a log that parts below the beginning of the leader's is to be cut",
)


@contextmanager
def _patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as undo:
        for target, name, mutant in changes:
            undo.callback(setattr, target, name, target.__dict__[name])
            setattr(target, name, mutant)
        yield


def _mutant(*changes: tuple[Any, str, Any]) -> Mutant:
    return lambda: _patched(*changes)


def _any_request(view: View, found: Partition) -> LrsRequest | None:
    """The leader's newest request, whatever revision it was made from."""
    status = found.status
    session = None if status.leader is None else view.sessions.get(status.leader)
    asked = None if session is None else session.lrs_requests.get(found.uid)
    return asked if asked is not None and election_term(asked.term) == status.term else None


def _keeps_any(self: MetadataDispatcher, spu_id: int, generation: int, ask: SpuRequest) -> None:
    changes = tuple(
        change.model_copy(update={"revision": held.revision})
        for change in ask.lrs
        if (held := self._held_by(spu_id, change.uid)) is not None
    )
    _ASKED(self, spu_id, generation, ask.model_copy(update={"lrs": changes}))


_ASKED = MetadataDispatcher.asked


def _removes_offline(
    lrs: LiveSet, leader: int, health: Mapping[LiveReplica, MemberHealth], _minimum: int
) -> LiveSet:
    return _REMOVE_UNFIT(lrs, leader, health, 0)


_REMOVE_UNFIT = live_set.remove_unfit


def _drops_the_leader(
    lrs: LiveSet, leader: int, health: Mapping[LiveReplica, MemberHealth], minimum: int
) -> LiveSet:
    kept = _REMOVE_UNFIT(lrs, leader, health, minimum)
    return tuple(m for m in kept if m.spu_id != leader) or kept


def _joins_those_who_follow(
    view: View, found: Partition, now_ms: int, *, another: bool = False
) -> Any:
    status = _ELECT(view, found, now_ms, another=another)
    if status is None:
        return None
    members = {m.spu_id: m for m in status.lrs}
    for spu_id in found.spec.replicas:
        report = view.report(spu_id, found.uid)
        if report is not None and report.fit and spu_id not in members:
            members[spu_id] = LiveReplica(spu_id=spu_id, storage_id=report.storage_id)
    return status.model_copy(update={"lrs": tuple(members[i] for i in sorted(members))})


_ELECT = election.elect


def _takes_over_at_the_next_term(
    view: View, found: Partition, leader: int, reports: dict[int, ReplicaReport], **how: Any
) -> Any:
    status = _TAKE_OVER(view, found, leader, reports, **how)
    return status.model_copy(update={"term": next_election(found.status.term)})


_TAKE_OVER = recovery.take_over


def _not_rolled_back(table: ProducerTable, _disk: ReplicaDisk, _ledger: Ledger) -> ProducerTable:
    return table


def _answers_duplicates_at_once(self: SimReplica, waiting: Waiting) -> None:
    self.acknowledge(waiting)


def _tells_of_syncs_too_early(self: SimReplica, delay_us: int) -> None:
    self._soon(Flushed(self.disk.leo))
    _SYNC(self, delay_us)


_SYNC = SimReplica._sync


def _tells_of_syncs_from_before_a_cut(self: SimReplica, life: int, syncs: int, upto: int) -> None:
    began_before = life == self.life and syncs != self._syncs
    _SYNCED(self, life, syncs, upto)
    if began_before and not self.disk.broken:
        self.feed(Flushed(upto))


_SYNCED = SimReplica._synced


def _answers_before_the_commit(self: SimReplica) -> None:
    waiting, self.waiting = self.waiting, []
    for one in waiting:
        self.acknowledge(one)


def _keeps_its_seat(number: int, lost: str | None = None) -> str:
    return lost or _NEW_STORAGE(number)


_NEW_STORAGE = disk.new_storage


def _does_not_sync(_disk: ReplicaDisk) -> None:
    pass


def _deletes_unlisted(self: SimSpu, name: str) -> None:
    del self.replicas[name]
    del self.world.ledgers[name].holders[self.id]


def _reads_all(self: SimReplica, offset: int) -> tuple[int, tuple[Batch, ...]] | None:
    if self.state is None:
        return None
    offset = max(offset, self.disk.start)
    return offset, self.disk.read(offset, 20)


def _stores_as_any_record(log: LogView, batches: tuple[Batch, ...]) -> LogView:
    return replace(_STORED(log, batches), sealed=log.sealed)


_STORED = follower._stored


def _answers_at_the_seal(self: ReplicaState) -> int | None:
    return self.log.sealed


def _together(*mutants: Mutant) -> Mutant:
    @contextmanager
    def broken() -> Iterator[None]:
        with ExitStack() as stack:
            for one in mutants:
                stack.enter_context(one())
            yield

    return broken


MUTANTS: dict[str, Mutant] = {
    "records follow a seal": _together(
        edited(SimReplica, "produce", "state.log.sealed is not None", "False"),
        edited(leader, "on_appended", "state.log.sealed is not None", "False"),
    ),
    "a log begins behind its seal": edited(
        SimReplica,
        "retain",
        "start if state.log.sealed is None else min(start, state.log.sealed)",
        "start",
    ),
    "a log counts as sealed before that is committed": _mutant(
        (ReplicaState, "sealed_end", property(_answers_at_the_seal))
    ),
    "a follower takes a seal for any record": _mutant((follower, "_stored", _stores_as_any_record)),
    "a change is granted without the revision check": _mutant(
        (partition, "_lrs_request", _any_request), (MetadataDispatcher, "asked", _keeps_any)
    ),
    "offline members leave below the minimum": _mutant(
        (partition, "remove_unfit", _removes_offline)
    ),
    "an unfit member leads where those that are fit are away": edited(
        election, "candidates", "in found.items() if health.live}", "in found.items()}"
    ),
    "the leader leaves the live replicas": _mutant((partition, "remove_unfit", _drops_the_leader)),
    "a disk that forgot a term leads in it again": _mutant(
        (partition, "_may_have_led", lambda view, found, leader: False)
    ),
    "an election adds a replica": _mutant((partition, "elect", _joins_those_who_follow)),
    "a deposed SC writes on, over what others wrote": _mutant(
        (kv, "may_write", lambda office, now: True),
        (kv, "is_current", lambda found, before: found is not None),
    ),
    "a hello that came late takes the place of a newer one": _mutant(
        (SimSc, "is_newest", lambda sc, spu, attempt: True)
    ),
    "an SC speaks on when its lease is over": _mutant((SimSc, "leads", property(lambda sc: True))),
    "producers are not rolled back by a cut": _mutant((replica, "rolled_back", _not_rolled_back)),
    "a replica that begins anew knows no producers": _mutant(
        (ProducerTable, "dump_before", lambda table, offset: ())
    ),
    "a duplicate is answered before it is committed": _mutant(
        (SimReplica, "answer_duplicate", _answers_duplicates_at_once)
    ),
    "a producer is answered before the commit": _mutant(
        (SimReplica, "answer_waiting", _answers_before_the_commit)
    ),
    "what is not synced counts as durable": _mutant(
        (SimReplica, "_sync", _tells_of_syncs_too_early)
    ),
    "what is not synced is reported": _mutant((LogView, "durable_part", property(lambda log: log))),
    "a sync from before a cut counts after it": _mutant(
        (SimReplica, "_synced", _tells_of_syncs_from_before_a_cut)
    ),
    "what was recovered and not synced counts as durable": _mutant(
        (disk, "settle", _does_not_sync)
    ),
    "a restored KV is not noticed": _mutant(
        (restored_kv, "divergence", lambda hello, revision, leadership, store: None)
    ),
    "terms of a restored KV begin where the backup ends": _mutant(
        (View, "next_term", lambda view, term: next_election(term)),
        (recovery, "take_over", _takes_over_at_the_next_term),
    ),
    "a replaced disk keeps its seat": _mutant((disk, "new_storage", _keeps_its_seat)),
    "what a complete list leaves out is deleted": _mutant((SimSpu, "leave", _deletes_unlisted)),
    "a reader is given what is not committed": _mutant((SimReplica, "fetch", _reads_all)),
    "a move ends while those that leave are live": edited(
        steps, "next_step", "if kept != status.lrs:", "if False:", partition
    ),
    "those that leave go before others are live": edited(
        steps, "_too_early", "if len(staying) < least:", "if not staying:"
    ),
}
