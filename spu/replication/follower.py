"""The follower's side of an attachment: persist the term, agree on the log, store, acknowledge.

- A follower sends nothing in a term before the term is on its disk, and then rejects lower terms.
- It cuts nothing at or below its own last add confirmed, unless an unclean election that the SC has
  recorded took those records away: then it becomes unfit, and is rebuilt. In every other case the
  leader's disk is old: the replica stays fit, its answer tells the leader (`LogEnd.lac`), and its
  report says so (`Following.refuses_cut`).
- It adopts a last add confirmed only once its log is a prefix of the leader's, and never beyond
  the end of its own log.
- It discards its log only when the leader says so (`Reset`), and first makes a new storage id
  durable: the leader knows whether this follower is in the LRS; the follower may not know.
"""

from __future__ import annotations

from schemas.ids import format_term
from schemas.replacing import replace
from spu.replication.events import (
    AdvanceLogStart,
    AppendBatches,
    Committed,
    NewStorageId,
    Output,
    PersistHardState,
    ResetLog,
    Send,
    SteppedDown,
    TruncateLog,
)
from spu.replication.history import end_of, extended, term_at
from spu.replication.messages import (
    Append,
    AppendAck,
    Attach,
    Batch,
    CommitUpdate,
    LogEnd,
    Outdated,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.state import (
    OLD,
    RETRACTED,
    Following,
    LogView,
    Phase,
    Rebuilding,
    ReplicaState,
    is_excused,
)

Step = tuple[ReplicaState, tuple[Output, ...]]


def on_attach(state: ReplicaState, sender: int, message: Attach) -> Step:
    """Follow a leader whose term is not over; first raise and persist the own term."""
    known = state.newest.term
    if message.term < known:
        return state, (Send(sender, Reject(message.term, message.attach, known)),)
    number, promised = (message.term, message.attach), state.newest.leader_boot
    both_known = "" not in (promised, message.leader_boot)
    if message.term == known and both_known and promised != message.leader_boot:
        # A leader never begins twice in one term, if its disk remembers the first time.
        return state, (Send(sender, log_end(state, message.term, message.attach)),)
    if number <= state.last_attach or (message.term == known and state.newest.leading):
        # The message is late, or names the replica's own term, in which no other one leads.
        return state, ()
    outputs: list[Output] = []
    if state.leading is not None:
        outputs.append(SteppedDown(f"SPU {sender} leads in a higher term"))
    state = replace(
        state,
        leading=None,
        becoming=None,
        following=Following(sender, message.term, message.attach),
        last_attach=number,
    )
    boot = message.leader_boot
    if message.term > known or state.newest.leading or promised != boot:
        unpersisted = replace(state.newest, term=message.term, leading=False, leader_boot=boot)
        return replace(state, unpersisted=unpersisted), (*outputs, PersistHardState(unpersisted))
    state, more = settle(state)
    return state, (*outputs, *more)


def settle(state: ReplicaState) -> Step:
    """Continue a rebuild whose storage id is now durable, or an attachment whose term is."""
    following = state.following
    if following is None or state.unpersisted is not None or following.phase is not Phase.PROMISING:
        return state, ()
    if state.cutting:
        return state, ()
    if (rebuild := state.rebuild) is not None:
        storage = rebuild.storage
        if rebuild.begun or storage is None or storage != state.hard_state.storage:
            return state, ()
        start, term = rebuild.start, rebuild.last_term
        history = extended((), term, start - 1) if start and term else ()
        log = LogView(start, start, start, history)
        rebuild = replace(rebuild, begun=True)
        state = replace(state, log=log, lac=start - 1, rebuild=rebuild)
        return state, (ResetLog(start, term, storage, rebuild.producers, rebuild.aside),)
    return position(replace(state, following=replace(following, phase=Phase.AGREEING)))


def on_holders(state: ReplicaState, before: tuple[int, ...]) -> Step:
    """Others hold the partition than before: tell a leader that still compares the logs. It may
    lead without the SC, and not know of them."""
    following = state.following
    if following is None or following.phase is not Phase.AGREEING:
        return state, ()
    return (state, ()) if state.hard_state.replicas == before else position(state)


def position(state: ReplicaState) -> Step:
    """Tell the leader where the log ends."""
    following = state.following
    if following is None:
        return state, ()
    answer = log_end(state, following.term, following.attach)
    return state, (Send(following.leader, answer),)


def log_end(state: ReplicaState, term: int, attach: int) -> LogEnd:
    """The answer to an attachment."""
    log, hard_state, newest = state.log, state.hard_state, state.newest
    return LogEnd(
        term,
        attach,
        state.boot,
        hard_state.storage,
        log.last_term,
        log.leo,
        hard_state.unfit,
        state.lac,
        term_at(log.history, state.lac),
        hard_state.leader_boot,
        newest.version,
        newest.replicas,
    )


def on_truncate(state: ReplicaState, sender: int, message: Truncate) -> Step:
    """Cut records that the leader does not have: to where the named term ends in the leader's log
    or in this one, whichever is smaller."""
    following = _attached(state, sender, message)
    if following is None or following.phase is not Phase.AGREEING:
        return state, ()
    log = state.log
    leo = min(message.end, end_of(log.history, message.to_term, log.leo))
    if leo >= log.leo:
        return position(state)
    if leo <= state.lac:
        elected = state.newest.unclean_term
        # A leader that lacks what the election left learned from the answer that its disk is old.
        if not log.last_term < elected <= message.term:
            # The leader knows this from the answer, if it is not of an earlier version.
            refuses = (
                f"SPU {sender} orders a cut to {leo} in term {format_term(message.term)}, but"
                f" offset {state.lac} was committed: the replica keeps its log, and does not follow"
            )
            return replace(state, following=replace(following, refuses_cut=refuses)), ()
        reason = (
            f"{RETRACTED}: SPU {sender} orders a cut to {leo} in term"
            f" {format_term(message.term)}, but {state.lac} was committed: the unclean election in"
            f" term {format_term(elected)} took it away"
        )
        return unfit(state, reason)
    following = replace(following, phase=Phase.PROMISING)
    state = replace(state, log=log.cut_to(leo), following=following, cutting=True)
    return state, (TruncateLog(leo),)


def on_log_truncated(state: ReplicaState) -> Step:
    """The cut is durable: compare the logs again."""
    return settle(replace(state, cutting=False)) if state.cutting else (state, ())


def on_reset(state: ReplicaState, sender: int, message: Reset) -> Step:
    """Begin again with an empty log: this log ends before the leader's begins, or is unfit."""
    following = _attached(state, sender, message)
    if following is None or following.phase is not Phase.AGREEING:
        return state, ()
    following = replace(following, phase=Phase.PROMISING)
    unfit = state.newest.unfit or ""
    aside = message.aside or RETRACTED in unfit or OLD in unfit
    rebuild = Rebuilding(message.start, message.last_term, message.producers, aside)
    return replace(state, following=following, rebuild=rebuild), (NewStorageId(),)


def on_outdated(state: ReplicaState, sender: int, message: Outdated) -> Step:
    """The leader knows this replica to be live, and it lacks what is committed."""
    following = _attached(state, sender, message)
    if following is None or following.phase is not Phase.AGREEING:
        return state, ()
    reason = (
        f"{OLD}: SPU {sender} knows that offset {message.lac} was committed, and this log, which"
        f" ends at {state.log.leo}, does not hold that record"
    )
    return unfit(state, reason)


def on_storage_id_chosen(state: ReplicaState, storage: str) -> Step:
    """Make a new storage id durable before anything is discarded."""
    rebuild = state.rebuild
    if rebuild is None or rebuild.storage is not None:
        return state, ()
    unpersisted = replace(state.newest, storage=storage)
    rebuild = replace(rebuild, storage=storage)
    return replace(state, unpersisted=unpersisted, rebuild=rebuild), (
        PersistHardState(unpersisted),
    )


def on_log_reset(state: ReplicaState, storage: str) -> Step:
    """The empty log is durable: the replica is fit again from now on."""
    rebuild = state.rebuild
    if rebuild is None or not rebuild.begun or rebuild.storage != storage:
        return state, ()
    # A log that begins anew is not an old one.
    state = replace(state, rebuild=None, proven=True)
    if state.newest.unfit is None:
        return settle(state)
    unpersisted = replace(state.newest, unfit=None)
    return replace(state, unpersisted=unpersisted), (PersistHardState(unpersisted),)


def on_append(state: ReplicaState, sender: int, message: Append) -> Step:
    """Store the batches that are new. They have no gaps, and those already stored are the same."""
    following = _attached(state, sender, message)
    if following is None or following.phase not in (Phase.AGREEING, Phase.MATCHED):
        return state, ()
    if following.phase is Phase.AGREEING:
        # A leader sends batches only after it found that the logs agree.
        state = replace(state, following=replace(following, phase=Phase.MATCHED))
    log = state.log
    new = tuple(batch for batch in message.batches if batch.base >= log.leo)
    gap = bool(new) and new[0].base > log.leo
    if gap or (message.batches and not new):
        state, more = _adopt(state, message.lac, message.log_start)
        return state, (*more, _ack(state, following, gap=gap))
    state = replace(state, log=_stored(log, new))
    state, more = _adopt(state, message.lac, message.log_start)
    return state, ((AppendBatches(new), *more) if new else more)


def on_commit_update(state: ReplicaState, sender: int, message: CommitUpdate) -> Step:
    """Adopt the last add confirmed, once the attachment has agreed on the log."""
    following = _attached(state, sender, message)
    if following is None or following.phase not in (Phase.AGREEING, Phase.MATCHED):
        return state, ()
    agrees_now = following.phase is Phase.AGREEING
    state = replace(state, following=replace(following, phase=Phase.MATCHED))
    state, outputs = _adopt(state, message.lac, message.log_start)
    return state, (*outputs, _ack(state, following)) if agrees_now else outputs


def on_flushed(state: ReplicaState) -> Step:
    """More records are durable: tell the leader."""
    following = state.following
    if following is None or following.phase is not Phase.MATCHED:
        return state, ()
    return state, (_ack(state, following),)


def unfit(state: ReplicaState, reason: str) -> Step:
    """Take the replica out of service, across restarts, until it is repaired from the leader. The
    first reason stays, unless it would let the replica lead by an unclean election, and this one
    would not."""
    outputs: list[Output] = []
    following, known = state.following, state.newest.unfit
    if is_excused(known) and not is_excused(reason):
        reason, known = f"{reason}; before that: {known}", None
    if known is None:
        unpersisted = replace(state.newest, unfit=reason, leading=False)
        state = replace(state, unpersisted=unpersisted)
        outputs.append(PersistHardState(unpersisted))
    if state.leading is not None:
        outputs.append(SteppedDown(reason))
    elif following is not None and following.phase is not Phase.PROMISING:
        # Tell the leader now: it believes that all is well, and would not ask again.
        failed = replace(state, hard_state=replace(state.hard_state, unfit=reason))
        outputs += position(failed)[1]
    state = replace(state, leading=None, becoming=None, following=None, cutting=False, rebuild=None)
    return state, tuple(outputs)


def farewell(state: ReplicaState) -> tuple[Output, ...]:
    """Tell the leader that this replica has left the attachment. If everything is acknowledged, the
    leader would not notice, and this replica would miss the last commit when it comes back."""
    if (following := state.following) is None:
        return ()
    gone = Reject(following.term, following.attach, following.term)
    return (Send(following.leader, gone),)


def on_unassigned(state: ReplicaState) -> Step:
    """Stop leading and following; a cut or rebuild in progress is finished."""
    outputs: list[Output] = [*farewell(state)]
    if state.newest.leading:
        unpersisted = replace(state.newest, leading=False)
        state = replace(state, unpersisted=unpersisted)
        outputs.append(PersistHardState(unpersisted))
    if state.leading is not None:
        outputs.append(SteppedDown("it is no longer assigned"))
    return replace(state, leading=None, becoming=None, following=None), tuple(outputs)


def _attached(
    state: ReplicaState, sender: int, message: Truncate | Reset | Outdated | Append | CommitUpdate
) -> Following | None:
    """The attachment that a message belongs to; None if it is over, or not durable yet."""
    following = state.following
    if following is None or state.hard_state.term != message.term or state.boot != message.boot:
        return None
    if (following.leader, following.term, following.attach) != (
        sender,
        message.term,
        message.attach,
    ):
        return None
    return following


def _stored(log: LogView, batches: tuple[Batch, ...]) -> LogView:
    history, leo, sealed = log.history, log.leo, log.sealed
    for batch in batches:
        if batch.base != leo:
            raise AssertionError(f"a batch at {batch.base} in a log that ends at {leo}")
        history, leo = extended(history, batch.term, batch.base), batch.end
        sealed = batch.base if batch.seals else sealed
    return replace(log, history=history, leo=leo, sealed=sealed)


def _adopt(state: ReplicaState, lac: int, log_start: int) -> Step:
    outputs: list[Output] = []
    if (following := state.following) is not None and lac > following.heard_lac:
        state = replace(state, following=replace(following, heard_lac=lac))
    elif following is not None:
        # The leader may have sent a last add confirmed of records that came only later.
        lac = following.heard_lac
    lac = min(lac, state.log.leo - 1)
    if lac > state.lac:
        state = replace(state, lac=lac)
        outputs.append(Committed(lac))
    start = min(log_start, state.lac + 1)
    if start > state.log.start:
        state = replace(state, log=state.log.begin_at(start))
        outputs.append(AdvanceLogStart(start))
    return _proven(state), tuple(outputs)


def _proven(state: ReplicaState) -> ReplicaState:
    """Its log is proven once it holds all that the leader held when it began, for that was proven,
    and all that the leader says was committed since."""
    following, log = state.following, state.log
    if following is None or log.last_term != following.term or following.heard_lac >= log.leo:
        return state
    return replace(state, proven=True)


def _ack(state: ReplicaState, following: Following, *, gap: bool = False) -> Send:
    log = state.log
    ack = AppendAck(following.term, following.attach, log.leo, min(log.durable, log.leo), gap)
    return Send(following.leader, ack)
