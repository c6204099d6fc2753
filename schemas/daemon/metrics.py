"""What the metrics of both daemons have in common: definitions, the process, and the text format.

A daemon defines each metric once, with its name, help and labels. Its collectors make samples of
the definitions, and ``docs/reference/metrics.md`` is written from them. `/metrics` also says which
build runs (`BUILD_INFO`) and what the process uses (`PROCESS_METRICS`, which prometheus_client
collects). Neighbours: `sc.metrics`, `spu.metrics`, `schemas.daemon.latency`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, assert_never

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from schemas.daemon.latency import Latencies, LatencyHistogram

#: The media type of what `exposition` returns.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric: its name as Prometheus shows it (counters end in ``_total``), a sentence of help,
    and the names of its labels."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()

    def of(self, value: float) -> Metric:
        """A counter or gauge without labels."""
        return self.by({(): value})

    def by(self, values: Mapping[tuple[str, ...], float]) -> Metric:
        """A counter or gauge: its value for every tuple of values of the labels."""
        match self.kind:
            case "counter":
                family: CounterMetricFamily | GaugeMetricFamily
                family = CounterMetricFamily(self.name, self.help, labels=self.labels)
            case "gauge":
                family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
            case "histogram":
                raise AssertionError(f"{self.name} has no single value")
            case _:
                assert_never(self.kind)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family

    def latencies(
        self, histograms: Mapping[tuple[str, ...], LatencyHistogram | Latencies]
    ) -> Metric:
        """A histogram: the observations for every tuple of values of the labels."""
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for labels, histogram in histograms.items():
            family.add_metric(labels, histogram.cumulative(), histogram.sum_s)
        return family


BUILD_INFO: Final = MetricDefinition(
    "gauge", "runnel_build_info", "1, with the version of Runnel as a label.", ("version",)
)
_PLATFORM: Final = ("implementation", "major", "minor", "patchlevel", "version")
#: What prometheus_client says of every process. Those of the memory, processor time and descriptors
#: come from Linux' ``/proc`` and are missing elsewhere.
PROCESS_METRICS: Final = (
    MetricDefinition("gauge", "python_info", "Python platform information", _PLATFORM),
    *(
        MetricDefinition("counter", f"python_gc_{name}_total", text, ("generation",))
        for name, text in (
            ("objects_collected", "Objects collected during gc"),
            ("objects_uncollectable", "Uncollectable objects found during GC"),
            ("collections", "Number of times this generation was collected"),
        )
    ),
    MetricDefinition(
        "counter", "process_cpu_seconds_total", "Total user and system CPU time spent in seconds."
    ),
    *(
        MetricDefinition("gauge", f"process_{name}", text)
        for name, text in (
            ("virtual_memory_bytes", "Virtual memory size in bytes."),
            ("resident_memory_bytes", "Resident memory size in bytes."),
            ("start_time_seconds", "Start time of the process since unix epoch in seconds."),
            ("open_fds", "Number of open file descriptors."),
            ("max_fds", "Maximum number of open file descriptors."),
        )
    ),
)


class _BuildInfo(Collector):
    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterator[Metric]:
        yield BUILD_INFO.by({(self._version,): 1})


def daemon_registry(version: str, collectors: Iterable[Collector] = ()) -> CollectorRegistry:
    """A registry that knows the build ``version`` and this process, and collects ``collectors``."""
    # For each series there would be a second one that nobody asks for: the time of its creation.
    # This acts on the whole process, so an import alone must not do it: clients import this, too.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    registry.register(_BuildInfo(version))
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """What `/metrics` answers, of the type `CONTENT_TYPE`."""
    return generate_latest(registry)
