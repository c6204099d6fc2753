"""Any table of the right columns becomes records; any other is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.records.tables import (
    binary_lengths,
    check_sizes,
    chunks,
    measured,
    null_headers,
    record_table,
)
from schemas.errors import InvalidRequestError, RecordTooLargeError
from schemas.wire.payload import RECORD_SCHEMA

NOW_US = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        pytest.param(pa.array(["a", None]), [b"a", None], id="given-text-then-utf8"),
        pytest.param(pa.array(["a"], pa.large_string()), [b"a"], id="given-large-text-then-utf8"),
        pytest.param(pa.array([b"a"], pa.large_binary()), [b"a"], id="given-large-binary"),
        pytest.param(pa.array(["a", "b", "a"]).dictionary_encode(), [b"a", b"b", b"a"],
                     id="given-a-dictionary-then-decoded"),
        pytest.param(pa.array([1, -20]), [b"1", b"-20"], id="given-numbers-then-digits"),
        pytest.param(pa.array([b"ab"], pa.binary(2)), [b"ab"], id="given-fixed-size-then-same"),
    ],
)  # fmt: skip
def test_values_of_many_types(column: pa.Array, expected: list[bytes]) -> None:
    table = record_table(pa.table({"value": column}), NOW_US)
    assert table.schema == RECORD_SCHEMA
    assert table["value"].to_pylist() == expected
    assert table["key"].null_count == len(expected)


@pytest.mark.parametrize(
    ("column", "expected_us"),
    [
        pytest.param(pa.array([5, None]), [5, NOW_US], id="given-microseconds-and-null"),
        pytest.param(pa.array([5_999], pa.timestamp("ns", "UTC")), [5],
                     id="given-nanoseconds-then-cut"),
        pytest.param(pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]), [1_000_000],
                     id="given-datetimes"),
    ],
)  # fmt: skip
def test_timestamps(column: pa.Array, expected_us: list[int]) -> None:
    table = record_table(pa.table({"value": ["v"] * len(column), "timestamp": column}), NOW_US)
    assert table["timestamp"].cast(pa.int64()).to_pylist() == expected_us


def test_given_headers_as_a_map_then_they_are_pairs() -> None:
    headers = pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary()))
    table = record_table(pa.table({"value": ["x", "y"], "headers": headers}), NOW_US)
    assert table["headers"].to_pylist() == [[{"key": "a", "value": b"1"}], None]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(pa.table({"v": [1]}), "no column value .its columns: v", id="given-no-value"),
        pytest.param(pa.table({"value": ["x"], "offset": [1], "partition": [0]}),
                     "has the columns offset, partition", id="given-unknown-columns"),
        pytest.param(pa.table({"value": [[1]]}), "column value has type list", id="given-a-list"),
        pytest.param(
            pa.table(
                {"value": ["x"], "timestamp": pa.array([1 << 62], pa.timestamp("s", "UTC"))}
            ),
            "column timestamp",
            id="given-a-time-beyond-microseconds",
        ),
        pytest.param(pa.table({"value": ["x"], "timestamp": ["now"]}), "column timestamp",
                     id="given-text-for-a-time"),
        pytest.param(pa.table({"value": ["x"], "headers": [1]}), "column headers",
                     id="given-numbers-for-headers"),
        pytest.param(pa.table({"value": ["x"], "timestamp": pa.array([1], pa.timestamp("us"))}),
                     "column timestamp has no time zone; say which", id="given-a-naive-time"),
        pytest.param(pa.table({}), "no column value .its columns: none", id="given-no-columns"),
        pytest.param({}, "no column value .its columns: none", id="given-an-empty-dict"),
        pytest.param([b"x"], "rows: a list or .*; row 0 is bytes", id="given-no-rows"),
        pytest.param(b"x", "give a table .*; not bytes", id="given-bytes"),
        pytest.param(pa.chunked_array([[b"x"]]), "ChunkedArray is no table; if it is one column",
                     id="given-one-column"),
        pytest.param({"value": [1, "x"]}, "column value: ", id="given-a-mixture"),
        pytest.param({"value": ["x"], "key": ["a", "b"]}, "value has 1, key has 2",
                     id="given-columns-of-two-lengths"),
    ],
)  # fmt: skip
def test_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        record_table(data, NOW_US)


def test_given_a_row_over_the_limit_then_the_error_names_the_row() -> None:
    first = pa.record_batch({"value": ["a", "b"]})
    second = pa.record_batch({"value": ["c", "d" * 11]})
    table = record_table(pa.Table.from_batches([first, second]), NOW_US)
    parts = measured(table)
    check_sizes(parts, 11, "orders")
    with pytest.raises(RecordTooLargeError, match=r"row 3 of the table has 11 bytes.*10 of topic"):
        check_sizes(parts, 10, "orders")


@given(
    values=st.lists(st.none() | st.binary(max_size=9), max_size=12),
    start=st.integers(0, 12),
    text=st.booleans(),
)
def test_law_lengths_are_those_of_the_values(
    values: list[bytes | None], start: int, text: bool
) -> None:
    column = pa.array(values, pa.binary())
    if text:
        column = pa.array([None if v is None else v.hex() for v in values], pa.string())
    part = column.slice(min(start, len(values)))
    expected = [0 if value is None else len(value) for value in part.to_pylist()]
    assert binary_lengths(part).tolist() == expected


def test_given_a_null_over_bytes_then_it_has_no_length() -> None:
    buffers = pa.array([b"abc", b"de"], pa.binary()).buffers()
    column = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), *buffers[1:]])
    assert column.to_pylist() == [None, b"de"]
    assert binary_lengths(column).tolist() == [0, 2]


@given(
    parts=st.lists(st.lists(st.integers(0, 50), max_size=10), min_size=1, max_size=5),
    chunk_bytes=st.integers(1, 300),
)
def test_law_chunks_keep_all_rows_in_order(parts: list[list[int]], chunk_bytes: int) -> None:
    batches = [pa.record_batch({"value": pa.array([b"x" * n for n in part], pa.binary())})
               for part in parts]  # fmt: skip
    table = record_table(pa.Table.from_batches(batches), NOW_US)
    found = list(chunks(measured(table), chunk_bytes))
    lengths = [len(v) for rows, _ in found for v in rows.column("value").to_pylist()]
    assert lengths == list(chain.from_iterable(parts))
    for rows, sizes in found:
        assert sizes.tolist() == [len(v) for v in rows.column("value").to_pylist()]
        size = sum(len(v) + 24 for v in rows.column("value").to_pylist())
        assert size <= chunk_bytes or rows.num_rows == 1


def test_given_null_headers_then_they_equal_arrows_and_cost_little() -> None:
    column = null_headers(1_000)
    column.validate(full=True)
    assert column.equals(pa.nulls(1_000, column.type))
    one = pa.RecordBatch.from_arrays([column.slice(500, 1)], ["headers"])
    assert one.serialize().size < 1_000
    assert np.asarray(column.is_null()).all()
