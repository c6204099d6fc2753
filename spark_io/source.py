"""The data source ``runnel`` as Spark sees it.

Spark makes the source in one worker process when ``load()`` is called, plans in another (once
for each ``load()``, at the first action), and reads in tasks. The planner's results travel
to the tasks in `spark_io.partitions.LogSlice` and in the reader; records never come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from runnel.contexts import default_sc
from schemas.errors import UnsupportedError
from spark_io.cluster import topic_schema
from spark_io.columns import Column, columns_of, full_schema, project
from spark_io.options import ReadOptions, parse_read_options
from spark_io.reader import TopicReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class RunnelDataSource(DataSource):
    """``spark.read.format("runnel").option("topic", …).load()``; see `spark_io.options`."""

    @classmethod
    def name(cls) -> str:
        return "runnel"

    def schema(self) -> StructType:
        """The columns of a read that names none. Bad options are refused here, by ``load()``.

        Asks the SC, because a typed topic has columns of its own. Raises NotFoundError.
        """
        return full_schema(self._columns(self._read_options()))

    def reader(self, schema: StructType) -> TopicReader:
        """Batch reads. Raises InvalidRequestError for bad options and schemas."""
        options = self._read_options()
        return TopicReader(options, project(schema, self._columns(options)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _refuse("writing to a topic", "cluster.producer(topic).send_table(table)")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        _refuse("readStream", "spark.read, with startingOffsets where the last read ended")

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        _refuse("writeStream", "cluster.producer(topic).send_table(table)")

    def _columns(self, options: ReadOptions) -> tuple[Column, ...]:
        return columns_of(topic_schema(options))

    def _read_options(self) -> ReadOptions:
        options: dict[str, Any] = dict(self.options)
        return parse_read_options(options, default_sc)


def _refuse(what: str, instead: str) -> NoReturn:
    raise UnsupportedError(
        f"the data source runnel does not support {what} in this version; use {instead}"
    )
