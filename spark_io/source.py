"""The data source ``runnel`` as Spark sees it.

Spark makes the source in one worker process when ``load()`` is called, plans in another (once for
each ``load()``, at the first action), and reads in tasks. The planner's results travel to the tasks
in `spark_io.plan.sharing.TaskSlices` and in the reader; records never come back.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from runnel.contexts import default_sc
from schemas.errors import RunnelError
from spark_io.batch import TopicReader
from spark_io.options.read import ReadOptions, parse_read_options
from spark_io.options.table import READS, Use
from spark_io.options.table_options import options_of, with_options
from spark_io.options.write import parse_write_options
from spark_io.refusals import end_quietly, refusing
from spark_io.rows.columns import Column, columns_of, full_schema, project
from spark_io.sink.writers import TopicStreamWriter, TopicWriter
from spark_io.stream.reader import RefusingStreamReader, TopicStreamReader
from spark_io.stream.segments import SegmentStreamReader
from spark_io.worker.client import patiently, settle
from spark_io.worker.planning import topics_schema

# Some workers only look for this class.
end_quietly()


class RunnelDataSource(DataSource):
    """``spark.read.format("runnel").option("topic", …).load()``; see `spark_io.options.table`."""

    @classmethod
    def name(cls) -> str:
        return "runnel"

    @refusing
    def schema(self) -> StructType:
        """The columns of a read that names none. Bad options are refused here, by ``load()``.

        Asks the SC, because a typed topic has columns of its own. Raises NotFoundError.
        """
        # Spark does not say whether this is for a batch or a stream.
        given = dict(self.options)
        columns = _columns(parse_read_options(given, default_sc, *READS))
        settle()
        return with_options(full_schema(columns), given)

    @refusing
    def reader(self, schema: StructType) -> TopicReader:
        """Batch reads. Raises InvalidRequestError for bad options and schemas."""
        options = parse_read_options(options_of(schema, self.options), default_sc)
        return TopicReader(options, project(schema, _columns(options)))

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> TopicStreamReader | SegmentStreamReader | RefusingStreamReader:
        """Streams. Never raises: Spark would hide the error behind one of its own."""
        try:
            given = options_of(schema, self.options)
            options = parse_read_options(given, default_sc, Use.STREAM)
            columns = patiently(partial(_columns, options))
            chosen = project(schema, columns)
            if options.stream is not None:
                return SegmentStreamReader(options, options.stream, chosen)
            return TopicStreamReader(options, chosen)
        except RunnelError as error:
            return RefusingStreamReader(error)

    @refusing
    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Batch writes. Raises InvalidRequestError for bad options and columns."""
        options = parse_write_options(dict(self.options), default_sc, Use.WRITE)
        return TopicWriter.of(options, schema, overwrite=overwrite)

    @refusing
    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802
        """Writes of streams. Raises InvalidRequestError for bad options and columns."""
        options = parse_write_options(dict(self.options), default_sc, Use.WRITE_STREAM)
        return TopicStreamWriter.of(options, schema, overwrite=overwrite)


def _columns(options: ReadOptions) -> tuple[Column, ...]:
    rows = topics_schema(options)
    return columns_of(rows, headers=options.include_headers, many=options.topics.many)
