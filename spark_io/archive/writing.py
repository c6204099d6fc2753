"""Archiving by Spark: each task writes the file of one range, on any executor.

The driver decides what is due, lists what was written, and tells the SC, as every run does. A task
that Spark repeats writes another file; only the one whose name came back is listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import runnel
from runnel import ArchivedFile, ArchiveRun, KnownTopic
from runnel.archiving.writing import ArchiveTask, write_file
from runnel.client import Cluster
from runnel.client.archives import open_for
from runnel.contexts import default_sc
from schemas.errors import RunnelError, UnsupportedError, error_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkTask:
    """What an executor is sent: a task, the cluster, and what is known of the topic."""

    sc: str
    known: KnownTopic
    task: ArchiveTask


def archive_topic(
    spark: SparkSession, topic: str, sc: str | None, *, everything: bool = False
) -> ArchiveRun:
    """See `runnel.spark.archive`. Raises as `runnel.Cluster.archive`, UnsupportedError with Spark
    Connect, whose clients cannot give tasks to executors."""
    if not hasattr(spark, "_jsc"):
        raise UnsupportedError(
            "Spark Connect gives no tasks of this kind to executors; archive with: runnel archive"
            f" run {topic}"
        )
    address = default_sc() if sc is None else sc
    with runnel.connect(address) as cluster:
        known = cluster.known_topic(topic)

        async def execute(
            tasks: Sequence[ArchiveTask],
        ) -> AsyncIterator[tuple[ArchiveTask, ArchivedFile | RunnelError]]:
            if tasks:
                wanted = [SparkTask(address, known, task) for task in tasks]
                job = spark.sparkContext.parallelize(wanted, len(wanted)).map(write)
                found = await asyncio.to_thread(job.collect)
                for task, outcome in zip(tasks, found, strict=True):
                    if isinstance(outcome, ArchivedFile):
                        yield task, outcome
                    else:
                        yield task, error_from(*outcome)

        return cluster.archive(topic, everything=everything, execute=execute)


def write(wanted: SparkTask) -> ArchivedFile | tuple[str, str, dict[str, Any]]:
    """Write the file of a task; or the code, the text and the details of what went wrong. Runs in a
    task."""
    try:
        return asyncio.run(_write(wanted))
    except RunnelError as error:
        return error.code.name, error.message, error.details


async def _write(wanted: SparkTask) -> ArchivedFile:
    async with await Cluster.connect(wanted.sc, known=wanted.known.cluster) as cluster:
        known = KnownTopic(wanted.known.cluster, wanted.known.topic, wanted.task.rows)
        return await write_file(wanted.task, lambda: open_for(cluster, wanted.task, known))
