"""Rows from values: what fits a column, what does not and why, for Python, JSON and CSV."""

from __future__ import annotations

import decimal
import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.records.arrow_schema import row_sizes, rows_batch
from runnel.records.as_json import value_json
from runnel.records.converters import Source
from runnel.records.row_values import MisfitError, RowReader, parse_json_row
from schemas.columns.topic_schema import Column, TopicSchema
from schemas.errors import InvalidRequestError
from tests.unit.runnel.typed import rows
from tests.unit.schemas.typed import topic_schemas

D = decimal.Decimal
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)


def read(type_: str, value: Any, source: Source = Source.PYTHON, nullable: bool = True) -> Any:
    """The value of a row of one column ``a``."""
    reader = RowReader([Column(name="a", type=type_, nullable=nullable)], source)
    return reader.read({"a": value})[0]


FITS = {
    "given-a-whole-number-then-itself": ("int8", -128, -128),
    "given-numpys-number-then-itself": ("uint16", np.int64(7), 7),
    "given-a-whole-number-for-a-float-then-exact": ("float64", 2**53, 2.0**53),
    "given-a-float-for-float32-then-the-nearest": ("float32", 0.1, 0.1),
    "given-not-a-number-for-a-float-then-infinity-too": ("float32", math.inf, math.inf),
    "given-fewer-digits-then-the-decimal": ("decimal(5, 2)", D("1.5"), D("1.50")),
    "given-zeros-behind-then-the-decimal": ("decimal(5, 2)", D("1.5000"), D("1.50")),
    "given-an-exponent-then-the-decimal": ("decimal(5, 2)", D("1.2E2"), D("120.00")),
    "given-a-huge-zero-then-zero": ("decimal(5, 2)", D("0E999999"), D("0.00")),
    "given-a-whole-number-for-a-decimal-then-it": ("decimal(5, 2)", 999, D("999.00")),
    "given-bytes-then-themselves": ("binary", memoryview(b"ab"), b"ab"),
    "given-a-time-with-a-zone-then-itself": ("timestamp(s, UTC)", NOON, NOON),
    "given-a-wall-clock-then-itself": ("timestamp(us)", NAIVE, NAIVE),
    "given-a-tuple-for-a-list-then-a-list": ("list<int8>", (1, None), [1, None]),
    "given-an-array-for-a-list-then-a-list": ("list<int8>", np.array([1, 2]), [1, 2]),
    "given-fewer-fields-then-null": ("struct<a: int8, b: int8>", {"b": 1}, {"a": None, "b": 1}),
    "given-none-then-null": ("int8", None, None),
}


@pytest.mark.parametrize(("type_", "value", "expected"), FITS.values(), ids=FITS)
def test_what_fits_from_python(type_: str, value: Any, expected: Any) -> None:
    found = read(type_, value)
    assert found == expected
    assert type(found) is type(expected)


MISFITS = {
    "given-too-large-then-the-bounds": ("int8", 128, "128 is no int8; it holds -128 to 127"),
    "given-less-than-nothing-then-the-bounds": ("uint8", -1, "it holds 0 to 255"),
    "given-true-for-a-number-then-refused": ("int64", True, "True is no int64"),
    "given-one-for-true-then-refused": ("bool", 1, "1 is no bool"),
    "given-text-for-a-number-then-refused": ("int64", "1", "'1' is no int64"),
    "given-a-number-for-text-then-refused": ("string", 1, "1 is no string"),
    "given-bytes-for-text-then-refused": ("string", b"a", "b'a' is no string"),
    "given-text-for-bytes-then-how": ("binary", "a", "'a' is no binary; give bytes"),
    "given-half-a-character-then-refused": ("string", "\ud800", "holds half of a character"),
    "given-a-float-for-a-whole-number-then-refused": ("int64", 1.0, "1.0 is no int64"),
    "given-digits-a-float-has-not-then-refused": ("float64", 2**53 + 1, "is not exact as float64"),
    "given-too-large-for-float32-then-refused": ("float32", 1e300, "it is too large"),
    "given-a-float-for-a-decimal-then-how": ("decimal(5, 2)", 1.5, "give decimal.Decimal('1.5')"),
    "given-more-digits-behind-then-the-limit": (
        "decimal(5, 2)",
        D("1.234"),
        "1.234 is no decimal128(5, 2); it has more than 2 digits behind the point",
    ),
    "given-more-digits-before-then-the-limit": (
        "decimal(5, 2)",
        D("1000"),
        "more than 3 digits before",
    ),
    "given-a-number-of-a-million-digits-then-refused-at-once": (
        "decimal(5, 2)",
        D("1E999999"),
        "more than 3 digits before",
    ),
    "given-a-tiny-number-then-the-limit": ("decimal(5, 2)", D("1E-999999"), "behind the point"),
    "given-no-number-for-a-decimal-then-refused": ("decimal(5, 2)", D("NaN"), "NaN is no decimal"),
    "given-no-zone-where-there-is-one-then-why": (
        "timestamp(us, UTC)",
        NAIVE,
        "has no time zone, and the column has one",
    ),
    "given-a-zone-where-there-is-none-then-why": (
        "timestamp(us)",
        NOON,
        "has a time zone, and the column has none",
    ),
    "given-a-finer-time-then-refused": (
        "timestamp(s)",
        NAIVE.replace(microsecond=1),
        "it is more exact than that",
    ),
    "given-a-time-for-a-date-then-refused": ("date32", NOON, "is no date32"),
    "given-text-for-a-list-then-refused": ("list<string>", "ab", "'ab' is no list<string>"),
    "given-a-misfit-within-then-why": ("list<struct<a: int8>>", [{"a": 300}], "300 is no int8"),
    "given-a-field-that-is-not-there-then-which": (
        "struct<a: int8>",
        {"b": 1},
        "'b' is no field of struct<a: int8>",
    ),
    "given-a-key-that-is-no-text-then-refused": ("map<string, int8>", {1: 1}, "1 is no string"),
}


