"""The metrics of daemons and clients: ``metrics.md``.

The definitions in `sc.metrics`, `spu.metrics`, `runnel.metrics`, `dashboard.metrics` and
`schemas.daemon.metrics` are the only source.
"""

from __future__ import annotations

from collections.abc import Iterable

from dashboard.metrics import DASHBOARD_METRICS
from runnel.metrics.definitions import (
    CONSUMER_METRICS,
    NAMED_CONSUMER_METRICS,
    PRODUCER_METRICS,
)
from sc.metrics.definitions import SC_METRICS
from schemas.daemon.metrics import BUILD_INFO, PROCESS_METRICS, MetricDefinition
from spu.metrics.definitions import PARTITION_METRICS, SPU_METRICS

_HEAD = """\
<!-- Written by docs/generate.py from the definitions in sc/metrics, spu/metrics,
runnel/metrics, dashboard/metrics.py and schemas/daemon/metrics.py. Do not edit. -->
# Metrics

Every daemon serves its metrics in Prometheus' text format at `/metrics`: the SC at its public port
(9003), an SPU at its HTTP port (9007), a dashboard at its own (9009).
[Monitor a cluster](../howto/monitoring.md) has a configuration of Prometheus, alerts, and a
dashboard for Grafana.

Names and labels of metrics stay as they are ([versioning](versioning.md)). A histogram has the
series `…_bucket`, `…_sum` and `…_count`, and all histograms have the same buckets, from 10 µs to
10 s.
"""
_SC_HEAD = """
## SC

"""
_SPU_HEAD = """
## SPU

"""
_PARTITION_HEAD = """
### Of each partition

An SPU has these series only if `metrics.perPartition` is set in [spu.yaml](spu-yaml.md). With
thousands of partitions these are tens of thousands of series.

"""
_PROCESS_HEAD = """
## All of them

Memory, processor time and descriptors are known on Linux only.

"""
_CLIENT_HEAD = """
## Clients

Producers and consumers count in the process that uses them: `metrics` of a `Producer`, a `Consumer`
and a `Cluster` ([Python API](python.md)) has the numbers. For Prometheus, register a collector with
the registry that your process serves:

```python
import prometheus_client
import runnel

cluster = runnel.connect()
prometheus_client.REGISTRY.register(runnel.ClientCollector(cluster))
prometheus_client.start_http_server(9100)
```

Counts are those of all producers and consumers that the client has opened, by topic.

"""
_CONSUMER_HEAD = """
Of consumers:

"""
_DASHBOARD_HEAD = """
## Dashboard

"""
_NAMED_HEAD = """
## Named consumers

The SC and SPUs do not know positions of consumers: they are in a topic that clients read. So the
[dashboard](../howto/dashboard.md) serves these, at its port (9009).

"""
_COLUMNS = """\
| metric | type | labels | meaning |
|---|---|---|---|
"""


def pages() -> dict[str, str]:
    return {
        "metrics.md": "".join(
            (
                _HEAD,
                *(_SC_HEAD, _table(SC_METRICS)),
                *(_SPU_HEAD, _table(SPU_METRICS)),
                *(_PARTITION_HEAD, _table(PARTITION_METRICS)),
                *(_CLIENT_HEAD, _table(PRODUCER_METRICS)),
                *(_CONSUMER_HEAD, _table(CONSUMER_METRICS)),
                *(_DASHBOARD_HEAD, _table(DASHBOARD_METRICS)),
                *(_NAMED_HEAD, _table(NAMED_CONSUMER_METRICS)),
                *(_PROCESS_HEAD, _table((BUILD_INFO, *PROCESS_METRICS))),
            )
        )
    }


def _table(definitions: Iterable[MetricDefinition]) -> str:
    return _COLUMNS + "".join(
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{name}`' for name in one.labels)} |"
        f" {one.help} |\n"
        for one in definitions
    )
