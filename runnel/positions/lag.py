"""How far named consumers are behind, by partition. Pure.

What is committed is in `runnel.positions.admin.NamedConsumer`. Where partitions end is either known
to it too, or to somebody who watches statistics of the cluster (`runnel.status.state`): such a
reader asks for consumers without bounds, and then no SPU is asked about a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from runnel.positions.admin import NamedConsumer, PartitionProgress

#: The offset after the last committed record, by topic and partition.
Ends = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One consumer name at one partition. ``committed`` is the next offset to read, None before the
    first commit, and ``end`` is None if nobody knows it. ``lag_records`` is how many records it is
    behind at most, because offsets have gaps. ``open`` is that of `NamedConsumer`."""

    consumer: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag_records: int | None
    open: bool
    commit_age_s: float | None


def partition_lags(
    consumers: Iterable[NamedConsumer], now: datetime, ends: Ends | None = None
) -> tuple[PartitionLag, ...]:
    """The lag of every partition of these consumers at the time ``now``.

    ``ends`` take the place of the ends that the consumers know, where they have any. Readings of
    topics that are gone are left out.
    """
    return tuple(
        _lag_of(consumer, found, now, (ends or {}).get((consumer.topic, found.partition)))
        for consumer in consumers
        if not consumer.topic_gone
        for found in consumer.partitions
    )


def _lag_of(
    consumer: NamedConsumer, found: PartitionProgress, now: datetime, end: int | None
) -> PartitionLag:
    end = found.end if end is None else end
    age_s = None if found.committed_at is None else (now - found.committed_at).total_seconds()
    return PartitionLag(
        consumer=consumer.name,
        topic=consumer.topic,
        partition=found.partition,
        committed=found.committed,
        end=end,
        # Ends that were told a second ago may be below what was committed since.
        lag_records=None
        if found.committed is None or end is None
        else max(0, end - found.committed),
        open=consumer.open,
        commit_age_s=None if age_s is None else max(0.0, age_s),
    )
