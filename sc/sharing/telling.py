"""The leader's side: it tells the other SCs what it hears of SPUs and segments.

`Teller` compares what it has told with what its view shows now. `FactsPort` serves the private
port: a response that goes on for as long as this SC leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from aiohttp import hdrs, web

from sc.store.view import Liveness, View
from schemas.control.facts import (
    SEGMENTS_AT_ONCE,
    TELL_S,
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

#: Connections that are told at the same time: each costs a look at every segment.
MOST_LISTENERS: Final = 8

_Told = tuple[int, int, int, bool, object, ReplicaNumbers | None]
"""What was told of a segment; two that are equal say the same."""


class Teller:
    """What one listener was told of the segments in a view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._told: dict[str, _Told] = {}

    def news(self, now_ms: int) -> Iterator[Facts]:
        """What it has not been told yet: SPUs, and then segments. The view may change between two
        messages."""
        view, before, self._told = self._view, self._told, {}
        spus = tuple(
            SpuFact(spu_id=spu_id, free_bytes=session.free_bytes)
            for spu_id, session in sorted(view.sessions.items())
        )
        waits = any(
            view.liveness(spu.spec.spu_id, now_ms) is Liveness.UNKNOWN
            for spu in view.store.objects(Spu)
        )
        yield Facts(spus=spus, waits=waits)
        segments: list[SegmentFact] = []
        for stream in view.store.objects(Stream):
            for partition in view.store.partitions_of("Stream", stream.name):
                if (fact := self._fact(partition, before)) is None:
                    continue
                segments.append(fact)
                if len(segments) == SEGMENTS_AT_ONCE:
                    yield Facts(segments=tuple(segments))
                    segments.clear()
        if segments:
            yield Facts(segments=tuple(segments))

    def _fact(self, partition: Partition, before: dict[str, _Told]) -> SegmentFact | None:
        """What is new of a segment."""
        uid, leader = partition.uid, partition.status.leader
        report = None if leader is None else self._view.report(leader, uid)
        if leader is None or report is None:
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


class Leading(Protocol):
    """An SC while it leads."""

    @property
    def view(self) -> View:
        """What it knows."""

    @property
    def leads(self) -> bool:
        """Whether it may still speak for the cluster."""

    @property
    def clock_ms(self) -> Callable[[], int]:
        """The clock of its view."""

    async def until_over(self) -> None:
        """Wait until it leads no more. Raises FencedError then."""


class FactsPort:
    """Tells other SCs on the private port, while this one leads."""

    def __init__(self) -> None:
        #: This SC, while it leads.
        self.leading: Leading | None = None
        self._listeners = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The aiohttp handler."""
        if hdrs.ORIGIN in request.headers:
            raise web.HTTPForbidden(text="this port is for SCs and SPUs, not for web pages\n")
        leading = self.leading
        if leading is None or not leading.leads:
            raise web.HTTPServiceUnavailable(text="this SC does not lead\n")
        if self._listeners >= MOST_LISTENERS:
            raise web.HTTPServiceUnavailable(text="too many listen here already\n")
        self._listeners += 1
        try:
            return await self._tell(request, leading)
        finally:
            self._listeners -= 1

    async def _tell(self, request: web.Request, leading: Leading) -> web.StreamResponse:
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/x-ndjson"})
        await response.prepare(request)
        teller = Teller(leading.view)
        over = asyncio.ensure_future(leading.until_over())
        try:
            while leading.leads:
                for message in teller.news(leading.clock_ms()):
                    await response.write(message.encode())
                    # Sessions come first: very many segments take long.
                    await asyncio.sleep(0)
                await asyncio.wait([over], timeout=TELL_S)
        except ConnectionError:
            # The listener is gone.
            pass
        finally:
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)
        return response
