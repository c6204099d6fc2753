"""The dashboard's own metrics; `runnel.metrics.lag` has the lag of named consumers."""

from __future__ import annotations

from typing import Final

from schemas.daemon.metrics import MetricDefinition

BROWSERS: Final = MetricDefinition(
    "gauge", "runnel_dashboard_browsers", "Browsers that show the dashboard now."
)
CLUSTER_UP: Final = MetricDefinition(
    "gauge",
    "runnel_dashboard_cluster_up",
    "1 if the cluster answered when the dashboard asked for this scrape, else 0. Then there are no"
    " metrics of named consumers.",
)

DASHBOARD_METRICS: Final = (BROWSERS, CLUSTER_UP)
