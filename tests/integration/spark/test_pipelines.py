"""The query of a pipeline in the session that all tests share: SQL, a function, files, failures."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit

import runnel
from runnel.pipelines.progress import Batch
from runnel.pipelines.runner import QueryFailedError
from schemas.errors import InvalidRequestError
from schemas.objects.metadata import Metadata
from schemas.objects.pipeline import Pipeline, PipelineSpec
from spark_io.pipeline.query import PipelineSpark, RunningQuery
from tests.integration.spark.cluster import RunningCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def engine(spark: SparkSession, cluster: RunningCluster) -> Iterator[PipelineSpark]:
    """Starts queries in the shared session, which it must not close."""
    yield PipelineSpark(cluster.sc, None)
    for query in spark.streams.active:
        query.stop()


def pipeline(checkpoint: Path, **spec: Any) -> Pipeline:
    whole = {"checkpoint": str(checkpoint), "trigger": {"availableNow": True}, **spec}
    return Pipeline(
        metadata=Metadata(name="p"), spec=PipelineSpec.model_validate(whole, by_alias=True)
    )


def reading(topic: str, **options: str) -> dict[str, Any]:
    return {"topic": topic, "options": {"startingOffsets": "earliest", **options}}


def fill(cluster: RunningCluster, topic: str, start: int, count: int) -> None:
    with cluster.client.producer(topic) as producer:
        for number in range(start, start + count):
            producer.send(b"%d" % number)


def values(cluster: RunningCluster, topic: str) -> list[str]:
    consumer = cluster.client.consumer(topic, start="earliest", stop="latest")
    return sorted((record.value or b"").decode() for record in consumer)


def finished(query: RunningQuery) -> list[Batch]:
    batches: list[Batch] = []
    deadline = time.monotonic() + 120
    while query.active:
        assert time.monotonic() < deadline
        batches += query.news()
        time.sleep(0.1)
    return batches + query.news()


@pytest.mark.slow
def test_sql_over_a_view_goes_on_at_its_checkpoint(
    cluster: RunningCluster, engine: PipelineSpark, tmp_path: Path
) -> None:
    topic, out = cluster.topic("piped.in-1", partitions=2), cluster.topic("piped-out")
    fill(cluster, topic, 0, 100)
    made = pipeline(
        tmp_path / "c",
        source=reading(topic, maxOffsetsPerTrigger="60"),
        query="SELECT value FROM `piped.in-1` WHERE int(string(value)) % 2 = 0",
        sink={"topic": out},
    )
    query = engine.start(made)
    batches = finished(query)
    assert query.failure() is None
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert len(batches) > 1
    assert (sum(b.rows_in for b in batches), sum(b.rows_out or 0 for b in batches)) == (100, 50)
    lags = [batch.lag for batch in batches]
    assert lags[-1] == 0
    assert (lags[0] or 0) > 0
    fill(cluster, topic, 100, 10)
    more = finished(engine.start(made))
    assert (more[0].number, sum(batch.rows_in for batch in more)) == (len(batches), 10)
    assert values(cluster, out) == sorted(str(number) for number in range(0, 110, 2))


def twice(spark: SparkSession, frames: dict[str, DataFrame]) -> DataFrame:
    """The function of a pipeline: the rows of two topics, marked."""
    marked = [
        frame.select(concat(lit(name), lit(":"), col("value").cast("string")).alias("value"))
        for name, frame in sorted(frames.items())
    ]
    assert spark.table("`piped-a`").isStreaming
    return marked[0].unionByName(marked[1])


def no_frame(_spark: SparkSession, _frames: dict[str, DataFrame]) -> int:
    return 7


@pytest.mark.slow
def test_a_function_over_two_topics_writes_files(
    cluster: RunningCluster, engine: PipelineSpark, spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("piped-a", "piped-b"):
        fill(cluster, cluster.topic(name), 0, 3)
    made = pipeline(
        tmp_path / "c",
        source={"topics": ["piped-a", "piped-b"], "options": {"startingOffsets": "earliest"}},
        python=f"{__name__}:twice",
        sink={"path": str(tmp_path / "files"), "format": "json"},
        trigger={"once": True},
    )
    (batch,) = finished(engine.start(made))
    assert (batch.rows_in, batch.rows_out, batch.lag) == (6, 6, 0)
    rows = spark.read.json(str(tmp_path / "files")).collect()
    assert sorted(row["value"] for row in rows) == [
        *(f"piped-a:{number}" for number in range(3)),
        *(f"piped-b:{number}" for number in range(3)),
    ]


@pytest.mark.slow
def test_totals_of_a_pattern_are_written_as_they_change(
    cluster: RunningCluster, engine: PipelineSpark, tmp_path: Path
) -> None:
    out = cluster.topic("totals-out")
    for name in ("counted-a", "counted-b"):
        fill(cluster, cluster.topic(name), 0, 4)
    made = pipeline(
        tmp_path / "c",
        source={"pattern": "counted-.", "options": {"startingOffsets": "earliest"}},
        query="SELECT topic AS key, string(COUNT(*)) AS value FROM source GROUP BY topic",
        sink={"topic": out, "outputMode": "complete"},
    )
    batches = finished(engine.start(made))
    assert values(cluster, out)[-2:] == ["4", "4"]
    assert batches[-1].rows_in + batches[0].rows_in >= 8


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        pytest.param(
            {"query": "SELECT nope FROM `piped-bad`"},
            QueryFailedError,
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column",
            id="given-a-column-that-is-not-there",
        ),
        pytest.param(
            {"query": "SELECT 1"},
            InvalidRequestError,
            "spec.query: its result has no rows of the source",
            id="given-a-query-of-nothing",
        ),
        pytest.param(
            {"python": "no_such_module_here:f"},
            InvalidRequestError,
            "spec.python: no_such_module_here:f: there is no module no_such_module_here here",
            id="given-no-module",
        ),
        pytest.param(
            {"python": f"{__name__}:nothing"},
            InvalidRequestError,
            "has no attribute 'nothing'",
            id="given-no-function",
        ),
        pytest.param(
            {"python": f"{__name__}:no_frame"},
            InvalidRequestError,
            "it gives int, and must give a DataFrame",
            id="given-a-function-of-something-else",
        ),
        pytest.param(
            {"query": "SELECT value FROM gone", "source": {"topic": "gone"}},
            QueryFailedError,
            "topic 'gone' does not exist; create it with: runnel create topic gone --partitions N",
            id="given-no-topic",
        ),
    ],
)
def test_what_cannot_be_started(
    cluster: RunningCluster,
    engine: PipelineSpark,
    tmp_path: Path,
    spec: dict[str, Any],
    kind: type[runnel.RunnelError],
    message: str,
) -> None:
    with pytest.raises(runnel.NotFoundError):
        cluster.client.get("topic", "gone")
    cluster.client.apply(runnel.Topic("piped-bad"))
    whole = {"source": {"topic": "piped-bad"}, "sink": {"topic": "piped-bad"}, **spec}
    with pytest.raises(kind) as refused:
        engine.start(pipeline(tmp_path / "c", **whole))
    assert message in refused.value.message
    assert len(refused.value.message.splitlines()) <= 6


def test_given_a_row_that_fails_then_the_reason_is_short(
    cluster: RunningCluster, engine: PipelineSpark, tmp_path: Path
) -> None:
    topic = cluster.topic("piped-fails")
    fill(cluster, topic, 0, 3)
    made = pipeline(
        tmp_path / "c",
        source=reading(topic),
        query="SELECT string(assert_true(int(string(value)) < 2, 'too big')) AS value"
        " FROM `piped-fails`",
        sink={"path": str(tmp_path / "files")},
    )
    query = engine.start(made)
    finished(query)
    assert query.failure() == ["[USER_RAISED_EXCEPTION] too big"]
    query.stop()


def test_given_a_module_of_the_directory_then_it_is_found(
    cluster: RunningCluster,
    engine: PipelineSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "piped_job.py").write_text("def f(spark, frames):\n    raise KeyError('x')\n")
    importlib.invalidate_caches()
    cluster.client.apply(runnel.Topic("piped-bad"))
    made = pipeline(
        tmp_path / "c",
        source={"topic": "piped-bad"},
        python="piped_job:f",
        sink={"topic": "piped-bad"},
    )
    with pytest.raises(InvalidRequestError, match="it raised KeyError: 'x'"):
        engine.start(made)
