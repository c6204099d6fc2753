"""The leader's side: push, commit, and ask for another live replica set (LRS).

- A commit needs every member of the sets that the leader's disk holds: the LRS of the revision that
  it knows and, while it waits for an answer, also the set that it asked for. Only a later revision
  ends that wait.
- A leader whose log is not proven only compares it with others (`spu.replication.unproven_leader`).
- A leader counts itself by what is durable on its own disk. It counts a follower only after their
  logs were found to agree, by what the follower acknowledges in that attachment.
- The control record of the leader's own term commits the records of earlier terms before it. A
  leader that restarts while commits need no other replica needs no control record: what its disk
  holds is committed.
- A follower joins the LRS once it holds that control record and all committed records. An unfit
  follower leaves even if the minimum is no longer met; one that lags leaves only while the minimum
  is met without it; the leader never leaves.
- A log is sealed by a control record, which is replicated and committed like any other. Clients'
  records never follow it; the control records of later leaders do.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.ids import MAX_RESTARTS, election_term, format_term
from schemas.replacing import replace
from spu.replication import unproven_leader
from spu.replication.attachments import attach, attached, is_lost, noted, progress_of
from spu.replication.events import (
    AppendControl,
    AppendSeal,
    Committed,
    Elected,
    LeadsOn,
    Output,
    PersistHardState,
    Push,
    RequestElection,
    RequestLrsChange,
    Send,
    SteppedDown,
)
from spu.replication.follower import Step, unfit
from spu.replication.history import end_of, extended, largest_at_most, last_term
from spu.replication.messages import (
    AppendAck,
    CommitUpdate,
    LogEnd,
    Outdated,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.proof import contradiction, may_be_taken_away, unknown_holders
from spu.replication.state import (
    CREDITS,
    OLD,
    REFUSED_MAX_MS,
    REPLICA_LAG_TIME_MS,
    RETRY_MS,
    Leading,
    Member,
    Members,
    Progress,
    Refusal,
    ReplicaState,
    is_excused,
)
from spu.replication.terms import next_term


def on_elected(state: ReplicaState, order: Elected) -> Step:
    """Persist a term that was never used; `settle` begins once that is durable.

    An order changes nothing if it is outdated (an older revision or term), if its LRS does not hold
    this storage, or if the replica already leads in that election term. An unfit replica refuses.
    """
    known, version = state.newest, (order.incarnation, order.revision)
    fit = known.unfit is None or (order.unclean and is_excused(known.unfit))
    if not fit or version < known.version or state.me not in order.lrs:
        return state, ()
    if state.rebuild is not None:
        return state, ()
    used = max(known.term, state.log.last_term)
    if election_term(used) > order.term:
        return state, ()
    leads = state.leading is not None or state.becoming is not None
    if leads and election_term(known.term) == order.term:
        return state, ()
    if used == order.term + MAX_RESTARTS:
        reason = f"the restarts of term {format_term(used)} are used up"
        return state, (RequestElection(used, reason),)
    term = next_term(order.term, used)
    state = replace(state, confirmed=True, witnesses=frozenset())
    same = version == known.version
    unpersisted = replace(
        known,
        term=term,
        incarnation=order.incarnation,
        revision=order.revision,
        lrs=order.lrs,
        replicas=order.replicas,
        min_in_sync=order.min_in_sync,
        pending=known.pending if same else None,
        leading=True,
        unfit=None,
        leader_boot=state.boot,
        unclean_term=order.term if order.unclean else known.unclean_term,
    )
    outputs: list[Output] = [PersistHardState(unpersisted)]
    if state.leading is not None:
        outputs.append(SteppedDown("it was elected in a higher term"))
    state = replace(state, unpersisted=unpersisted, becoming=term, leading=None, following=None)
    return state, tuple(outputs)


def settle(state: ReplicaState, now_ms: int) -> Step:
    """Begin a leadership whose hard state is now durable, or ask for an LRS that is now durable as
    pending."""
    hard_state = state.hard_state
    if state.unpersisted is not None or not hard_state.leading or not state.log_is_steady:
        return state, ()
    if state.becoming == hard_state.term:
        return _begin(state, now_ms)
    if state.may_append and hard_state.pending is not None:
        return _ask(state, now_ms)
    return state, ()


def prove(state: ReplicaState, now_ms: int) -> Step:
    """Begin to append once the log is proven."""
    proving = state.leading is not None and state.leading.proving
    state, outputs = unproven_leader.prove(state, now_ms)
    if not proving or not state.proven:
        return state, outputs
    state, begun = _begin(state, now_ms)
    return state, (*outputs, *begun)


def after_confirmation(state: ReplicaState, now_ms: int) -> Step:
    """The SC has confirmed the revision that the replica knows: nobody else is needed."""
    state, proved = prove(state, now_ms)
    state, committed = advance(state)
    state, asked = consider(state, now_ms)
    state, pushed = pump(state)
    return state, (*proved, *committed, *asked, *pushed)


def _begin(state: ReplicaState, now_ms: int) -> Step:
    if not state.proven:
        state, attached_all = unproven_leader.begin_to_prove(state, now_ms)
        state, proved = prove(state, now_ms)
        return state, (*attached_all, *proved)
    proving, term, at = state.leading, state.hard_state.term, state.log.leo
    outputs: list[Output]
    if _is_alone(state):
        state = replace(state, leading=Leading(term, at - 1, now_ms, at), becoming=None)
        state, committed = advance(state)
        outputs = [LeadsOn(term), *committed]
    else:
        log = replace(state.log, leo=at + 1, history=extended(state.log.history, term, at))
        leading = Leading(term, at, now_ms, log.leo)
        state = replace(state, log=log, leading=leading, becoming=None)
        outputs = [AppendControl(term)]
    if proving is None:
        for peer in state.links:
            state, more = attach(state, peer, now_ms)
            outputs += more
    else:
        kept = tuple(replace(p, caught_up_ms=now_ms) for p in proving.followers)
        state = replace(state, leading=_taking_over(state.leading, proving.attachments, kept))
        for progress in kept:
            if progress.answer is not None:
                state, more = on_log_end(state, progress.spu, progress.answer, now_ms)
                outputs += more
    if state.hard_state.pending is not None:
        state, more = _ask(state, now_ms)
        outputs += more
    return state, tuple(outputs)


def _taking_over(
    leading: Leading | None, attachments: int, followers: tuple[Progress, ...]
) -> Leading | None:
    """The leadership, with the attachments that were made to prove its log."""
    if leading is None:
        return None
    return replace(leading, attachments=attachments, followers=followers)


def _is_alone(state: ReplicaState) -> bool:
    """Whether its log already has records of this election, and commits need no other replica: then
    no other one can have been elected, and what it holds durably is committed."""
    elected = election_term(state.hard_state.term) == election_term(state.log.last_term)
    return elected and state.required == {state.me}


def on_appended(state: ReplicaState, leo: int) -> Step:
    """It appended clients' records. The first ones begin its term if no control record did."""
    if state.leading is None or state.leading.proving:
        raise AssertionError("only a leader with a proven log appends clients' records")
    if state.log.sealed is not None:
        raise AssertionError("no client's record follows a seal")
    history = extended(state.log.history, state.leading.term, state.log.leo)
    return pump(replace(state, log=replace(state.log, leo=leo, history=history)))


