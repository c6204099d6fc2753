"""A whole measurement on a running cluster: topics of its own, rounds, and all of it away again."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from pyspark.sql import SparkSession

import runnel
from schemas.errors import RunnelError
from spark_io.bench.data import (
    MANY_PARTITIONS,
    PARTITIONS,
    TYPED_BYTES,
    Dataset,
    make_dataset,
)
from spark_io.bench.measuring import Clock, Report, Source, measure, queries, sources
from spark_io.bench.result import Results

DRIVER_MEMORY: Final = "2g"


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """``mb``: 10^6 bytes of values for each of ``row_bytes``, and of the typed topic."""

    mb: int = 200
    row_bytes: tuple[int, ...] = (100, 1_024)
    rounds: int = 5
    directory: str | None = None


#: More sources, made once the session and the datasets are there.
MoreSources = Callable[[SparkSession, Sequence[Dataset]], Mapping[str, Source]]


def run_bench(
    sc: str,
    settings: BenchSettings,
    spu_pids: Sequence[int] | None,
    report: Report,
    more: MoreSources = lambda _spark, _datasets: {},
    **conf: object,
) -> Results:
    """Measure Spark's reads of a cluster. ``spu_pids``: the SPUs, None if not all are on this host.
    ``conf``: settings of the session.

    Children that this process has already are no part of the session. The topics have names that
    begin with ``bench-spark-``, and are deleted at the end.
    """
    others = [child.pid for child in psutil.Process().children(recursive=True)]
    name = f"bench-spark-{secrets.token_hex(3)}"
    with (
        tempfile.TemporaryDirectory(prefix="runnel-bench-", dir=settings.directory) as directory,
        runnel.connect(sc) as cluster,
    ):
        report.step("starting Spark")
        spark = runnel.spark.session(
            "runnel bench spark", **{"spark.driver.memory": DRIVER_MEMORY, **conf}
        )
        try:
            with _datasets(spark, cluster, sc, Path(directory), name, settings, report) as made:
                *datasets, empty = made
                return measure(
                    {**sources(spark, sc), **more(spark, made)},
                    queries(Path(directory)),
                    datasets,
                    empty,
                    Clock(spu_pids, others),
                    settings.rounds,
                    report,
                )
        finally:
            spark.stop()


@contextmanager
def _datasets(
    spark: SparkSession,
    cluster: runnel.Cluster,
    sc: str,
    directory: Path,
    name: str,
    settings: BenchSettings,
    report: Report,
) -> Iterator[list[Dataset]]:
    """Topics for the length of a measurement; the last one is empty."""
    made: list[str] = []

    def dataset(
        suffix: str, rows: int, row_bytes: int | None, partitions: int = PARTITIONS
    ) -> Dataset:
        report.step(f"writing {rows:,} rows to topic {name}-{suffix}")
        made.append(f"{name}-{suffix}")
        return make_dataset(spark, cluster, sc, directory, made[-1], rows, row_bytes, partitions)

    try:
        sized = [
            dataset(f"{size}", max(1, settings.mb * 1_000_000 // size), size)
            for size in settings.row_bytes
        ]
        typed = dataset("typed", max(1, settings.mb * 1_000_000 // TYPED_BYTES), None)
        largest = sized[settings.row_bytes.index(max(settings.row_bytes))]
        many = dataset("many", largest.rows, largest.row_bytes, MANY_PARTITIONS)
        yield [*sized, typed, many, dataset("empty", 0, 1)]
    finally:
        for topic in made:
            # It may not have been made.
            with suppress(RunnelError):
                cluster.delete("topic", topic)
