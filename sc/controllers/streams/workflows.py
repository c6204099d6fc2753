"""The workflows of a stream: what each does next. Pure.

Each function looks at where the records say the stream is, and gives one step, or what it waits
for. All raise NotReadError for records that they need, and InvalidRequestError for ones that do not
parse.
"""

from __future__ import annotations

from dataclasses import replace

from sc.controllers.actions import Step
from sc.controllers.membership.resize import of_stream, settings_for_now
from sc.controllers.streams.auto_scale import loads_of, wanted
from sc.controllers.streams.records import (
    EpochEntry,
    Outcome,
    Request,
    RequestKind,
    SealedSegment,
    SegmentSize,
    StateRecord,
    TruncationRecord,
    decode,
    encode,
)
from sc.controllers.streams.retention.retention import turn
from sc.controllers.streams.steps import AT_ONCE, RECORDS_AT_ONCE, Pass, Progress
from sc.controllers.streams.truncation import beginning, check, placed
from sc.store.records import GetRecord, ListRecords, get, listed, need
from schemas.errors import InvalidRequestError, RunnelError
from schemas.objects.partition import DesiredState
from schemas.objects.stream import StreamRetention, StreamState
from schemas.streams.cuts import Frontier, StreamCut
from schemas.streams.epochs import (
    FULL_EVERY,
    Change,
    Epoch,
    Segment,
    encode_change,
    encode_epoch,
    even,
    first_epoch,
)
from schemas.streams.scaling import raised, scaled


def begin(of: Pass) -> Progress:
    """A stream without records: plan its first segments."""
    count = of.stream.spec.scaling.min_segments
    change = even(0, count, 0, of.at_ms)
    state = StateRecord(
        state=StreamState.CREATING,
        next_number=count,
        observed_generation=of.stream.generation,
    )
    # A stream that was deleted meanwhile must not get records again.
    return Progress(
        of.step(
            state,
            compares=((of.paths.plan, 0),),
            puts=((of.paths.plan, encode_change(change)),),
            same_owner=True,
        )
    )


def create(of: Pass, state: StateRecord) -> Progress:
    """Partitions first, then the first epoch."""
    change = of.plan()
    if (progress := of.created(state, change.created)) is not None:
        return progress
    epoch = first_epoch(change)
    after = state.model_copy(
        update={"state": StreamState.ACTIVE, "epoch": 0, "segments": len(epoch.segments)}
    )
    puts = _epoch_puts(of, None, change, epoch)
    return Progress(of.completion(after, None, puts=puts))


def next_turn(of: Pass, state: StateRecord) -> Progress:
    """An active stream: begin what is due, in this order: the oldest request, a changed spec, more
    segments where the spec asks for them, other segments where their load does, and what its
    retention has to do."""
    if of.accepted.waiting:
        return Progress(_begin_request(of, state, of.request(of.accepted.waiting[0])))
    if state.observed_generation != of.stream.generation:
        after = state.model_copy(update={"state": StreamState.UPDATING})
        return Progress(of.step(after, same_owner=True))
    least = of.stream.spec.scaling.min_segments
    if state.segments < least:
        epoch = of.epoch()
        change = scaled(
            epoch,
            *raised(epoch, least),
            next_number=state.next_number,
            min_segments=least,
            time_ms=of.at_ms,
        )
        return Progress(_begin_scale(of, state, change, None))
    by_load = _scale_by_load(of, state)
    if by_load.step is not None or of.stream.spec.retention is None:
        return by_load
    return replace(_retain(of, state, of.stream.spec.retention), reason=by_load.reason)


def _retain(of: Pass, state: StateRecord, retention: StreamRetention) -> Progress:
    """Note where the stream ends, and begin the truncation that the retention asks for."""
    due = turn(of, state.epoch or 0, retention)
    if isinstance(due, int):
        return Progress(until_ms=due)
    if due.truncate is None:
        return Progress(of.step(state, puts=due.puts, deletes=due.deletes))
    after = state.model_copy(update={"state": StreamState.TRUNCATING, "cursor": 0})
    puts = (*due.puts, _truncation(of, due.truncate, updating=True))
    return Progress(of.step(after, puts=puts, deletes=due.deletes))


