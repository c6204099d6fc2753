"""Text that is not UTF-8 is found before it is sent, by its row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from runnel.records.row_tables import fit_table
from runnel.records.row_values import MisfitError
from runnel.records.tables import record_table
from runnel.records.text_checks import bad_text_rows
from schemas.columns.topic_schema import Column
from schemas.errors import InvalidRequestError


def text(*values: bytes) -> pa.Array:
    """Text that Arrow believes to be UTF-8, as it does of a Parquet file."""
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    data = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.string(), len(values), data)


BAD = b"caf\xe9"


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        pytest.param(text(b"a", "é".encode()), [], id="given-utf-8"),
        pytest.param(text(b"a", BAD, b"b", BAD), [1, 3], id="given-latin-1-then-each-row"),
        pytest.param(text(BAD, b"a").slice(1), [], id="given-it-is-outside-of-a-slice"),
        pytest.param(
            pa.ListArray.from_arrays(pa.array([0, 1, 3]), text(b"a", b"b", BAD)),
            [1],
            id="given-it-is-in-a-list",
        ),
        pytest.param(
            pa.StructArray.from_arrays([text(b"a", BAD)], ["x"]), [1], id="given-it-is-in-a-struct"
        ),
        pytest.param(pa.array([1, 2]), [], id="given-numbers"),
        pytest.param(pa.array([BAD]), [], id="given-bytes-then-anything"),
    ],
)
def test_rows_whose_text_is_not_utf_8(column: pa.Array, rows: list[int]) -> None:
    assert [*bad_text_rows(pa.chunked_array([column]), 20)] == rows
    assert [*bad_text_rows(pa.chunked_array([column, column]), 1)] == rows[:1]


def test_a_table_for_a_typed_topic_is_refused_with_rows_and_column() -> None:
    table = pa.table({"name": text(b"a", BAD), "more": [text(b"x")[0].as_py()] * 2})
    columns = (Column(name="name", type="string"), Column(name="more", type="string"))
    with pytest.raises(MisfitError, match=r"row 1.*name.*is not UTF-8"):
        fit_table(table, columns, "orders")


def test_keys_of_headers_are_checked_and_values_may_be_anything() -> None:
    pair = pa.StructArray.from_arrays([text(BAD), pa.array([b"1"])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1]), pair)
    with pytest.raises(InvalidRequestError, match="column headers, row 0: a key is not UTF-8"):
        record_table(pa.table({"value": [b"x"], "headers": headers}), 0)
    assert record_table(pa.table({"value": text(BAD)}), 0)["value"].to_pylist() == [BAD]
