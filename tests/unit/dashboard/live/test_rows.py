"""Rows that are made anew only where something may have changed."""

from __future__ import annotations

from typing import Any

from dashboard.live.rows import (
    PartitionRows,
    pipeline_rows,
    stream_rows,
    topic_partition_rows,
)
from runnel.status.state import ClusterState
from runnel.status.summary import Summaries, summarize
from schemas.objects.manifest.manifest import load_text
from schemas.objects.metadata import Object
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution
from tests.unit.sc.builders import partition_of, spu_of, topic_of

PIPELINE = """\
apiVersion: runnel/v1
kind: Pipeline
metadata: {name: delays}
spec:
  source: {pattern: "flights-.*"}
  query: SELECT * FROM source
  sink: {path: /files}
  checkpoint: /c
"""


def led(index: int, *live: int, leader: int = 1) -> Partition:
    lrs = tuple(LiveReplica(spu_id=spu, storage_id=f"s{spu}") for spu in live)
    online = PartitionResolution.ONLINE
    return partition_of("orders", index, (1, 2), lrs=lrs, resolution=online, leader=leader)


def numbers(*ends: int) -> dict[str, Any]:
    """All logs begin at 0; the partitions' second replicas hold as much as these ends of 100."""
    rows = [
        {
            "name": f"orders-{index}",
            "logStart": 0,
            "logEnd": 100,
            "committedEnd": 100,
            "logBytes": 1,
            "replicas": [{"spu": 1, "logEnd": 100}, {"spu": 2, "logEnd": end}],
        }
        for index, end in enumerate(ends)
    ]
    return {"at": 1, "spus": [], "topics": [], "partitions": rows}


def state_of(*objects: Object) -> ClusterState:
    state = ClusterState()
    state.begin()
    for obj in objects:
        state.take("added", obj.to_json(), None)
    state.take("synced", {"revision": "9"}, 9)
    return state


def test_statistics_make_anew_only_the_rows_of_replicas_that_catch_up() -> None:
    state = state_of(led(0, 1, 2), led(1, 1))
    rows = PartitionRows(state)
    state.take("stats", numbers(50, 50), None)
    first = rows.rows()
    assert first["orders-1"][-1] == {"2": 0.5}
    state.take("stats", numbers(60, 50), None)
    assert rows.rows() is first, "progress of a live replica is no row"
    state.take("stats", numbers(60, 75), None)
    second = rows.rows()
    assert second["orders-1"][-1] == {"2": 0.75}
    assert second["orders-0"] is first["orders-0"]
    assert first["orders-1"][-1] == {"2": 0.5}, "a reader still has the rows from before"


def test_a_changed_object_makes_its_row_anew_and_a_deleted_one_takes_it_away() -> None:
    state = state_of(led(0, 1, 2), led(1, 1))
    rows = PartitionRows(state)
    first = rows.rows()
    state.take("modified", led(1, 1, 2, leader=2).to_json(), 10)
    second = rows.rows()
    assert (second["orders-1"][2], second["orders-0"] is first["orders-0"]) == (2, True)
    state.take("deleted", led(0, 1, 2).to_json(), 11)
    assert rows.rows().keys() == {"orders-1"}
    state.take("stats", numbers(50, 50), None)
    assert rows.rows().keys() == {"orders-1"}


def test_a_topic_has_the_rows_of_its_own_partitions() -> None:
    state = state_of(led(0, 1, 2), led(1, 1), partition_of("clicks", 0, (1,), leader=1))
    assert topic_partition_rows(state, "orders").keys() == {"orders-0", "orders-1"}
    state.take("deleted", led(1, 1).to_json(), 10)
    assert topic_partition_rows(state, "orders").keys() == {"orders-0"}
    assert topic_partition_rows(state, "none") == {}


def test_summaries_of_a_state_that_goes_on_are_those_of_a_new_one() -> None:
    state = state_of(spu_of(1), spu_of(2), topic_of("orders"), led(0, 1, 2))
    summaries = Summaries(state)
    for event in (
        ("stats", numbers(50), None),
        ("modified", led(0, 1).to_json(), 10),
        ("added", led(1, 1, 2, leader=2).to_json(), 11),
        ("deleted", spu_of(2).to_json(), 12),
        ("stats", numbers(50, 50), None),
    ):
        state.take(*event)
        assert summaries.latest() == summarize(state)
    assert summaries.latest().health.under_replicated == 1


def test_pipelines_show_what_their_runners_told_last() -> None:
    (loaded,) = load_text(PIPELINE)
    state = state_of(loaded.object)
    assert pipeline_rows(state)["delays"]["state"] == "init"
    told = {"name": "delays", "state": "running", "lastBatch": 4, "rowsPerSecond": 2.5, "lag": 9}
    state.take("stats", numbers() | {"pipelines": [told]}, None)
    row = pipeline_rows(state)["delays"]
    assert (row["state"], row["batch"], row["rowsPerSecond"], row["lag"]) == ("running", 4, 2.5, 9)
    assert (row["topics"], row["from"], row["to"]) == ([], ["flights-.*"], "/files")
    assert not row["toTopic"]
    # A rate of the past is none.
    state.take("stats", numbers() | {"pipelines": [told | {"state": "unknown"}]}, None)
    row = pipeline_rows(state)["delays"]
    assert (row["state"], row["batch"], row["rowsPerSecond"]) == ("unknown", 4, None)


def test_streams_show_how_their_keys_are_divided() -> None:
    text = (
        "apiVersion: runnel/v1\nkind: Stream\nmetadata: {name: shop/orders}\nspec: {tags: [web]}\n"
    )
    (loaded,) = load_text(text)
    row = stream_rows(state_of(loaded.object))["shop/orders"]
    assert (row["state"], row["epoch"], row["tags"]) == ("creating", None, ["web"])
