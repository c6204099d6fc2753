"""One batch of a producer, from its first record to its bytes. Pure.

`runnel.produce.accumulator` decides which records are in it, and when it is sent.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence
from typing import Final, Generic, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.records.few_records import FEW, encode_few
from runnel.records.record import Headers
from runnel.records.tables import int64_values, null_headers, timestamp_array
from schemas.errors import TransactionIdTooLowError
from schemas.wire.batch import CODECS, TRANSACTION_IDS_FLAG, Buffer, build_pieces
from schemas.wire.payload import RECORD_SCHEMA, TRANSACTION_ID, encode_records

O = TypeVar("O")  # noqa: E741 - the type of outcomes

_HEADERS: Final = RECORD_SCHEMA.field("headers").type


class IdsPart(TypedDict, total=False):
    """Arguments of `build`."""

    flags: int
    first_transaction_id: int
    last_transaction_id: int


class ProducerBatch(Generic[O]):
    """The records of one future batch: lists while it is open, Arrow when they came as a table.

    ``size`` is the estimated bytes in memory and on the wire, before compression. ``with_ids``: all
    records have transaction ids, which are in ``ids``, or in the last column of a table. ``moved``:
    where each record went, if another partition than this batch's has to take it.
    """

    __slots__ = (
        "_records", "count", "headers", "ids", "keys", "moved", "opened_at", "outcome", "partition",
        "sealed", "size", "timestamps", "values", "with_ids",
    )  # fmt: skip

    def __init__(
        self,
        partition: int,
        outcome: O,
        opened_at: float,
        records: pa.RecordBatch | None = None,
        size: int = 0,
    ) -> None:
        self.partition = partition
        self.outcome = outcome
        self.opened_at = opened_at
        self.size = size
        self.sealed = records is not None
        self.count = records.num_rows if records is not None else 0
        self._records = records
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: MutableSequence[int] | npt.NDArray[np.int64] = array("q")
        self.headers: dict[int, Headers] = {}
        self.with_ids = False
        self.ids: array[int] | None = None
        self.moved: list[tuple[ProducerBatch[O], int]] | None = None

    def truncate(self) -> None:
        """Remove the parts of a record that an interrupted append left."""
        del self.keys[self.count :]
        del self.values[self.count :]
        del self.timestamps[self.count :]  # type: ignore[union-attr]
        self.headers.pop(self.count, None)
        if self.ids is not None:
            del self.ids[self.count :]

    def begin_ids(self) -> None:
        """Require transaction ids of all records; none has come so far."""
        self.with_ids, self.ids = True, array("q")

    def take_id(self, transaction_id: int, topic: str) -> None:
        """Append the id of the next record. Raises TransactionIdTooLowError if ids fall."""
        ids = self.ids
        if ids is None:
            raise AssertionError("the batch is one of records without transaction ids")
        if self.count and transaction_id < ids[self.count - 1]:
            raise TransactionIdTooLowError(
                f"transaction id {transaction_id} comes after {ids[self.count - 1]} for partition"
                f" {topic}/{self.partition}: ids of a partition never fall",
                last_transaction_id=ids[self.count - 1],
            )
        ids.append(transaction_id)

    def place(self, index: int) -> tuple[ProducerBatch[O], int]:
        """Where a record of this batch is, as `runnel.produce.partitioned_rows.Rows.place`."""
        return self, index

    def timestamp_us(self, index: int) -> int:
        """The timestamp of one record."""
        if self._records is not None:
            return int(self._records.column("timestamp")[index].value)
        return int(self.timestamps[index])

    def to_arrow(self) -> pa.RecordBatch:
        """The records as Arrow columns of `RECORD_SCHEMA`, followed by their transaction ids."""
        if self._records is not None:
            return self._records
        headers = (
            pa.array(self._header_rows(), _HEADERS) if self.headers else null_headers(self.count)
        )
        records = pa.RecordBatch.from_arrays(
            [
                timestamp_array(np.array(self.timestamps, np.int64)),
                _binary(self.keys),
                _binary(self.values),
                headers,
            ],
            schema=RECORD_SCHEMA,
        )
        return self._with_ids(records)

    def _with_ids(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Records that came one by one, with their ids if they have some."""
        if self.ids is None:
            return records
        return records.append_column(TRANSACTION_ID, pa.array(np.array(self.ids, np.int64)))

    def _ids_part(self, records: pa.RecordBatch) -> IdsPart:
        """The header's fields for the transaction ids of `to_arrow`."""
        if not self.with_ids:
            return {}
        ids = records.column(records.num_columns - 1)
        return {
            "flags": TRANSACTION_IDS_FLAG,
            "first_transaction_id": ids[0].as_py(),
            "last_transaction_id": ids[-1].as_py(),
        }

    def encode(
        self, codec: str, producer_id: int = 0, producer_epoch: int = 0, sequence: int = 0
    ) -> list[Buffer]:
        """The batch as bytes, in pieces: the header first. Drops the records; their timestamps
        stay."""
        payload = self._encode_few() if codec == "none" else None
        ids = IdsPart()
        if payload is not None:
            first_us, last_us = min(self.timestamps), max(self.timestamps)
        else:
            records = self.to_arrow()
            payload, ids = encode_records(records, codec), self._ids_part(records)
            self.timestamps = times = int64_values(records.column("timestamp"))
            first_us, last_us = int(times.min()), int(times.max())
        encoded = build_pieces(
            [payload],
            record_count=self.count,
            first_timestamp_us=first_us,
            last_timestamp_us=last_us,
            codec=CODECS[codec],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence=sequence,
            **ids,
        )
        self._records = None
        self.keys, self.values, self.headers, self.ids = [], [], {}, None
        return encoded

    def _encode_few(self) -> bytes | None:
        """The payload, if it can be written without Arrow's arrays, and is faster so."""
        times = self.timestamps
        if self.count > FEW or self.headers or self.with_ids or not isinstance(times, array):
            return None
        return None if self._records is not None else encode_few(times, self.keys, self.values)

    def _header_rows(self) -> list[list[dict[str, str | bytes | None]] | None]:
        rows: list[list[dict[str, str | bytes | None]] | None] = [None] * self.count
        for index, headers in self.headers.items():
            rows[index] = [{"key": name, "value": value} for name, value in headers]
        return rows


def _binary(items: list[bytes | None]) -> pa.Array:
    if items and items[0] is None and items.count(None) == len(items):
        return pa.nulls(len(items), pa.binary())
    return pa.array(items, pa.binary())
