"""Tables for typed topics: what is cast without loss, and which rows are named otherwise."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.records.arrow_schema import arrow_schema, rows_batch
from runnel.records.row_tables import MAX_MISFITS, fit_table, try_table
from runnel.records.row_values import MisfitError, RowReader
from schemas.columns.topic_schema import Column, TopicSchema
from tests.unit.runnel.typed import rows
from tests.unit.schemas.typed import topic_schemas

NAN = math.nan


def column(type_: str, nullable: bool = True) -> tuple[Column, ...]:
    return (Column(name="a", type=type_, nullable=nullable),)


FITS: dict[str, tuple[str, pa.Array, list[Any]]] = {
    "given-narrower-numbers-then-wider": ("int64", pa.array([1, None], pa.int8()), [1, None]),
    "given-wider-numbers-that-fit-then-narrower": ("uint8", pa.array([0, 255]), [0, 255]),
    "given-whole-floats-then-numbers": ("int32", pa.array([1.0, None]), [1, None]),
    "given-floats-that-float32-has-then-those": ("float32", pa.array([0.5, None]), [0.5, None]),
    "given-a-float-of-two-digits-then-a-decimal": (
        "decimal(12, 2)",
        pa.array([1.1]),
        [Decimal("1.10")],
    ),
    "given-more-scale-of-zeros-then-less": (
        "decimal(5, 1)",
        pa.array([Decimal("1.500")]),
        [Decimal("1.5")],
    ),
    "given-a-dictionary-then-its-values": (
        "string",
        pa.array(["b", "b", None]).dictionary_encode(),
        ["b", "b", None],
    ),
    "given-large-text-then-text": ("string", pa.array(["b"], pa.large_string()), ["b"]),
    "given-text-for-bytes-then-utf-8": ("binary", pa.array(["é"]), ["é".encode()]),
    "given-nanoseconds-that-are-zero-then-without": (
        "timestamp(ms)",
        pa.array([5_000_000], pa.timestamp("ns")),
        pa.array([5], pa.timestamp("ms")).to_pylist(),
    ),
    "given-another-zone-then-the-same-time": (
        "timestamp(us, UTC)",
        pa.array([5], pa.timestamp("us", tz="Europe/Berlin")),
        pa.array([5], pa.timestamp("us", tz="UTC")).to_pylist(),
    ),
    "given-arrows-long-dates-then-days": (
        "date32",
        pa.array([date(2026, 1, 31)], pa.date64()),
        [date(2026, 1, 31)],
    ),
    "given-lists-of-wider-numbers-then-narrower": (
        "list<int8>",
        pa.array([[1], None, []], pa.large_list(pa.int64())),
        [[1], None, []],
    ),
    "given-fewer-fields-then-null": (
        "struct<a: int8, b: string>",
        pa.array([{"a": 1}]),
        [{"a": 1, "b": None}],
    ),
    "given-nothing-but-nulls-then-nulls": ("bool", pa.nulls(2), [None, None]),
}


@pytest.mark.parametrize(("type_", "values", "expected"), FITS.values(), ids=FITS)
def test_what_is_cast(type_: str, values: pa.Array, expected: list[Any]) -> None:
    fitted = fit_table(pa.table({"a": values}), column(type_), "orders")
    assert fitted.schema == arrow_schema(column(type_))
    assert fitted["a"].to_pylist() == expected


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(pa.array([NAN, 0.5]), id="given-no-number-then-it-stays"),
        pytest.param(pa.array([math.inf]), id="given-infinity-then-it-stays"),
    ],
)
def test_what_is_no_number_is_kept(values: pa.Array) -> None:
    fitted = fit_table(pa.table({"a": values}), column("float32"), "orders")
    assert str(fitted["a"].to_pylist()) == str(values.to_pylist())
    nested = pa.array([values.to_pylist()])
    fitted = fit_table(pa.table({"a": nested}), column("list<float32>"), "orders")
    assert str(fitted["a"].to_pylist()) == str(nested.to_pylist())


MISFITS: dict[str, tuple[str, Any, list[str]]] = {
    "given-numbers-out-of-range-then-their-rows": (
        "int8",
        pa.array([1, 200, -3, 300]),
        [
            "row 1, column a: 200 does not fit int8",
            "row 3, column a: 300 does not fit int8",
        ],
    ),
    "given-a-fraction-then-its-row": (
        "int32",
        pa.array([1.0, 2.5]),
        ["row 1, column a: 2.5 does not fit int32"],
    ),
    "given-digits-that-float32-has-not-then-refused": (
        "float32",
        pa.array([0.5, 0.1]),
        ["row 1, column a: 0.1 does not fit float32"],
    ),
    "given-digits-that-a-float-has-not-then-refused": (
        "float64",
        pa.array([2**53, 2**53 + 1]),
        ["row 1, column a: 9007199254740993 does not fit float64"],
    ),
    "given-a-float-of-three-digits-then-refused": (
        "decimal(12, 2)",
        pa.array([1.111, NAN]),
        [
            "row 0, column a: 1.111 does not fit decimal128(12, 2)",
            "row 1, column a: nan does not fit decimal128(12, 2)",
        ],
    ),
    "given-bytes-that-are-no-text-then-refused": (
        "string",
        pa.array([b"a", b"\xff"]),
        ["row 1, column a: b'\\xff' does not fit string"],
    ),
    "given-another-kind-then-the-column": (
        "string",
        pa.array([1]),
        ["column a: is int64, and the topic has string; convert it first"],
    ),
    "given-text-for-numbers-then-the-column": (
        "int64",
        pa.array(["1"]),
        ["column a: is string, and the topic has int64; convert it first"],
    ),
    "given-a-zone-that-would-be-lost-then-the-column": (
        "timestamp(us)",
        pa.array([1], pa.timestamp("us", tz="UTC")),
        ["column a: is timestamp[us, tz=UTC], and the topic has timestamp(us); convert it first"],
    ),
    "given-no-zone-then-how-to-say-which": (
        "timestamp(us, UTC)",
        pa.array([1], pa.timestamp("us")),
        [
            (
                "column a: is timestamp[us], and the topic has timestamp(us, UTC); say which time"
                " zone it is of: pyarrow.compute.assume_timezone(times, 'UTC'), in pandas"
                " .dt.tz_localize('UTC'), in polars .dt.replace_time_zone('UTC')"
            )
        ],
    ),
    "given-lists-without-a-zone-then-how-to-say-which": (
        "list<timestamp(us, UTC)>",
        pa.array([[1]], pa.list_(pa.timestamp("us"))),
        [
            (
                "column a: is list<item: timestamp[us]>, and the topic has list<timestamp(us,"
                " UTC)>; say which time zone it is of: pyarrow.compute.assume_timezone(times,"
                " 'UTC'), in pandas .dt.tz_localize('UTC'), in polars .dt.replace_time_zone('UTC')"
            )
        ],
    ),
    "given-nanoseconds-then-their-row": (
        "timestamp(us)",
        pa.array([1_000, 1], pa.timestamp("ns")),
        ["row 1, column a: "],
    ),
    "given-a-misfit-within-a-list-then-that-row-alone": (
        "list<int8>",
        pa.array([[1], [300], [2]]),
        ["row 1, column a: [300] does not fit list<int8>"],
    ),
    "given-a-field-that-is-not-there-then-the-column": (
        "struct<a: int8>",
        pa.array([{"z": 1}]),
        ["column a: is struct<z: int64>, and the topic has struct<a: int8>; convert it first"],
    ),
    "given-chunks-then-rows-of-the-table": (
        "int8",
        pa.chunked_array([[1, 2], [3, 300]]),
        ["row 3, column a: 300 does not fit int8"],
    ),
}


@pytest.mark.parametrize(("type_", "values", "says"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit(type_: str, values: Any, says: list[str]) -> None:
    fitted, misfits = try_table(pa.table({"a": values}), column(type_))
    assert fitted is None
    assert len(misfits) == len(says)
    for misfit, text in zip(misfits, says, strict=True):
        assert str(misfit).startswith(text)


def test_given_nulls_where_none_may_be_then_their_rows() -> None:
    table = pa.table({"a": pa.array([1, None, 3, None])})
    _, misfits = try_table(table, column("int64", nullable=False))
    assert [(m.row, m.reason) for m in misfits] == [
        (1, "must not be null"),
        (3, "must not be null"),
    ]


def test_columns_are_found_by_name_and_may_be_missing_where_they_may_be_null() -> None:
    columns = (*column("int8"), Column(name="b", type="string"))
    fitted = fit_table(pa.table({"a": [1, 2]}), columns, "orders")
    assert fitted.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": None}]
    fitted = fit_table(pa.table({"b": ["x"], "a": [1]}), columns, "orders")
    assert fitted.to_pylist() == [{"a": 1, "b": "x"}]


def test_names_that_do_not_fit_are_listed_at_once() -> None:
    columns = (Column(name="orderId", type="int8", nullable=False), *column("int8"))
    twice = pa.Table.from_arrays([pa.array([1])] * 3, names=["ordrId", "a", "a"])
    with pytest.raises(MisfitError) as caught:
        fit_table(twice, columns, "orders")
    assert "does not fit the schema of topic 'orders', nothing of it was sent: column ordrId" in (
        caught.value.message
    )
    assert [str(misfit) for misfit in caught.value.misfits] == [
        "column ordrId: there is no such column; did you mean orderId?",
        "column a: appears twice",
        "column orderId: is missing, and must not be null",
    ]


def test_misfits_are_bounded() -> None:
    table = pa.table({"a": pa.array([1_000] * 5_000)})
    _, misfits = try_table(table, column("int8"))
    assert [m.row for m in misfits] == list(range(MAX_MISFITS))


@given(topic_schemas(), st.data())
def test_law_rows_that_fit_make_a_table_that_fits(schema: TopicSchema, data: st.DataObject) -> None:
    columns = schema.columns
    reader = RowReader(columns)
    read = [reader.read(row) for row in data.draw(st.lists(rows(columns), max_size=4))]
    table = pa.Table.from_batches([rows_batch(read, columns)])
    shuffled = table.select(data.draw(st.permutations(table.column_names)))
    assert fit_table(shuffled, columns, "orders").equals(table)
