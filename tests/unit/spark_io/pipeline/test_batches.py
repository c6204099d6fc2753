"""Batches and lag as Spark tells of them."""

from __future__ import annotations

from typing import Any

import pytest

from runnel.pipelines.progress import Batch
from spark_io.pipeline.batches import lag_of, read_progress

UIDS = {"_uids": {"a": "u"}}


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        pytest.param(
            [source({"a": {"0": 3, "1": 5}} | UIDS, {"a": {"0": 9, "1": 5}} | UIDS)],
            6,
            id="given-partitions-then-their-sum",
        ),
        pytest.param(
            [source({"a": {"0": 3}} | UIDS, {"a": {"0": 4, "1": 5}} | UIDS)],
            6,
            id="given-an-added-partition-then-all-of-it",
        ),
        pytest.param(
            [source({"a": {"0": 3}} | UIDS, {"a": {"0": 4}} | UIDS)] * 2,
            1,
            id="given-a-topic-that-is-read-twice-then-once",
        ),
        pytest.param(
            [source({"a": {"0": 5}} | UIDS, {"a": {"0": 4}} | UIDS)], 0, id="given-lost-records"
        ),
        pytest.param(
            [source('{"a": {"0": 1}, "_uids": {}}', '{"a": {"0": 4}, "_uids": {}}')],
            3,
            id="given-texts",
        ),
        pytest.param([source({"a": {"0": 3}} | UIDS, None)], None, id="given-no-latest"),
        pytest.param([source("7", "9")], None, id="given-another-source"),
    ],
)
def test_lag(sources: list[dict[str, Any]], lag: int | None) -> None:
    assert lag_of(sources) == lag


def test_a_batch_and_an_idle_trigger() -> None:
    told: dict[str, Any] = {
        "batchId": 4,
        "numInputRows": 10,
        "durationMs": {"addBatch": 5, "triggerExecution": 1500},
        "sources": [source({"a": {"0": 3}} | UIDS, {"a": {"0": 4}} | UIDS)],
        "sink": {"numOutputRows": -1},
        "observedMetrics": {"runnel_result": {"rows": 7}},
    }
    assert read_progress(told) == Batch(4, 10, 7, 1, 1.5)
    del told["observedMetrics"]
    assert read_progress(told) == Batch(4, 10, None, 1, 1.5)
    told["sink"] = {"numOutputRows": 6}
    assert read_progress(told) == Batch(4, 10, 6, 1, 1.5)
    assert read_progress({"batchId": 5, "durationMs": {"latestOffset": 2}}) is None
