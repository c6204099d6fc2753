"""A leader's attachments: one for each follower, numbered over one leadership.

- A follower has at most one attachment; a message that names another one does not count.
- The end of a connection ends the attachment. What the leader still knows of the follower, such as
  its last answer, is kept for as long as the leadership lasts.
- A follower that is silent is attached again.

Neighbours: `spu.replication.leader` and `spu.replication.unproven_leader`. Pure.
"""

from __future__ import annotations

from schemas.replacing import replace
from spu.replication.events import Output, Send
from spu.replication.follower import Step
from spu.replication.messages import Attach
from spu.replication.state import RETRY_MS, STALLED_MS, Leading, Progress, ReplicaState


def attach(state: ReplicaState, peer: int, now_ms: int) -> Step:
    """Begin a new attachment to a follower; what it sent in an older one no longer counts.

    One that the newest revision takes away gets none, although that is not durable yet: it would
    be known with an attachment of then when another revision brings it back.
    """
    leading, unpersisted = state.leading, state.unpersisted
    if leading is None or peer == state.spu or peer not in state.hard_state.replicas:
        return state, ()
    if unpersisted is not None and peer not in unpersisted.replicas:
        return state, ()
    number = leading.attachments + 1
    before = progress_of(leading, peer)
    fresh = Progress(
        peer,
        number,
        storage=before.storage if before else None,
        heard_ms=now_ms,
        caught_up_ms=before.caught_up_ms if before else leading.began_ms,
        answer=before.answer if before else None,
    )
    leading = _with(replace(leading, attachments=number), fresh)
    order = Attach(leading.term, number, state.boot)
    return replace(state, leading=leading), (Send(peer, order),)


def attach_new(state: ReplicaState, now_ms: int) -> Step:
    """Attach replicas that a later revision added, if there is a connection already."""
    outputs: list[Output] = []
    for peer in state.links:
        if state.leading is not None and progress_of(state.leading, peer) is None:
            state, more = attach(state, peer, now_ms)
            outputs += more
    return state, tuple(outputs)


def on_link_down(state: ReplicaState, peer: int) -> Step:
    """The connection is gone, and all messages in flight with it."""
    leading = state.leading
    if leading is None or (progress := progress_of(leading, peer)) is None:
        return state, ()
    gone = Progress(
        peer,
        storage=progress.storage,
        caught_up_ms=progress.caught_up_ms,
        answer=progress.answer,
    )
    return replace(state, leading=_with(leading, gone)), ()


def is_lost(state: ReplicaState, progress: Progress, now_ms: int) -> bool:
    """Whether to attach a follower again: it does not answer, or needs records that are gone."""
    silent_ms = now_ms - progress.heard_ms
    if not progress.matched:
        return silent_ms >= RETRY_MS
    behind = progress.match_offset < state.log.leo or bool(progress.unacked)
    return progress.sent < state.log.start or (behind and silent_ms >= STALLED_MS)


def progress_of(leading: Leading, spu: int) -> Progress | None:
    """What the leader knows of SPU ``spu``; None if it has never attached it."""
    return next((progress for progress in leading.followers if progress.spu == spu), None)


def attached(state: ReplicaState, sender: int, term: int, number: int) -> Progress | None:
    """The follower whose current attachment has this term and number; None if it is over."""
    leading = state.leading
    if leading is None or leading.term != term:
        return None
    progress = progress_of(leading, sender)
    return progress if progress is not None and progress.attach == number else None


def noted(state: ReplicaState, progress: Progress) -> ReplicaState:
    """The state in which the leader knows this of a follower."""
    if state.leading is None:
        return state
    return replace(state, leading=_with(state.leading, progress))


def _with(leading: Leading, progress: Progress) -> Leading:
    others = [p for p in leading.followers if p.spu != progress.spu]
    return replace(leading, followers=tuple(sorted((*others, progress), key=lambda p: p.spu)))
