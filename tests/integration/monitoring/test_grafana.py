"""The dashboard of ``examples/monitoring``: its queries are PromQL over metrics that there are."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.integration.monitoring.test_alerts import DEFINED, MONITORING, metrics_in, promtool

PANELS: list[dict[str, Any]] = json.loads(
    (MONITORING / "grafana.json").read_text(encoding="utf-8")
)["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]


def test_given_the_dashboard_then_the_daemons_have_the_metrics_that_it_shows() -> None:
    assert len(QUERIES) > 25
    named = set[str]().union(*map(metrics_in, QUERIES))
    assert named <= DEFINED.keys() | {"runnel_build_info"}


def test_given_the_dashboard_then_promtool_accepts_its_queries(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(QUERIES)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", path)


def test_given_the_dashboard_then_no_panel_covers_another_one() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for one, other in combinations((panel["gridPos"] for panel in PANELS), 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)
