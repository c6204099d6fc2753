"""Files and lines for typed topics: rows that fit, and reports of those that do not."""

from __future__ import annotations

import math
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from runnel.cli.records.inputs import CHUNK_LINES
from runnel.cli.records.output import RecordOutput, RecordWriter
from runnel.cli.records.produce_typed import TypedInput
from runnel.cli.records.typed_inputs import MAX_REPORTED, LineReader, Unfit, check_file, read_pieces
from runnel.records.arrow_schema import rows_batch
from runnel.records.as_json import rows_json, typed_json, value_json
from runnel.records.schema_resolution import read_schema
from schemas.columns.topic_schema import Column, TopicSchema
from schemas.errors import InvalidRequestError, NotFoundError

ORDERS = (
    Column(name="orderId", type="int64", nullable=False),
    Column(name="amount", type="decimal(5, 2)"),
    Column(name="note", type="string"),
)


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for piece in read_pieces(path, ORDERS) for row in piece.table.to_pylist()]


GOOD = [
    {"orderId": 1, "amount": Decimal("1.50"), "note": "a,b"},
    {"orderId": 2, "amount": None, "note": None},
]
FILES = {
    "given-ndjson-then-its-objects": (
        "o.ndjson",
        b'{"orderId": 1, "amount": 1.5, "note": "a,b"}\n\n{"orderId": 2}\n',
    ),
    "given-lines-of-no-suffix-then-objects-too": (
        "o.txt",
        b'{"orderId": 1, "amount": "1.5", "note": "a,b"}\r\n{"orderId": 2, "note": null}',
    ),
    "given-csv-then-its-cells": ("o.csv", b'orderId,amount,note\n1,1.5,"a,b"\n\n2,,\n'),
    "given-csv-of-a-spreadsheet-then-no-mark": (
        "o.csv",
        b'\xef\xbb\xbfnote,orderId,amount\r\n"a,b",1,1.50\r\n,2,\r\n',
    ),
}


