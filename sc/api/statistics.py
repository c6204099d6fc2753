"""Statistics as the API shows them: SPUs, topics and partitions with their latest numbers.

All is read from memory (`sc.statistics.board`). What SPUs have not told, because they are older or
away, is left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sc.api.answers import (
    PartitionStatistics,
    PipelineStatistics,
    RateSeries,
    ReplicaStatistics,
    SpuStatistics,
    StatisticsAnswer,
    TopicStatistics,
    UnreachablePeerStatistics,
)
from sc.api.feeds import EventStream
from sc.api.routes import STATISTICS
from sc.controller import Controller
from sc.statistics.board import Changes
from sc.statistics.series import Series
from sc.store.view import SessionState
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition, is_under_replicated
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic

_AT_ONCE: Final = 256
#: The slowest reader has had a turn after so long.
_AFTERWARDS_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: these topics and their partitions, or a page of all topics. ``seconds``:
    of how many the series are to tell."""

    topics: frozenset[str] = frozenset()
    seconds: int = 0
    limit: int | None = None
    after: str = ""


@dataclass(frozen=True, slots=True)
class Followed:
    """What a reader of changes wants: these topics, or all; and of partitions all, or only those of
    which a replica is not live; and the statuses of pipelines, or not."""

    topics: frozenset[str] = frozenset()
    catching_up: bool = False
    pipelines: bool = False

    def has(self, partition: Partition) -> bool:
        """Whether the numbers of a partition are wanted."""
        return not self.catching_up or partition.spec.moves or is_under_replicated(partition)


