"""The metrics of the daemons: ``metrics.md``.

The definitions in `sc.metrics`, `spu.metrics` and `schemas.daemon.metrics` are the only source.
"""

from __future__ import annotations

from collections.abc import Iterable

from sc.metrics.definitions import SC_METRICS
from schemas.daemon.metrics import BUILD_INFO, PROCESS_METRICS, MetricDefinition
from spu.metrics.definitions import PARTITION_METRICS, SPU_METRICS

_HEAD = """\
<!-- Written by docs/generate.py from the definitions in sc/metrics, spu/metrics and
schemas/daemon/metrics.py. Do not edit. -->
# Metrics

Every daemon serves its metrics in Prometheus' text format at `/metrics`: the SC at its public port
(9003), an SPU at its HTTP port (9007). [Monitor a cluster](../howto/monitoring.md) has a
configuration of Prometheus, alerts, and a dashboard for Grafana.

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
## Both

Memory, processor time and descriptors are known on Linux only.

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