def _scale_by_load(of: Pass, state: StateRecord) -> Progress:
    """Begin what the loads of the current segments ask for, if it can be had."""
    if not (loads := loads_of(of.view, of.stream)):
        return Progress()
    epoch, scaling = of.epoch(), of.stream.spec.scaling
    if (found := wanted(epoch, loads, scaling)) is None:
        return Progress()
    try:
        change = scaled(
            epoch,
            *found,
            next_number=state.next_number,
            min_segments=scaling.min_segments,
            time_ms=of.at_ms,
        )
    except InvalidRequestError as error:
        return Progress(reason=f"its segments stay as they are: {error.message}")
    return Progress(_begin_scale(of, state, change, None, by_load=True))


def _begin_request(of: Pass, state: StateRecord, request: Request) -> Step:
    match request.kind:
        case RequestKind.SEAL:
            after = state.model_copy(update={"state": StreamState.SEALING, "request": request.id})
            return of.step(after)
        case RequestKind.SCALE:
            try:
                # Checked when it was accepted, too; another one may have come first.
                change = scaled(
                    of.epoch(),
                    request.seal,
                    request.ranges,
                    next_number=state.next_number,
                    min_segments=of.stream.spec.scaling.min_segments,
                    time_ms=of.at_ms,
                )
            except RunnelError as error:
                return of.completion(state, _failed(of, request, error.message), puts=())
            return _begin_scale(of, state, change, request.id)
        case RequestKind.TRUNCATE:
            try:
                check(of.view.records, of.stream, state.epoch or 0, _cut_of(request))
            except RunnelError as error:
                return of.completion(state, _failed(of, request, error.message), puts=())
            after = state.model_copy(
                update={"state": StreamState.TRUNCATING, "request": request.id, "cursor": 0}
            )
            return of.step(after, puts=(_truncation(of, _cut_of(request), updating=True),))


def _begin_scale(
    of: Pass, state: StateRecord, change: Change, request: str | None, *, by_load: bool = False
) -> Step:
    after = state.model_copy(
        update={
            "state": StreamState.SCALING,
            "request": request,
            "next_number": state.next_number + len(change.created),
            "epoch_stored": False,
            "by_load": by_load or None,
            "cursor": 0,
        }
    )
    plan = (of.paths.plan, encode_change(change))
    return of.step(after, compares=((of.paths.plan, 0),), puts=(plan,))


def update(of: Pass, state: StateRecord) -> Progress:
    """Bring the settings of all open segments in line with the spec."""
    log, replicas = of.stream.spec.log_settings, of_stream(of.stream.spec)
    respec = [
        (p, p.spec.model_copy(update={"log": settings}))
        for p in of.partitions()
        if p.spec.desired is DesiredState.OPEN
        and not p.deleting
        and p.spec.log != (settings := settings_for_now(replicas, p, log))
    ]
    if respec:
        return Progress(of.step(state, respec=tuple(respec[:AT_ONCE]), same_owner=True))
    after = state.model_copy(
        update={"state": StreamState.ACTIVE, "observed_generation": of.stream.generation}
    )
    return Progress(of.step(after, same_owner=True))


def scale(of: Pass, state: StateRecord) -> Progress:
    """New partitions, then the epoch that has them, then the seals of those that it replaces.

    The order makes a reader's way certain: who meets the end of a segment finds its successors.
    Nothing is sealed before the new ones take records: writers find them ready.
    """
    need(of.view.records, GetRecord(of.paths.plan), of.paths.epoch_want(state.epoch or 0))
    change, now = of.plan(), of.epoch()
    if not state.epoch_stored:
        if (progress := of.created(state, change.created)) is not None:
            return progress
        if state.cursor == 0 and (progress := of.writable(change.created)) is not None:
            return progress
        return Progress(_store_epoch(of, state, now, change))
    if (progress := of.sealed(state, change.sealed)) is not None:
        return progress
    puts, cursor = _sizes(of, state, change.sealed)
    if cursor < len(change.sealed):
        return Progress(of.step(state.model_copy(update={"cursor": cursor}), puts=puts))
    after = state.model_copy(
        update={
            "state": StreamState.ACTIVE,
            "epoch": change.number,
            "segments": state.segments - len(change.sealed) + len(change.created),
        }
    )
    outcome = None if state.request is None else _done(of, state.request, change.number)
    return Progress(of.completion(after, outcome, puts=puts))


