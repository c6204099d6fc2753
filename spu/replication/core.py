"""One replica of a partition as a state machine: ``step(state, input, now) -> (state, outputs)``.

The same function runs in the SPU and in the simulator. It has no I/O, no clock and no randomness.
`spu.replication.events` defines the inputs and outputs, and what must be durable before what.
"""

from __future__ import annotations

from typing import assert_never

from schemas.ids import election_term
from schemas.replacing import replace
from spu.replication import attachments, follower, leader
from spu.replication.events import (
    Appended,
    Elected,
    Failed,
    Flushed,
    HardStatePersisted,
    Input,
    LinkDown,
    LinkUp,
    LogReset,
    LogStartAdvanced,
    LogTruncated,
    Output,
    PartitionUpdated,
    PersistHardState,
    Pushed,
    Received,
    Resume,
    SteppedDown,
    StorageIdChosen,
    Tick,
    Unassigned,
)
from spu.replication.follower import Step
from spu.replication.messages import (
    Append,
    AppendAck,
    Attach,
    CommitUpdate,
    LogEnd,
    Message,
    Outdated,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.state import ReplicaState


def step(state: ReplicaState, event: Input, now_ms: int) -> Step:
    """The replica's state after one input, and the outputs to apply, in order."""
    state, outputs = _step(state, event, now_ms)
    if state.to_seal and state.confirmed:
        # Whatever made it serve. What the disk says may be older than a restored KV.
        state, sealed = leader.seal(state)
        outputs = (*outputs, *sealed)
    return state, outputs


def _step(state: ReplicaState, event: Input, now_ms: int) -> Step:
    match event:
        case PartitionUpdated():
            return _update_partition(state, event, now_ms)
        case Elected():
            return leader.on_elected(state, event)
        case Unassigned():
            return follower.on_unassigned(state)
        case Resume():
            return _resume(state)
        case HardStatePersisted(hard_state):
            return (
                _hard_state_persisted(state, event, now_ms)
                if state.hard_state != hard_state
                else (state, ())
            )
        case Appended(leo):
            return leader.on_appended(state, leo)
        case Flushed(leo):
            return _flushed(state, leo, now_ms)
        case LogTruncated():
            state, said = follower.on_log_truncated(state)
            state, led = leader.settle(state, now_ms)
            return state, (*said, *led)
        case StorageIdChosen(storage):
            return follower.on_storage_id_chosen(state, storage)
        case LogReset(storage):
            return follower.on_log_reset(state, storage)
        case LogStartAdvanced(start):
            start = min(start, state.lac + 1)
            steady = state.log_is_steady and start > state.log.start
            return (replace(state, log=state.log.begin_at(start)) if steady else state), ()
        case Received(sender, message):
            return _receive(state, sender, message, now_ms)
        case Pushed(peer, number, upto):
            return leader.on_pushed(state, peer, number, upto, now_ms)
        case LinkUp(peer):
            links = tuple(sorted({*state.links, peer}))
            return attachments.attach(replace(state, links=links), peer, now_ms)
        case LinkDown(peer):
            links = tuple(link for link in state.links if link != peer)
            return attachments.on_link_down(replace(state, links=links), peer)
        case Tick():
            return leader.on_tick(state, now_ms)
        case Failed(reason):
            return follower.unfit(state, reason)
        case _:
            assert_never(event)


def _receive(state: ReplicaState, sender: int, message: Message, now_ms: int) -> Step:
    match message:
        case Attach():
            return follower.on_attach(state, sender, message)
        case Truncate():
            return follower.on_truncate(state, sender, message)
        case Reset():
            return follower.on_reset(state, sender, message)
        case Outdated():
            return follower.on_outdated(state, sender, message)
        case Append():
            return follower.on_append(state, sender, message)
        case CommitUpdate():
            return follower.on_commit_update(state, sender, message)
        case LogEnd():
            return leader.on_log_end(state, sender, message, now_ms)
        case AppendAck():
            return leader.on_append_ack(state, sender, message, now_ms)
        case Reject():
            return leader.on_reject(state, sender, message, now_ms)
        case _:
            assert_never(message)


def _update_partition(state: ReplicaState, event: PartitionUpdated, now_ms: int) -> Step:
    """Take leader, term and LRS of a later revision, all together; never those of an older one."""
    known, version = state.newest, (event.incarnation, event.revision)
    if version < known.version:
        return state, ()
    # An object that somebody removed comes back without it: the election took place all the same.
    unclean_term = max(known.unclean_term, event.unclean_term)
    state = replace(state, confirmed=True, witnesses=frozenset(), to_seal=event.sealed)
    if version == known.version:
        # An order to lead by this revision may have come before the rest of the revision.
        unpersisted = replace(
            known,
            replicas=event.replicas,
            min_in_sync=event.min_in_sync,
            unclean_term=unclean_term,
        )
        if unpersisted == known:
            return leader.after_confirmation(state, now_ms)
        return replace(state, unpersisted=unpersisted), (PersistHardState(unpersisted),)
    leads = (
        known.leading
        and event.leader == state.spu
        and election_term(event.term) == election_term(known.term)
    )
    unpersisted = replace(
        known,
        incarnation=event.incarnation,
        revision=event.revision,
        replicas=event.replicas,
        lrs=event.lrs,
        min_in_sync=event.min_in_sync,
        pending=None,
        leading=leads,
        unclean_term=unclean_term,
    )
    outputs: list[Output] = [PersistHardState(unpersisted)]
    if not leads and state.leading is not None:
        outputs.append(SteppedDown(f"SPU {event.leader} leads by revision {event.revision}"))
    state = replace(state, unpersisted=unpersisted)
    if not leads:
        state = replace(state, leading=None, becoming=None)
    elif state.leading is not None:
        kept = tuple(p for p in state.leading.followers if p.spu in event.replicas)
        state = replace(state, leading=replace(state.leading, followers=kept))
        if known.pending is not None:
            state, asked = leader.on_answer(state, known.pending, event.lrs, now_ms)
            outputs += asked
    return state, tuple(outputs)


def _resume(state: ReplicaState) -> Step:
    """Lead again after a restart, with the next restart count."""
    hard_state = state.hard_state
    if state.log.leo <= state.lac:
        reason = f"its log ends at {state.log.leo}, but {state.lac} was committed"
        return follower.unfit(state, reason)
    if not hard_state.leading or state.leading is not None or state.becoming is not None:
        return state, ()
    order = Elected(
        hard_state.revision,
        election_term(hard_state.term),
        hard_state.lrs,
        hard_state.replicas,
        hard_state.min_in_sync,
        hard_state.incarnation,
    )
    state, outputs = leader.on_elected(state, order)
    # This is what the disk says. It is the SC's word only once the SC repeats it.
    return replace(state, confirmed=False), outputs


def _hard_state_persisted(state: ReplicaState, event: HardStatePersisted, now_ms: int) -> Step:
    holders = state.hard_state.replicas
    state = replace(state, hard_state=event.hard_state)
    if state.unpersisted == event.hard_state:
        state = replace(state, unpersisted=None)
    if state.unpersisted is not None:
        return state, ()
    state, said = follower.on_holders(state, holders)
    state, following = follower.settle(state)
    state, leading = leader.settle(state, now_ms)
    state, attached = attachments.attach_new(state, now_ms)
    # A smaller LRS may commit more, and the next request for another LRS may be due.
    state, proved = leader.prove(state, now_ms)
    state, committed = leader.advance(state)
    state, asked = leader.consider(state, now_ms)
    state, pushed = leader.pump(state)
    return state, (*said, *following, *leading, *attached, *proved, *committed, *asked, *pushed)


def _flushed(state: ReplicaState, leo: int, now_ms: int) -> Step:
    durable = max(state.log.durable, min(leo, state.log.leo))
    if durable == state.log.durable or not state.log_is_steady:
        return state, ()
    state = replace(state, log=replace(state.log, durable=durable))
    state, acked = follower.on_flushed(state)
    state, committed = leader.advance(state)
    state, asked = leader.consider(state, now_ms)
    state, pushed = leader.pump(state)
    return state, (*acked, *committed, *asked, *pushed)
