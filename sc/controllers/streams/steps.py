"""What a pass over one stream knows, and what its steps are made of. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sc.controllers.actions import Step
from sc.controllers.placing import NotPlaced, named_by, place_new
from sc.controllers.streams.records import (
    EPOCHS_KNOWN,
    KEEP_DONE_MS,
    Accepted,
    Outcome,
    Request,
    StateRecord,
    StreamPaths,
    decode,
    encode,
    epoch_of,
)
from sc.store.records import GetRecord, ListRecords, Record, get, listed, need
from sc.store.view import View
from schemas.errors import InvalidRequestError
from schemas.ids import make_term
from schemas.objects.metadata import Metadata, OwnerReference
from schemas.objects.partition import (
    DesiredState,
    Partition,
    PartitionSpec,
    PartitionStatus,
    is_writable,
)
from schemas.objects.stream import Stream, segment_name
from schemas.streams.epochs import Change, Epoch, Segment, decode_change, segment_text

AT_ONCE: Final = 60
"""Partitions that one step creates or changes, and SPUs that it compares: one transaction of the KV
compares at most 128 keys."""
RECORDS_AT_ONCE: Final = 60
"""Records that one step writes or removes."""
LOOK_AGAIN_MS: Final = 1_000
"""How soon a stream looks again at what SPUs report: a report is no change of the mirror."""
NAMED: Final = 3
"""Segments that a reason names."""
_NAMESPACE: Final = uuid.UUID("5d1f3a3e-0c9e-4f0b-8d4b-6f2a7c1e9b10")


@dataclass(frozen=True, slots=True)
class Progress:
    """What a workflow does next: a step, or what it waits for. ``outside``: something that is not
    in the mirror's objects may end the wait, by ``until_ms`` at the latest if that is given."""

    step: Step | None = None
    reason: str | None = None
    outside: bool = False
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One look at a stream, with the records that every look needs."""

    view: View
    stream: Stream
    now_ms: int
    state: StateRecord | None
    state_revision: int
    accepted: Accepted
    accepted_revision: int

    @classmethod
    def begin(cls, view: View, stream: Stream, now_ms: int) -> Pass:
        """Raises NotReadError, InvalidRequestError."""
        paths = StreamPaths(stream.uid)
        need(view.records, GetRecord(paths.state), GetRecord(paths.accepted))
        state, accepted = get(view.records, paths.state), get(view.records, paths.accepted)
        return cls(
            view,
            stream,
            now_ms,
            None if state is None else decode(StateRecord, state),
            _revision(state),
            Accepted() if accepted is None else decode(Accepted, accepted),
            _revision(accepted),
        )

    @property
    def paths(self) -> StreamPaths:
        return StreamPaths(self.stream.uid)

    @property
    def at_ms(self) -> int:
        """When the pass began, in milliseconds since 1970."""
        return 0 if self.view.records is None else self.view.records.at_ms

    def plan(self) -> Change:
        """The change that is being carried out. Raises NotReadError, InvalidRequestError."""
        found = get(self.view.records, self.paths.plan)
        if found is None:
            raise InvalidRequestError(f"record {self.paths.plan} is missing")
        return _planned(found.value)

    def epoch(self) -> Epoch:
        """The current epoch. Raises NotReadError, InvalidRequestError."""
        if self.state is None or self.state.epoch is None:
            raise InvalidRequestError(f"stream {self.stream.name} has no epoch yet")
        want = self.paths.epoch_want(self.state.epoch)
        return epoch_of(self.state.epoch, listed(self.view.records, want))

    def partition(self, segment: int) -> Partition | None:
        """The partition that holds a segment, by the segment's id."""
        return self.view.store.get(Partition, segment_name(self.stream.uid, segment))

    def partitions(self) -> list[Partition]:
        """All partitions of the stream; there may be very many."""
        found = self.view.store.partitions_of("Stream", self.stream.name)
        return [p for p in found if p.spec.owner.uid == self.stream.uid]

    def request(self, request: str) -> Request:
        """An accepted request. Raises NotReadError, InvalidRequestError."""
        found = get(self.view.records, self.paths.request(request))
        if found is None:
            raise InvalidRequestError(f"record {self.paths.request(request)} is missing")
        return decode(Request, found)

    # -- steps ------------------------------------------------------------------------------

    def step(
        self,
        state: StateRecord,
        *,
        compares: tuple[tuple[str, int], ...] = (),
        puts: tuple[tuple[str, bytes], ...] = (),
        deletes: tuple[str, ...] = (),
        create: tuple[Partition, ...] = (),
        respec: tuple[tuple[Partition, PartitionSpec], ...] = (),
        mark: tuple[Partition, ...] = (),
        same_owner: bool = False,
    ) -> Step:
        """A step to a state. It always compares the state record, and writes it."""
        before = 0 if self.state is None else self.state.steps
        after = state.model_copy(update={"steps": before + 1})
        return Step(
            self.stream,
            ((self.paths.state, self.state_revision), *compares),
            ((self.paths.state, encode(after)), *puts),
            deletes,
            create,
            named_by(self.view, create),
            respec,
            mark,
            same_owner=same_owner,
        )

    def completion(
        self, state: StateRecord, outcome: Outcome | None, *, puts: tuple[tuple[str, bytes], ...]
    ) -> Step:
        """The last step of a workflow: the plan goes, and the request becomes its outcome.

        Raises NotReadError: outcomes that are old enough go with it.
        """
        deletes = (self.paths.plan,)
        begun_with = {"request": None, "epoch_stored": False, "by_load": None, "cursor": 0}
        state = state.model_copy(update=begun_with)
        if outcome is None:
            return self.step(state, puts=puts, deletes=deletes)
        old = [
            record.path
            for record in listed(self.view.records, ListRecords(self.paths.outcomes, AT_ONCE // 2))
            if decode(Outcome, record).at_ms < self.at_ms - KEEP_DONE_MS
        ]
        waiting = tuple(one for one in self.accepted.waiting if one != outcome.id)
        return self.step(
            state,
            compares=((self.paths.accepted, self.accepted_revision),),
            puts=(
                *puts,
                (self.paths.accepted, encode(Accepted(waiting=waiting))),
                (self.paths.outcome(outcome.id), encode(outcome)),
            ),
            deletes=(*deletes, self.paths.request(outcome.id), *old),
        )

    # -- partitions -------------------------------------------------------------------------

    def created(self, state: StateRecord, segments: Sequence[Segment]) -> Progress | None:
        """The step that creates the next partitions of these segments, or why there is none; None
        once all exist."""
        missing = [segment for segment in segments if self.partition(segment.id) is None]
        if not missing:
            return None
        now = missing[:AT_ONCE]
        replicas = self.stream.spec.replication_factor
        found = place_new(self.view, len(now), replicas, self.now_ms)
        if isinstance(found, NotPlaced):
            done = f"{len(segments) - len(missing)} of {len(segments)} segments are created"
            return Progress(
                reason=f"{found.reason} ({done})", outside=True, until_ms=found.until_ms
            )
        some: list[Partition] = []
        spus: set[int] = set()
        for segment, row in zip(now, found.rows, strict=True):
            spus.update(row)
            if some and len(spus) > AT_ONCE:
                break
            some.append(_partition(self.stream, segment, row, self.view.incarnation))
        return Progress(self.step(state, create=tuple(some)))

    def writable(self, segments: Sequence[Segment]) -> Progress | None:
        """Which of these segments take no records yet; None once all do."""
        there = [p for one in segments if (p := self.partition(one.id)) is not None]
        texts = [
            f"segment {segment_text(p.spec.segment_id or 0)}{_why(p)}"
            for p in there
            if not is_writable(p) and not p.deleting
        ]
        return _waits("live replicas", texts) if texts else None

    def sealed(self, state: StateRecord, segments: Sequence[int]) -> Progress | None:
        """The step that has the next of these segments sealed, or which of them are not sealed
        yet; None once all are."""
        there = [p for one in segments if (p := self.partition(one)) is not None]
        if still := [p for p in there if p.spec.desired is DesiredState.OPEN and not p.deleting]:
            respec = tuple(
                (p, p.spec.model_copy(update={"desired": DesiredState.SEALED}))
                for p in still[:AT_ONCE]
            )
            return Progress(self.step(state, respec=respec))
        waiting = [p for p in there if p.status.sealed_offset is None]
        gone = [] if len(there) == len(segments) else self._gone(segments)
        if not waiting and not gone:
            return None
        texts = [f"segment {segment_text(p.spec.segment_id or 0)}{_why(p)}" for p in waiting]
        texts += [f"segment {segment_text(one)}, whose partition somebody removed" for one in gone]
        return _waits("the seal", texts)

    def truncated(self, state: StateRecord, offsets: Mapping[int, int]) -> Progress | None:
        """The step that has the next of these segments begin at their offsets, or which of them do
        not begin there yet; None once all do.

        Records beyond the end of an open log are not waited for: its leader removes them, too, once
        they come.
        """
        there = [
            (p, offset)
            for one, offset in sorted(offsets.items())
            if offset > 0 and (p := self.partition(one)) is not None and not p.deleting
        ]
        if due := [(p, offset) for p, offset in there if (p.spec.truncate_before or 0) < offset]:
            respec = tuple(
                (p, p.spec.model_copy(update={"truncate_before": offset}))
                for p, offset in due[:AT_ONCE]
            )
            return Progress(self.step(state, respec=respec))
        texts = [
            f"segment {segment_text(p.spec.segment_id or 0)}{_why(p)}"
            for p, offset in there
            if p.status.start_offset < offset and not self._obeys(p)
        ]
        if not texts:
            return None
        until_ms = self.now_ms + LOOK_AGAIN_MS
        return replace(_waits("the truncation", texts), outside=True, until_ms=until_ms)

    def _obeys(self, partition: Partition) -> bool:
        """Whether the leader of a partition knows its spec, and acts by it."""
        leader = partition.status.leader
        report = None if leader is None else self.view.report(leader, partition.uid)
        return report is not None and self.view.knows(report, partition)

    def _gone(self, segments: Sequence[int]) -> list[int]:
        return [one for one in segments if self.partition(one) is None]


@lru_cache(maxsize=EPOCHS_KNOWN)
def _planned(value: bytes) -> Change:
    return decode_change(value)


def _waits(what: str, segments: Sequence[str]) -> Progress:
    more = f" and {len(segments) - NAMED} more" if len(segments) > NAMED else ""
    return Progress(reason=f"waiting for {what} of {'; '.join(segments[:NAMED])}{more}")


def _why(partition: Partition) -> str:
    return f" ({partition.status.reason})" if partition.status.reason else ""


def _revision(record: Record | None) -> int:
    return 0 if record is None else record.revision


def segment_uid(stream_uid: str, segment: int) -> str:
    """The uid of the partition that holds a segment: fixed, so that it is created once."""
    return str(uuid.uuid5(_NAMESPACE, f"{stream_uid}/{segment:x}"))


def _partition(
    stream: Stream, segment: Segment, replicas: tuple[int, ...], incarnation: int
) -> Partition:
    return Partition(
        metadata=Metadata(
            name=segment_name(stream.uid, segment.id),
            labels={"stream": stream.name},
            uid=segment_uid(stream.uid, segment.id),
        ),
        spec=PartitionSpec(
            owner=OwnerReference(kind="Stream", name=stream.name, uid=stream.uid),
            index=segment.number,
            segment_id=segment.id,
            replicas=replicas,
            preferred_leader=replicas[0],
            log=stream.spec.log_settings,
        ),
        # One that is made while the cluster recovers has nothing to recover.
        status=PartitionStatus(term=make_term(incarnation, 0)),
    )