@pytest.mark.parametrize(("type_", "value", "says"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_from_python(type_: str, value: Any, says: str) -> None:
    with pytest.raises(MisfitError) as caught:
        read(type_, value)
    (misfit,) = caught.value.misfits
    assert says in misfit.reason
    assert caught.value.message.startswith("column a: ")


JSON = {
    "given-a-whole-number-with-a-point-then-it": ("int64", "1.0", 1),
    "given-a-fraction-then-the-nearest-float": ("float64", "0.1", 0.1),
    "given-a-fraction-then-the-decimal": ("decimal(20, 10)", "0.1234567891", D("0.1234567891")),
    "given-a-decimal-as-text-then-it": ("decimal(5, 2)", '"1.5"', D("1.50")),
    "given-what-is-no-number-as-text-then-it": ("float64", '"-Infinity"', -math.inf),
    "given-a-time-in-utc-then-it": ("timestamp(s, UTC)", '"2026-01-31T12:00:00Z"', NOON),
    "given-a-date-then-it": ("date32", '"2026-01-31"', date(2026, 1, 31)),
    "given-base64-then-bytes": ("binary", '"AAEC"', b"\0\1\2"),
    "given-an-object-then-a-map": ("map<string, int8>", '{"b": 2}', {"b": 2}),
}


@pytest.mark.parametrize(("type_", "text", "expected"), JSON.values(), ids=JSON)
def test_what_fits_from_json(type_: str, text: str, expected: Any) -> None:
    found = read(type_, parse_json_row(f'{{"a": {text}}}')["a"], Source.JSON)
    assert (found, type(found)) == (expected, type(expected))


NOT_JSON = {
    "given-text-for-a-number-then-refused": ("int64", '"1"', "'1' is no int64"),
    "given-a-fraction-for-a-whole-number-then-refused": ("int64", "1.5", "1.5 is no int64"),
    "given-an-endless-number-then-refused": ("int64", "1e999999", "1E+999999 is no int64"),
    "given-too-much-for-a-float-then-refused": ("float64", "1e999", "it is too large"),
    "given-no-zone-then-why": ("timestamp(us, UTC)", '"2026-01-31T12:00:00"', "has no time zone"),
    "given-no-time-then-how": ("timestamp(us, UTC)", '"noon"', "write it as 2026-01-31T12:00:00Z"),
    "given-seven-digits-then-refused": (
        "timestamp(us)",
        '"2026-01-31T12:00:00.1234567"',
        "it is more exact than that",
    ),
    "given-a-number-for-a-date-then-how": ("date32", "20260131", "write it as 2026-01-31"),
    "given-what-is-no-base64-then-how": ("binary", '"#"', "write it in base64"),
}


@pytest.mark.parametrize(("type_", "text", "says"), NOT_JSON.values(), ids=NOT_JSON)
def test_what_does_not_fit_from_json(type_: str, text: str, says: str) -> None:
    with pytest.raises(MisfitError) as caught:
        read(type_, parse_json_row(f'{{"a": {text}}}')["a"], Source.JSON)
    assert says in caught.value.misfits[0].reason


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("{", "not JSON", id="given-half-an-object"),
        pytest.param("[1]", "a row is a JSON object, not [1]", id="given-a-list"),
        pytest.param("[" * 100_000, "not JSON", id="given-endless-brackets"),
        pytest.param(b"\xff", "not JSON", id="given-no-utf-8"),
    ],
)
def test_lines_that_are_no_rows(line: str | bytes, says: str) -> None:
    with pytest.raises(MisfitError) as caught:
        parse_json_row(line)
    assert says in caught.value.misfits[0].reason