class StatisticsView:
    """The statistics of one SC."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        #: What readers of changes got since the last second ended, by what they had seen.
        self._computed: dict[tuple[int, Followed], asyncio.Task[str | None]] = {}
        self._computed_at = -1
        #: Readers are told each second that there is trouble, and for a while that it is over.
        self._trouble_until = 0.0

    async def all(self, wanted: Wanted) -> StatisticsAnswer:
        """What is asked for, as of now."""
        store = self._controller.view.store
        if wanted.topics:
            names = [name for name in sorted(wanted.topics) if store.get(Topic, name) is not None]
        else:
            names = sorted(t.name for t in store.objects(Topic) if t.name > wanted.after)
        page = names[: wanted.limit]
        partitions = []
        if wanted.topics:
            for name in page:
                partitions += store.partitions_of(Topic.kind_name(), name)
        return StatisticsAnswer(
            at=self._at(),
            spus=tuple(self._spus(store.objects(Spu), wanted.seconds)),
            topics=tuple([one async for one in self._topics(page, wanted.seconds)]),
            partitions=tuple([one async for one in self._partitions(partitions)]),
            trouble=self._controller.kv_health.trouble,
            next=page[-1] if len(page) < len(names) else None,
        )

    async def changed(self, changes: Changes, wanted: Followed) -> StatisticsAnswer | None:
        """What changed of what is wanted; None if nothing did."""
        topics = wanted.topics
        store = self._controller.view.store
        ids, uids = changes.spus, changes.partitions
        spus = [s for s in store.objects(Spu) if ids is None or s.spec.spu_id in ids]
        found: Iterable[Partition]
        if uids is None:
            found = store.objects(Partition)
        else:
            found = (p for uid in uids if (p := store.partition_by_uid(uid)) is not None)
        partitions = [p for p in found if not topics or p.spec.owner.name in topics]
        names = {p.spec.owner.name for p in partitions}
        names |= {name for name in changes.topics or () if not topics or name in topics}
        shown = [p for p in partitions if wanted.has(p)]
        trouble = self._controller.kv_health.trouble
        if trouble is not None:
            self._trouble_until = time.monotonic() + _AFTERWARDS_S
        pipelines = self._pipelines(changes) if wanted.pipelines else ()
        if not spus and not names and not pipelines and time.monotonic() > self._trouble_until:
            return None
        return StatisticsAnswer(
            at=self._at(),
            spus=tuple(self._spus(spus, 0)),
            topics=tuple([one async for one in self._topics(sorted(names), 0)]),
            partitions=tuple([one async for one in self._partitions(shown)]),
            pipelines=pipelines,
            trouble=trouble,
        )

    async def follow(self, stream: EventStream, wanted: Followed) -> None:
        """Send statistics: all, and then once a second what changed. A slow reader gets the
        changes of several seconds at once."""
        version = -1
        while True:
            text, version = await self._news(version, wanted)
            if text is not None:
                await stream.send([(STATISTICS, text)])
            await stream.while_waiting(self._controller.seconds.end)

    async def _news(self, version: int, wanted: Followed) -> tuple[str | None, int]:
        """What changed after a version, as JSON, and the version that it leads to. It is computed
        once for all readers that have seen the same."""
        now = self._controller.statistics.version
        if self._computed_at != now:
            self._computed, self._computed_at = {}, now
        task = self._computed.get((version, wanted))
        if task is None:
            changes = self._controller.statistics.changes_since(version)
            task = asyncio.create_task(self._text(changes, wanted), name="statistics")
            self._computed[version, wanted] = task
        # One reader that goes away does not take the answer from the others.
        return await asyncio.shield(task), now

    async def _text(self, changes: Changes, wanted: Followed) -> str | None:
        found = await self.changed(changes, wanted)
        return None if found is None else found.model_dump_json(by_alias=True)

    def _pipelines(self, changes: Changes) -> tuple[PipelineStatistics, ...]:
        everything = changes.spus is None
        found = self._controller.pipelines.changed_since(None if everything else changes.after)
        return tuple(
            PipelineStatistics(name=name, **status.model_dump())
            for name, status in sorted(found.items())
        )

    def _at(self) -> int:
        passed_ms = self._controller.clock_ms() - self._second * 1000
        return time.time_ns() // 1_000_000 - passed_ms

    @property
    def _second(self) -> int:
        return self._controller.statistics.second

    def _spus(self, spus: Sequence[Spu], seconds: int) -> Iterable[SpuStatistics]:
        now_ms, board = self._controller.clock_ms(), self._controller.statistics
        sessions = self._controller.view.sessions
        for spu in spus:
            found = board.spu(spu.spec.spu_id)
            if found is None:
                continue
            rates = {
                "receivedBytesPerSecond": found.received,
                "sentBytesPerSecond": found.sent,
                "requestsPerSecond": found.requests,
                "appendP99Us": found.append_p99_us,
                "fsyncP99Us": found.fsync_p99_us,
            }
            yield SpuStatistics(
                name=spu.name,
                spu=spu.spec.spu_id,
                connected=found.connected,
                told_ms=now_ms - found.told_ms,
                received_bytes_per_second=found.received.at(self._second),
                sent_bytes_per_second=found.sent.at(self._second),
                requests_per_second=found.requests.at(self._second),
                unreachable_peers=_unreachable(sessions.get(spu.spec.spu_id)),
                series=self._series(rates, seconds),
                **found.numbers.model_dump(),
            )

    async def _topics(self, names: Iterable[str], seconds: int) -> AsyncIterator[TopicStatistics]:
        store, board = self._controller.view.store, self._controller.statistics
        for number, name in enumerate(names):
            if number % _AT_ONCE == 0:
                # Heartbeats of SPUs do not wait for it.
                await asyncio.sleep(0)
            total = board.total(name)
            rates = board.topic(name)
            series = {}
            if rates is not None:
                series = {
                    "offsetsPerSecond": rates.records,
                    "bytesPerSecond": rates.written_bytes,
                }
            yield TopicStatistics(
                name=name,
                partitions=store.partition_count(Topic.kind_name(), name),
                offsets=total.offsets,
                log_bytes=total.log_bytes,
                offsets_per_second=rates.records.at(self._second) if rates else 0,
                bytes_per_second=rates.written_bytes.at(self._second) if rates else 0,
                series=self._series(series, seconds),
            )

    async def _partitions(
        self, partitions: Iterable[Partition]
    ) -> AsyncIterator[PartitionStatistics]:
        board = self._controller.statistics
        for number, partition in enumerate(partitions):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            numbers = board.partition(partition)
            if numbers is None:
                continue
            replicas = board.replicas(PartitionUid(partition.uid))
            yield PartitionStatistics(
                name=partition.name,
                log_start=numbers.log_start,
                committed_end=numbers.committed_end,
                log_end=numbers.log_end,
                log_bytes=numbers.log_bytes,
                replicas=tuple(
                    ReplicaStatistics(
                        spu=spu, log_end=replicas[spu].log_end, log_bytes=replicas[spu].log_bytes
                    )
                    for spu in partition.spec.replicas
                    if spu in replicas
                ),
            )

    def _series(self, rates: dict[str, Series], seconds: int) -> tuple[RateSeries, ...]:
        if not seconds:
            return ()
        return tuple(
            RateSeries(name=name, values=tuple(series.last(self._second, seconds)))
            for name, series in rates.items()
        )


def _unreachable(session: SessionState | None) -> tuple[UnreachablePeerStatistics, ...]:
    if session is None:
        return ()
    return tuple(
        UnreachablePeerStatistics(
            spu=peer.spu_id, host=peer.host, port=peer.port, reason=peer.reason
        )
        for _, peer in sorted(session.unreachable.items())
    )
