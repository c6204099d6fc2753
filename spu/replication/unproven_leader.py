"""A leader whose log is not proven: it compares its log with the others', and appends nothing.

It ends in one of three ways: the log is proven, and `spu.replication.leader` begins to append; the
disk is old, and the replica becomes unfit; or another leader is asked for, because a live replica
has a longer log or does not answer. Meanwhile the leader commits nothing and asks for no other live
replica set.

Neighbours: `spu.replication.proof` says what proves a log and what contradicts it;
`spu.replication.attachments` reaches the others. Pure.
"""

from __future__ import annotations

from schemas.replacing import replace
from spu.replication.attachments import attach, is_lost
from spu.replication.events import Output, RequestElection
from spu.replication.follower import Step, unfit
from spu.replication.proof import ahead, awaited, contradiction
from spu.replication.state import (
    AHEAD_MS,
    REPLICA_LAG_TIME_MS,
    RETRY_MS,
    Leading,
    Member,
    ReplicaState,
)


def begin_to_prove(state: ReplicaState, now_ms: int) -> Step:
    """Attach the other replicas, to compare logs; append nothing."""
    leo = state.log.leo
    leading = Leading(state.hard_state.term, leo, now_ms, leo, proving=True)
    state = replace(state, leading=leading, becoming=None)
    outputs: list[Output] = []
    for peer in state.links:
        state, more = attach(state, peer, now_ms)
        outputs += more
    return state, tuple(outputs)


def prove(state: ReplicaState, now_ms: int) -> Step:
    """Prove the log, or find out that another one must lead. After it, the state says whether the
    log is proven."""
    leading = state.leading
    if leading is None or not leading.proving or state.unpersisted is not None:
        return state, ()
    for progress in leading.followers:
        if (answer := progress.answer) is not None:
            old = contradiction(state, leading, progress.spu, answer)
            if old is not None:
                return unfit(state, old)
    if (waits := awaited(state, leading, now_ms)) is not None:
        asked_ms = leading.began_ms if leading.stuck_ms is None else leading.stuck_ms
        if now_ms - asked_ms < REPLICA_LAG_TIME_MS:
            return state, ()
        state = replace(state, leading=replace(leading, stuck_ms=now_ms))
        return state, (RequestElection(leading.term, waits),)
    if (better := ahead(state, leading)) is not None and not _has_waited(state, leading, now_ms):
        if leading.stuck_ms is not None and now_ms - leading.stuck_ms < RETRY_MS:
            return state, ()
        state = replace(state, leading=replace(leading, stuck_ms=now_ms))
        live = "is" if state.confirmed else "may be"
        reason = f"SPU {better} {live} live, and its log is ahead of this one"
        return state, (RequestElection(leading.term, reason),)
    return _proven(state, leading), ()


def _has_waited(state: ReplicaState, leading: Leading, now_ms: int) -> bool:
    """Whether the SC, which has spoken since the opening, had the time to elect another one."""
    return state.confirmed and now_ms - leading.began_ms >= AHEAD_MS


def ask_again(state: ReplicaState, now_ms: int) -> Step:
    """Attach replicas again that have not answered for a while."""
    leading = state.leading
    outputs: list[Output] = []
    for progress in () if leading is None else leading.followers:
        if progress.attach and progress.answer is None and is_lost(state, progress, now_ms):
            state, more = attach(state, progress.spu, now_ms)
            outputs += more
    return state, tuple(outputs)


def _proven(state: ReplicaState, leading: Leading) -> ReplicaState:
    """Its log is proven. Where the SC has not said which replicas are live, all are needed that
    may be."""
    answers = {p.spu: p.answer for p in leading.followers if p.answer is not None}
    witnesses = frozenset(Member(spu, answer.storage) for spu, answer in answers.items())
    return replace(state, proven=True, witnesses=frozenset() if state.confirmed else witnesses)
