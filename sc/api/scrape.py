"""What `/metrics` of the SC answers: its instruments, with the gauges of this moment.

Neighbours: `sc.metrics` has the instruments, `sc.api.cluster_answers` serves the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from prometheus_client import Gauge

from sc.controller import Controller
from sc.mirror import Mirror
from schemas.daemon.metrics import exposition
from schemas.objects.partition import Partition, PartitionResolution, is_under_replicated
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution
from schemas.objects.topic import Topic, TopicResolution


def scrape(mirror: Mirror, controller: Controller | None) -> bytes:
    """Bring the gauges up to date, and return all metrics in Prometheus' text format;
    ``controller``: if this SC leads."""
    metrics, store = mirror.metrics, mirror.store
    partitions = store.objects(Partition)
    spus, groups = store.objects(Spu), store.objects(SpuGroup)
    _count(metrics.spus, SpuResolution, (one.status.resolution for one in spus))
    _count(metrics.spu_groups, SpuGroupResolution, (one.status.resolution for one in groups))
    topics = store.objects(Topic)
    _count(metrics.topics, TopicResolution, (one.status.resolution for one in topics))
    _count(metrics.partitions, PartitionResolution, (one.status.resolution for one in partitions))
    metrics.unwritable.set(sum(one.status.writable is False for one in partitions))
    metrics.under_replicated.set(_under_replicated(partitions))
    metrics.leads.set(controller is not None)
    metrics.sessions.set(0 if controller is None else controller.session_count)
    metrics.queue.set(0 if controller is None else len(controller.queue))
    metrics.revision.set(store.revision)
    metrics.unreadable.set(len(mirror.reader.unreadable))
    health = mirror.kv_health
    metrics.kv_up.set(not (health.away_ms or health.unwritable))
    metrics.kv_away.set(health.away_ms / 1000)
    return exposition(metrics.registry)


def _count(gauge: Gauge, resolutions: type[Enum], found: Iterable[Enum]) -> None:
    """Every resolution gets a value, so that those of which there is none say 0."""
    counts = Counter(found)
    for resolution in resolutions:
        gauge.labels(resolution.value).set(counts[resolution])


def _under_replicated(partitions: Sequence[Partition]) -> int:
    return sum(
        is_under_replicated(one)
        for one in partitions
        if one.status.resolution is not PartitionResolution.DELETING
    )
