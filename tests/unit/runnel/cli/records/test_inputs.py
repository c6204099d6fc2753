"""Lines and files as chunks of keys and values."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from runnel.cli.records import inputs
from runnel.cli.records.inputs import (
    CHUNK_LINES,
    KeyRule,
    placed,
    read_chunks,
    read_lines,
    splitter,
)
from schemas.errors import InvalidRequestError, RecordTooLargeError

Rows = list[tuple[bytes | None, bytes]]


def rows(chunks: list[pa.Table]) -> Rows:
    return [(r["key"], r["value"]) for table in chunks for r in table.to_pylist()]


LINES: dict[str, tuple[bytes, KeyRule, bool, Rows]] = {
    "given-plain-lines-then-no-keys": (b"a\nb\n", KeyRule(), False, [(None, b"a"), (None, b"b")]),
    "given-no-newline-at-the-end-then-the-last-line-counts": (
        b"a\nb", KeyRule(), False, [(None, b"a"), (None, b"b")],
    ),
    "given-windows-ends-then-they-go": (b"a\r\n", KeyRule(), False, [(None, b"a")]),
    "given-an-empty-line-then-an-empty-value": (b"\n", KeyRule(), False, [(None, b"")]),
    "given-a-separator-then-the-first-one-splits": (
        b"k:v:w\n", KeyRule(separator=b":"), False, [(b"k", b"v:w")],
    ),
    "given-a-key-field-then-the-line-stays-whole": (
        b'{"k": "x", "v": 1}\n', KeyRule(field="k"), True, [(b"x", b'{"k": "x", "v": 1}')],
    ),
    "given-a-number-as-key-then-its-json": (
        b'{"k":7}\n', KeyRule(field="k"), True, [(b"7", b'{"k":7}')],
    ),
    "given-a-null-key-then-no-key": (
        b'{"k":null}\n', KeyRule(field="k"), True, [(None, b'{"k":null}')],
    ),
    "given-nothing-then-nothing": (b"", KeyRule(), False, []),
}  # fmt: skip


@pytest.mark.parametrize(("data", "rule", "ndjson", "expected"), LINES.values(), ids=LINES)
def test_lines(data: bytes, rule: KeyRule, ndjson: bool, expected: Rows) -> None:
    chunks = list(read_lines(io.BytesIO(data), rule, "f", ndjson=ndjson))
    assert rows([c.table for c in chunks]) == expected
    assert sum(c.input_bytes for c in chunks) == len(data)


def test_many_lines_come_in_bounded_chunks() -> None:
    data = b"x\n" * (2 * CHUNK_LINES + 1)
    sizes = [c.table.num_rows for c in read_lines(io.BytesIO(data), KeyRule(), "f")]
    assert sizes == [CHUNK_LINES, CHUNK_LINES, 1]


BAD_LINES = {
    "given-no-separator-then-the-line-is-named": (b"b", KeyRule(separator=b":"), "f:3: no key sep"),
    "given-no-json-then-the-line-is-named": (
        b'{"k":',
        KeyRule(field="k"),
        "f:3: not JSON: Expecting value in column 6",
    ),
    "given-endless-brackets-then-the-line-is-named": (
        b"[" * 100_000,
        KeyRule(field="k"),
        "f:3: not JSON that can be read",
    ),
    "given-no-object-then-the-field-is-named": (b"[1]", KeyRule(field="k"), "f:3: no field 'k'"),
    "given-no-field-then-it-is-named": (b"{}", KeyRule(field="k"), "f:3: no field 'k'"),
}


@pytest.mark.parametrize(("line", "rule", "expected"), BAD_LINES.values(), ids=BAD_LINES)
def test_bad_lines(line: bytes, rule: KeyRule, expected: str) -> None:
    with pytest.raises(InvalidRequestError, match=expected):
        splitter(rule, "f")(line, 3)


def test_key_field_of_plain_lines_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="needs rows with fields"):
        list(read_lines(io.BytesIO(b"a\n"), KeyRule(field="k"), "f"))


def test_given_texts_that_mean_null_then_only_their_cells_are(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("a,b,c\nNA,-,\n")
    (chunk,) = read_chunks(path, KeyRule(), ["-"])
    assert chunk.table["value"].to_pylist() == [b'{"a":"NA","b":null,"c":null}']
    (chunk,) = read_chunks(path, KeyRule())
    assert chunk.table["value"].to_pylist() == [b'{"a":null,"b":"-","c":null}']


def test_given_an_error_then_its_place_comes_first() -> None:
    with pytest.raises(RecordTooLargeError, match=r"^f:3: too large$"), placed("f:3"):
        raise RecordTooLargeError("too large")


def test_the_sizes_of_the_chunks_of_a_csv_file_follow_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = 1 << 16
    monkeypatch.setattr(inputs, "CSV_BLOCK_BYTES", block)
    path = tmp_path / "f.csv"
    path.write_text("a\n" + "1234567\n" * (3 * block // 8))
    sizes = [chunk.input_bytes for chunk in read_chunks(path, KeyRule())]
    assert sum(sizes) == path.stat().st_size
    assert (len(sizes), max(sizes)) == (4, block)


def test_csv_types_and_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id,name,delay\n1,ann,2.5\n2,,NA\n")
    (chunk,) = read_chunks(path, KeyRule(field="name"))
    found = chunk.table.to_pylist()
    assert [json.loads(r["value"]) for r in found] == [
        {"id": 1, "name": "ann", "delay": 2.5},
        {"id": 2, "name": None, "delay": None},
    ]
    assert [r["key"] for r in found] == [b"ann", None]
    assert chunk.input_bytes == path.stat().st_size


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "stream.arrow"])
def test_a_value_column_is_taken_as_records(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"key": [b"k", None], "value": [b"1", b"2"], "other": [1, 2]})
    path = tmp_path / f"f.{suffix}"
    if suffix == "parquet":
        pa.parquet.write_table(table, path)
    else:
        new = pa.ipc.new_stream if suffix.startswith("stream") else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table)
    (chunk,) = read_chunks(path, KeyRule())
    assert chunk.table.column_names == ["key", "value"]
    assert rows([chunk.table]) == [(b"k", b"1"), (None, b"2")]


def test_rows_with_times_and_bytes_become_json(tmp_path: Path) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    table = pa.table({"at": [when], "raw": [b"\xff"], "n": [1]})
    pa.parquet.write_table(table, tmp_path / "f.parquet")
    (chunk,) = read_chunks(tmp_path / "f.parquet", KeyRule(field="n"))
    ((key, value),) = rows([chunk.table])
    assert key == b"1"
    assert json.loads(value) == {"at": "2026-01-02T03:04:05+00:00", "raw": "\ufffd", "n": 1}


def test_separator_for_a_columnar_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("a\n1\n")
    with pytest.raises(InvalidRequestError, match="use --key-field"):
        list(read_chunks(tmp_path / "f.csv", KeyRule(separator=b":")))


# Transaction ids

BY_ID = KeyRule(id_field="seq")


def test_ids_of_lines_beside_keys() -> None:
    data = b'{"seq": 4, "k": "a"}\n{"seq": 4, "k": "b"}\n{"seq": 9, "k": null}\n'
    (chunk,) = read_lines(io.BytesIO(data), KeyRule(field="k", id_field="seq"), "f", ndjson=True)
    assert chunk.transaction_ids == [4, 4, 9]
    assert chunk.table.column("key").to_pylist() == [b"a", b"b", None]
    (chunk,) = read_lines(io.BytesIO(data), BY_ID, "f", ndjson=True)
    assert (chunk.transaction_ids, chunk.table.column("key").null_count) == ([4, 4, 9], 3)
    (chunk,) = read_lines(io.BytesIO(data), KeyRule(), "f", ndjson=True)
    assert chunk.transaction_ids is None


BAD_IDS = {
    "given-text-then-the-line-is-named": ('"7"', "f:2: field 'seq' is '7', and a transaction id"),
    "given-a-fraction-then-refused": ("7.5", "f:2: field 'seq' is 7.5, and"),
    "given-a-bool-then-refused": ("true", "f:2: field 'seq' is True, and"),
    "given-null-then-refused": ("null", "f:2: field 'seq' is None, and"),
    "given-a-negative-one-then-refused": ("-1", "f:2: field 'seq' is -1; transaction ids go"),
    "given-too-large-a-one-then-refused": (str(1 << 63), "transaction ids go from 0 to"),
    "given-a-fall-then-refused": ("3", "f:2: field 'seq' is 3 after 4: transaction ids never fall"),
}


@pytest.mark.parametrize(("value", "says"), BAD_IDS.values(), ids=BAD_IDS)
def test_bad_ids(value: str, says: str) -> None:
    split = splitter(BY_ID, "f")
    assert split(b'{"seq": 4}', 1) == (None, b'{"seq": 4}', 4)
    with pytest.raises(InvalidRequestError) as refused:
        split(b'{"seq": %s}' % value.encode(), 2)
    assert says in refused.value.message


def test_given_rows_without_the_id_field_then_refused() -> None:
    with pytest.raises(InvalidRequestError, match="f:3: no field 'seq'"):
        splitter(BY_ID, "f")(b"{}", 3)
    with pytest.raises(InvalidRequestError, match="--transaction-id-field needs rows with fields"):
        list(read_lines(io.BytesIO(b"a\n"), BY_ID, "f"))


def test_ids_of_columns(tmp_path: Path) -> None:
    csv = tmp_path / "f.csv"
    csv.write_text("seq,name\n3,ann\n5,bo\n")
    (chunk,) = read_chunks(csv, BY_ID)
    assert chunk.transaction_ids == [3, 5]
    assert json.loads(chunk.table.to_pylist()[1]["value"]) == {"seq": 5, "name": "bo"}
    table = pa.table({"value": [b"1", b"2", b"3"], "seq": [1, 6, 2]})
    pa.parquet.write_table(table.slice(0, 2), tmp_path / "f.parquet")
    (chunk,) = read_chunks(tmp_path / "f.parquet", BY_ID)
    assert (chunk.table.column_names, chunk.transaction_ids) == (["value"], [1, 6])
    pa.parquet.write_table(table.select(["value"]), tmp_path / "g.parquet")
    with pytest.raises(InvalidRequestError, match="no column 'seq'; its columns: value"):
        list(read_chunks(tmp_path / "g.parquet", BY_ID))


def test_given_ids_that_fall_between_batches_of_a_file_then_the_row_is_named(
    tmp_path: Path,
) -> None:
    table = pa.table({"value": [b"1", b"2", b"3"], "seq": [1, 6, 2]})
    path = tmp_path / "f.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    chunks = read_chunks(path, BY_ID)
    assert next(chunks).transaction_ids == [1, 6]
    with pytest.raises(InvalidRequestError, match=r"f\.arrow: row 2: field 'seq' is 2 after 6"):
        next(chunks)
