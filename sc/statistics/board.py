"""The latest numbers of SPUs and replicas, and the rates that follow from them. Pure.

Time is a number of milliseconds that grows. `Board.close_second` is called once a second: what was
told since the call before is the change of that second. Every number has a version, which grows by
one with each second: a reader that says which version it has seen gets only what changed since.

Bounds: numbers are kept for replicas that SPUs say they hold and that the store knows, series for
all SPUs and for the `MAX_TOPICS` topics that had records last.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sc.statistics.series import Series
from sc.statistics.totals import Total, Totals
from sc.store.local_store import LocalStore
from schemas.control.statistics import ReplicaNumbers, SpuNumbers, Statistics
from schemas.ids import PartitionUid
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic

MAX_TOPICS: Final = 1_000
#: For so many seconds the board knows what changed; a reader that is further behind gets all.
_REMEMBERED_S: Final = 30

T = TypeVar("T")


@dataclass(slots=True)
class SpuBoard:
    """One SPU: its numbers, when it told them last, and by second the changes of its counters and
    its latencies."""

    numbers: SpuNumbers
    told_ms: int
    connected: bool = True
    received: Series = field(default_factory=Series)
    sent: Series = field(default_factory=Series)
    requests: Series = field(default_factory=Series)
    append_p99_us: Series = field(default_factory=Series)
    fsync_p99_us: Series = field(default_factory=Series)
    before: SpuNumbers | None = None
    """The numbers at the end of the second before."""


@dataclass(slots=True)
class TopicBoard:
    """One topic: records and bytes that were committed, by second.

    Control records have offsets, too: a rate counts them.
    """

    records: Series = field(default_factory=Series)
    written_bytes: Series = field(default_factory=Series)


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed after the version ``after``: ids of SPUs, names of topics, uids of partitions;
    None: anything."""

    after: int
    version: int
    spus: frozenset[int] | None
    topics: frozenset[str] | None
    partitions: frozenset[PartitionUid] | None


@dataclass(slots=True)
class _Second:
    """What happened since the last second ended."""

    spus: set[int] = field(default_factory=set)
    partitions: set[PartitionUid] = field(default_factory=set)
    committed: dict[PartitionUid, int] = field(default_factory=dict)
    written: dict[PartitionUid, int] = field(default_factory=dict)


