"""Which records an address asks for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dashboard.answers.records import (
    DEFAULT_RECORDS,
    VALUE_CHARS,
    Page,
    _cut,
    _Described,
    as_json,
    read_page,
)
from runnel.net.offsets import TransactionId
from schemas.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ({}, Page()),
        ({"limit": "7", "partition": "", "key": ""}, Page(limit=7)),
        ({"offset": "0", "partition": "3"}, Page(0, 3)),
        ({"transaction": "12"}, Page(TransactionId(12))),
        ({"since": "2026-01-31T12:00:00Z"}, Page(datetime(2026, 1, 31, 12, tzinfo=UTC))),
        ({"key": "k1"}, Page(None, None, DEFAULT_RECORDS, "k1")),
    ],
)
def test_pages(query: dict[str, str], page: Page) -> None:
    assert read_page(query) == page


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"offset": "1"}, "give a partition"),
        ({"offset": "-1", "partition": "0"}, "offset: '-1'"),
        ({"offset": "1", "partition": "0", "since": "2026-01-31T12:00:00Z"}, "one of them"),
        ({"since": "yesterday"}, "is no time"),
        ({"since": "2026-01-31T12:00:00"}, "no time zone"),
        ({"limit": "0"}, "from 1 to 500"),
        ({"limit": "501"}, "from 1 to 500"),
        ({"partition": "९"}, "is not a whole number"),
        ({"transaction": "9" * 30}, "is not a whole number"),
    ],
)
def test_what_is_refused(query: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        read_page(query)


def test_what_is_too_long_to_look_at_is_cut_and_numbers_keep_their_digits() -> None:
    text = "x" * (VALUE_CHARS + 1)
    found = _cut({"value": {"a": text, "b": [1 << 60, 1, True, None]}})
    assert found["value"]["a"] == f"{text[:-1]}… (16,385 characters)"
    assert found["value"]["b"] == [str(1 << 60), 1, True, None]


PLACE = {"partition": [0], "offset": [7], "timestamp": [datetime(2026, 1, 31, tzinfo=UTC)]}


def shown(**columns: pa.Array) -> dict[str, Any]:
    """The value of a typed record of these columns."""
    batch = pa.RecordBatch.from_pydict({**PLACE, **columns})
    described = _Described([{"name": name, "type": "any"} for name in columns], None)
    (record,) = as_json("t", batch, described)
    value: dict[str, Any] = record["value"]
    return value


def test_given_a_list_of_millions_then_its_size_is_shown_and_the_other_columns() -> None:
    numbers = pa.array(np.ones(3_000_000, dtype=np.int8))
    long = pa.ListArray.from_arrays(pa.array([0, len(numbers)], pa.int32()), numbers)
    found = shown(id=pa.array([1]), numbers=long, text=pa.array(["é" * 1_000_000]))
    assert found["id"] == 1
    assert found["numbers"] == "list<item: int8> of 2.9 MiB, not shown"
    assert found["text"].startswith("éé")
    assert found["text"].endswith("… (1.9 MiB)")
    assert len(found["text"]) < VALUE_CHARS


@pytest.mark.parametrize(
    ("value", "field", "begin"),
    [
        (b"text " * 1_000_000, "value", "text text"),
        (b"\xff\x00" * 1_000_000, "valueBase64", "/wD/AP8A"),
    ],
)
def test_given_a_long_value_without_columns_then_its_beginning_is_shown(
    value: bytes, field: str, begin: str
) -> None:
    columns = {
        "key": pa.array([None], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "headers": pa.array(
            [[{"key": "h", "value": b"x" * 100_000}]],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    batch = pa.RecordBatch.from_pydict({**PLACE, **columns})
    (record,) = as_json("t", batch, _Described(None, None))
    assert record[field].startswith(begin)
    assert len(record[field]) <= VALUE_CHARS
    assert "headers" not in record
