"""The blocking facade of a producer.

Only `Producer.send` does not cross threads: it leaves the record in a buffer that the loop reads,
and waits only while the buffer is full. All methods may be called from several threads.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from runnel.loop_thread import LoopThread, blocking_form_of
from runnel.produce import producer
from runnel.produce.counts import ProducerMetrics
from runnel.produce.delivery import Batch, TableDelivery
from runnel.produce.producer import Progress
from runnel.produce.send import RecordSender
from schemas.errors import RunnelError


class Producer(RecordSender):
    """Sends records to one topic; use it with ``with``, which flushes at the end.

    ``send`` is that of `runnel.produce.send.RecordSender`; it waits while the buffer is full.
    """

    def __init__(self, thread: LoopThread, inner: producer.Producer) -> None:
        self._thread = thread
        self._inner = inner
        self._send_buffer = inner._send_buffer

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._inner.topic

    @property
    def metrics(self) -> ProducerMetrics:
        """Counts since the producer was opened."""
        return self._inner.metrics

    @property
    def first_failure(self) -> RunnelError | None:
        """Why the first record failed of those that did since the last `flush`, which raises it."""
        return self._inner.first_failure

    @blocking_form_of(producer.Producer.send_table)
    def send_table(
        self,
        table: Any,
        *,
        transaction_ids: Any = None,
        partition: int | None = None,
        on_progress: Progress | None = None,
    ) -> TableDelivery:
        """Add a table with the column value and optionally key, timestamp, headers; for a typed
        topic, with the topic's columns.

        Waits while the buffer is full.
        """
        made: list[Batch] = []
        for add_piece in self._inner.table_pieces(table, transaction_ids, on_progress, partition):
            made.extend(add_piece())
        return TableDelivery(made)

    def flush(self) -> None:
        """Send all buffered records and wait for their outcome. Raises the first failure, with the
        number of records that failed.
        """
        self._thread.call(self._inner.flush())

    def close(self) -> None:
        """Take no more records, flush, then end. Raises what `flush` raises; the producer is closed
        all the same.
        """
        if self._thread.running:
            self._thread.call(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread.running:
            self._thread.call(self._inner.leave(error))
