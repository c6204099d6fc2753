"""Payloads that are written without Arrow are, byte for byte, what Arrow writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.produce.batch import ProducerBatch
from runnel.records import few_records
from runnel.records.few_records import FEW, encode_few
from runnel.records.record import Headers
from runnel.records.tables import null_headers, timestamp_array
from schemas.wire.batch import Buffer, read_header, verify_client_part
from schemas.wire.payload import RECORD_SCHEMA, decode_records, encode_records

ITEMS = st.none() | st.binary(max_size=20)
ROWS = st.lists(
    st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), ITEMS, ITEMS), min_size=1, max_size=2 * FEW
)


def by_arrow(times_us: list[int], keys: list[bytes | None], values: list[bytes | None]) -> bytes:
    columns = [timestamp_array(np.array(times_us, np.int64))]
    columns += [
        pa.nulls(len(items), pa.binary())
        if items.count(None) == len(items)
        else pa.array(items, pa.binary())
        for items in (keys, values)
    ]
    columns.append(null_headers(len(times_us)))
    return bytes(encode_records(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)))


@given(ROWS)
def test_law_the_same_bytes_as_arrow(
    rows: list[tuple[int, bytes | None, bytes | None]],
) -> None:
    times_us = [time_us for time_us, _, _ in rows]
    keys, values = [key for _, key, _ in rows], [value for _, _, value in rows]
    assert encode_few(times_us, keys, values) == by_arrow(times_us, keys, values)


def batch_of(
    rows: int, headers: Headers = (), transaction_id: int | None = None
) -> ProducerBatch[None]:
    batch: ProducerBatch[None] = ProducerBatch(0, None, 0.0)
    if transaction_id is not None:
        batch.begin_ids()
    for row in range(rows):
        if transaction_id is not None:
            batch.take_id(transaction_id, "orders")
        batch.keys.append(b"key" if row % 2 else None)
        batch.values.append(b"%d" % row)
        batch.timestamps.append(1_000 - row)  # type: ignore[union-attr]
        if headers:
            batch.headers[row] = headers
        batch.count += 1
    return batch


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each batch held that was written without Arrow."""
    counts: list[int] = []

    def counted(times_us: list[int], *columns: list[bytes | None]) -> bytes | None:
        counts.append(len(times_us))
        return encode_few(times_us, *columns)

    monkeypatch.setattr("runnel.produce.batch.encode_few", counted)
    return counts


@pytest.mark.parametrize(
    ("batch", "codec", "few"),
    [
        pytest.param(batch_of(1), "none", True, id="given-one-record"),
        pytest.param(batch_of(FEW), "none", True, id="given-as-many-as-are-few"),
        pytest.param(batch_of(FEW + 1), "none", False, id="given-more-then-arrow"),
        pytest.param(batch_of(3), "zstd", False, id="given-compression-then-arrow"),
        pytest.param(batch_of(3, (("a", b"b"),)), "none", False, id="given-headers-then-arrow"),
        pytest.param(
            batch_of(3, transaction_id=7), "none", False, id="given-transaction-ids-then-arrow"
        ),
    ],
)
def test_batches(batch: ProducerBatch[None], codec: str, few: bool, encodings: list[int]) -> None:
    expected = batch.to_arrow()
    count = batch.count
    pieces: list[Buffer] = batch.encode(codec, 5, 1, 2)
    assert encodings == ([count] if few else [])
    raw = b"".join(bytes(piece) for piece in pieces)
    header = verify_client_part(raw)
    assert (header.first_timestamp_us, header.last_timestamp_us) == (1_001 - count, 1_000)
    assert (header.producer_id, header.producer_epoch, header.sequence) == (5, 1, 2)
    assert decode_records(raw, read_header(raw)).equals(expected)
    # The records are gone, but a delivery still asks for their times.
    assert [batch.timestamp_us(row) for row in range(count)] == [1_000 - r for r in range(count)]


def test_given_an_arrow_that_writes_another_message_then_arrow_writes_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def written(records: pa.RecordBatch, codec: str = "none") -> pa.Buffer:
        message = bytes(encode_records(records, codec))
        # The same, but for a number that depends on the rows.
        return pa.py_buffer(message[:12] + bytes([records.num_rows]) + message[13:])

    monkeypatch.setattr(few_records, "encode_records", written)
    few_records._template.cache_clear()
    try:
        assert encode_few([1], [None], [b"value"]) is None
        assert decode_records(b"".join(map(bytes, batch_of(2).encode("none")))).num_rows == 2
    finally:
        few_records._template.cache_clear()
