"""The payload: what is encoded decodes to the same, and nothing else is read as records."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.wire.batch import (
    CODECS,
    build,
    verify_client_part,
)
from schemas.wire.payload import RECORD_SCHEMA, decode_records, encode_records, record_schema_json
from tests.unit.schemas.wire.batches import batch_of, record, stored, table_of


@given(st.binary(max_size=120) | st.integers(0, 200).map(bytes), st.integers(1, 3))
def test_law_any_payload_decodes_or_is_corrupt(payload: bytes, count: int) -> None:
    batch = build(payload, record_count=count, first_timestamp_us=0, last_timestamp_us=0)
    verify_client_part(batch)
    for wanted in (None, ("value",), ("key", "timestamp"), ()):
        with pytest.raises(CorruptBatchError, match="payload"):
            decode_records(batch, wanted=wanted)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="given-nothing"),
        pytest.param(b"term", id="given-text"),
        pytest.param(bytes(64), id="given-zeros"),
        pytest.param(RECORD_SCHEMA.serialize().to_pybytes(), id="given-a-schema-message"),
        pytest.param(
            pa.record_batch({"a": [1, 2]}).serialize().to_pybytes(), id="given-another-schema"
        ),
        pytest.param(
            pa.record_batch(
                {
                    "timestamp": pa.array([1, 2]),
                    "key": pa.array([1, 2]),
                    "value": pa.array([1, 2]),
                    "headers": pa.array([1, 2]),
                }
            )
            .serialize()
            .to_pybytes(),
            id="given-the-names-with-other-types",
        ),
    ],
)
def test_payloads_that_are_no_records(payload: bytes) -> None:
    batch = build(payload, record_count=2, first_timestamp_us=0, last_timestamp_us=0)
    with pytest.raises(CorruptBatchError, match="payload is not an Arrow record batch"):
        decode_records(batch)


def test_given_an_offset_beyond_the_values_then_corrupt() -> None:
    """Arrow would read memory that is not the batch's."""
    payload = bytearray(encode_records(table_of([record(value=b"hello")])))
    at = payload.index((5).to_bytes(4, "little"), payload.index(b"hello") - 16)
    payload[at : at + 4] = (1 << 20).to_bytes(4, "little")
    batch = build(payload, record_count=1, first_timestamp_us=0, last_timestamp_us=0)
    verify_client_part(batch)
    with pytest.raises(CorruptBatchError, match="payload is not an Arrow record batch"):
        decode_records(batch)


def test_given_another_record_count_then_corrupt() -> None:
    records = table_of([record(), record()])
    batch = build(
        encode_records(records), record_count=3, first_timestamp_us=0, last_timestamp_us=0
    )
    with pytest.raises(CorruptBatchError, match="payload has 2 records, the header says 3"):
        decode_records(batch)


def test_given_an_unknown_schema_then_unsupported() -> None:
    batch = batch_of(table_of([record()]), schema_id=5)
    with pytest.raises(UnsupportedError, match="does not know schema 5; upgrade it"):
        decode_records(batch)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_payloads_written_earlier_still_decode(codec: str) -> None:
    """Arrow may write other bytes one day; it must read these."""
    records = table_of([record(b"k", b"v" * 40, [{"key": "h", "value": b"1"}], 1_000)])
    payload = bytes(encode_records(records, codec))
    assert payload[:4] == b"\xff\xff\xff\xff"
    assert pa.ipc.read_message(payload).type == "record batch"
    assert len(payload) % 8 == 0


def test_given_no_codec_then_decoding_copies_nothing() -> None:
    data = memoryview(stored())
    values = decode_records(data).column("value").buffers()[2]
    start = pa.py_buffer(data).address
    assert start <= values.address < start + len(data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("wanted", [("value",), ("timestamp", "key"), ("headers",), ()])
def test_given_columns_then_those_are_as_ever_and_others_are_left_out(
    codec: str, wanted: tuple[str, ...]
) -> None:
    rows = [record(b"%d" % n, headers=[{"key": "a", "value": b"1"}]) for n in range(5)]
    batch = batch_of(table_of(rows), codec)
    found = decode_records(batch, wanted=wanted)
    assert found.num_rows == 5
    # Something says how many there are.
    assert set(found.schema.names) == set(wanted or ["timestamp"])
    assert found.equals(decode_records(batch).select(found.schema.names))


def test_given_a_slice_then_only_its_records_are_encoded() -> None:
    records = table_of([record(value=bytes([n]) * 1000) for n in range(50)])
    batch = batch_of(records.slice(10, 2))
    assert len(batch) < 4_000
    assert decode_records(batch).column("value").to_pylist() == [b"\x0a" * 1000, b"\x0b" * 1000]


def test_timestamps_are_microseconds_in_utc() -> None:
    decoded = decode_records(batch_of(table_of([record(timestamp_us=1_700_000_000_000_001)])))
    assert decoded.column("timestamp").to_pylist() == [
        datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)
    ]


def test_the_record_schema_is_pinned() -> None:
    assert record_schema_json() == [
        {"name": "timestamp", "type": "timestamp[us, tz=UTC]"},
        {"name": "key", "type": "binary"},
        {"name": "value", "type": "binary"},
        {"name": "headers", "type": "list<item: struct<key: string not null, value: binary>>"},
    ]
