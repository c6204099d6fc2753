"""What ``runnel cluster status`` says of SPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runnel.local import cluster as cluster_module
from runnel.local.cluster import ClusterDaemons
from runnel.local.plan import ClusterPlan
from runnel.local.state import ClusterState
from schemas.daemon.process import ProcessId


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        pytest.param({"spu-0": "online"}, "online", id="given-an-answer-then-what-it-says"),
        pytest.param(
            {}, "unknown: the SC knows no SPU of this name", id="given-a-restored-kv-then-so"
        ),
        pytest.param(None, "unknown: no SC answers", id="given-no-answer-then-so"),
    ],
)
def test_state_of_an_spu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, str] | None,
    state: str,
) -> None:
    runs = ProcessId(1, "now")
    monkeypatch.setattr(cluster_module, "runs_with", lambda *_: True)
    monkeypatch.setattr(cluster_module, "_sc_roles", lambda _: {"sc-0": "leads"})
    monkeypatch.setattr(cluster_module, "_spu_resolutions", lambda _: answer)
    cluster = ClusterDaemons(tmp_path)
    cluster.directory.save(ClusterState.of(ClusterPlan(tmp_path), {"sc-0": runs}))
    spu = {"spuId": 0, "process": {"pid": 1, "started": "now"}, "ports": {}}
    (tmp_path / "spus").mkdir()
    (tmp_path / "spus" / "spu-0.process.json").write_text(json.dumps(spu))
    assert [row["state"] for row in cluster.status()["spus"]] == [state]
