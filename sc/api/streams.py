"""Requests of users to streams, and questions about their history.

A request is stored, and the answer says so; the stream's controller carries it out in its turn. A
question reads at most the records that it needs, all at one revision.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TypeVar

from sc.api.stream_records import StreamRecords, being_created
from sc.controller import Controller
from sc.controllers.streams.records import (
    MAX_WAITING,
    Accepted,
    EpochEntry,
    Outcome,
    Request,
    RequestKind,
    SealedSegment,
    SegmentSize,
    StateRecord,
    StreamPaths,
    decode,
    encode,
)
from sc.controllers.streams.states import DELETABLE
from sc.controllers.streams.truncation import beginning, check
from sc.kv.interface import Compare, ModRevisionIs, Op, Put
from sc.store.records import GetRecord, Records, get
from schemas.causality import current_cause
from schemas.control.streams import (
    EpochInfo,
    RequestState,
    ScaleRequest,
    ScalingEvent,
    ScalingEvents,
    SegmentHistory,
    SegmentInfo,
    StreamHead,
    StreamRequest,
    TruncateRequest,
)
from schemas.errors import ConflictError, InvalidRequestError, NotFoundError
from schemas.objects.stream import Stream, StreamState, segment_name
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import Epoch, Segment, creation_epoch, parse_segment, segment_text
from schemas.streams.key_space import KeyRange, fraction, place_of
from schemas.streams.scaling import predecessors, scaled, successors

T = TypeVar("T")
ATTEMPTS = 10
EVENTS = 100
"""Scaling events that an answer lists."""
_CLOSED = (StreamState.SEALING, StreamState.SEALED, StreamState.DELETING)


def scale_of(body: ScaleRequest, by: str, at_ms: int) -> Request:
    """The request that a user sent. Raises InvalidRequestError that names the field."""
    into = []
    for index, bounds in enumerate(body.into):
        low, high = place_of(bounds.low), place_of(bounds.high)
        if low >= high:
            raise InvalidRequestError(
                f"into[{index}]: {bounds.low:g} to {bounds.high:g} holds no key"
            )
        into.append((low, high))
    return Request(
        id=body.id or uuid.uuid4().hex,
        kind=RequestKind.SCALE,
        seal=tuple(map(parse_segment, body.seal)),
        into=tuple(into),
        by=by,
        at_ms=at_ms,
    )


def truncation_of(body: TruncateRequest, by: str, at_ms: int) -> Request:
    """The request that a user sent. Raises InvalidRequestError for what is no cut."""
    return Request(
        id=body.id or uuid.uuid4().hex,
        kind=RequestKind.TRUNCATE,
        # Equal cuts are to have one text.
        cut=str(StreamCut.parse(body.cut)),
        by=by,
        at_ms=at_ms,
    )


class StreamService:
    """Over one controller's KV and mirror."""

    def __init__(self, controller: Controller) -> None:
        self._of = StreamRecords(controller)
        self._kv = controller.kv
        self._keys = controller.keys

    # -- requests ---------------------------------------------------------------------------

    async def submit(self, name: str, request: Request, *, dry_run: bool = False) -> StreamRequest:
        """Accept a request, or find the one that asks for the same.

        Raises NotFoundError; ConflictError if the stream is sealed or being deleted, another
        request that waits replaces the same segments, or too many wait; InvalidRequestError;
        NotReadyError while the stream is being created.
        """
        stream = self._of.stream(name)
        paths = StreamPaths(stream.uid)
        for _ in range(ATTEMPTS):
            asked = (paths.state, paths.accepted, paths.outcome(request.id))
            records = await self._of.read(None, tuple(map(GetRecord, asked)))
            if (done := get(records, paths.outcome(request.id))) is not None:
                outcome = decode(Outcome, done)
                if outcome.digest != request.digest:
                    raise _another(request)
                return _finished(outcome)
            stored = get(records, paths.state)
            if stored is None:
                raise being_created(stream)
            state = decode(StateRecord, stored)
            found = get(records, paths.accepted)
            accepted = Accepted() if found is None else decode(Accepted, found)
            before = await self._waiting(records, paths, accepted)
            if (same := _same(before, request)) is not None:
                return _waiting(same, state)
            await self._admit(stream, state, records, before, request)
            compares: list[Compare] = [
                # A stream that is deleted meanwhile gets no records again.
                ModRevisionIs(self._keys.record(paths.state), stored.revision),
                ModRevisionIs(
                    self._keys.record(paths.accepted), 0 if found is None else found.revision
                ),
            ]
            waiting = Accepted(waiting=(*accepted.waiting, request.id))
            ops: list[Op] = [
                Put(self._keys.record(paths.accepted), encode(waiting)),
                Put(self._keys.record(paths.request(request.id)), encode(request)),
                Put(self._keys.bell(stream.uid), current_cause().encode()),
            ]
            if await self._of.commit(compares, ops, dry_run=dry_run):
                return _waiting(request, state)
        raise ConflictError(f"stream {name} changes too often; try again")

    async def _waiting(
        self, records: Records, paths: StreamPaths, accepted: Accepted
    ) -> tuple[Request, ...]:
        wants = tuple(GetRecord(paths.request(one)) for one in accepted.waiting)
        found = await self._of.read(records, wants)
        some = (get(found, want.path) for want in wants)
        return tuple(decode(Request, one) for one in some if one is not None)

    async def _admit(
        self,
        stream: Stream,
        state: StateRecord,
        records: Records,
        before: Sequence[Request],
        request: Request,
    ) -> None:
        if stream.deleting or state.state in _CLOSED:
            what = "being deleted" if stream.deleting else state.state.value
            then = {
                RequestKind.SCALE: "write to another one",
                RequestKind.SEAL: "write to another one",
                RequestKind.TRUNCATE: "delete it once all of it may go:"
                f" runnel delete stream {stream.name}",
            }
            raise ConflictError(
                f"stream {stream.name} is {what}: it takes no more requests; {then[request.kind]}"
            )
        if state.epoch is None:
            raise being_created(stream)
        if len(before) >= MAX_WAITING:
            raise ConflictError(
                f"{MAX_WAITING} requests of stream {stream.name} wait; try again when some are done"
            )
        match request.kind:
            case RequestKind.SCALE:
                await self._admit_scale(stream, state, records, before, request)
            case RequestKind.TRUNCATE:
                cut = StreamCut.parse(request.cut or "")
                if not before and state.state is StreamState.ACTIVE:
                    # Else those that wait change the stream: this one is checked in its turn.
                    await self._of.asking(
                        records, lambda some: check(some, stream, state.epoch or 0, cut)
                    )
            case RequestKind.SEAL:
                pass

    async def _admit_scale(
        self,
        stream: Stream,
        state: StateRecord,
        records: Records,
        before: Sequence[Request],
        request: Request,
    ) -> None:
        for other in before:
            if common := sorted(set(other.seal) & set(request.seal)):
                raise ConflictError(
                    f"request {other.id} replaces segment {segment_text(common[0])} already; wait"
                    " for it, and look at the segments again"
                )
        if not before and state.state is not StreamState.SCALING:
            # Else those that wait change the segments: this one is checked when its turn comes.
            scaled(
                await self._of.epoch(stream, records, state.epoch or 0),
                request.seal,
                request.ranges,
                next_number=state.next_number,
                min_segments=stream.spec.scaling.min_segments,
                time_ms=request.at_ms,
            )

    async def request(self, name: str, request: str) -> StreamRequest:
        """How far a request is. Raises NotFoundError if there is none, or no more."""
        stream = self._of.stream(name)
        paths = StreamPaths(stream.uid)
        records = await self._of.read(
            None,
            (
                GetRecord(paths.state),
                GetRecord(paths.request(request)),
                GetRecord(paths.outcome(request)),
            ),
        )
        if (done := get(records, paths.outcome(request))) is not None:
            return _finished(decode(Outcome, done))
        stored, waiting = get(records, paths.state), get(records, paths.request(request))
        if stored is None or waiting is None:
            raise NotFoundError(
                f"stream {name} has no request {request!r}; what became of one is kept for an hour"
            )
        return _waiting(decode(Request, waiting), decode(StateRecord, stored), stream)

    async def delete(
        self, stream: Stream, put: Put, compare: Compare, *, dry_run: bool
    ) -> int | None:
        """Begin to delete a stream: ``put`` writes it with its mark. Gives the revision, or None
        if it changed meanwhile. Raises ConflictError if it may not be deleted in its state."""
        paths = StreamPaths(stream.uid)
        records = await self._of.read(None, (GetRecord(paths.state),))
        stored = get(records, paths.state)
        compares: list[Compare] = [compare]
        ops: list[Op] = [put, Put(self._keys.bell(stream.uid), current_cause().encode())]
        if stored is not None:
            state = decode(StateRecord, stored)
            if state.state not in DELETABLE:
                raise ConflictError(
                    f"stream {stream.name} is {state.state}: only a sealed one can be deleted; seal"
                    f" it first: runnel stream seal {stream.name}"
                )
            after = state.model_copy(
                update={"state": StreamState.DELETING, "steps": state.steps + 1}
            )
            ops.append(Put(self._keys.record(paths.state), encode(after)))
        revision = stored.revision if stored is not None else 0
        compares.append(ModRevisionIs(self._keys.record(paths.state), revision))
        done = () if dry_run else ops
        result = await self._kv.txn([*self._of.here(), *compares], done)
        return result.revision if result.succeeded else None

    # -- questions --------------------------------------------------------------------------

    async def epoch(self, name: str, number: int | None = None) -> EpochInfo:
        """An epoch by its number, or the current one. Raises NotFoundError, NotReadyError."""
        stream = self._of.stream(name)
        state, records = await self._of.state(stream)
        current = self._of.current(stream, state)
        wanted = current if number is None else number
        # Readers go on in the next epoch as soon as its segments are known.
        if wanted > current + int(state.epoch_stored):
            raise NotFoundError(
                f"stream {name} has no epoch {wanted}; the current one is {current}"
            )
        found = await self._of.epoch(stream, records, wanted)
        return EpochInfo(
            stream=stream.name,
            uid=stream.uid,
            state=StreamState.DELETING if stream.deleting else state.state,
            epoch=found.number,
            time_ms=found.time_ms,
            segments=_infos(stream, found.segments),
        )

    async def head(self, name: str) -> StreamHead:
        """Where a stream begins. Raises NotFoundError, NotReadyError."""
        stream = self._of.stream(name)
        state, records = await self._of.state(stream)
        self._of.current(stream, state)
        found = await self._of.asking(records, lambda some: beginning(some, stream))
        return StreamHead(cut=str(found))

    async def segment(self, name: str, segment: int) -> SegmentHistory:
        """A segment with those before and after it. Raises NotFoundError."""
        stream = self._of.stream(name)
        paths = StreamPaths(stream.uid)
        state, records = await self._of.state(stream)
        created = creation_epoch(segment)
        # A scale has stored the epoch that it is about to begin.
        if created > self._of.current(stream, state) + 1:
            raise _no_segment(name, segment)
        records = await self._of.read(
            records, (GetRecord(paths.sealed(segment)), GetRecord(paths.size(segment)))
        )
        sealed, size = get(records, paths.sealed(segment)), get(records, paths.size(segment))
        try:
            birth = await self._of.epoch(stream, records, created)
        except InvalidRequestError:
            raise _no_segment(name, segment) from None
        found = birth.by_id().get(segment)
        if found is None:
            raise _no_segment(name, segment)
        before = await self._of.epoch(stream, records, created - 1) if created else None
        after = None
        if sealed is not None:
            after = await self._after(stream, records, decode(SealedSegment, sealed).epoch)
        return SegmentHistory(
            **dict(_info(stream, found)),
            sealed_in=None if after is None else after.number,
            end=None if size is None else decode(SegmentSize, size).end,
            predecessors=() if before is None else _infos(stream, predecessors(found.keys, before)),
            successors=() if after is None else _infos(stream, successors(found.keys, after)),
        )

    async def _after(self, stream: Stream, records: Records, epoch: int) -> Epoch | None:
        """The epoch that sealed a segment; None while only the first of its records are stored."""
        try:
            return await self._of.epoch(stream, records, epoch)
        except InvalidRequestError:
            return None

    async def events(self, name: str, limit: int) -> ScalingEvents:
        """The newest beginnings of epochs. Raises NotFoundError, NotReadyError."""
        stream = self._of.stream(name)
        paths = StreamPaths(stream.uid)
        state, records = await self._of.state(stream)
        current = self._of.current(stream, state)
        first = max(0, current - limit + 1)
        wants = tuple(GetRecord(paths.entry(n)) for n in range(first, current + 1))
        found = await self._of.read(records, wants)
        items = []
        for number, want in enumerate(wants, start=first):
            if (record := get(found, want.path)) is not None:
                entry = decode(EpochEntry, record)
                items.append(
                    ScalingEvent(
                        epoch=number,
                        time_ms=entry.time_ms,
                        splits=entry.splits,
                        merges=entry.merges,
                        by_load=entry.by_load,
                    )
                )
        return ScalingEvents(items=tuple(items), complete=first == 0)


