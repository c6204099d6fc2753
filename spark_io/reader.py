"""Planning a read on the driver, and reading one slice in a task.

The driver asks for offsets and nothing else. Each task connects to the SC for the leader and to
that SPU for the records, and gives them to Spark as Arrow batches, without ever making a Python
object of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from spark_io.cluster import plan_read, read_slice
from spark_io.coalescing import BatchLimits, coalesce
from spark_io.columns import ColumnBuilder, Projection
from spark_io.options import ReadOptions
from spark_io.partitions import LogSlice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition


class TopicReader(DataSourceReader):
    """Reads one topic. Pickled to the tasks, so it holds settings and no connection."""

    def __init__(
        self, options: ReadOptions, projection: Projection, limits: BatchLimits | None = None
    ) -> None:
        self.options = options
        self.projection = projection
        self.limits = limits or BatchLimits()

    def partitions(self) -> list[InputPartition]:
        """One slice for each partition of the topic, its end taken now. Runs on the driver.

        Raises what `spark_io.cluster.plan_read` raises.
        """
        return list(plan_read(self.options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one slice, in the order of offsets. Runs in a task.

        Raises what `spark_io.cluster.read_slice` raises.
        """
        if not isinstance(partition, LogSlice):
            raise TypeError(f"a slice of a log was expected, not {partition!r}")
        if partition.is_empty:
            return
        builder = ColumnBuilder(
            self.projection, self.options.topic, partition.partition, self.limits.max_rows
        )
        sources = self.projection.sources or ("offset",)
        narrow = (batch.select(sources) for batch in read_slice(self.options, partition))
        for records in coalesce(narrow, self.limits):
            yield builder.build(records)