@pytest.mark.parametrize(("name", "data"), FILES.values(), ids=FILES)
def test_rows_of_files(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    check_file(path, ORDERS)
    assert rows(path) == GOOD


def test_given_texts_that_mean_null_then_their_cells_are_null(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    path.write_bytes(b'orderId,amount,note\n1,1.5,"a,b"\n2,NA,-\n')
    nulls = ("NA", "-")
    check_file(path, ORDERS, nulls)
    assert [
        row for piece in read_pieces(path, ORDERS, nulls) for row in piece.table.to_pylist()
    ] == GOOD
    with pytest.raises(InvalidRequestError, match=r"o\.csv:3: column amount"):
        check_file(path, ORDERS)
    with pytest.raises(InvalidRequestError, match=r"o\.csv:2: column orderId: must not be null"):
        check_file(path, ORDERS, ("1", "NA"))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_rows_of_columnar_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"o.{suffix}"
    table = pa.Table.from_pylist(GOOD)
    if suffix == "parquet":
        pa.parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    check_file(path, ORDERS)
    assert rows(path) == GOOD


BAD = {
    "given-ndjson-then-line-and-column": (
        "o.ndjson",
        b'{"orderId": 1}\n{"orderId": "x", "amount": 1.234}\nno\n',
        [
            "o.ndjson:2: column orderId: 'x' is no int64",
            (
                "o.ndjson:2: column amount: 1.234 is no decimal128(5, 2); it has more than 2 digits"
                " behind the point"
            ),
            "o.ndjson:3: not JSON: Expecting value in column 1",
            "2 rows did not fit; no row of the file was sent (--skip-bad-rows sends the others)",
        ],
    ),
    "given-half-a-json-row-then-the-column-where-the-rest-is-missing": (
        "o.ndjson",
        b'{"orderId": 1}\n{"orderId":\n\xff\n' + b"[" * 100_000,
        [
            "o.ndjson:2: not JSON: Expecting value in column 12",
            "o.ndjson:3: not JSON: not UTF-8 text from its byte 1 on",
            "o.ndjson:4: not JSON that can be read: it is nested too deeply",
            "3 rows did not fit; no row of the file was sent (--skip-bad-rows sends the others)",
        ],
    ),
    "given-csv-with-line-breaks-in-cells-then-the-line-where-the-row-begins": (
        "o.csv",
        b'orderId,note\n1,"a\nb"\nx,\n3\ny,"c\nd"\n',
        [
            "o.csv:4: column orderId: 'x' is no int64",
            "o.csv:5: 1 cell, and 2 columns",
            "o.csv:6: column orderId: 'y' is no int64",
            "3 rows did not fit; no row of the file was sent (--skip-bad-rows sends the others)",
        ],
    ),
    "given-a-wrong-header-then-its-line-and-the-columns": (
        "o.csv",
        b"order,note,note\n1,a,b\n",
        [
            "o.csv:1: there is no column 'order'",
            "o.csv:1: column note appears twice",
            "o.csv:1: column orderId is missing, and must not be null",
            "the topic's columns are orderId, amount, note; nothing was sent",
        ],
    ),
    "given-no-csv-then-where": (
        "o.csv",
        b'orderId,note\n1,"a" b\n',
        ["o.csv:2: not CSV: ',' expected after '\"'"],
    ),
    "given-no-csv-in-a-later-line-of-a-row-then-both": (
        "o.csv",
        b'orderId,note\n1,"a\nb" c\n',
        ["o.csv:2: not CSV: ',' expected after '\"' in line 3"],
    ),
    "given-a-quote-that-is-never-closed-then-the-line-where-its-row-begins": (
        "o.csv",
        b'orderId,note\n1,a\n2,"b\n3,c\n4,d\n',
        ["o.csv:3: not CSV: a quote that is opened in this record is never closed"],
    ),
    "given-csv-that-is-not-utf-8-then-its-line": (
        "o.csv",
        b"orderId,note\n1,a\n2,\xff\xfe\n3,c\n",
        ["o.csv:3: not UTF-8 text"],
    ),
}


@pytest.mark.parametrize(("name", "data", "says"), BAD.values(), ids=BAD)
def test_reports_of_bad_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, says: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(data)
    with pytest.raises(InvalidRequestError) as caught:
        check_file(Path(name), ORDERS)
    assert caught.value.message.splitlines() == says


def test_given_bad_rows_then_the_others_are_there(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    path.write_text("orderId,note\n1,a\nx,b\n3,c\n")
    (piece,) = read_pieces(path, ORDERS)
    assert piece.table["orderId"].to_pylist() == [1, 3]
    assert (piece.bad_rows, len(piece.misfits)) == (1, 1)


def test_given_bad_rows_of_a_parquet_file_then_their_numbers_and_the_others(tmp_path: Path) -> None:
    path = tmp_path / "o.parquet"
    table = pa.table({"orderId": [1, None, 3, 4], "amount": [1.5, 2.5, 1.111, None]})
    pa.parquet.write_table(table, path)
    (piece,) = read_pieces(path, ORDERS)
    assert piece.table["orderId"].to_pylist() == [1, 4]
    assert piece.bad_rows == 2
    assert list(piece.misfits) == [
        f"{path}: row 1: column orderId: must not be null",
        f"{path}: row 2: column amount: 1.111 does not fit decimal128(5, 2)",
    ]


def test_given_several_batches_then_rows_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "o.arrow"
    batches = [pa.record_batch({"orderId": [1, 2]}), pa.record_batch({"orderId": [3, None]})]
    with pa.ipc.new_file(path, batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)
    misfits = [text for piece in read_pieces(path, ORDERS) for text in piece.misfits]
    assert misfits == [f"{path}: row 3: column orderId: must not be null"]


def test_given_other_columns_of_a_parquet_file_then_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "o.parquet"
    pa.parquet.write_table(pa.table({"orderId": ["x"]}), path)
    with pytest.raises(InvalidRequestError, match="column orderId: is string, and the topic has"):
        list(read_pieces(path, ORDERS))


def test_reports_are_bounded_and_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "o.ndjson"
    path.write_text('{"orderId": 1}\n' + "{}\n" * (CHUNK_LINES + 1))
    with pytest.raises(InvalidRequestError) as caught:
        check_file(path, ORDERS)
    *listed, last = caught.value.message.splitlines()
    assert len(listed) == MAX_REPORTED
    assert last.startswith(f"{CHUNK_LINES + 1:,} rows did not fit")


def test_given_many_lines_then_pieces_of_a_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "o.ndjson"
    path.write_text('{"orderId": 1}\n' * (CHUNK_LINES + 1))
    assert [piece.table.num_rows for piece in read_pieces(path, ORDERS)] == [CHUNK_LINES, 1]


def test_given_no_file_then_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        check_file(tmp_path / "none.csv", ORDERS)


def test_lines_come_one_by_one() -> None:
    reader = LineReader(ORDERS, "<stdin>")
    assert reader.read(b'{"orderId": 7}\n', 1) == (7, None, None)
    bad = reader.read(b"{}", 2)
    assert isinstance(bad, Unfit)
    assert list(bad) == ["<stdin>:2: column orderId: is missing"]


# What is printed of typed records


VALUES = {
    "given-a-decimal-then-its-digits": (Decimal("1E+2"), "100"),
    "given-a-time-then-iso": (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00+00:00"),
    "given-a-date-then-iso": (date(2026, 1, 31), "2026-01-31"),
    "given-bytes-then-base64": (b"\0\1\2", "AAEC"),
    "given-no-number-then-text": (math.nan, "NaN"),
    "given-less-than-all-numbers-then-text": (-math.inf, "-Infinity"),
    "given-what-is-nested-then-all-of-it": ([{"a": b"\0"}, None], [{"a": "AA=="}, None]),
    "given-others-then-as-they-are": (1.5, 1.5),
}


@pytest.mark.parametrize(("value", "expected"), VALUES.values(), ids=VALUES)
def test_values_in_json(value: Any, expected: Any) -> None:
    assert value_json(value) == expected


def typed_batch() -> pa.RecordBatch:
    columns = rows_batch([(1, Decimal("1.5"), "tab\t"), (2, None, None)], ORDERS)
    place = [
        pa.array([0, 0], pa.int32()),
        pa.array([5, 6]),
        pa.array([0, 1_000_000]).cast(pa.timestamp("us", tz="UTC")),
    ]
    schema = read_schema(TopicSchema(columns=ORDERS))
    return pa.RecordBatch.from_arrays([*place, *columns.columns], schema=schema)


def test_typed_records_in_json() -> None:
    assert rows_json(typed_batch())[1] == {"orderId": 2, "amount": None, "note": None}
    assert next(typed_json("orders", typed_batch())) == {
        "topic": "orders",
        "partition": 0,
        "offset": 5,
        "timestamp": "1970-01-01T00:00:00.000000+00:00",
        "value": {"orderId": 1, "amount": "1.50", "note": "tab\t"},
    }


PRINTED = {
    RecordOutput.VALUE: (
        '{"orderId":1,"amount":"1.50","note":"tab\\t"}\n{"orderId":2,"amount":null,"note":null}\n'
    ),
    RecordOutput.TABLE: (
        "PARTITION     OFFSET  TIMESTAMP                   orderId           amount"
        "            note\n"
        "        0          5  1970-01-01 00:00:00.000000  1                 1.50"
        "              tab\\t\n"
        "        0          6  1970-01-01 00:00:01.000000  2                 -"
        "                 -\n"
    ),
}


@pytest.mark.parametrize(("output", "expected"), PRINTED.items(), ids=[o.value for o in PRINTED])
def test_typed_records_as_they_are_printed(
    capfdbinary: pytest.CaptureFixture[bytes], output: RecordOutput, expected: str
) -> None:
    RecordWriter(output, "orders", None, typed=True)(typed_batch())
    assert capfdbinary.readouterr().out.decode() == expected


def test_given_a_key_separator_for_typed_records_then_refused() -> None:
    with pytest.raises(InvalidRequestError, match="--key-separator"):
        RecordWriter(RecordOutput.VALUE, "orders", b":", typed=True)


def test_given_a_pipe_then_refused_before_it_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "rows.ndjson"
    os.mkfifo(pipe)
    producer: Any = None
    with pytest.raises(InvalidRequestError, match=r"rows\.ndjson is a pipe, .* --skip-bad-rows"):
        TypedInput(producer, TopicSchema(columns=ORDERS), skip=False).produce(pipe)
