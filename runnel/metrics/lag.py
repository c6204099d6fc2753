"""The lag of named consumers as Prometheus' metrics. Pure; neighbour: `runnel.positions.lag`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import Metric

from runnel.metrics import definitions as metric
from runnel.positions.lag import PartitionLag
from schemas.daemon.metrics import MetricDefinition


def lag_metrics(lags: Iterable[PartitionLag]) -> Iterator[Metric]:
    """The metrics of `NAMED_CONSUMER_METRICS`; what is not known of a partition has no series."""
    rows = tuple(lags)
    yield _by_partition(metric.NAMED_CONSUMER_LAG, rows, lambda row: row.lag_records)
    yield _by_partition(metric.NAMED_CONSUMER_COMMITTED, rows, lambda row: row.committed)
    yield _by_partition(metric.NAMED_CONSUMER_END, rows, lambda row: row.end)
    yield _by_partition(metric.NAMED_CONSUMER_COMMIT_AGE, rows, lambda row: row.commit_age_s)
    yield metric.NAMED_CONSUMER_OPEN.by({(row.consumer, row.topic): row.open for row in rows})


def _by_partition(
    definition: MetricDefinition,
    rows: Sequence[PartitionLag],
    read: Callable[[PartitionLag], float | None],
) -> Metric:
    return definition.by(
        {
            (row.consumer, row.topic, str(row.partition)): value
            for row in rows
            if (value := read(row)) is not None
        }
    )
