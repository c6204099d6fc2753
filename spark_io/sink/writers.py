"""The writers that Spark calls, for a batch and for a stream. What they do, the committer says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from runnel import ClusterInfo
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import UnsupportedError
from spark_io.options.write import WriteOptions
from spark_io.refusals import refusing
from spark_io.sink.committer import AtLeastOnce, Committer
from spark_io.sink.rows import plan_rows
from spark_io.worker.client import patiently
from spark_io.worker.planning import sink_of

if TYPE_CHECKING:
    import pyarrow as pa


def committer_of(
    options: WriteOptions, schema: StructType, *, overwrite: bool, stream: bool = False
) -> Committer:
    """Check the columns of the rows. Raises InvalidRequestError, UnsupportedError, NotFoundError
    for a topic that does not exist. A stream waits for the cluster."""
    if overwrite:
        how = 'outputMode("append")' if stream else 'mode("append")'
        topic = options.topic or "TOPIC"
        raise UnsupportedError(
            f"a log is appended to: write with {how}. To remove what is there:"
            f" runnel topic truncate {topic} --before latest"
        )

    def ask() -> tuple[ClusterInfo, TopicSchema | None]:
        return sink_of(options.sc, options.topic)

    cluster, rows = patiently(ask) if stream else ask()
    return AtLeastOnce(options, cluster, plan_rows(options, schema, rows))


class TopicWriter(DataSourceArrowWriter):
    """``df.write.format("runnel").mode("append")``. Pickled to the tasks."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, *, overwrite: bool) -> Self:
        """Raises as `committer_of`."""
        return cls(committer_of(options, schema, overwrite=overwrite))

    @refusing
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task."""
        return self._committer.write(iterator)

    @refusing
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended."""
        self._committer.commit(messages, None)

    @refusing
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The write has failed."""
        self._committer.abort(messages, None)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("runnel")``. Pickled to the tasks."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, *, overwrite: bool) -> Self:
        """Raises as `committer_of`."""
        return cls(committer_of(options, schema, overwrite=overwrite, stream=True))

    @refusing
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task of a batch."""
        return self._committer.write(iterator)

    @refusing
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks of a batch have ended. It may come again after a crash."""
        self._committer.commit(messages, batchId)

    @refusing
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A batch has failed."""
        self._committer.abort(messages, batchId)
