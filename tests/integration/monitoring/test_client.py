"""What a client shows is what Prometheus' own tool expects of metrics."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

from prometheus_client import CollectorRegistry, generate_latest

from runnel.consume.counts import FetchCounts
from runnel.metrics.collector import ClientCollector
from runnel.metrics.counts import ClientMetrics
from runnel.produce.counts import SendCounts
from schemas.errors import OverloadedError
from tests.integration.monitoring.prometheus_server import require_program


def test_given_a_client_that_did_everything_then_promtool_accepts_its_metrics() -> None:
    sent, fetched = SendCounts(), FetchCounts()
    sent.delivered(2, 100, 0.01)
    sent.failed(1)
    sent.repeated()
    sent.refused(OverloadedError("busy"))
    fetched.received(2, 100)
    fetched.took(0.001)
    fetched.refused(OverloadedError("busy"))
    metrics = ClientMetrics({"orders": sent.metrics(7)}, {"orders": fetched.metrics({0: 3})})
    registry = CollectorRegistry()
    registry.register(ClientCollector(SimpleNamespace(metrics=metrics)))
    text = generate_latest(registry)
    assert b'runnel_consumer_lag_records{partition="0",topic="orders"} 3.0' in text
    done = subprocess.run(
        [require_program("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
