"""Everything that `send_table` takes becomes the same table, of any topic and of a typed one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from runnel.records.row_tables import fit_table
from runnel.records.row_values import MisfitError
from runnel.records.sources import as_table
from runnel.records.tables import record_table
from schemas.columns.topic_schema import Column
from schemas.errors import InvalidRequestError
from schemas.wire.payload import RECORD_SCHEMA

NOW_US = 1_700_000_000_000_000


@dataclass
class Order:
    key: str | None
    value: bytes


class LazyFrame:
    """Stands in for that of polars."""

    __module__ = "polars.lazyframe.frame"

    def collect(self) -> pa.Table:
        return TABLE


TABLE = pa.table({"key": ["a", None], "value": [b"1", b"2"]})
DICTS = [{"key": "a", "value": b"1"}, {"value": b"2"}]
ORDERS = [Order("a", b"1"), Order(None, b"2")]

SOURCES: dict[str, Callable[[], Any]] = {
    "given-a-table": lambda: TABLE,
    "given-a-batch": lambda: TABLE.to_batches()[0],
    "given-a-reader": TABLE.to_reader,
    "given-a-lazy-frame": LazyFrame,
    "given-pandas": TABLE.to_pandas,
    "given-dicts": lambda: DICTS,
    "given-a-tuple": lambda: tuple(DICTS),
    "given-a-generator": lambda: (each for each in DICTS),
    "given-dataclasses": lambda: ORDERS,
    "given-text-among-bytes": lambda: [{"key": "a", "value": "1"}, {"value": b"2"}],
    "given-columns": lambda: {"key": ["a", None], "value": [b"1", b"2"]},
    "given-columns-of-numpy": lambda: {"key": ["a", None], "value": np.array([1, 2])},
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_records(source: Callable[[], Any]) -> None:
    found = record_table(source(), NOW_US)
    assert found["key"].to_pylist() == [b"a", None]
    assert found["value"].to_pylist() == [b"1", b"2"]


def test_given_no_rows_then_no_records() -> None:
    assert record_table([], NOW_US).equals(RECORD_SCHEMA.empty_table())
    assert record_table(iter(()), NOW_US).equals(RECORD_SCHEMA.empty_table())
    assert fit_table([], COLUMNS, "orders").num_rows == 0


COLUMNS = [
    Column(name="id", type="int64", nullable=False),
    Column(name="price", type="decimal(9, 2)"),
    Column(name="at", type="timestamp(us, UTC)"),
    Column(name="tags", type="list<string>"),
]
AT = datetime(2026, 1, 2, tzinfo=UTC)
ROWS = [{"id": 1, "price": Decimal("9.50"), "at": AT, "tags": ["x"]}, {"id": 2}]
TYPED: dict[str, Callable[[], Any]] = {
    "given-dicts": lambda: ROWS,
    "given-a-generator": lambda: iter(ROWS),
    "given-columns": lambda: {
        "id": [1, 2],
        "price": [Decimal("9.50"), None],
        "at": [AT, None],
        "tags": [["x"], None],
    },
    "given-columns-of-arrays": lambda: {"id": np.array([1, 2]), "at": pa.array([AT, None])},
    "given-pandas": lambda: pa.table({"id": [1, 2], "at": [AT, None]}).to_pandas(),
}


@pytest.mark.parametrize("source", TYPED.values(), ids=TYPED)
def test_rows_of_a_typed_topic(source: Callable[[], Any]) -> None:
    found = fit_table(source(), COLUMNS, "orders")
    assert found["id"].to_pylist() == [1, 2]
    assert found["at"].to_pylist() == [AT, None]
    assert found.column_names == ["id", "price", "at", "tags"]


MISFITS: dict[str, tuple[Any, str]] = {
    "given-a-naive-time": (
        [{"id": 1}, {"id": 2, "at": AT.replace(tzinfo=None)}],
        "row 1.*no time zone",
    ),
    "given-no-rows": ([{"id": 1}, 7], "row 1.*the value is int"),
    "given-an-unknown-column": ([{"id": 1, "pricee": 2}], "did you mean price"),
    "given-a-missing-value": ({"id": [1, None]}, "row 1.*must not be null"),
}


@pytest.mark.parametrize(("source", "why"), MISFITS.values(), ids=MISFITS)
def test_misfits(source: Any, why: str) -> None:
    with pytest.raises(MisfitError, match=why):
        fit_table(source, COLUMNS, "orders")


HALF = "\ud800"
HALF_SAID = "'\\ud800' is half of a character"
NO_TABLES: dict[str, tuple[Any, str]] = {
    "given-half-a-character-in-pandas": (pd.DataFrame({"b": [1], "a": [HALF]}), "column a: "),
    "given-it-within-a-struct": (pd.DataFrame({"a": [{"b": HALF}]}), "column a: " + HALF_SAID),
    "given-it-in-columns": ({"a": [HALF]}, "column a: " + HALF_SAID),
    "given-it-in-rows": ([{"a": "x"}, {"a": HALF}], "column a: " + HALF_SAID),
    "given-it-among-bytes": ({"a": [b"x", HALF]}, "column a: " + HALF_SAID),
    "given-it-in-a-name-of-pandas": (
        pd.DataFrame({"b": [1], HALF: [1]}), "the name of column \\ud800: " + HALF_SAID,
    ),
    "given-it-in-a-name-of-columns": ({HALF: [1]}, "the name of column \\ud800: " + HALF_SAID),
    "given-it-in-a-name-of-rows": ([{HALF: 1}], "the name of column \\ud800: " + HALF_SAID),
    "given-a-large-number-in-pandas": (pd.DataFrame({"b": [1], "a": [2**70]}), "column a: "),
    "given-a-large-number-in-columns": ({"a": [2**70]}, "make it a decimal.Decimal, or text"),
    "given-several-types": (pd.DataFrame({"b": [1, 2], "a": [1, "x"]}), "column a: Could not"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "why"), NO_TABLES.values(), ids=NO_TABLES)
def test_what_arrow_cannot_express_is_said_of_its_column(source: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        as_table(source)
    assert why in refused.value.message
    # It can be printed.
    refused.value.message.encode()
