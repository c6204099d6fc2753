"""What the readers of Spark's streams share: a client, patience, limits, and the tasks' part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

import runnel
from schemas.errors import RetryableError, RunnelError
from spark_io.batch import read_batches
from spark_io.options.read import ReadOptions
from spark_io.refusals import refusing_later
from spark_io.rows.coalescing import BatchLimits
from spark_io.rows.columns import Projection
from spark_io.worker.client import patiently

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

T = TypeVar("T")


class AskingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader with a client of its own. Pickled to the tasks, which only call `read`."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self.options = options
        self.projection = projection
        self.limits = BatchLimits()
        self._client: runnel.Cluster | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits that the options set; Spark knows one at a time."""
        limits = self.options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    @refusing_later
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of each slice, in the order of offsets. Runs in a task."""
        return read_batches(self.options, self.projection, self.limits, partition)

    def stop(self) -> None:
        """The query has ended."""
        self._close()

    def _ask(self, work: Callable[[runnel.Cluster], T]) -> T:
        """What ``work`` gives; while the cluster does not answer, it is asked again, by a new
        client, because another cluster may be there by then."""

        def ask() -> T:
            if self._client is None:
                self._client = runnel.connect(self.options.sc)
            try:
                return work(self._client)
            except RetryableError:
                self._close()
                raise

        return patiently(ask)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(RunnelError):
                client.close()