def seal(state: ReplicaState) -> Step:
    """Append the record that seals the log, once it serves: only then does it know that no record
    is committed which it lacks."""
    leading, at = state.leading, state.log.leo
    if leading is None or not state.is_serving or state.log.sealed is not None:
        return state, ()
    history = extended(state.log.history, leading.term, at)
    log = replace(state.log, leo=at + 1, history=history, sealed=at)
    state, pushed = pump(replace(state, log=log))
    return state, (AppendSeal(leading.term), *pushed)


def on_log_end(state: ReplicaState, sender: int, message: LogEnd, now_ms: int) -> Step:
    """Compare a follower's log with ours, and order it to cut or reset its log until they agree."""
    leading, progress = state.leading, attached(state, sender, message.term, message.attach)
    if leading is None or progress is None:
        return state, ()
    if (old := contradiction(state, leading, sender, message)) is not None:
        return unfit(state, old)
    if progress.matched and message.unfit is None:
        return state, ()
    if progress.boot not in ("", message.boot):
        # The order to attach came once more, to a replica in the place of the one that answered
        # it: what that one holds, and still acknowledges, would count for this one.
        return state, ()
    progress = replace(
        progress,
        boot=message.boot,
        storage=message.storage,
        unfit=message.unfit,
        matched=False,
        heard_ms=now_ms,
        answer=message,
    )
    state, log = noted(state, progress), state.log
    if leading.proving:
        return prove(state, now_ms)
    if state.leading is not None and unknown_holders(state, state.leading):
        # It began without the SC. What this follower acknowledges may not be enough.
        return state, ()
    if message.unfit is not None and Member(sender, message.storage) in state.required:
        # First it leaves the LRS, then it may discard its log.
        return consider(state, now_ms)
    term = largest_at_most(log.history, message.last_term)
    end = end_of(log.history, term, log.leo)
    # Witnesses are no live replicas: they may lack what is committed.
    live = Member(sender, message.storage) in state.newest.required
    if live and message.lac is not None and min(message.leo, end) <= state.lac:
        # First it becomes unfit and leaves the LRS, also if its log ends before this one begins.
        outdated = Outdated(message.term, message.attach, message.boot, state.lac)
        return state, (Send(sender, outdated),)
    differs = term != message.last_term or message.leo > end
    # Where no term is in both, the logs part below the beginning of this one: no cut is enough.
    below = message.leo < log.start or (differs and not term and log.start > 0 and not live)
    if message.unfit is not None or below:
        before = last_term(tuple(entry for entry in log.history if entry.start < log.start))
        aside = may_be_taken_away(state, message)
        to = (message.term, message.attach, message.boot)
        reset = Reset(*to, log.start, before, aside=aside)
        state, asked = consider(state, now_ms)
        return state, (Send(sender, reset), *asked)
    if differs:
        return state, (
            Send(sender, Truncate(message.term, message.attach, message.boot, term, end)),
        )
    state = noted(state, replace(progress, matched=True, sent=message.leo, last_sent_lac=state.lac))
    # Sent even if there is nothing to push: the answer says what the follower holds durably.
    agreed = CommitUpdate(message.term, message.attach, message.boot, state.lac, log.start)
    state, pushed = pump(state)
    return state, (Send(sender, agreed), *pushed)


