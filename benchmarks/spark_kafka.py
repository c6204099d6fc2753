"""Spark's reads of topics beside its own Kafka source over a broker on the same machine.

``python -m benchmarks.spark_kafka [--mb N] [--rounds N] [--row-size SIZE]... [--json]`` is
``runnel bench spark`` on a local cluster of its own, with two more sources: ``kafka`` with Spark's
defaults, and ``kafka tuned``. Kafka and Spark's package for it come by ``mvn``; without it, without
Java, or without the packages, all the rest is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, SparkSession

import runnel
from benchmarks.kafka_brokers import (
    KAFKA_VERSION,
    SCALA_VERSION,
    Broker,
    broker_jars,
    java_program,
    running_broker,
)
from benchmarks.local_cluster import local_cluster
from benchmarks.maven_jars import maven_jars
from benchmarks.peers.peer import UnavailableError
from runnel.bench.cpu import spu_pids
from runnel.cli.render import print_rows
from schemas.objects.quantities import parse_size
from spark_io.bench.data import PARTITIONS, Dataset
from spark_io.bench.measuring import Source
from spark_io.bench.result import Results, report
from spark_io.bench.run import BenchSettings, MoreSources, run_bench

#: Of Spark's package for Kafka, if there is none for the installed Spark.
_OTHER_SPARK: Final = "4.2.0"
_CONNECTOR: Final = f"spark-sql-kafka-0-10_{SCALA_VERSION}"
#: What Spark does not have already.
_OF_SPARK: Final = (
    _CONNECTOR,
    f"spark-token-provider-kafka-0-10_{SCALA_VERSION}",
    "kafka-clients",
    "commons-pool2",
)
TUNED: Final = "kafka tuned"
_TUNED_OPTIONS: Final = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(16 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.wait.ms": "10",
}
#: Large batches: a producer's default of 16 KiB would cost the readers more.
_WRITER_OPTIONS: Final = {"kafka.batch.size": str(512 << 10), "kafka.linger.ms": "20"}


@dataclass(frozen=True, slots=True)
class Jars:
    """``spark``: a directory with what a session needs; ``broker``: with what a broker needs."""

    java: str
    broker: Path
    spark: Path
    spark_version: str

    @property
    def versions(self) -> str:
        return f"Kafka {KAFKA_VERSION}, {_CONNECTOR} {self.spark_version}"


def kafka_jars() -> Jars:
    """From the cache, or by Maven. Raises UnavailableError."""
    java, broker = java_program(), broker_jars()
    version, spark = _connector()
    return Jars(java, broker, spark, version)


def _connector() -> tuple[str, Path]:
    """Spark's package for Kafka: its version, and the jars."""
    try:
        return pyspark.__version__, _connector_of(pyspark.__version__)
    except UnavailableError:
        return _OTHER_SPARK, _connector_of(_OTHER_SPARK)


def _connector_of(version: str) -> Path:
    wanted = [f"org.apache.spark:{_CONNECTOR}:{version}"]
    return maven_jars(f"{_CONNECTOR}-{version}", wanted, _OF_SPARK)


def kafka_sources(broker: Broker, sc: str) -> MoreSources:
    """Fills topics of Kafka with the rows of those of the cluster at ``sc``, and reads them."""

    def fill(spark: SparkSession, data: Dataset) -> None:
        broker.create_topic(data.topic, PARTITIONS)
        if data.rows == 0:
            return
        frame = spark.read.format("runnel").option("sc", sc).option("topic", data.topic).load()
        writer = frame.select("key", "value").write.format("kafka").options(**_WRITER_OPTIONS)
        writer.option("kafka.bootstrap.servers", broker.address).option("topic", data.topic).save()

    def made(spark: SparkSession, datasets: Sequence[Dataset]) -> Mapping[str, Source]:
        for data in datasets:
            if _is_measured(data):
                _say(f"writing {data.rows:,} rows to topic {data.topic} of Kafka")
                fill(spark, data)

        def source(options: Mapping[str, str]) -> Source:
            def read(data: Dataset, columns: Sequence[str] | None) -> DataFrame | None:
                if not _is_measured(data):
                    return None
                reader = spark.read.format("kafka").options(**options)
                reader = reader.option("kafka.bootstrap.servers", broker.address)
                frame = reader.option("subscribe", data.topic).load()
                return frame if columns is None else frame.select(*columns)

            return read

        return {"kafka": source({}), TUNED: source(_TUNED_OPTIONS)}

    return made


def _is_measured(data: Dataset) -> bool:
    """Kafka has no typed topics; and what a task costs is a question to Runnel alone."""
    return not data.typed and data.partitions == PARTITIONS


class _Steps:
    """Names each step on standard error."""

    def step(self, what: str) -> None:
        _say(what)

    def advance(self, share: float) -> None:
        """Steps are short enough."""


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def beside_kafka(results: Results) -> list[list[str]]:
    """The table of ``runnel bench spark`` with the ratio to `TUNED`; the broker is a server as the
    SPU is."""
    heading, *rows = report(results)
    heading = ["SERVER S" if name == "SPU S" else name for name in heading]
    table = [[*heading, "TO KAFKA TUNED"]]
    for one, row in zip((*results.measured, *results.fixed.values()), rows, strict=True):
        ratio = results.ratio(one, TUNED) if one.rows else None
        table.append([*row, "-" if ratio is None else f"{ratio:.2f}"])
    return table


def as_json(results: Results, versions: str | None) -> dict[str, Any]:
    """That of ``runnel bench spark``, with ``ratioToKafkaTuned``; ``kafka`` is None if there was
    none."""
    data = results.to_json()
    for one, query in zip(results.measured, data["queries"], strict=True):
        query["ratioToKafkaTuned"] = results.ratio(one, TUNED)
    return {**data, "kafka": versions}


def main() -> None:
    parser = argparse.ArgumentParser(prog="spark_kafka", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mb", type=int, default=200, help="10^6 bytes of each topic")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count")
    parser.add_argument(
        "--row-size", type=parse_size, action="append", help="may be repeated (100, 1Ki)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    if arguments.mb < 1 or arguments.rounds < 1:
        parser.error("--mb and --rounds are at least 1")
    settings = BenchSettings(arguments.mb, rounds=arguments.rounds)
    if arguments.row_size:
        settings = replace(settings, row_bytes=tuple(arguments.row_size))
    jars: Jars | None = None
    try:
        jars = kafka_jars()
    except UnavailableError as error:
        _say(f"Kafka is not measured: {error}")
    with ExitStack() as stack:
        sc = stack.enter_context(local_cluster())
        with runnel.connect(sc) as cluster:
            servers = spu_pids(cluster, sc)
        if jars is None:
            results = run_bench(sc, settings, servers, _Steps())
        else:
            broker = stack.enter_context(running_broker(jars.java, jars.broker))
            results = run_bench(
                sc,
                settings,
                None if servers is None else [*servers, broker.pid],
                _Steps(),
                kafka_sources(broker, sc),
                **{"spark.jars": ",".join(map(str, sorted(jars.spark.glob("*.jar"))))},
            )
    versions = None if jars is None else jars.versions
    if arguments.json:
        print(json.dumps(as_json(results, versions), indent=2))
    else:
        if versions is not None:
            print(f"Spark {pyspark.__version__}, {versions}")
        heading, *rows = beside_kafka(results) if versions is not None else report(results)
        print_rows(heading, rows)


if __name__ == "__main__":
    main()