class Board:
    """The numbers of one cluster."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._spus: dict[int, SpuBoard] = {}
        self._replicas: dict[PartitionUid, dict[int, ReplicaNumbers]] = {}
        #: The replicas that each SPU has told of in its session of now.
        self._told_now: defaultdict[int, set[PartitionUid]] = defaultdict(set)
        self._topics: dict[str, TopicBoard] = {}
        self._totals = Totals()
        self._active: set[str] = set()
        self._now = _Second()
        self._past: deque[Changes] = deque(maxlen=_REMEMBERED_S)
        self.version = 0
        #: The second that ended last.
        self.second = 0

    # -- what comes in ------------------------------------------------------------------------

    def told(self, spu_id: int, statistics: Statistics, now_ms: int) -> None:
        """An SPU has told its numbers. What the store does not know is passed over: it was deleted,
        and the SPU has not heard of that yet."""
        if self._store.spu(spu_id) is None:
            return
        found = self._spus.get(spu_id)
        if found is None:
            self._spus[spu_id] = found = SpuBoard(statistics.spu, now_ms)
        found.numbers, found.told_ms, found.connected = statistics.spu, now_ms, True
        self._now.spus.add(spu_id)
        for numbers in statistics.replicas:
            self._told_of(spu_id, numbers)

    def opened(self, spu_id: int) -> None:
        """An SPU begins another session: its logs may be others than those that it told of."""
        self._told_now.pop(spu_id, None)

    def away(self, spu_id: int) -> None:
        """An SPU has no session any more: its numbers are those of the past."""
        if (found := self._spus.get(spu_id)) is not None:
            found.connected = False
            self._now.spus.add(spu_id)

    def seen_otherwise(self, spu_id: int) -> None:
        """What readers see of an SPU beside its numbers has changed."""
        if spu_id in self._spus:
            self._now.spus.add(spu_id)

    def changed(self, partition: Partition) -> None:
        """The object has changed: another replica's numbers may be those of the partition."""
        if partition.uid in self._replicas:
            self._count(partition)

    def _told_of(self, spu_id: int, numbers: ReplicaNumbers) -> None:
        partition = self._store.partition_by_uid(numbers.uid)
        if partition is None:
            return
        replicas = self._replicas.setdefault(numbers.uid, {})
        before = replicas.get(spu_id)
        replicas[spu_id] = numbers
        self._told_now[spu_id].add(numbers.uid)
        now = self._now
        now.partitions.add(numbers.uid)
        leader = partition.status.leader
        if leader == spu_id or leader not in replicas:
            self._count(partition)
        if before is None or leader != spu_id:
            return
        more = max(0, numbers.committed_end - before.committed_end)
        # Retention makes a log smaller: what it took is not known, so this is the least.
        grown = max(0, numbers.log_bytes - before.log_bytes)
        now.committed[numbers.uid] = now.committed.get(numbers.uid, 0) + more
        now.written[numbers.uid] = now.written.get(numbers.uid, 0) + grown

    def _count(self, partition: Partition) -> None:
        """The numbers of a partition may be others now. They are counted at once, a few at a time:
        all that changed in a second, once a second, delayed records."""
        numbers = self.partition(partition)
        if numbers is not None:
            uid, topic = PartitionUid(partition.uid), partition.spec.owner.name
            offsets = max(0, numbers.committed_end - numbers.log_start)
            self._totals.count(uid, topic, offsets, numbers.log_bytes)

    def close_second(self, second: int) -> None:
        """This second is over: compute its rates."""
        if second <= self.second:
            return
        elapsed = second - self.second if self.second else 1
        now, self._now = self._now, _Second()
        for spu in self._spus.values():
            _close(spu, second, elapsed)
        topics = self._close_topics(now, second, elapsed)
        self.version += 1
        self.second = second
        self._past.append(
            Changes(
                self.version - 1,
                self.version,
                frozenset(now.spus),
                topics,
                frozenset(now.partitions),
            )
        )

    def _close_topics(self, now: _Second, second: int, elapsed: int) -> frozenset[str]:
        """Rates of the topics that have any; names of those whose rate may have changed."""
        records: dict[str, int] = {}
        written: dict[str, int] = {}
        for uid, count in now.committed.items():
            partition = self._store.partition_by_uid(uid)
            if partition is None:
                continue
            topic = partition.spec.owner.name
            records[topic] = records.get(topic, 0) + count
            written[topic] = written.get(topic, 0) + now.written[uid]
        for topic, count in records.items():
            # The newest are last.
            found = self._topics.pop(topic, None) or TopicBoard()
            self._topics[topic] = found
            found.records.set(second, count / elapsed)
            found.written_bytes.set(second, written[topic] / elapsed)
        while len(self._topics) > MAX_TOPICS:
            del self._topics[next(iter(self._topics))]
        changed = frozenset(records) | self._active
        self._active = set(records)
        return changed

    def forget(self, gone: Object) -> None:
        """An object was deleted."""
        match gone:
            case Spu():
                self._spus.pop(gone.spec.spu_id, None)
                self._told_now.pop(gone.spec.spu_id, None)
            case Topic():
                self._topics.pop(gone.name, None)
            case Partition():
                uid = PartitionUid(gone.uid)
                for spu_id in self._replicas.pop(uid, ()):
                    self._told_now[spu_id].discard(uid)
                self._totals.forget(uid)
            case _:
                pass

    # -- what goes out ------------------------------------------------------------------------

    def spu(self, spu_id: int) -> SpuBoard | None:
        """The numbers of an SPU; None before it told any."""
        return self._spus.get(spu_id)

    def topic(self, name: str) -> TopicBoard | None:
        """The rates of a topic; None if it had no records for long."""
        return self._topics.get(name)

    def total(self, topic: str) -> Total:
        """The sums over the partitions of a topic."""
        return self._totals.of(topic)

    def replicas(self, uid: PartitionUid) -> dict[int, ReplicaNumbers]:
        """The numbers of a partition's replicas, by SPU."""
        return self._replicas.get(uid, {})

    def partition(self, partition: Partition) -> ReplicaNumbers | None:
        """The numbers of a partition: its leader's, or else those of the replica that knows the
        most records to be committed."""
        found = self.replicas(PartitionUid(partition.uid))
        if (leader := partition.status.leader) is not None and leader in found:
            return found[leader]
        return max(found.values(), key=lambda numbers: numbers.committed_end, default=None)

    def of_leader(self, partition: Partition) -> ReplicaNumbers | None:
        """The numbers of the log of the present leader, None before it has told them: where what
        others have, or what was there before its last start, would be wrong."""
        uid, leader = PartitionUid(partition.uid), partition.status.leader
        if leader is None or uid not in self._told_now.get(leader, ()):
            return None
        return self.replicas(uid).get(leader)

    def changes_since(self, version: int) -> Changes:
        """What changed after a version."""
        later = [changes for changes in self._past if changes.version > version]
        if len(later) != self.version - version:
            return Changes(version, self.version, None, None, None)
        return Changes(
            version,
            self.version,
            _union(changes.spus for changes in later),
            _union(changes.topics for changes in later),
            _union(changes.partitions for changes in later),
        )


def _union(sets: Iterable[frozenset[T] | None]) -> frozenset[T]:
    return frozenset(one for found in sets for one in found or ())


def _close(spu: SpuBoard, second: int, elapsed: int) -> None:
    before, numbers = spu.before, spu.numbers
    for latency, value in (
        (spu.append_p99_us, numbers.append_p99_us),
        (spu.fsync_p99_us, numbers.fsync_p99_us),
    ):
        if value is not None and spu.connected:
            latency.set(second, value)
    spu.before = numbers
    if before is None:
        return
    for series, new, old in (
        (spu.received, numbers.received_bytes, before.received_bytes),
        (spu.sent, numbers.sent_bytes, before.sent_bytes),
        (spu.requests, numbers.requests, before.requests),
    ):
        # A process that started again counts from 0.
        if new != old:
            series.set(second, max(0, new - old if new >= old else new) / elapsed)
