"""What one SC process counts as it goes, and a registry with all of it.

The gauges are brought up to date at each scrape (`sc.api.scrape`). Neighbour:
`sc.metrics.definitions`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from prometheus_client import Counter, Gauge, Histogram

from sc.metrics import definitions as metric
from schemas.daemon.latency import LATENCY_BOUNDS_S
from schemas.daemon.metrics import MetricDefinition, daemon_registry
from schemas.errors import RunnelError


class ScMetrics:
    """Instruments of one SC process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = daemon_registry(version("runnel"))
        self._reconciles = self._histogram(metric.RECONCILE)
        self.actions = self._counter(metric.ACTIONS)
        self.conflicts = self._counter(metric.CONFLICTS)
        self.requests = self._counter(metric.HTTP_REQUESTS)
        self.leads = self._gauge(metric.LEADS)
        self.sessions = self._gauge(metric.SPU_SESSIONS)
        self._session_requests = self._histogram(metric.SESSION_REQUEST)
        self.queue = self._gauge(metric.QUEUE_KEYS)
        self.revision = self._gauge(metric.STORE_REVISION)
        self.spus = self._gauge(metric.SPUS)
        self.spu_groups = self._gauge(metric.SPU_GROUPS)
        self.topics = self._gauge(metric.TOPICS)
        self.partitions = self._gauge(metric.PARTITIONS)
        self.unwritable = self._gauge(metric.UNWRITABLE_PARTITIONS)
        self.under_replicated = self._gauge(metric.UNDER_REPLICATED_PARTITIONS)
        self.unreadable = self._gauge(metric.UNREADABLE_OBJECTS)
        self.kv_up = self._gauge(metric.KV_UP)
        self.kv_away = self._gauge(metric.KV_AWAY)
        self._kv_requests = self._histogram(metric.KV_REQUEST)
        self._kv_errors = self._counter(metric.KV_ERRORS)

    @contextmanager
    def reconcile(self, kind: str) -> Iterator[None]:
        """Time one reconcile."""
        with _timed(self._reconciles.labels(kind)):
            yield

    @contextmanager
    def session_request(self, type_: str) -> Iterator[None]:
        """Time one request to an SPU, until it is answered or fails."""
        with _timed(self._session_requests.labels(type_)):
            yield

    @contextmanager
    def kv_request(self, operation: str) -> Iterator[None]:
        """Time one request to the KV, and count the error that it raises."""
        with _timed(self._kv_requests.labels(operation)):
            try:
                yield
            except RunnelError as error:
                self._kv_errors.labels(operation, error.code.name).inc()
                raise

    # How

    def _counter(self, one: MetricDefinition) -> Counter:
        return Counter(one.name, one.help, one.labels, registry=self.registry)

    def _gauge(self, one: MetricDefinition) -> Gauge:
        return Gauge(one.name, one.help, one.labels, registry=self.registry)

    def _histogram(self, one: MetricDefinition) -> Histogram:
        return Histogram(
            one.name, one.help, one.labels, registry=self.registry, buckets=LATENCY_BOUNDS_S
        )


@contextmanager
def _timed(histogram: Histogram) -> Iterator[None]:
    began_s = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - began_s)