def _same(before: Sequence[Request], request: Request) -> Request | None:
    """The request that waits and asks for the same. Raises ConflictError if one of this name asks
    for something else."""
    for other in before:
        if other.digest == request.digest:
            return other
        if other.id == request.id:
            raise _another(request)
    return None


def _another(request: Request) -> ConflictError:
    return ConflictError(
        f"id: the request {request.id!r} asked for something else; give this one another id, or"
        " leave it out"
    )


def _waiting(request: Request, state: StateRecord, stream: Stream | None = None) -> StreamRequest:
    running = state.request == request.id
    reason = None if stream is None else stream.status.reason
    if not running and state.state is not StreamState.ACTIVE:
        reason = f"the stream is {state.state}" + (f": {reason}" if reason else "")
    return StreamRequest(
        id=request.id,
        kind=request.kind.value,
        state=RequestState.RUNNING if running else RequestState.WAITING,
        reason=reason,
    )


def _finished(outcome: Outcome) -> StreamRequest:
    return StreamRequest(
        id=outcome.id,
        kind=outcome.kind.value,
        state=RequestState.DONE if outcome.done else RequestState.FAILED,
        reason=outcome.reason,
        epoch=outcome.epoch,
    )


def _infos(stream: Stream, segments: Sequence[Segment]) -> tuple[SegmentInfo, ...]:
    return tuple(_info(stream, segment) for segment in segments)


def _info(stream: Stream, segment: Segment) -> SegmentInfo:
    keys: KeyRange = segment.keys
    return SegmentInfo(
        id=segment_text(segment.id),
        partition=segment_name(stream.uid, segment.id),
        low=fraction(keys.low),
        high=fraction(keys.high),
    )


def _no_segment(name: str, segment: int) -> NotFoundError:
    return NotFoundError(f"stream {name} has no segment {segment_text(segment)}")