def on_append_ack(state: ReplicaState, sender: int, message: AppendAck, now_ms: int) -> Step:
    """A follower has stored more: commit, let it join the LRS, and push the next batches."""
    progress = attached(state, sender, message.term, message.attach)
    if progress is None or not progress.matched:
        return state, ()
    match_offset = max(progress.match_offset, message.position)
    unacked = tuple(end for end in progress.unacked if end > message.leo)
    sent = progress.sent
    if message.gap:
        sent, unacked = message.leo, ()
    if match_offset > progress.match_offset or unacked != progress.unacked:
        progress = replace(progress, heard_ms=now_ms)
    acked = max(progress.acked, message.leo)
    progress = replace(progress, match_offset=match_offset, unacked=unacked, sent=sent, acked=acked)
    if match_offset >= state.log.leo:
        progress = replace(progress, caught_up_ms=now_ms)
    state, outputs = advance(noted(state, progress))
    state, asked = consider(state, now_ms)
    state, pushed = pump(state)
    return state, (*outputs, *asked, *pushed)


def on_pushed(state: ReplicaState, follower: int, number: int, upto: int, now_ms: int) -> Step:
    """A push was sent; it holds a credit until it is acknowledged."""
    leading = state.leading
    progress = None if leading is None else progress_of(leading, follower)
    if leading is None or progress is None or progress.attach != number:
        return state, ()
    if not progress.unacked:
        progress = replace(progress, heard_ms=now_ms)
    if upto > progress.sent:
        progress = replace(progress, sent=upto)
    if upto > progress.acked:
        progress = replace(progress, unacked=(*progress.unacked, upto))
    progress = replace(progress, pushing=False)
    return pump(noted(state, progress))