def _store_epoch(of: Pass, state: StateRecord, now: Epoch, change: Change) -> Step:
    """The step that stores which epoch sealed the old segments, and with the last of them the
    epoch itself."""
    there = now.by_id()
    some = change.sealed[state.cursor : state.cursor + RECORDS_AT_ONCE]
    puts = tuple(
        (
            of.paths.sealed(one),
            encode(_sealed_by(change, there[one].keys.low, there[one].keys.high)),
        )
        for one in some
    )
    cursor = state.cursor + len(some)
    if cursor < len(change.sealed):
        return of.step(state.model_copy(update={"cursor": cursor}), puts=puts)
    after = state.model_copy(update={"epoch_stored": True, "cursor": 0})
    return of.step(after, puts=(*puts, *_epoch_puts(of, now, change, change.applied_to(now))))


def _sealed_by(change: Change, low: int, high: int) -> SealedSegment:
    return SealedSegment(epoch=change.number, low=low, high=high)


def _epoch_puts(
    of: Pass, before: Epoch | None, change: Change, epoch: Epoch
) -> tuple[tuple[str, bytes], ...]:
    whole = change.number % FULL_EVERY == 0
    value = encode_epoch(epoch) if whole else encode_change(change)
    splits, merges = _counted(before, change)
    entry = EpochEntry(
        reference=change.reference,
        time_ms=change.time_ms,
        splits=splits,
        merges=merges,
        by_load=None if of.state is None else of.state.by_load,
    )
    return (
        (of.paths.epoch(change.number), value),
        (of.paths.entry(change.number), encode(entry)),
    )


def _counted(before: Epoch | None, change: Change) -> tuple[int, int]:
    """How many segments were split, and how many merges there were, in a change."""
    if before is None:
        return 0, 0
    there = before.by_id()
    old = [there[one] for one in change.sealed]
    splits = sum(len(_overlapping(one, change.created)) > 1 for one in old)
    merges = sum(len(_overlapping(one, old)) > 1 for one in change.created)
    return splits, merges


def _overlapping(one: Segment, others: tuple[Segment, ...] | list[Segment]) -> list[Segment]:
    return [other for other in others if other.keys.overlaps(one.keys)]


def _sizes(
    of: Pass, state: StateRecord, segments: tuple[int, ...]
) -> tuple[tuple[tuple[str, bytes], ...], int]:
    """Puts of the next sizes of sealed segments, and how many are stored after them."""
    some = segments[state.cursor : state.cursor + RECORDS_AT_ONCE]
    puts = tuple(
        (
            of.paths.size(one),
            encode(SegmentSize(end=_end_of(of, one))),
        )
        for one in some
    )
    return puts, state.cursor + len(some)


def _end_of(of: Pass, segment: int) -> int:
    partition = of.partition(segment)
    return 0 if partition is None else partition.status.sealed_offset or 0


def seal(of: Pass, state: StateRecord) -> Progress:
    """Seal all segments that are open: nothing is written any more."""
    segments = tuple(sorted(segment.id for segment in of.epoch().segments))
    if (progress := of.sealed(state, segments)) is not None:
        return progress
    puts, cursor = _sizes(of, state, segments)
    if cursor < len(segments):
        return Progress(of.step(state.model_copy(update={"cursor": cursor}), puts=puts))
    after = state.model_copy(update={"state": StreamState.SEALED})
    outcome = None if state.request is None else _done(of, state.request, None)
    return Progress(of.completion(after, outcome, puts=puts))


