"""The etcd of a cluster stands still and goes on: producers and consumers notice nothing, the SC
says so at `/health` and in its metrics, lets its SPUs go, and nothing is elected for that."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest

import runnel
from tests.chaos.attacks.beside import Neighbours, health
from tests.chaos.attacks.scene import Scene, scene_in, until
from tests.chaos.replication.clients import check_acknowledged, read_back
from tests.contract.kv.etcd_server import require_client, require_etcd, single_member

require_client()

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

#: What the guarantees promise. The SC asks the KV every second, and waits for five for an answer.
UP_S = 6.0
AWAY_S = 10.0
#: After the lease of the SC that leads.
LEASE_S = 6.0
#: In all.
STOPPED_S = 20.0
SLACK_S = 3.0
MAX_GAP_S = 5.0


def test_given_etcd_stands_still_then_said_so_and_nothing_is_elected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        single_member(require_etcd(), tmp_path / "etcd") as etcd,
        scene_in(tmp_path / "home", kv=f"etcd://{etcd.endpoint}") as scene,
        Neighbours(scene.address) as neighbours,
    ):
        until(lambda: len(neighbours.read_at) > 100, "records flow")
        assert metrics(scene)["runnel_sc_kv_up"] == 1
        scene.command("create", "topic", "begun", "--replication-factor", "3")
        # A topic may be ready before its last replica is live, and that replica joins later.
        until(scene.is_whole, "the topic is replicated")
        decided = decisions(scene)
        etcd.pause()
        stopped = time.perf_counter()
        until(lambda: metrics(scene)["runnel_sc_kv_up"] == 0, "a metric says so", UP_S + SLACK_S)
        in_metrics_s = time.perf_counter() - stopped
        assert health(scene.exposed.sc) == 200, "a short absence is no alarm"
        # Another SC may lead when the lease is over, so this one must not speak any more.
        until(lambda: has_let_go(scene), "the SPUs are let go", LEASE_S + SLACK_S)
        let_go_s = time.perf_counter() - stopped
        until(lambda: health(scene.exposed.sc) == 503, "/health says so", AWAY_S + SLACK_S)
        in_health_s = time.perf_counter() - stopped
        # /health counts from the last question that was answered, a moment earlier.
        until(
            lambda: metrics(scene)["runnel_sc_kv_away_seconds"] >= AWAY_S,
            "a metric says for how long",
            SLACK_S,
        )
        new_ones_begin(scene)
        time.sleep(max(0.0, STOPPED_S - (time.perf_counter() - stopped)))
        etcd.resume()
        resumed = time.perf_counter()
        until(lambda: health(scene.exposed.sc) == 200, "/health is well again")
        until(lambda: metrics(scene)["runnel_sc_spu_sessions"] == 3, "the SPUs are back")
        back_s = time.perf_counter() - resumed
        # Whatever the SC would decide because of that, it has decided by then.
        time.sleep(5)
        assert metrics(scene)["runnel_sc_kv_up"] == 1
        assert metrics(scene)["runnel_sc_kv_away_seconds"] == 0
        assert decisions(scene) == decided
        scene.command("create", "topic", "after")
        noticed = neighbours.between(stopped, time.perf_counter())
        neighbours.stop()
        check_acknowledged(neighbours.acknowledged, read_back(scene.address)[0])
    with capsys.disabled():
        print(
            f"\netcd stopped: in metrics after {in_metrics_s:.1f} s, at /health after"
            f" {in_health_s:.1f} s, sessions ended after {let_go_s:.1f} s, SPUs back {back_s:.1f} s"
            f" after it went on; producer {noticed[0]}, consumer {noticed[1]}"
        )
    assert all(one.worst_gap_s < MAX_GAP_S for one in noticed)


def new_ones_begin(scene: Scene) -> None:
    """Clients begin although no SC leads."""
    with runnel.connect(scene.address) as cluster, cluster.producer("begun") as producer:
        producer.send(b"now").result(10)
        assert cluster.read("begun").num_rows == 1


def decisions(scene: Scene) -> dict[str, object]:
    """What must not change. The office is another one: its lease had ended."""
    partitions = scene.get("/v1/partitions")["items"]
    cluster = scene.get("/v1/cluster")
    found = {one["metadata"]["name"]: one["status"] for one in partitions}
    return {
        "incarnation": cluster["office"]["incarnation"],
        "recovery": (cluster["recovering"], cluster["recovery"]),
        **{name: [one.get(k) for k in ("leader", "term", "lrs")] for name, one in found.items()},
    }


def has_let_go(scene: Scene) -> bool:
    """Whether the SC leads no longer. It ends the sessions first."""
    found = metrics(scene)
    return found["runnel_sc_spu_sessions"] == found["runnel_sc_leads"] == 0


def metrics(scene: Scene) -> dict[str, float]:
    """What the SC counts, by name."""
    with urllib.request.urlopen(f"http://{scene.address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
