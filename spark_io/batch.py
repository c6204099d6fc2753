"""Batch reads: planned once on the driver, and read in tasks, slice by slice.

Each task goes to the SPU that leads its partition, and gives Spark the records as Arrow batches,
without ever making a Python object of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from spark_io.options.read import ReadOptions
from spark_io.plan.sharing import TaskSlices
from spark_io.refusals import refusing, refusing_later
from spark_io.rows.coalescing import BatchLimits, coalesce
from spark_io.rows.columns import ColumnBuilder, Projection
from spark_io.worker.client import settle
from spark_io.worker.planning import plan_read
from spark_io.worker.reading import read_slice
from spark_io.worker.segments import plan_stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition


class TopicReader(DataSourceReader):
    """Reads topics. Pickled to the tasks, so it holds settings and no connection."""

    def __init__(
        self, options: ReadOptions, projection: Projection, limits: BatchLimits | None = None
    ) -> None:
        self.options = options
        self.projection = projection
        self.limits = limits or BatchLimits()

    @refusing
    def partitions(self) -> list[InputPartition]:
        """Slices of the logs for each task, their ends taken now. Runs on the driver.

        Raises what `spark_io.worker.planning.plan_read` and `plan_stream` raise.
        """
        wanted = self.options.stream
        plan = plan_read(self.options) if wanted is None else plan_stream(self.options, wanted)
        tasks: list[InputPartition] = [*plan]
        settle()
        return tasks

    @refusing_later
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of each slice, in the order of offsets. Runs in a task.

        Raises what `spark_io.worker.reading.read_slice` raises.
        """
        return read_batches(self.options, self.projection, self.limits, partition)


def read_batches(
    options: ReadOptions, projection: Projection, limits: BatchLimits, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The columns of a projection of a task's slices, in batches of a good size."""
    if not isinstance(partition, TaskSlices):
        # Spark makes a partition of its own where a plan has none.
        return
    sources = projection.sources or ("offset",)
    try:
        for piece in partition.slices:
            builder = ColumnBuilder(projection, piece.topic, piece.partition, limits.max_rows)
            records = (batch.select(sources) for batch in read_slice(options, piece, sources))
            for batch in coalesce(records, limits):
                yield builder.build(batch)
    finally:
        settle()
