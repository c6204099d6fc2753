"""One look at a stream: its workflow's next step, or its status. Pure."""

from __future__ import annotations

from typing import assert_never

from sc.controllers.actions import Action, Key, Read, Settle, WakeAt, WriteStatus
from sc.controllers.membership.resize import BEGINNING, of_stream
from sc.controllers.out_of_use import out_of_use
from sc.controllers.streams import workflows
from sc.controllers.streams.auto_scale import loads_of
from sc.controllers.streams.steps import Pass, Progress
from sc.store.records import NotReadError
from sc.store.view import Mark, Settled, View
from schemas.errors import InvalidRequestError
from schemas.objects.partition import DesiredState
from schemas.objects.stream import Stream, StreamState, StreamStatus
from schemas.streams.epochs import segment_text


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Take one stream a step further, or ask for the records that this needs."""
    stream = view.store.get(Stream, key.name)
    if stream is None or not view.buckets.holds(stream.uid):
        return ()
    mark = _mark(view, stream)
    settled = view.settled.get(stream.uid)
    if view.records is None and settled is not None and settled.holds(mark, now_ms):
        return _wake(key, settled.until_ms)
    if view.recovering:
        reason = "it goes on when the recovery of the cluster is over"
        return _written(stream, stream.status.model_copy(update={"reason": reason}))
    try:
        of = Pass.begin(view, stream, now_ms)
        progress = _progress(of)
    except NotReadError as missing:
        return (Read(missing.wants),)
    except InvalidRequestError as error:
        # Somebody wrote a record by hand. Nothing goes on before it is set right.
        reason = f"its records cannot be used: {error.message}"
        return _written(stream, stream.status.model_copy(update={"reason": reason}))
    if progress.step is not None:
        return (progress.step,)
    if written := _written(stream, _status(of, progress)):
        return written
    wake = _wake(key, progress.until_ms)
    if progress.outside or not _is_current(view, stream):
        return wake
    return (Settle(stream.uid, Settled(mark, progress.until_ms)), *wake)


def _wake(key: Key, until_ms: int | None) -> tuple[Action, ...]:
    return () if until_ms is None else (WakeAt(key, until_ms),)


def _is_current(view: View, stream: Stream) -> bool:
    """Whether the records of this pass are no older than the mirror. The mirror goes on while they
    are read: a request that came meanwhile is not among them, and its bell is in the mark."""
    return view.records is not None and view.records.revision >= view.store.bell(stream.uid)


def _mark(view: View, stream: Stream) -> Mark:
    changes = view.store.partition_changes("Stream", stream.name)
    loads = tuple((one, load.parts) for one, load in sorted(loads_of(view, stream).items()))
    return view.store.bell(stream.uid), stream.revision, changes, loads


def _progress(of: Pass) -> Progress:
    if of.stream.deleting:
        return workflows.delete(of)
    state = of.state
    if state is None:
        return workflows.begin(of)
    match state.state:
        case StreamState.CREATING:
            return workflows.create(of, state)
        case StreamState.ACTIVE:
            if (lost := _without_its_epochs(of)) is not None:
                return Progress(reason=lost)
            return workflows.next_turn(of, state)
        case StreamState.UPDATING:
            return workflows.update(of, state)
        case StreamState.SCALING:
            return workflows.scale(of, state)
        case StreamState.TRUNCATING:
            return workflows.truncate(of, state)
        case StreamState.SEALING:
            return workflows.seal(of, state)
        case StreamState.SEALED:
            return workflows.refuse(of, state)
        case StreamState.DELETING:
            # Its object was marked in the same write; the mirror is a moment behind.
            return Progress(outside=True)
        case _:
            assert_never(state.state)


def _without_its_epochs(of: Pass) -> str | None:
    """Why a stream stands still that was scaled or sealed after the backup from which its KV was
    restored: its logs are sealed, and what followed them is on no record. New segments would get
    the numbers, and with them the logs, of those that are unknown."""
    if not of.view.incarnation:
        return None
    found = [
        one.name
        for one in of.partitions()
        if one.spec.desired is DesiredState.OPEN and one.status.sealed_offset is not None
    ]
    if not found:
        return None
    return (
        f"{found[0]} is sealed, and the KV does not know by what: it was restored from a backup of"
        " before the stream was scaled or sealed. Records of later segments are on the SPUs' disks"
        " only. Restore a later backup, or write to another stream and delete this one"
    )


def _status(of: Pass, progress: Progress) -> StreamStatus:
    state = of.state
    if state is None:
        return of.stream.status.model_copy(update={"reason": progress.reason})
    running = 0 if state.request is None else 1
    moves = of.stream.status.moves
    if moves is None and state.observed_generation != of.stream.status.observed_generation:
        # Who moves them may not have heard of it yet, and whoever waits for them must not be early.
        wanted = of_stream(of.stream.spec)
        moves = None if all(map(wanted.is_met, of.partitions())) else BEGINNING
    return StreamStatus(
        state=state.state,
        current_epoch=state.epoch,
        segments=state.segments if state.epoch is not None else None,
        queued=len(of.accepted.waiting) - running or None,
        moves=moves,
        observed_generation=state.observed_generation,
        reason="; ".join(filter(None, (progress.reason, _obstacle(of)))) or None,
    )


def _obstacle(of: Pass) -> str | None:
    """Which segments take no records, unless what the stream waits for says so."""
    if of.state is None or of.state.state is not StreamState.ACTIVE:
        return None
    segments = [one for one in of.partitions() if not one.deleting]
    return out_of_use(segments, "segments", lambda one: segment_text(one.spec.segment_id or 0))


def _written(stream: Stream, status: StreamStatus) -> tuple[Action, ...]:
    return () if status == stream.status else (WriteStatus(stream, status),)
