"""Column types: what may be written, what it becomes, and why anything else is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from schemas.columns.column_types import SCALARS, ColumnType, parse_type, zones_of
from tests.unit.schemas.typed import column_types

WRITTEN = {
    "given-a-scalar-then-itself": ("int64", "int64"),
    "given-other-case-then-lower-case": ("Int64", "int64"),
    "given-space-around-then-without": ("  string ", "string"),
    "given-utf8-then-string": ("utf8", "string"),
    "given-arrows-double-then-float64": ("double", "float64"),
    "given-arrows-float-then-float32": ("float", "float32"),
    "given-arrows-date-then-date32": ("date32[day]", "date32"),
    "given-a-short-decimal-then-all-of-it": ("decimal(12,2)", "decimal128(12, 2)"),
    "given-a-whole-decimal-then-scale-0": ("decimal(38, 0)", "decimal128(38, 0)"),
    "given-a-zone-then-it-is-kept": (
        "timestamp(us, Europe/Berlin)",
        "timestamp(us, Europe/Berlin)",
    ),
    "given-arrows-timestamp-then-ours": ("timestamp[ms, tz=UTC]", "timestamp(ms, UTC)"),
    "given-no-zone-then-a-wall-clock": ("timestamp(s)", "timestamp(s)"),
    "given-an-offset-then-it-is-a-zone": ("timestamp(us, +02:00)", "timestamp(us, +02:00)"),
    "given-arrows-list-then-ours": ("list<item: list<element: int8>>", "list<list<int8>>"),
    "given-a-struct-then-its-fields": (
        "struct<city:utf8,at: timestamp(us, UTC)>",
        "struct<city: string, at: timestamp(us, UTC)>",
    ),
    "given-a-map-then-keys-are-strings": (
        "map<utf8,decimal(3,1)>",
        "map<string, decimal128(3, 1)>",
    ),
}


@pytest.mark.parametrize(("text", "canonical"), WRITTEN.values(), ids=WRITTEN)
def test_spellings(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical


@pytest.mark.parametrize("name", SCALARS)
def test_every_scalar_is_written_as_it_is_called(name: str) -> None:
    assert str(parse_type(name)) == name


REFUSED = {
    "given-sql-then-arrows-name": ("bigint", "write int64"),
    "given-varchar-with-a-length-then-string": ("varchar(20)", "write string"),
    "given-nothing-near-then-all-types": ("money", "the types are bool, int8"),
    "given-nothing-then-all-types": ("", "the types are bool, int8"),
    "given-nanoseconds-then-why": ("timestamp(ns, UTC)", "holds nanoseconds; write timestamp(us"),
    "given-another-unit-then-the-units": ("timestamp(h)", "the unit is one of s, ms, us"),
    "given-no-zone-name-then-refused": ("timestamp(us, one two)", "'one two' is not a time zone"),
    "given-a-bare-timestamp-then-an-example": ("timestamp", "write timestamp(us, UTC)"),
    "given-a-comma-that-yaml-took-then-quotes": ("decimal(12", "put the type in quotes"),
    "given-one-number-then-both": ("decimal(12)", "give precision and scale"),
    "given-too-many-digits-then-the-limit": ("decimal(39, 0)", "the precision is 1 to 38"),
    "given-more-scale-than-digits-then-why": (
        "decimal(2, 3)",
        "the scale 3 is above the precision 2",
    ),
    "given-a-negative-scale-then-an-example": ("decimal(2, -3)", "give precision and scale"),
    "given-keys-that-are-no-strings-then-why": ("map<int64, string>", "keys of maps are strings"),
    "given-a-map-of-one-type-then-both": ("map<string>", "give the types of keys and values"),
    "given-a-field-without-a-type-then-how": ("struct<a>", "'a' is not a field; write name: type"),
    "given-a-field-twice-then-its-name": ("struct<a: int8, A: int8>", "the field A appears twice"),
    "given-not-null-inside-then-why": ("list<int8 not null>", "may always be null"),
    "given-large-types-then-the-small": ("large_string", "write string"),
    "given-an-open-bracket-then-which": ("list<int8", "no closing >"),
    "given-too-deep-then-the-limit": ("list<" * 20 + "int8" + ">" * 20, "nested at most 16 deep"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_refusals(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_type(text)


@given(column_types)
def test_law_the_canonical_text_is_read_back(type_: ColumnType) -> None:
    assert parse_type(str(type_)) == type_


def test_zones_are_found_wherever_they_are() -> None:
    type_ = parse_type("map<string, struct<a: list<timestamp(s, UTC)>, b: timestamp(us), c: int8>>")
    assert list(zones_of(type_)) == ["UTC"]