CSV = {
    "given-digits-then-a-number": ("int64", "-12", True, -12),
    "given-a-point-then-a-float": ("float64", "1.5e3", True, 1500.0),
    "given-true-then-true": ("bool", "True", True, True),
    "given-an-empty-cell-then-null": ("int64", "", True, None),
    "given-an-empty-cell-of-text-then-null": ("string", "", True, None),
    "given-an-empty-cell-of-text-that-must-be-there-then-empty": ("string", "", False, ""),
    "given-a-list-as-json-then-it": ("list<decimal(3, 1)>", "[1.5]", True, [D("1.5")]),
}


@pytest.mark.parametrize(("type_", "cell", "nullable", "expected"), CSV.values(), ids=CSV)
def test_what_fits_from_csv(type_: str, cell: str, nullable: bool, expected: Any) -> None:
    assert read(type_, cell, Source.CSV, nullable) == expected


NOT_CSV = {
    "given-space-around-then-refused": ("int64", " 1", "' 1' is no int64"),
    "given-underscores-then-refused": ("int64", "1_000", "is no int64"),
    "given-words-for-a-float-then-refused": ("float64", "1_0", "is no float64"),
    "given-yes-for-true-then-how": ("bool", "yes", "write true or false"),
    "given-an-empty-cell-that-must-be-there-then-so": ("int64", "", "must not be null"),
    "given-no-json-for-a-list-then-what": ("list<int8>", "1;2", "is not JSON; a list<int8> is"),
}


@pytest.mark.parametrize(("type_", "cell", "says"), NOT_CSV.values(), ids=NOT_CSV)
def test_what_does_not_fit_from_csv(type_: str, cell: str, says: str) -> None:
    with pytest.raises(MisfitError) as caught:
        read(type_, cell, Source.CSV, nullable=False)
    assert says in caught.value.misfits[0].reason


ORDER = (
    Column(name="orderId", type="int64", nullable=False),
    Column(name="note", type="string"),
)


def test_every_column_that_does_not_fit_is_named_at_once() -> None:
    with pytest.raises(MisfitError) as caught:
        RowReader(ORDER).read({"note": 1, "ordrId": 2})
    assert [str(misfit) for misfit in caught.value.misfits] == [
        "column orderId: is missing",
        "column note: 1 is no string",
        "column ordrId: there is no such column; did you mean orderId?",
    ]


def test_dataclasses_are_rows() -> None:
    @dataclass
    class Order:
        orderId: int  # noqa: N815 - as the column is called
        note: str | None = None

    assert RowReader(ORDER).read(Order(7)) == (7, None)
    with pytest.raises(InvalidRequestError, match="the value is type"):
        RowReader(ORDER).read(Order)
    with pytest.raises(InvalidRequestError, match="takes a dict or a dataclass"):
        RowReader(ORDER).read([1])


@given(topic_schemas(), st.data())
def test_law_what_fits_comes_back_from_arrow(rows_of: TopicSchema, data: st.DataObject) -> None:
    columns = rows_of.columns
    reader = RowReader(columns)
    given_rows = data.draw(st.lists(rows(columns), min_size=1, max_size=3))
    read_rows = [reader.read(row) for row in given_rows]
    batch = rows_batch(read_rows, columns)
    batch.validate(full=True)
    for column, name in zip(batch.columns, batch.schema.names, strict=True):
        for value, row in zip(column.to_pylist(maps_as_pydicts="strict"), given_rows, strict=True):
            assert value == row[name]
    assert [reader.size(row) for row in read_rows] == row_sizes(batch).tolist()


@given(topic_schemas(), st.data())
def test_law_what_is_printed_as_json_is_read_again(
    rows_of: TopicSchema, data: st.DataObject
) -> None:
    columns = rows_of.columns
    row = data.draw(rows(columns))
    batch = rows_batch([RowReader(columns).read(row)], columns)
    (printed,) = batch.to_pylist(maps_as_pydicts="strict")
    line = json.dumps({name: value_json(value) for name, value in printed.items()})
    again = RowReader(columns, Source.JSON).read(parse_json_row(line))
    assert rows_batch([again], columns).equals(batch)
