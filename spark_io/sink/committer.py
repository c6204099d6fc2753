"""What becomes of the rows that tasks write, and when.

A `Committer` is the seam between Spark and topics. `AtLeastOnce` is the one there is: a task sends
its rows, and they are there once it ends. A task that fails half way, or that Spark runs twice,
leaves rows that come again. A committer that makes a write all or nothing takes its place here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

import runnel
from runnel import TableDelivery
from schemas.errors import RunnelError
from spark_io.options.write import WriteOptions
from spark_io.sink.rows import Piece, RowPlan
from spark_io.worker.client import patiently, task_client

#: So many tables may be on their way before their outcome is looked at.
_IN_FLIGHT: Final = 64

log: Final = logging.getLogger("runnel")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    rows: int


class Committer(Protocol):
    """How rows become records. Pickled to the tasks."""

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the rows of one task. Runs in the task; may run again, or twice at once."""
        ...

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """All tasks have ended. ``batch``: that of a stream, which may come again after a crash."""
        ...

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Some task has failed for good, or `commit` has."""
        ...


@dataclass(frozen=True)
class AtLeastOnce:
    """Tasks send their rows, and wait until they are acknowledged."""

    options: WriteOptions
    cluster: runnel.ClusterInfo
    plan: RowPlan

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Raises the first failure of a delivery, MisfitError for rows that do not fit a topic."""
        rows = 0
        pending: deque[TableDelivery] = deque()
        client = task_client(self.options.sc, self.cluster)
        with ExitStack() as opened:
            producers: dict[str, runnel.Producer] = {}
            for batch in batches:
                rows += batch.num_rows
                for piece in self.plan.pieces(batch):
                    if piece.topic not in producers:
                        producer = patiently(partial(self._producer, client, piece.topic))
                        producers[piece.topic] = opened.enter_context(producer)
                    pending.append(_sent(producers[piece.topic], piece))
                    # The first failure ends the task soon.
                    while len(pending) > _IN_FLIGHT:
                        pending.popleft().result()
        for delivery in pending:
            delivery.result()
        return Written(rows)

    def _producer(self, client: runnel.Cluster, topic: str) -> runnel.Producer:
        return client.producer(topic, acks=self.options.acks)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """All rows are there already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """What was sent stays: say how much that is."""
        rows = sum(one.rows for one in messages if isinstance(one, Written))
        where = "the write" if batch is None else f"batch {batch}"
        log.warning(
            "%s failed; %d rows of tasks that had ended, and some of others, are in the topic and"
            " come again if it is repeated",
            where,
            rows,
        )


def _sent(producer: runnel.Producer, piece: Piece) -> TableDelivery:
    try:
        return producer.send_table(
            piece.table, transaction_ids=piece.transaction_ids, partition=piece.partition
        )
    except RunnelError as error:
        error.add_note(f"The rows are for topic {piece.topic!r}.")
        raise
