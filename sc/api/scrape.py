"""What `/metrics` of the SC answers: its instruments, with the gauges of this moment.

Neighbours: `sc.metrics` has the instruments, `sc.api.server` serves the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from prometheus_client import Gauge

from sc.controller import Controller
from schemas.daemon.metrics import exposition
from schemas.objects.partition import Partition, PartitionResolution
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution
from schemas.objects.topic import Topic, TopicResolution


def scrape(controller: Controller) -> bytes:
    """Bring the gauges up to date, and return all metrics in Prometheus' text format."""
    metrics, store = controller.metrics, controller.view.store
    partitions = store.objects(Partition)
    spus, groups = store.objects(Spu), store.objects(SpuGroup)
    _count(metrics.spus, SpuResolution, (one.status.resolution for one in spus))
    _count(metrics.spu_groups, SpuGroupResolution, (one.status.resolution for one in groups))
    topics = store.objects(Topic)
    _count(metrics.topics, TopicResolution, (one.status.resolution for one in topics))
    _count(metrics.partitions, PartitionResolution, (one.status.resolution for one in partitions))
    metrics.unwritable.set(sum(one.status.writable is False for one in partitions))
    metrics.under_replicated.set(_under_replicated(partitions))
    metrics.sessions.set(controller.session_count)
    metrics.queue.set(len(controller.queue))
    metrics.revision.set(store.revision)
    metrics.unreadable.set(len(controller.reader.unreadable))
    health = controller.kv_health
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
        len(one.status.lrs) < len(one.spec.replicas)
        for one in partitions
        if one.status.resolution is not PartitionResolution.DELETING
    )
