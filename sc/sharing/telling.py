"""The leader's side: what another SC has not been told yet of SPUs and segments. Pure.

Neighbour: `sc.sharing.facts_port` sends it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sc.store.view import Liveness, View
from schemas.control.facts import (
    SEGMENTS_AT_ONCE,
    Facts,
    SegmentFact,
    SegmentNumbers,
    SpuFact,
)
from schemas.control.messages import ReplicaReport
from schemas.control.statistics import ReplicaNumbers
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream

_Told = tuple[int, int, int, bool, object, ReplicaNumbers | None]
"""What was told of a segment; two that are equal say the same."""


class Teller:
    """What one listener was told of the segments in a view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._told: dict[str, _Told] = {}

    def news(self, now_ms: int) -> Iterator[Facts]:
        """What it has not been told yet: SPUs, and then segments. The view may change between two
        messages: what an SPU says of segments that was not there before waits for the next time."""
        view, before, self._told = self._view, self._told, {}
        spus = tuple(
            SpuFact(spu_id=spu_id, free_bytes=session.free_bytes)
            for spu_id, session in sorted(view.sessions.items())
        )
        known = {spu.spu_id for spu in spus}
        waits = any(
            view.liveness(spu.spec.spu_id, now_ms) is Liveness.UNKNOWN
            for spu in view.store.objects(Spu)
        )
        yield Facts(spus=spus, waits=waits)
        segments: list[SegmentFact] = []
        for stream in view.store.objects(Stream):
            for partition in view.store.partitions_of("Stream", stream.name):
                if (fact := self._fact(partition, before, known)) is None:
                    continue
                segments.append(fact)
                if len(segments) == SEGMENTS_AT_ONCE:
                    yield Facts(segments=tuple(segments))
                    segments.clear()
        if segments:
            yield Facts(segments=tuple(segments))

    def _fact(
        self, partition: Partition, before: dict[str, _Told], known: set[int]
    ) -> SegmentFact | None:
        """What is new of a segment, from an SPU that the listener knows."""
        uid, leader = partition.uid, partition.status.leader
        report = None if leader is None else self._view.report(leader, uid)
        if leader is None or report is None or leader not in known:
            return None
        numbers = self._view.numbers(partition)
        told = (leader, *_said(report), numbers)
        self._told[uid] = told
        if before.get(uid) == told:
            return None
        return SegmentFact(
            uid=partition.uid,
            spu_id=leader,
            revision=report.revision,
            incarnation=report.incarnation,
            assigned=report.assigned,
            load=report.load,
            numbers=None
            if numbers is None
            else SegmentNumbers(
                log_start=numbers.log_start,
                committed_end=numbers.committed_end,
                log_end=numbers.log_end,
                log_bytes=numbers.log_bytes,
            ),
        )


def _said(report: ReplicaReport) -> tuple[int, int, bool, object]:
    return report.revision, report.incarnation, report.assigned, report.load
