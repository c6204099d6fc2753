"""`send`, as the producers of both facades have it: it fills a slot, or calls `SendBuffer.put`.

This is the inner loop of every producer: a record that fits a slot takes no lock and calls no other
function, except once per chunk (`runnel.produce.send_buffer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from runnel.produce.delivery import Delivery, OnDelivery
from runnel.produce.send_buffer import SLOT_KEY_BYTES, SLOT_VALUE_BYTES, SendBuffer
from runnel.records.record import Value
from runnel.utf8 import as_utf8
from schemas.errors import InvalidRequestError


class RecordSender:
    """`send`, shared by the producers of both facades.

    It is a method of a base class, not a delegated call: a second call would cost as much as the
    first.
    """

    _send_buffer: SendBuffer

    # The last five are meant as keyword-only; saying so would make every call a third slower.
    def send(
        self,
        value: Value | None,
        key: bytes | str | None = None,
        timestamp: int | datetime | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        transaction_id: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Add one record; returns at once. Text is sent as UTF-8. For any thread.

        For a typed topic, ``value`` is a dict or a dataclass instance with the topic's columns; key
        and timestamp are among them.

        ``timestamp``: a datetime with a time zone, or microseconds since the epoch. By default it
        is the current time, read once for all records within 5 ms. ``transaction_id``: set by the
        application, 0 or more, never below an earlier one of the partition. Records of one key keep
        their order. When the buffer is full, this raises OverloadedError (await
        `aio.Producer.drain`), or waits in the blocking facade. Raises RecordTooLargeError,
        InvalidRequestError, TransactionIdTooLowError for an id below one that waits to be sent; if
        the leader refuses the id, the delivery fails with that error.

        ``on_delivery`` is called once with the outcome: ``(None, metadata)``, or ``(error, None)``
        for a record that was not delivered, also when the producer is closed; before `flush` and
        ``close`` return. The event loop calls it (in the blocking facade, the client's thread): it
        should be quick, and there a call that waits raises; if the buffer is full, so does
        `send`. What it raises is logged, and the producer goes on.
        """
        if (
            type(value) is bytes
            and (key is None or (type(key) is bytes and len(key) < SLOT_KEY_BYTES))
            and len(value) < SLOT_VALUE_BYTES
            and timestamp is None
            and headers is None
            and partition is None
            and transaction_id is None
            and on_delivery is None
        ):
            indices, keys, values, chunk = self._send_buffer.fields
            for index in indices:
                keys[index] = key
                # The value marks the slot as filled, so it comes last.
                values[index] = value
                if not index:
                    self._send_buffer.begun(chunk)
                delivery = Delivery()
                delivery._source = chunk
                delivery._index = index
                return delivery
        elif (type(value) is not bytes and value is not None) or (
            type(key) is not bytes and key is not None
        ):
            if self._send_buffer.takes_rows:
                return self._send_buffer.put(
                    value,  # type: ignore[arg-type]
                    key,  # type: ignore[arg-type]
                    timestamp,
                    headers,
                    partition,
                    transaction_id,
                    on_delivery,
                )
            return self.send(
                value if value is None else as_bytes("value", value),
                key if key is None else as_bytes("key", key),
                timestamp,
                headers,
                partition,
                transaction_id,
                on_delivery,
            )
        return self._send_buffer.put(
            value, key, timestamp, headers, partition, transaction_id, on_delivery
        )


def as_bytes(what: str, data: object) -> bytes:
    """Text as UTF-8, and bytes as they are. Raises InvalidRequestError for anything else, and for
    half of a character."""
    if isinstance(data, str):
        return as_utf8(f"the {what}", data)
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise InvalidRequestError(
        f"the {what} is {type(data).__name__}; give bytes or text, for example json.dumps(data), or"
        " give the topic columns (spec.schema)"
    )
