"""The alerts of ``examples/monitoring``, by `promtool`: each fires for its cause and for no other.

`tests/chaos/monitoring` tries them on a real cluster.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboard.metrics import DASHBOARD_METRICS
from runnel.metrics.definitions import NAMED_CONSUMER_METRICS
from sc.metrics.definitions import SC_METRICS
from spu.metrics.definitions import PARTITION_METRICS, SPU_METRICS
from tests.integration.monitoring.prometheus_server import require_program

MONITORING = Path(__file__).parents[3] / "examples" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
DEFINED = {
    one.name: one
    for one in (
        *(SC_METRICS + SPU_METRICS + PARTITION_METRICS),
        *(DASHBOARD_METRICS + NAMED_CONSUMER_METRICS),
    )
}
SC = 'instance="sc:9003",job="runnel-sc"'
SPU = 'instance="spu:9007",job="runnel-spu"'
DASHBOARD = 'instance="dashboard:9009",job="runnel-dashboard"'
CONSUMER = f'{DASHBOARD},consumer="billing",topic="orders"'
#: A minute is one sample; so long is a cluster watched.
MINUTES = 20
GIB = 1 << 30
#: A cluster in which all is well.
WELL: dict[str, str] = {
    f"up{{{SC}}}": "1",
    f"up{{{SPU}}}": "1",
    f"runnel_sc_leads{{{SC}}}": "1",
    f'runnel_sc_spus{{{SC},resolution="online"}}': "3",
    f'runnel_sc_spus{{{SC},resolution="offline"}}': "0",
    f'runnel_sc_spus{{{SC},resolution="unknown"}}': "0",
    f'runnel_sc_partitions{{{SC},resolution="online"}}': "9",
    f'runnel_sc_partitions{{{SC},resolution="offline"}}': "0",
    f"runnel_sc_unwritable_partitions{{{SC}}}": "0",
    f"runnel_sc_under_replicated_partitions{{{SC}}}": "0",
    f"runnel_sc_kv_up{{{SC}}}": "1",
    f'runnel_sc_kv_seconds_bucket{{{SC},operation="txn",le="0.01"}}': "+100",
    f'runnel_sc_kv_seconds_bucket{{{SC},operation="txn",le="2.5"}}': "+100",
    f'runnel_sc_kv_seconds_bucket{{{SC},operation="txn",le="+Inf"}}': "+100",
    f"runnel_sc_unreadable_objects{{{SC}}}": "0",
    f"runnel_spu_connected{{{SPU}}}": "1",
    f"runnel_spu_unreachable_peers{{{SPU}}}": "0",
    f"runnel_spu_stalled_replicas{{{SPU}}}": "0",
    f"runnel_spu_unfit_replicas{{{SPU}}}": "0",
    f"runnel_spu_refuses_records{{{SPU}}}": "0",
    f"runnel_spu_available_bytes{{{SPU}}}": f"{10 * GIB}",
    f"runnel_spu_log_bytes{{{SPU}}}": f"{5 * GIB}",
    f"runnel_spu_scrub_damaged_replicas_total{{{SPU}}}": "0",
    f'runnel_spu_fsync_seconds_bucket{{{SPU},le="0.01"}}': "+100",
    f'runnel_spu_fsync_seconds_bucket{{{SPU},le="1.0"}}': "+100",
    f'runnel_spu_fsync_seconds_bucket{{{SPU},le="+Inf"}}': "+100",
    f"up{{{DASHBOARD}}}": "1",
    f"runnel_named_consumer_open{{{CONSUMER}}}": "1",
    # It reads and is never at the end; another partition is idle.
    f'runnel_named_consumer_lag_records{{{CONSUMER},partition="0"}}': "50",
    f'runnel_named_consumer_committed_offset{{{CONSUMER},partition="0"}}': "+100",
    f'runnel_named_consumer_lag_records{{{CONSUMER},partition="1"}}': "0",
    f'runnel_named_consumer_committed_offset{{{CONSUMER},partition="1"}}': "7",
}


@dataclass(frozen=True)
class Cause:
    """What makes an alert fire: from `BEGINS` on, series have these values. ``after_minutes`` is
    when it fires, at the latest one sample later, and not before."""

    series: dict[str, str]
    after_minutes: int = 1


BEGINS = 4
CAUSES = {
    "RunnelScDown": Cause({f"up{{{SC}}}": "0"}),
    "RunnelNoScLeads": Cause({f"runnel_sc_leads{{{SC}}}": "0"}),
    "RunnelSpuDown": Cause({f"up{{{SPU}}}": "0"}),
    "RunnelSpuOffline": Cause({f'runnel_sc_spus{{{SC},resolution="offline"}}': "1"}),
    "RunnelPartitionsOffline": Cause({f'runnel_sc_partitions{{{SC},resolution="offline"}}': "1"}),
    "RunnelPartitionsUnwritable": Cause({f"runnel_sc_unwritable_partitions{{{SC}}}": "2"}),
    "RunnelPartitionsUnderReplicated": Cause(
        {f"runnel_sc_under_replicated_partitions{{{SC}}}": "1"}, 5
    ),
    "RunnelKvAway": Cause({f"runnel_sc_kv_up{{{SC}}}": "0"}),
    "RunnelKvSlow": Cause(
        {f'runnel_sc_kv_seconds_bucket{{{SC},operation="txn",le="0.01"}}': "+90"}, 6
    ),
    "RunnelObjectsUnreadable": Cause({f"runnel_sc_unreadable_objects{{{SC}}}": "1"}),
    "RunnelSpuWithoutSc": Cause({f"runnel_spu_connected{{{SPU}}}": "0"}),
    "RunnelPeersUnreachable": Cause({f"runnel_spu_unreachable_peers{{{SPU}}}": "1"}),
    "RunnelReplicasStalled": Cause({f"runnel_spu_stalled_replicas{{{SPU}}}": "1"}),
    "RunnelReplicasUnfit": Cause({f"runnel_spu_unfit_replicas{{{SPU}}}": "1"}, 5),
    "RunnelRecordsRefused": Cause({f"runnel_spu_refuses_records{{{SPU}}}": "1"}, 0),
    "RunnelDiskAlmostFull": Cause({f"runnel_spu_available_bytes{{{SPU}}}": f"{GIB // 2}"}, 5),
    "RunnelDamageFound": Cause({f"runnel_spu_scrub_damaged_replicas_total{{{SPU}}}": "1"}, 0),
    "RunnelDashboardDown": Cause({f"up{{{DASHBOARD}}}": "0"}, 5),
    "RunnelConsumerStuck": Cause(
        {f'runnel_named_consumer_committed_offset{{{CONSUMER},partition="0"}}': "+0"}, 14
    ),
    "RunnelFsyncSlow": Cause({f'runnel_spu_fsync_seconds_bucket{{{SPU},le="0.01"}}': "+90"}, 6),
}


def shipped() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(
        [require_program("promtool"), *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def values(well: str, cause: str | None) -> str:
    """A series in promtool's notation: a value that stays, or a counter that grows by ``+N``."""
    if well.startswith("+"):
        step = int(well)
        before = f"0+{step}x{BEGINS - 1}"
        after = f"{step * BEGINS}{cause or well}x{MINUTES - BEGINS}"
    else:
        before, after = f"{well}x{BEGINS - 1}", f"{cause or well}x{MINUTES - BEGINS}"
    return f"{before} {after}"


