"""A read of topics with archives: files by Spark's own Parquet reader, the rest from the logs.

Spark reads Parquet in the JVM, many columns at once, and only those that a query needs. What was
read is fixed when the DataFrame is made: files are listed then, and the ends of the logs taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StructType

import runnel
from runnel import ArchivedTopic, OffsetAndTerm
from runnel.contexts import default_sc
from schemas.objects.topic import Topic
from spark_io.archive.dividing import (
    FilePart,
    divide,
    last_files,
    rest_options,
    spark_path,
)
from spark_io.options import table
from spark_io.options.read import parse_read_options
from spark_io.plan.slices import plan_slices
from spark_io.rows.columns import CREATE_TIME, chosen, columns_of, full_schema
from spark_io.worker.planning import chosen_topics, common_schema, find_bounds, log

#: Options that say what is read, which the plan has settled.
_SETTLED: Final = frozenset(
    name.lower()
    for name in (
        *(table.TOPIC, table.SUBSCRIBE, table.SUBSCRIBE_PATTERN, table.ASSIGN),
        *(table.STARTING_OFFSETS, table.ENDING_OFFSETS),
        *(table.STARTING_TIMESTAMP, table.ENDING_TIMESTAMP),
        *(table.STARTING_BY_TIMESTAMP, table.ENDING_BY_TIMESTAMP, table.BY_TIMESTAMP_STRATEGY),
        table.STARTING_TRANSACTION_ID,
    )
)
#: Of Parquet's reader in the JVM: pages are compared with their checksums.
_VERIFY_CHECKSUMS: Final = "parquet.page.verify-checksum.enabled"


def read_with_archive(
    spark: SparkSession, options: Mapping[str, str], columns: Sequence[str] | None
) -> DataFrame | None:
    """The rows of a batch read, archived ones by Spark's Parquet reader; None where none of the
    topics has files that it could read.

    Raises what planning raises.
    """
    wanted = parse_read_options(options, default_sc)
    if wanted.stream is not None:
        # Streams have no archive.
        return None
    with runnel.connect(wanted.sc) as cluster:
        names = chosen_topics(cluster, wanted.topics)
        rows = common_schema(cluster, names)
        archives = _archives(cluster, names)
        if not archives:
            return None
        plan = plan_slices(wanted, find_bounds(cluster, names, wanted))
        diverged = _diverged(cluster, last_files(plan.slices, archives))
    for text in plan.warnings:
        log.warning("%s", text)
    files, rest = divide(plan.slices, archives, diverged)
    if not files:
        return None
    known = columns_of(rows, headers=wanted.include_headers, many=wanted.topics.many)
    # A typed topic may have columns of such names, which files hold.
    made = {column.name for column in known if column.source is None}
    schema = full_schema(known)
    if columns is not None:
        schema = chosen(schema, columns)
    frames = [_files(spark, schema, made, some[0].topic, some) for some in _read_together(files)]
    if any(not piece.is_empty for piece in rest):
        frames.append(_live(spark, schema, {**options, "sc": wanted.sc}, rest_options(rest)))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _read_together(files: Sequence[FilePart]) -> list[list[FilePart]]:
    """The files of each topic; a file that is cut apart, because another one has its offsets."""
    together: dict[tuple[str, str], list[FilePart]] = {}
    for file in files:
        together.setdefault((file.topic, file.path if file.cut else ""), []).append(file)
    return list(together.values())


def _archives(cluster: runnel.Cluster, names: Sequence[str]) -> dict[str, ArchivedTopic]:
    found = {}
    for name in names:
        topic = cluster.get("topic", name)
        if isinstance(topic, Topic) and topic.spec.archive is not None:
            found[name] = cluster.archived(name)
    return found


def _diverged(
    cluster: runnel.Cluster, read: Mapping[str, Mapping[int, OffsetAndTerm]]
) -> dict[tuple[str, int], int]:
    """By topic and partition, from where on logs may hold other records than files, if they do."""
    return {
        (topic, index): found.diverged_at
        for topic, ends in read.items()
        for index, found in cluster.offsets(topic, list(ends), read=ends).items()
        if found.diverged_at is not None
    }


def _live(
    spark: SparkSession, schema: StructType, options: Mapping[str, str], rest: Mapping[str, str]
) -> DataFrame:
    """The records that are in no file, in these columns."""
    kept = {name: value for name, value in options.items() if name.lower() not in _SETTLED}
    return spark.read.format("runnel").options(**{**kept, **rest}).schema(schema).load()


def _files(
    spark: SparkSession,
    schema: StructType,
    made: Collection[str],
    topic: str,
    files: Sequence[FilePart],
) -> DataFrame:
    """The records of files of one topic, in the columns of the source. ``made``: the names of
    those that are no fields of records."""
    values = {"topic": sf.lit(topic), "timestampType": sf.lit(CREATE_TIME)}
    constants = {name: value for name, value in values.items() if name in made}
    partial = [file for file in files if not file.whole]
    needed = [field for field in schema.fields if field.name not in constants]
    stored = StructType(list(needed))
    if partial:
        # Which rows of a file are read depends on these.
        for name, type_ in (("partition", IntegerType()), ("offset", LongType())):
            if name not in stored.names:
                stored = stored.add(name, type_)
    elif not needed:
        stored = stored.add("offset", LongType())
    reader = spark.read.option(_VERIFY_CHECKSUMS, "true").schema(stored)
    frame = reader.parquet(*(spark_path(file.path) for file in files))
    if partial:
        frame = frame.where(_within(files))
    picked = [
        constants[field.name].cast(field.dataType).alias(field.name)
        if field.name in constants
        else sf.col(f"`{field.name}`")
        for field in schema.fields
    ]
    return frame.select(*picked)


def _within(files: Sequence[FilePart]) -> Column:
    """Which rows of files are to be read: those between two offsets of each partition."""
    bounds: dict[int, tuple[int, int]] = {}
    for file in files:
        low, high = bounds.get(file.partition, (file.start, file.stop))
        bounds[file.partition] = (min(low, file.start), max(high, file.stop))
    partition, offset = sf.col("partition"), sf.col("offset")
    return reduce(
        lambda one, other: one | other,
        (
            (partition == index) & (offset >= low) & (offset < high)
            for index, (low, high) in bounds.items()
        ),
    )
