"""Measures how fast Spark scans a topic, beside its Parquet reader on the same rows and run.

``python -m benchmarks.spark_scan [--mb N] [--runs N] [--json]`` starts a local cluster in a
temporary directory, fills one topic per record size, writes the same rows as Parquet, and runs
two queries on both: a scan to the ``noop`` sink (every column of every row crosses to the JVM)
and ``sum(length(value))``. Rates are medians over the runs; ratios of one run on one machine mean
more than the absolute numbers. `measure` works on any running cluster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

import runnel
from benchmarks.local_cluster import local_cluster
from spark_io.session import spark_session

RECORD_BYTES: Final = (100, 1_024)
PARTITIONS: Final = 2
WARM_UP_RUNS: Final = 2
_CHUNK_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Scan:
    """One query on one source; rates count the bytes of values, in 10^6 bytes per second.

    ``seconds`` is the median of the runs; the other two are the shortest and the longest.
    """

    query: str
    source: str
    record_bytes: int
    rows: int
    seconds: float
    fastest_s: float
    slowest_s: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.rows_per_s * self.record_bytes / 1e6


def measure(
    spark: SparkSession,
    sc: str,
    directory: Path,
    *,
    record_bytes: int,
    total_mb: int,
    runs: int,
    topic: str | None = None,
) -> list[Scan]:
    """Fill a new topic and a Parquet directory with the same rows and scan both ``runs`` times.

    The topic (``bench-<record bytes>`` unless it is named) must not exist. Runs alternate between
    the sources. Two runs of each come first and do not count, because the JVM is still compiling.
    """
    name = topic or f"bench-{record_bytes}"
    rows = max(_CHUNK_ROWS, total_mb * 1_000_000 // record_bytes)
    with runnel.connect(sc) as cluster:
        cluster.create(runnel.Topic(name, partitions=PARTITIONS))
        cluster.wait("topic", name, "provisioned")
        with cluster.producer(name) as producer:
            for table in _tables(rows, record_bytes):
                producer.send_table(table)
    frame = spark.read.format("runnel").option("sc", sc).option("topic", name).load()
    parquet = directory / f"{name}.parquet"
    _write_parquet(sc, name, parquet)
    sources = {"runnel": frame, "parquet": spark.read.parquet(str(parquet))}
    if (found := frame.count()) != rows:
        raise AssertionError(f"{rows} rows were sent, Spark counts {found}")
    found_scans = []
    for query, run in _QUERIES.items():
        seconds: dict[str, list[float]] = {source: [] for source in sources}
        for number in range(WARM_UP_RUNS + runs):
            for source, data in sources.items():
                started = time.perf_counter()
                run(data)
                if number >= WARM_UP_RUNS:
                    seconds[source].append(time.perf_counter() - started)
        found_scans += [
            Scan(
                query, source, record_bytes, rows, statistics.median(times), min(times), max(times)
            )
            for source, times in seconds.items()
        ]
    return found_scans


def _scan(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sum(frame: DataFrame) -> None:
    frame.agg(F.sum(F.length("value"))).collect()


_QUERIES: Final[dict[str, Callable[[DataFrame], None]]] = {
    "noop": _scan,
    "sum(length(value))": _sum,
}


def _tables(rows: int, record_bytes: int) -> Iterator[pa.Table]:
    """Tables of random values; incompressible, so that Parquet does not win by compression."""
    random = np.random.default_rng(7)
    for start in range(0, rows, _CHUNK_ROWS):
        count = min(_CHUNK_ROWS, rows - start)
        data = pa.py_buffer(random.bytes(count * record_bytes))
        ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(record_bytes))
        values = pa.Array.from_buffers(pa.binary(), count, [None, ends, data])
        keys = pa.array(np.arange(start, start + count)).cast(pa.string()).cast(pa.binary())
        yield pa.table({"key": keys, "value": values})


def _write_parquet(sc: str, topic: str, directory: Path) -> None:
    """The topic's rows with Spark's columns, one file for each partition."""
    directory.mkdir()
    with runnel.connect(sc) as cluster:
        for partition in range(PARTITIONS):
            consumer = cluster.consumer(topic, "earliest", "latest", [partition])
            writer: pq.ParquetWriter | None = None
            for batch in consumer.batches():
                table = pa.Table.from_batches([batch]).drop_columns(["headers"])
                table = table.append_column("topic", pa.repeat(topic, len(table)))
                table = table.append_column("timestampType", pa.repeat(pa.scalar(0), len(table)))
                if writer is None:
                    writer = pq.ParquetWriter(directory / f"{partition}.parquet", table.schema)
                writer.write_table(table)
            if writer is not None:
                writer.close()


def report(scans: list[Scan]) -> str:
    """A table: one line for each query and record size, with the ratio to Parquet."""
    by_case = {(s.record_bytes, s.query, s.source): s for s in scans}
    heading = (
        f"{'record':>8}  {'query':<20} {'rows':>10}  {'runnel MB/s':>12} {'rows/s':>12}"
        f"  {'parquet MB/s':>12} {'rows/s':>12}  {'ratio':>6}"
        f"  {'runnel s':>12} {'parquet s':>12}"
    )
    lines = [heading]
    for (size, query, source), ours in by_case.items():
        if source != "runnel":
            continue
        theirs = by_case[size, query, "parquet"]
        lines.append(
            f"{size:>6} B  {query:<20} {ours.rows:>10,}  {ours.mb_per_s:>12.0f}"
            f" {ours.rows_per_s:>12,.0f}  {theirs.mb_per_s:>12.0f} {theirs.rows_per_s:>12,.0f}"
            f"  {theirs.seconds / ours.seconds:>6.2f}"
            f"  {_range(ours):>12} {_range(theirs):>12}"
        )
    return "\n".join(lines)


def _range(scan: Scan) -> str:
    return f"{scan.fastest_s:.2f}-{scan.slowest_s:.2f}"


def as_json(scans: list[Scan]) -> str:
    """The same as JSON: a list of scans with their rates."""
    return json.dumps(
        [{**asdict(s), "mb_per_s": s.mb_per_s, "rows_per_s": s.rows_per_s} for s in scans], indent=2
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="spark_scan", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mb", type=int, default=200, help="megabytes of values per record size")
    parser.add_argument("--runs", type=int, default=5, help="runs that count, per query and source")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    scans: list[Scan] = []
    with tempfile.TemporaryDirectory() as name, local_cluster() as sc:
        spark = spark_session("spark_scan")
        try:
            for record_bytes in RECORD_BYTES:
                scans += measure(
                    spark,
                    sc,
                    Path(name),
                    record_bytes=record_bytes,
                    total_mb=arguments.mb,
                    runs=arguments.runs,
                )
        finally:
            spark.stop()
    print(as_json(scans) if arguments.json else report(scans))


if __name__ == "__main__":
    main()