def refuse(of: Pass, state: StateRecord) -> Progress:
    """A sealed stream: requests that waited behind the seal fail. Of a changed spec nothing is left
    to do but to note it: `sc.controllers.membership.segments` moves replicas."""
    if not of.accepted.waiting:
        if state.observed_generation == of.stream.generation:
            return Progress()
        noted = state.model_copy(update={"observed_generation": of.stream.generation})
        return Progress(of.step(noted, same_owner=True))
    request = of.request(of.accepted.waiting[0])
    failed = _failed(of, request, f"stream {of.stream.name} was sealed meanwhile")
    return Progress(of.completion(state, failed, puts=()))


def truncate(of: Pass, state: StateRecord) -> Progress:
    """The logs of the cut's segments first, then the partitions of those before it.

    From the first step on, readers that begin at the beginning begin at the cut.
    """
    need(of.view.records, GetRecord(of.paths.truncation), of.paths.epoch_want(state.epoch or 0))
    cut = beginning(of.view.records, of.stream)
    if (progress := of.truncated(state, cut.offsets)) is not None:
        return progress
    now = of.epoch().by_id()
    # Nothing newer than the cut's segments is before it.
    candidates = [
        (segment, partition)
        for partition in of.partitions()
        if state.cursor <= (segment := partition.spec.segment_id or 0) < max(cut.offsets)
        and segment not in cut.offsets
        and segment not in now
        and not partition.deleting
    ]
    if candidates:
        some = sorted(candidates, key=lambda one: one[0])[:AT_ONCE]
        need(of.view.records, *(GetRecord(of.paths.sealed(segment)) for segment, _ in some))
        place = placed(of.view.records, of.paths, state.epoch or 0, cut)
        gone = tuple(p for segment, p in some if _is_before(of, place, segment))
        after = state.model_copy(update={"cursor": some[-1][0] + 1})
        return Progress(of.step(after, mark=gone))
    after = state.model_copy(update={"state": StreamState.ACTIVE})
    outcome = None if state.request is None else _done(of, state.request, None)
    return Progress(of.completion(after, outcome, puts=(_truncation(of, cut, updating=False),)))


def _is_before(of: Pass, place: Frontier, segment: int) -> bool:
    record = get(of.view.records, of.paths.sealed(segment))
    return record is not None and place.is_done(
        Segment(segment, decode(SealedSegment, record).keys)
    )


def _cut_of(request: Request) -> StreamCut:
    return StreamCut.parse(request.cut or "")


def _truncation(of: Pass, cut: StreamCut, *, updating: bool) -> tuple[str, bytes]:
    return of.paths.truncation, encode(TruncationRecord(cut=str(cut), updating=updating))


def delete(of: Pass) -> Progress:
    """Partitions first, then records, and the state with the object at last."""
    state = of.state or StateRecord(state=StreamState.DELETING)
    state = state.model_copy(update={"state": StreamState.DELETING})
    partitions = of.partitions()
    if open_ones := [p for p in partitions if not p.deleting]:
        return Progress(of.step(state, mark=tuple(open_ones[:AT_ONCE])))
    if partitions:
        return Progress(reason="waiting for the partitions of its segments to be removed")
    records = listed(of.view.records, ListRecords(of.paths.root, RECORDS_AT_ONCE))
    rest = tuple(record.path for record in records if record.path != of.paths.state)
    if rest:
        return Progress(of.step(state, deletes=rest))
    gone = () if of.state is None else (of.paths.state,)
    return Progress(
        Step(
            of.stream,
            ((of.paths.state, of.state_revision),),
            deletes=gone,
            remove_owner=True,
        )
    )


def _done(of: Pass, request: str, epoch: int | None) -> Outcome:
    asked = of.request(request)
    return Outcome(
        id=asked.id, kind=asked.kind, digest=asked.digest, done=True, epoch=epoch, at_ms=of.at_ms
    )


def _failed(of: Pass, request: Request, reason: str) -> Outcome:
    return Outcome(
        id=request.id,
        kind=request.kind,
        digest=request.digest,
        done=False,
        reason=reason,
        at_ms=of.at_ms,
    )
