"""The metrics of a client for Prometheus, in the process of its user.

Nothing is served here: the collector joins the registry that the process has anyway. Neighbours:
`runnel.metrics.counts` has the values, `runnel.metrics.definitions` the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from runnel.consume.counts import ConsumerMetrics
from runnel.metrics import definitions as metric
from runnel.metrics.counts import ClientMetrics
from runnel.produce.counts import ProducerMetrics
from schemas.daemon.metrics import MetricDefinition

M = TypeVar("M")


class Measured(Protocol):
    """A cluster that was connected, for scripts or for asyncio."""

    @property
    def metrics(self) -> ClientMetrics: ...


class ClientCollector(Collector):
    """Shows what the producers and consumers of one client do, by topic.

    Register it with ``prometheus_client.REGISTRY``, or a registry of your own. A registry takes one
    of them, because the names of its metrics are always the same.
    """

    def __init__(self, cluster: Measured) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        """What was counted until now; the registry asks at each scrape."""
        found = self._cluster.metrics
        yield from _producers(found.producers)
        yield from _consumers(found.consumers)


def _producers(found: Mapping[str, ProducerMetrics]) -> Iterator[Metric]:
    yield _by_topic(metric.PRODUCER_RECORDS, found, lambda one: one.records_sent)
    yield _by_topic(metric.PRODUCER_BYTES, found, lambda one: one.bytes_sent)
    yield _by_topic(metric.PRODUCER_BATCHES, found, lambda one: one.batches_sent)
    yield _by_topic(metric.PRODUCER_FAILED_RECORDS, found, lambda one: one.records_failed)
    yield _by_topic(metric.PRODUCER_RETRIES, found, lambda one: one.retries)
    yield _by_code(metric.PRODUCER_ERRORS, {topic: one.errors for topic, one in found.items()})
    yield _by_topic(metric.PRODUCER_BUFFERED_BYTES, found, lambda one: one.buffered_bytes)
    yield metric.PRODUCER_ACKNOWLEDGEMENT.latencies(
        {(topic,): one.acknowledgement for topic, one in found.items()}
    )


def _consumers(found: Mapping[str, ConsumerMetrics]) -> Iterator[Metric]:
    yield _by_topic(metric.CONSUMER_RECORDS, found, lambda one: one.records_consumed)
    yield _by_topic(metric.CONSUMER_BYTES, found, lambda one: one.bytes_consumed)
    yield _by_topic(metric.CONSUMER_ANSWERS, found, lambda one: one.answers)
    yield _by_code(metric.CONSUMER_ERRORS, {topic: one.errors for topic, one in found.items()})
    yield metric.CONSUMER_FETCH.latencies({(topic,): one.fetch for topic, one in found.items()})
    yield metric.CONSUMER_LAG.by(
        {
            (topic, str(partition)): lag
            for topic, one in found.items()
            for partition, lag in one.lag_records.items()
        }
    )


def _by_topic(
    definition: MetricDefinition, found: Mapping[str, M], read: Callable[[M], float]
) -> Metric:
    return definition.by({(topic,): read(one) for topic, one in found.items()})


def _by_code(definition: MetricDefinition, errors: Mapping[str, Mapping[str, int]]) -> Metric:
    return definition.by(
        {(topic, code): count for topic, codes in errors.items() for code, count in codes.items()}
    )
