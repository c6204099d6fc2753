"""Deliberate bugs: each breaks one rule of replication, and a simulator must see it.

A mutant replaces one function of the core, or one rule of the small world's SC, for as long as a
``with`` block lasts. `MUTANTS` maps what is broken to that. Where a bug is one expression, the
mutant is the function with another expression in its place (`edited`).

Two changes of guards are no bugs, because nothing that they let in can happen:

- `core._flushed` without ``log_is_steady``. While the log is cut or replaced, its view ends where
  the cut or the new log ends, and ``durable`` never exceeds that end. What is below it was synced,
  as the event says. Nobody hears of it: a follower acknowledges only in `Phase.MATCHED`, and a
  replica whose log is not steady does not lead. That a sync from before a cut is not told after it
  is a rule for the runner (`tests.sim.cluster.mutants` breaks it).
- `leader.advance` without ``leading.control``. A commit needs every member of the LRS, not a
  majority. Let ``r`` be a record of an earlier term below the control record, which all required
  replicas hold durably, in logs that agree with this leader's. Whoever leads later is one of them:
  an election takes members of the LRS only, and a replica joins only if it holds the control record
  and with it ``r``. So every later leader has ``r`` and orders nobody to cut it, and a leader of
  before needs a replica for its commits that has promised this term. In majority systems (Raft,
  figure 8) the rule is needed; here it only decides when a leader serves (`is_serving`).
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from schemas.ids import Term
from spu.replication import (
    attachments,
    core,
    follower,
    leader,
    proof,
    state,
    unproven_leader,
)
from spu.replication.events import PartitionUpdated, PersistHardState, Send, TruncateLog
from spu.replication.follower import Step
from spu.replication.messages import Append, AppendAck, Attach, LogEnd, Truncate
from spu.replication.state import (
    Following,
    HardState,
    Leading,
    LogView,
    Member,
    Members,
    Phase,
    Progress,
    ReplicaState,
)
from tests.sim.small_world import moves
from tests.sim.small_world.world import Asked, Disk, Revision, World

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def _patched(target: Any, name: str, mutant: Any) -> Iterator[None]:
    before = target.__dict__[name]
    setattr(target, name, mutant)
    try:
        yield
    finally:
        setattr(target, name, before)


def _mutant(target: Any, name: str, replacement: Any) -> Mutant:
    return lambda: _patched(target, name, replacement)


@contextmanager
def _patched_in(targets: tuple[Any, ...], name: str, mutant: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for target in targets:
            stack.enter_context(_patched(target, name, mutant))
        yield


def _mutant_in(targets: tuple[Any, ...], name: str, replacement: Any) -> Mutant:
    return lambda: _patched_in(targets, name, replacement)


def edited(target: Any, name: str, before: str, after: str, *users: Any) -> Mutant:
    """A function with one expression of its source changed, in its module and in the modules that
    import it."""
    function = getattr(target, name)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(before) != 1:
        raise AssertionError(f"{name} does not say {before!r} once")
    source = "from __future__ import annotations\n" + source.replace(before, after)
    made: dict[str, Any] = {}
    exec(compile(source, function.__code__.co_filename, "exec"), function.__globals__, made)  # noqa: S102
    return _mutant_in((target, *users), name, made[name])


def both(one: Mutant, other: Mutant) -> Mutant:
    """Two changes at once: each alone does no harm, because the other guard is left."""

    @contextmanager
    def patched() -> Iterator[None]:
        with one(), other():
            yield

    return patched


def _same_term(wanted: int, on_disk: int) -> Term:
    return Term(max(wanted, on_disk))


def _forgets_pending(real: Callable[..., Step]) -> Callable[..., Step]:
    def attach(replica: ReplicaState, peer: int, now_ms: int) -> Step:
        return real(
            replace(replica, hard_state=replace(replica.hard_state, pending=None)), peer, now_ms
        )

    return attach


def _joins_without_control(
    replica: ReplicaState, leading: Leading, now_ms: int
) -> Iterator[Members]:
    lrs = replica.hard_state.lrs
    for progress in leading.followers:
        member = progress.member
        new = member is not None and progress.matched and member not in lrs
        if member is not None and new and progress.match_offset > replica.lac:
            yield tuple(sorted((*lrs, member)))
    yield from _CHANGES(replica, leading, now_ms)


_CHANGES = leader._changes


def _begins_no_term(replica: ReplicaState, leo: int) -> Step:
    after, outputs = _ON_WROTE(replica, leo)
    return replace(after, log=replace(after.log, history=replica.log.history)), outputs


_ON_WROTE = leader.on_appended


def _counts_before_cutting(
    replica: ReplicaState, sender: int, message: LogEnd, now_ms: int
) -> Step:
    after, outputs = _ON_POSITION(replica, sender, message, now_ms)
    if after.leading is None:
        return after, outputs
    progress = attachments.progress_of(after.leading, sender)
    if progress is None or progress.attach != message.attach:
        return after, outputs
    progress = replace(progress, matched=True, match_offset=message.leo, sent=message.leo)
    after = attachments.noted(after, progress)
    after, more = leader.advance(after)
    return after, (*outputs, *more)


_ON_POSITION = leader.on_log_end


def _unflushed_ack(replica: ReplicaState, following: Following, *, gap: bool = False) -> Send:
    leo = replica.log.leo
    return Send(following.leader, AppendAck(following.term, following.attach, leo, leo, gap))


def _acks_at_once(replica: ReplicaState, sender: int, message: Append) -> Step:
    after, outputs = _ON_APPEND(replica, sender, message)
    if after.following is not None and after.log != replica.log:
        outputs = (*outputs, _unflushed_ack(after, after.following))
    return after, outputs


_ON_APPEND = follower.on_append


def _counts_itself_unflushed(replica: ReplicaState) -> Step:
    log = replace(replica.log, durable=replica.log.leo)
    after, outputs = _ADVANCE(replace(replica, log=log))
    return replace(after, log=replica.log), outputs


_ADVANCE = leader.advance


def _cuts_by_lac(replica: ReplicaState, sender: int, message: Truncate) -> Step:
    following = replica.following
    if following is None or following.attach != message.attach:
        return replica, ()
    leo = replica.lac + 1
    if leo >= replica.log.leo:
        return follower.position(replica)
    following = replace(following, phase=Phase.PROMISING)
    log = replica.log.cut_to(leo)
    return replace(replica, log=log, following=following, cutting=True), (TruncateLog(leo),)


def _cuts_to_the_smaller_end(history: Any, term: int, leo: int) -> int:
    return leo


def _asks_again_at_once(real: Callable[..., Step]) -> Callable[..., Step]:
    def consider(replica: ReplicaState, now_ms: int, *, retry: bool = False) -> Step:
        pending = replica.newest.pending
        if pending is not None and replica.unpersisted is None and replica.leading is not None:
            fresh = replace(replica, hard_state=replace(replica.hard_state, pending=None))
            wanted = next(_CHANGES(fresh, replica.leading, now_ms), pending)
            if wanted != pending:
                replica = fresh
        return real(replica, now_ms, retry=retry)

    return consider


def _forgets_the_union(
    spu: int, boot: str, hard_state: HardState, log: LogView, lac: int, *, fresh: bool = False
) -> ReplicaState:
    return _RECOVERED(spu, boot, replace(hard_state, pending=None), log, lac, fresh=fresh)


_RECOVERED = state.recovered


def _takes_any_attachment(
    replica: ReplicaState, sender: int, term: int, number: int
) -> Progress | None:
    leading = replica.leading
    return None if leading is None else attachments.progress_of(leading, sender)


def _follows_any_term(replica: ReplicaState, sender: int, message: Attach) -> Step:
    if message.term >= replica.newest.term or replica.newest.leading:
        return _ON_ATTACH(replica, sender, message)
    following = Following(sender, message.term, message.attach)
    unpersisted = replace(replica.newest, term=message.term)
    return replace(replica, following=following, unpersisted=unpersisted), (
        PersistHardState(unpersisted),
    )


_ON_ATTACH = follower.on_attach


def _answers_any_revision(world: World, asked: Asked) -> bool:
    return asked.sender == world.now.leader


def _drops_the_leader(world: World, asked: Asked) -> Members:
    return tuple(m for m in asked.request.lrs if m.spu != world.now.leader) or asked.request.lrs


def _elects_from_before(world: World) -> Revision:
    return world.kv[0]._replace(revision=world.now.revision, term=world.now.term)


def _adopts_early(replica: ReplicaState, sender: int, message: Attach) -> Step:
    after, outputs = _ON_ATTACH(replica, sender, message)
    # As if the last add confirmed came along with the attachment.
    return replace(after, lac=after.log.leo - 1) if after.following else after, outputs


def _keeps_its_storage(replica: ReplicaState, storage: str) -> Step:
    return _ON_REPAIR(replica, replica.newest.storage)


_ON_REPAIR = follower.on_storage_id_chosen


def _reports_unsynced(disk: Disk) -> Disk:
    return disk


def _keeps_its_seat(world: World, spu: int) -> str:
    return world.nodes[spu].disk.hard_state.storage


def _mixes_revisions(replica: ReplicaState, event: PartitionUpdated, now_ms: int) -> Step:
    older = replica.newest.lrs
    return _LEARN(replica, replace(event, lrs=older) if older else event, now_ms)


_LEARN = core._update_partition


def _adds_a_replica(lrs: Members, elected: Member, least: int) -> Iterator[Members]:
    yield tuple(sorted({*lrs, *(Member(spu, f"s{spu}") for spu in range(3))}))


def _fails_quietly(replica: ReplicaState, reason: str) -> Step:
    return replica, ()


def _compares_no_boots(
    replica: ReplicaState, leading: Leading, sender: int, answer: LogEnd
) -> str | None:
    return _CONTRADICTION(replica, leading, sender, replace(answer, promised_boot=""))


_CONTRADICTION = proof.contradiction


def _hears_no_contradiction(
    _replica: ReplicaState, _leading: Leading, _sender: int, _answer: LogEnd
) -> str | None:
    return None


def _looks_at_no_other_log(_replica: ReplicaState, _leading: Leading) -> int | None:
    return None


def _waits_for_nobody(_replica: ReplicaState, _leading: Leading, _now_ms: int) -> str | None:
    return None


MUTANTS: dict[str, Mutant] = {
    "a term promised to another process is led in again": _mutant_in(
        (leader, unproven_leader), "contradiction", _compares_no_boots
    ),
    "a longer log of a live replica does not count": _mutant(
        unproven_leader, "ahead", _looks_at_no_other_log
    ),
    "an unproven leader waits for no answer": _mutant(
        unproven_leader, "awaited", _waits_for_nobody
    ),
    "a restarted leader keeps its term": _mutant(leader, "next_term", _same_term),
    "a change is asked without the revision check": _mutant(
        moves, "is_current", _answers_any_revision
    ),
    "a pending change is dropped on a reconnect": _mutant(
        attachments, "attach", _forgets_pending(attachments.attach)
    ),
    "a follower joins without the control record": _mutant(
        leader, "_changes", _joins_without_control
    ),
    "records of a leader without a control record begin no term": _mutant(
        leader, "on_appended", _begins_no_term
    ),
    "a position counts before the cut": _mutant(leader, "on_log_end", _counts_before_cutting),
    "a follower acknowledges before it synced": _mutant(follower, "on_append", _acks_at_once),
    "a leader counts itself before it synced": _mutant(leader, "advance", _counts_itself_unflushed),
    "a follower is cut by its last add confirmed": _mutant(follower, "on_truncate", _cuts_by_lac),
    "a second request replaces the union": _mutant(
        leader, "consider", _asks_again_at_once(leader.consider)
    ),
    "the union is lost in a restart": _mutant(moves, "recovered", _forgets_the_union),
    "answers of an older attachment count": _mutant(leader, "attached", _takes_any_attachment),
    "an attachment does not fence": _mutant(follower, "on_attach", _follows_any_term),
    "the leader is dropped": _mutant(moves, "answered", _drops_the_leader),
    "an election is computed from an older revision": _mutant(
        moves, "seen_by_election", _elects_from_before
    ),
    "a last add confirmed is adopted before the cut": _mutant(follower, "on_attach", _adopts_early),
    "an election adds a replica": _mutant(moves, "subsets", _adds_a_replica),
    "a repaired replica keeps its storage id": _mutant(
        follower, "on_storage_id_chosen", _keeps_its_storage
    ),
    "what was recovered but not synced is reported": _mutant(
        moves, "recovered_disk", _reports_unsynced
    ),
    "a wiped disk keeps its seat": _mutant(moves, "fresh_storage", _keeps_its_seat),
    "live replicas and term come of different revisions": _mutant(
        core, "_update_partition", _mixes_revisions
    ),
    "a follower is cut to the smaller end only": _mutant(
        follower, "end_of", _cuts_to_the_smaller_end
    ),
    "a replica that failed stays in service": _mutant(follower, "unfit", _fails_quietly),
    "who is asked for is needed only once that is durable": _mutant(
        ReplicaState, "required", property(lambda replica: replica.hard_state.required)
    ),
    "a follower cuts the record that was confirmed last": edited(
        follower, "on_truncate", "leo <= state.lac", "leo < state.lac"
    ),
    "a last add confirmed is persisted before its record": _mutant(
        ReplicaState, "durable_lac", property(lambda replica: replica.lac)
    ),
    "a follower obeys messages to its process of before": edited(
        follower, "_attached", " or state.boot != message.boot", ""
    ),
    "a follower obeys messages of an older attachment": edited(
        follower, "_attached", "        message.attach,\n", "        following.attach,\n"
    ),
    "a repeated attachment is followed": edited(
        follower, "on_attach", "number <= state.last_attach or ", ""
    ),
    "a contradiction is ignored": _mutant_in(
        (leader, unproven_leader), "contradiction", _hears_no_contradiction
    ),
    "a last add confirmed contradicts nothing": edited(
        proof, "contradiction", "lac is None or lac < log.start", "True", leader, unproven_leader
    ),
    "a follower answers while its log is cut": edited(
        follower, "settle", "if state.cutting:", "if False:"
    ),
    "a follower joins without all that is committed": edited(
        leader, "_changes", "max(state.lac, leading.control)", "leading.control"
    ),
    "a leader commits with less than the minimum": edited(
        leader, "advance", " or hard_state.smallest < hard_state.min_in_sync", ""
    ),
    "an unfit live replica is told to discard its log": edited(
        leader,
        "on_log_end",
        "message.unfit is not None and Member(sender, message.storage) in state.required",
        "False",
    ),
    "a leader without the SC needs nobody else": edited(
        unproven_leader, "_proven", "frozenset() if state.confirmed else witnesses", "frozenset()"
    ),
    "what a disk knows of live replicas is the word of the SC": edited(
        core, "_resume", "confirmed=False", "confirmed=True"
    ),
    "a leader without the SC knows which replicas are live": edited(
        proof, "ahead", "(live or not state.confirmed)", "live", unproven_leader
    ),
    "a leader without the SC hears of no later holders": edited(
        proof, "unknown_holders", "state.confirmed or ", "True or ", leader
    ),
    "a witness that is behind has an old disk": edited(
        leader, "on_log_end", "in state.newest.required", "in state.required"
    ),
    "a damaged follower names a term that it does not know": edited(
        proof, "contradiction", "not is_known or ", "", leader, unproven_leader
    ),
    "an old live replica is told to discard its log": edited(
        leader,
        "on_log_end",
        "if live and message.lac",
        "if message.leo >= log.start and live and message.lac",
    ),
    "a log that parts below the beginning of the leader's is to be cut": edited(
        leader, "on_log_end", " or (differs and not term and log.start > 0 and not live)", ""
    ),
}
