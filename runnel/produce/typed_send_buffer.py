"""Where `send` leaves the rows of a typed topic: every one is checked when it is sent.

A row that does not fit is refused by `send`, with each column and reason, and nothing of it is
kept. All rows go through `put`, under the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from runnel.produce.accumulator import Accumulator
from runnel.produce.delivery import Delivery, OnDelivery, Outcome
from runnel.produce.send_buffer import SendBuffer
from runnel.produce.typed_accumulator import RowLayout
from runnel.records.row_values import MisfitError
from schemas.columns.topic_schema import names
from schemas.errors import InvalidRequestError


class TypedSendBuffer(SendBuffer):
    """A send buffer of dicts and dataclass instances."""

    takes_rows = True

    def __init__(
        self,
        layout: RowLayout,
        topic: str,
        accumulator: Accumulator[Outcome],
        *,
        buffer_bytes: int,
        waits: bool,
        wake: Callable[[], object],
    ) -> None:
        # No record fits a slot: each goes through `put`.
        super().__init__(
            topic,
            accumulator,
            buffer_bytes=buffer_bytes,
            max_record_bytes=0,
            waits=waits,
            wake=wake,
        )
        self._layout = layout

    def put(
        self,
        value: Any,
        key: Any,
        timestamp: int | datetime | None,
        headers: Any,
        partition: int | None,
        transaction_id: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Add one row. Raises MisfitError that names its columns, InvalidRequestError for arguments
        that a typed topic does not take.
        """
        layout = self._layout
        if value is None or isinstance(value, bytes | str | bytearray | memoryview):
            raise InvalidRequestError(
                f"the value is {type(value).__name__}; topic {self._topic!r} has a schema: send a"
                f" dict or a dataclass instance with its columns {names(layout.rows.columns)}"
            )
        self._refuse_beside(key, timestamp, headers)
        try:
            row = layout.reader.read(value)
        except MisfitError as error:
            raise MisfitError(
                f"the record does not fit the schema of topic {self._topic!r}: {error.message}",
                error.misfits,
            ) from None
        key = layout.key_of(row)
        return super().put(row, key, None, None, partition, transaction_id, on_delivery)  # type: ignore[arg-type]

    def _refuse_beside(self, key: Any, timestamp: Any, headers: Any) -> None:
        """Key, timestamp and headers of other topics are columns here."""
        rows, what = self._layout.rows, None
        if key is not None and rows.key_column is None:
            what = "records have no key: the topic has no spec.keyColumn"
        elif key is not None:
            what = f"the key of a record is its column {rows.key_column}"
        elif timestamp is not None and rows.timestamp_column is None:
            what = "the time of a record is when it is sent: the topic has no spec.timestampColumn"
        elif timestamp is not None:
            what = f"the time of a record is its column {rows.timestamp_column}"
        elif headers:
            what = "records have columns and no headers"
        if what is not None:
            raise InvalidRequestError(f"topic {self._topic!r} has a schema: {what}")