def on_reject(state: ReplicaState, sender: int, message: Reject, now_ms: int) -> Step:
    """A replica knows a higher term: this one steps down. Or a follower has left its attachment:
    from then on it is asked to begin another."""
    leading = state.leading
    if leading is None or message.term != leading.term:
        return state, ()
    if message.known <= leading.term:
        progress = attached(state, sender, message.term, message.attach)
        if progress is None:
            return state, ()
        return noted(state, replace(progress, matched=False, heard_ms=now_ms)), ()
    if election_term(message.known) == election_term(leading.term):
        # Only this SPU leads in it: an earlier process did, and this disk does not know.
        reason = f"{OLD}: SPU {sender} knows the later term {format_term(message.known)} of its own"
        return unfit(state, reason)
    reason = f"a replica knows term {format_term(message.known)}"
    return replace(state, leading=None), (SteppedDown(reason),)


def on_tick(state: ReplicaState, now_ms: int) -> Step:
    """Attach silent followers again, repeat requests, and check which followers are behind."""
    leading = state.leading
    if leading is None:
        return state, ()
    outputs: list[Output] = []
    if leading.proving:
        state, asked = unproven_leader.ask_again(state, now_ms)
        state, proved = prove(state, now_ms)
        return state, (*asked, *proved)
    for progress in leading.followers:
        if progress.matched and progress.match_offset >= leading.mark:
            state = noted(state, replace(progress, caught_up_ms=now_ms))
        if progress.attach and is_lost(state, progress, now_ms):
            state, more = attach(state, progress.spu, now_ms)
            outputs += more
    if state.leading is not None:
        state = replace(state, leading=replace(state.leading, mark=state.log.leo))
    state, asked = consider(state, now_ms, retry=True)
    state, elect = _give_up(state, now_ms)
    return state, (*outputs, *asked, *elect)


def pump(state: ReplicaState) -> Step:
    """Push to followers that have credits; send the LAC to those with nothing to be pushed."""
    leading = state.leading
    if leading is None:
        return state, ()
    outputs: list[Output] = []
    for progress in leading.followers:
        if not progress.matched or progress.pushing or progress.sent < state.log.start:
            continue
        sent = replace(progress, last_sent_lac=state.lac)
        attachment = (leading.term, progress.attach, progress.boot)
        if progress.sent < state.log.leo:
            if len(progress.unacked) < CREDITS:
                at = (progress.sent, state.lac, state.log.start)
                outputs.append(Push(progress.spu, *attachment, *at))
                state = noted(state, replace(sent, pushing=True))
        elif progress.last_sent_lac < state.lac:
            confirm = CommitUpdate(*attachment, state.lac, state.log.start)
            outputs.append(Send(progress.spu, confirm))
            state = noted(state, sent)
    return state, tuple(outputs)


def advance(state: ReplicaState) -> Step:
    """Commit what every required replica holds; `pump` tells followers."""
    leading, hard_state = state.leading, state.hard_state
    if leading is None or leading.proving or hard_state.smallest < hard_state.min_in_sync:
        return state, ()
    positions = {
        progress.member: progress.match_offset for progress in leading.followers if progress.matched
    }
    positions[state.me] = state.log.durable
    everywhere = min((positions.get(member, 0) for member in state.required), default=0)
    if everywhere <= leading.control or everywhere <= state.lac + 1:
        # The control record is not stored everywhere yet, or nothing new is.
        return state, ()
    state = replace(state, lac=everywhere - 1)
    return state, (Committed(state.lac),)


def consider(state: ReplicaState, now_ms: int, *, retry: bool = False) -> Step:
    """Ask for another LRS if one is due; one request at a time."""
    leading, known = state.leading, state.newest
    if leading is None or leading.proving or state.unpersisted is not None:
        return state, ()
    if known.pending is not None:
        due = retry and now_ms - leading.asked_ms >= RETRY_MS
        return _ask(state, now_ms) if due else (state, ())
    waiting = {refusal.wanted for refusal in leading.refused if now_ms < refusal.until_ms}
    wanted = next((lrs for lrs in _changes(state, leading, now_ms) if lrs not in waiting), None)
    if wanted is None:
        return state, ()
    unpersisted = replace(known, pending=wanted)
    return replace(state, unpersisted=unpersisted), (PersistHardState(unpersisted),)