def watched(cause: dict[str, str], expected: dict[int, set[str]]) -> dict[str, Any]:
    """A test of promtool: which alerts fire in which minute."""
    assert cause.keys() <= WELL.keys()
    return {
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values(well, cause.get(series))}
            for series, well in WELL.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)
                ],
            }
            for minute, names in expected.items()
        ],
    }


def test_given_the_shipped_files_then_promtool_accepts_them() -> None:
    promtool("check", "rules", ALERTS)
    promtool("check", "config", MONITORING / "prometheus.yml")


def test_every_alert_has_a_cause_a_severity_and_says_what_to_do() -> None:
    assert shipped().keys() == CAUSES.keys()
    for name, rule in shipped().items():
        assert rule["labels"]["severity"] in {"warning", "critical"}, name
        assert rule["annotations"].keys() == {"summary", "description"}, name


def test_given_a_cluster_that_is_well_then_no_alert_fires(tmp_path: Path) -> None:
    run(tmp_path, watched({}, {minute: set() for minute in range(MINUTES)}))


@pytest.mark.parametrize("name", CAUSES)
def test_given_its_cause_then_an_alert_fires_in_time_and_no_other_does(
    name: str, tmp_path: Path
) -> None:
    cause = CAUSES[name]
    fires = BEGINS + cause.after_minutes
    expected = {minute: set[str]() for minute in range(fires)}
    expected |= {minute: {name} for minute in range(fires + 1, MINUTES)}
    run(tmp_path, watched(cause.series, expected))


def run(directory: Path, test: dict[str, Any]) -> None:
    path = directory / "test.yaml"
    content = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    promtool("test", "rules", path)


def metrics_in(expression: str) -> set[str]:
    """The metrics that a PromQL expression names, without the suffixes of histograms."""
    found = set(re.findall(r"runnel_[a-z_]+", expression))
    return {
        base if (base := re.sub(r"_(bucket|sum|count)$", "", name)) in DEFINED else name
        for name in found
    }


@pytest.mark.parametrize("name", CAUSES)
def test_given_an_alert_then_the_daemons_have_the_metrics_that_it_names(name: str) -> None:
    assert metrics_in(shipped()[name]["expr"]) <= DEFINED.keys()
