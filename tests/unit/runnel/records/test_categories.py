"""Categories become the values that they stand for, whatever layout their dictionary has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runnel.records.row_tables import fit_table
from runnel.records.tables import record_table
from schemas.columns.topic_schema import Column

#: Layouts of dictionaries: pandas has the first ones, polars views.
LAYOUTS = {
    "given-text": (pa.string(), "string"),
    "given-large-text": (pa.large_string(), "string"),
    "given-a-view-of-text": (pa.string_view(), "string"),
    "given-bytes": (pa.binary(), "binary"),
    "given-a-view-of-bytes": (pa.binary_view(), "binary"),
}


def categories(type_: pa.DataType) -> pa.Array:
    indices = pa.array([1, None, 0, 1], pa.uint32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["u", "v"]).cast(type_))


@pytest.mark.parametrize(("type_", "name"), LAYOUTS.values(), ids=LAYOUTS)
def test_in_a_typed_topic(type_: pa.DataType, name: str) -> None:
    column = Column(name="kind", type=name)
    found = fit_table(pa.table({"kind": categories(type_)}), (column,), "orders")
    texts = ["v", None, "u", "v"]
    expected = [text and text.encode() for text in texts] if name == "binary" else texts
    assert found["kind"].to_pylist() == expected


@pytest.mark.parametrize("type_", [t for t, _ in LAYOUTS.values()], ids=LAYOUTS)
def test_as_keys_and_values(type_: pa.DataType) -> None:
    found = record_table(pa.table({"key": categories(type_), "value": categories(type_)}), 0)
    assert found["key"].to_pylist() == found["value"].to_pylist() == [b"v", None, b"u", b"v"]
