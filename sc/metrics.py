"""What the SC counts, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class ScMetrics:
    """Counters of one SC process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Histogram(
            "runnel_sc_reconcile_seconds",
            "Time of one reconcile, by kind; its count is the number of reconciles.",
            ["kind"],
            registry=self.registry,
        )
        self.actions = Counter(
            "runnel_sc_actions", "Actions by type.", ["action"], registry=self.registry
        )
        self.conflicts = Counter(
            "runnel_sc_conflicts", "Lost compare-and-swaps.", registry=self.registry
        )
        self.requests = Counter(
            "runnel_sc_http_requests",
            "Requests of the public API by method and status.",
            ["method", "status"],
            registry=self.registry,
        )
        self.sessions = Gauge(
            "runnel_sc_spu_sessions", "SPUs connected now.", registry=self.registry
        )
        self.queue = Gauge(
            "runnel_sc_queue_keys", "Keys waiting or being reconciled.", registry=self.registry
        )
        self.revision = Gauge(
            "runnel_sc_store_revision", "KV revision of the mirror.", registry=self.registry
        )
        self.partitions = Gauge(
            "runnel_sc_partitions",
            "Partitions by resolution.",
            ["resolution"],
            registry=self.registry,
        )
        self.unwritable = Gauge(
            "runnel_sc_unwritable_partitions",
            "Partitions that have a leader, but commit no records: their reasons say why.",
            registry=self.registry,
        )
        self.unreadable = Gauge(
            "runnel_sc_unreadable_objects",
            "Stored objects that do not parse.",
            registry=self.registry,
        )

        self.kv_up = Gauge(
            "runnel_sc_kv_up",
            "1 if the KV answered when the SC last asked it, which it does once a second, and its"
            " disk was not known to be full.",
            registry=self.registry,
        )
        self.kv_away = Gauge(
            "runnel_sc_kv_away_seconds",
            "For how long the KV has not answered; 0 if it answers.",
            registry=self.registry,
        )

    @contextmanager
    def reconcile(self, kind: str) -> Iterator[None]:
        """Time one reconcile."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.reconciles.labels(kind).observe(time.perf_counter() - start)

    def render(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
