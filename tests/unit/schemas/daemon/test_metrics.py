"""What the metrics of both daemons have in common."""

from __future__ import annotations

import sys

import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from schemas.daemon.latency import LatencyHistogram
from schemas.daemon.metrics import (
    BUILD_INFO,
    PROCESS_METRICS,
    MetricDefinition,
    daemon_registry,
    exposition,
)

REQUESTS = MetricDefinition("counter", "requests_total", "Requests.", ("api",))
SIZE = MetricDefinition("gauge", "size_bytes", "Bytes.")
TIME = MetricDefinition("histogram", "time_seconds", "Time.", ("kind",))


def test_given_a_definition_then_samples_have_its_name_and_labels() -> None:
    histogram = LatencyHistogram()
    histogram.observe(0.3)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in (
            REQUESTS.by({("produce",): 2, ("fetch",): 3}),
            SIZE.of(7),
            TIME.latencies({("disk",): histogram}),
        )
        for sample in family.samples
    }
    assert samples[("requests_total", "produce")] == 2
    assert samples[("requests_total", "fetch")] == 3
    assert samples[("size_bytes",)] == 7
    assert samples[("time_seconds_bucket", "disk", "0.25")] == 0
    assert samples[("time_seconds_bucket", "disk", "0.5")] == 1
    assert samples[("time_seconds_bucket", "disk", "+Inf")] == 1
    assert samples[("time_seconds_count", "disk")] == 1
    assert samples[("time_seconds_sum", "disk")] == 0.3


def test_given_a_histogram_then_it_has_no_single_value() -> None:
    with pytest.raises(AssertionError, match="time_seconds"):
        TIME.of(1)


def test_given_a_daemon_then_its_build_and_its_process_are_shown() -> None:
    text = exposition(daemon_registry("1.2.3")).decode()
    assert 'runnel_build_info{version="1.2.3"} 1.0' in text
    if sys.platform != "linux":
        pytest.skip("the memory and descriptors of a process come from /proc")
    assert {family.name for family in text_string_to_metric_families(text)} == {
        one.name.removesuffix("_total") for one in (BUILD_INFO, *PROCESS_METRICS)
    }


def test_given_a_counter_then_there_is_no_series_of_its_creation() -> None:
    registry = daemon_registry("1")
    Counter("things", "Things.", registry=registry).inc()
    text = exposition(registry).decode()
    assert "things_total 1.0" in text
    assert "_created" not in text