def on_answer(state: ReplicaState, wanted: Members, lrs: Members, now_ms: int) -> Step:
    """The SC has answered a request for a live replica set with this one.

    A replica that may not join, again and again, may be another one than the leader attached, in
    its place on the same SPU: where nothing is to be pushed, only a new attachment shows it.
    """
    leading = state.leading
    if leading is None:
        return state, ()
    granted = set(wanted) == set(lrs)
    before = any(refusal.wanted == wanted for refusal in leading.refused)
    refused = () if granted else _with_refusal(leading, wanted)
    state = replace(state, leading=replace(leading, refused=refused))
    if granted or not before:
        return state, ()
    outputs: list[Output] = []
    for spu in sorted({member.spu for member in set(wanted) - set(lrs)} & set(state.links)):
        state, more = attach(state, spu, now_ms)
        outputs += more
    return state, tuple(outputs)


def _with_refusal(leading: Leading, wanted: Members) -> tuple[Refusal, ...]:
    """The refusals of a leader that was just refused this set, the latest last."""
    others = tuple(refusal for refusal in leading.refused if refusal.wanted != wanted)
    waited = [refusal.wait_ms for refusal in leading.refused if refusal.wanted == wanted]
    wait_ms = min(2 * waited[0], REFUSED_MAX_MS) if waited else RETRY_MS
    return (*others, Refusal(wanted, leading.asked_ms, wait_ms))


def _changes(state: ReplicaState, leading: Leading, now_ms: int) -> Iterator[Members]:
    """The LRSs to ask for, each one change away from the current one, the most urgent first. Sets
    that were refused come after the others, the last refused one last."""
    lrs = state.hard_state.lrs
    found = {progress.spu: progress for progress in leading.followers}
    others = [member for member in lrs if member != state.me]
    for member in others:
        progress = found.get(member.spu)
        if progress is not None and (
            progress.unfit is not None or progress.storage not in (None, member.storage)
        ):
            yield tuple(m for m in lrs if m != member)
    for member in others:
        progress = found.get(member.spu)
        since = leading.began_ms if progress is None else progress.caught_up_ms
        late = now_ms - since >= REPLICA_LAG_TIME_MS
        if late and len(lrs) > state.hard_state.min_in_sync:
            yield tuple(m for m in lrs if m != member)
    joining = [
        tuple(sorted((*lrs, progress.member)))
        for progress in leading.followers
        if progress.member is not None
        and progress.matched
        and progress.member not in lrs
        and progress.match_offset > max(state.lac, leading.control)
    ]
    turn = {refusal.wanted: number for number, refusal in enumerate(leading.refused)}
    yield from sorted(joining, key=lambda wanted: turn.get(wanted, -1))


def _give_up(state: ReplicaState, now_ms: int) -> Step:
    """Ask for another leader if this one has had records to commit for long, and cannot."""
    leading = state.leading
    if leading is None:
        return state, ()
    if state.lac != leading.stuck_at or state.lac + 1 >= state.log.leo:
        return replace(state, leading=replace(leading, stuck_at=state.lac, stuck_ms=None)), ()
    if leading.stuck_ms is None:
        return replace(state, leading=replace(leading, stuck_ms=now_ms)), ()
    pending = state.newest.pending
    changing = pending is not None and all(r.wanted != pending for r in leading.refused)
    if now_ms - leading.stuck_ms < REPLICA_LAG_TIME_MS or changing:
        return state, ()
    hard_state = state.hard_state
    there = sum(
        progress.matched and progress.match_offset >= leading.mark for progress in leading.followers
    )
    reason = (
        f"nothing was committed for {REPLICA_LAG_TIME_MS / 1000:g} s: {there + 1} of"
        f" {len(hard_state.lrs)} live replicas keep up, minInSyncReplicas is"
        f" {hard_state.min_in_sync}"
    )
    state = replace(state, leading=replace(leading, stuck_ms=now_ms))
    return state, (RequestElection(leading.term, reason),)


def _ask(state: ReplicaState, now_ms: int) -> Step:
    leading, hard_state = state.leading, state.hard_state
    if leading is None or hard_state.pending is None:
        return state, ()
    gone = sorted(set(hard_state.lrs) - set(hard_state.pending))
    came = sorted(set(hard_state.pending) - set(hard_state.lrs))
    words = [f"SPU {m.spu} leaves" for m in gone] + [f"SPU {m.spu} joins" for m in came]
    asked = RequestLrsChange(
        hard_state.revision, leading.term, hard_state.pending, ", ".join(words)
    )
    return replace(state, leading=replace(leading, asked_ms=now_ms)), (asked,)
