"""Inputs of ``runnel produce`` for a typed topic: rows of files and lines, with their columns.

NDJSON and plain lines hold a JSON object each, CSV has the columns' names in its first line,
Parquet and Arrow have columns already (see `runnel.records.row_values` and
`runnel.records.row_tables` for what fits). Every row that does not fit is reported as ``file:line:
column name: reason``, or by its row in files without lines. `check_file` reads a file to its end
and sends nothing: a bad file is refused before its first record is sent.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from runnel.cli.records.inputs import CHUNK_LINES, columnar_batches, kind_of
from runnel.cli.render import count
from runnel.records.arrow_schema import rows_batch
from runnel.records.converters import Source
from runnel.records.row_tables import try_table
from runnel.records.row_values import Misfit, MisfitError, Row, RowReader, parse_json_row
from schemas.columns.topic_schema import Column
from schemas.errors import InvalidRequestError
from schemas.objects.topic import MAX_BATCH_BYTES

#: Rows that are reported one by one; the others are counted.
MAX_REPORTED = 20
#: Texts by which published CSV files mean null.
_NULL_TEXTS = ("NA", "N/A", "NULL", "null", "None", "NaN", "nan")

#: What Python's `csv` says of a file that ends within a quoted cell.
_UNCLOSED = "unexpected end of data"


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that fit, as a table, and the misfits of the others; ``input_bytes`` were read."""

    table: pa.Table
    input_bytes: int
    misfits: tuple[str, ...] = ()
    #: Rows that do not fit; each may have several misfits.
    bad_rows: int = 0


@dataclass(slots=True)
class Misfits:
    """The bad rows of a whole input: the first are kept, all are counted."""

    listed: list[str] = field(default_factory=list)
    rows: int = 0

    def add(self, misfits: Sequence[str], rows: int) -> list[str]:
        """Add bad rows; gives those to report one by one."""
        new = list(misfits[: MAX_REPORTED - len(self.listed)])
        self.listed.extend(new)
        self.rows += rows
        return new

    def error(self, outcome: str) -> InvalidRequestError:
        """All bad rows as one error; ``outcome`` says what was sent."""
        lines = [*self.listed, f"{count(self.rows, 'row')} did not fit; {outcome}"]
        seen = (text for text in _NULL_TEXTS if any(f": {text!r} is no " in m for m in self.listed))
        if (text := next(seen, None)) is not None:
            lines.append(f"if {text} means null, add: --null {text}")
        return InvalidRequestError("\n".join(lines))


def check_file(path: Path, columns: Sequence[Column], nulls: Collection[str] = ()) -> None:
    """Raise InvalidRequestError that lists the rows of a file that do not fit, if there are any."""
    found = Misfits()
    for piece in read_pieces(path, columns, nulls):
        found.add(piece.misfits, piece.bad_rows)
    if found.rows:
        raise found.error("no row of the file was sent (--skip-bad-rows sends the others)")


def read_pieces(
    path: Path, columns: Sequence[Column], nulls: Collection[str] = ()
) -> Iterator[Piece]:
    """The rows of a file in order: those that fit, and the misfits of the others. Cells of CSV with
    a text of ``nulls`` are null, as empty ones are.

    Raises NotFoundError, and InvalidRequestError if it is not a file of rows at all.
    """
    kind = kind_of(path)
    try:
        if kind in {"lines", "ndjson"}:
            yield from _json_pieces(path, columns)
        elif kind == "csv":
            yield from _csv_pieces(path, columns, nulls)
        else:
            yield from _columnar_pieces(path, columns, kind)
    except pa.ArrowException as error:
        raise InvalidRequestError(f"{path}: cannot be read as {kind}: {error}") from error


class Unfit(tuple[str, ...]):
    """The misfits of a row, with their place."""

    __slots__ = ()


class LineReader:
    """Rows of JSON lines that come one by one."""

    def __init__(self, columns: Sequence[Column], source: str) -> None:
        self._reader = RowReader(columns, Source.JSON)
        self._source = source

    def read(self, line: bytes, number: int) -> Row | Unfit:
        """The row of a line, or (as texts) its misfits. ``number`` counts from 1."""
        try:
            return self._reader.read(parse_json_row(line))
        except MisfitError as error:
            return Unfit(_placed(f"{self._source}:{number}", error.misfits))


def _placed(place: str, misfits: Sequence[Misfit]) -> list[str]:
    return [f"{place}: {misfit}" for misfit in misfits]


def _json_pieces(path: Path, columns: Sequence[Column]) -> Iterator[Piece]:
    reader = LineReader(columns, str(path))
    gathered = _Gathered(columns)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            gathered.input_bytes += len(line)
            if line.strip():
                gathered.add(reader.read(line, number))
            if gathered.count >= CHUNK_LINES:
                yield gathered.piece()
    yield gathered.piece()


def _csv_pieces(path: Path, columns: Sequence[Column], nulls: Collection[str]) -> Iterator[Piece]:
    reader = RowReader(columns, Source.CSV)
    gathered = _Gathered(columns)
    csv.field_size_limit(MAX_BATCH_BYTES)
    #: Where the current record begins: a quoted cell may have line breaks.
    begin = 1
    # Spreadsheets begin a file with a byte order mark.
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        try:
            header = next(lines, [])
            _check_header(path, header, columns)
            begin = lines.line_num + 1
            for cells in lines:
                gathered.input_bytes += sum(map(len, cells)) + len(cells)
                if cells:
                    values = [None if cell in nulls else cell for cell in cells]
                    gathered.add(_csv_row(reader, header, values, f"{path}:{begin}"))
                begin = lines.line_num + 1
                if gathered.count >= CHUNK_LINES:
                    yield gathered.piece()
        except csv.Error as error:
            raise InvalidRequestError(_not_csv(path, begin, lines.line_num, error)) from error
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"{_undecodable_place(path)}: not UTF-8 text") from error
    yield gathered.piece()


def _not_csv(path: Path, begin: int, line: int, error: csv.Error) -> str:
    """What is wrong with a record that begins in one line; it was read up to another."""
    if str(error) == _UNCLOSED:
        return f"{path}:{begin}: not CSV: a quote that is opened in this record is never closed"
    where = f" in line {line}" if line != begin else ""
    return f"{path}:{begin}: not CSV: {error}{where}"


def _undecodable_place(path: Path) -> str:
    """The file and its first line that is not UTF-8; a pipe cannot be read once more."""
    if path.is_file():
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    return f"{path}:{number}"
    return str(path)


def _check_header(path: Path, header: Sequence[str], columns: Sequence[Column]) -> None:
    known = {column.name for column in columns}
    problems = [
        *(f"there is no column {name!r}" for name in header if name not in known),
        *(f"column {name} appears twice" for name in known if header.count(name) > 1),
        *(
            f"column {column.name} is missing, and must not be null"
            for column in columns
            if column.name not in header and not column.nullable
        ),
    ]
    if problems:
        raise InvalidRequestError(
            "\n".join(f"{path}:1: {problem}" for problem in problems)
            + f"\nthe topic's columns are {', '.join(c.name for c in columns)}; nothing was sent"
        )


def _csv_row(
    reader: RowReader, header: list[str], cells: list[str | None], place: str
) -> Row | Unfit:
    if len(cells) != len(header):
        return Unfit([f"{place}: {count(len(cells), 'cell')}, and {len(header)} columns"])
    try:
        return reader.read(dict(zip(header, cells, strict=True)))
    except MisfitError as error:
        return Unfit(_placed(place, error.misfits))


class _Gathered:
    """Rows that wait to become a piece."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self.input_bytes = 0
        self._rows: list[Row] = []
        self._misfits: list[str] = []
        self._bad_rows = 0

    @property
    def count(self) -> int:
        return len(self._rows) + self._bad_rows

    def add(self, row: Row | Unfit) -> None:
        if isinstance(row, Unfit):
            self._misfits.extend(row)
            self._bad_rows += 1
        else:
            self._rows.append(row)

    def piece(self) -> Piece:
        table = pa.Table.from_batches([rows_batch(self._rows, self._columns)])
        found = Piece(table, self.input_bytes, tuple(self._misfits), self._bad_rows)
        self._rows, self._misfits, self._bad_rows, self.input_bytes = [], [], 0, 0
        return found


def _columnar_pieces(path: Path, columns: Sequence[Column], kind: str) -> Iterator[Piece]:
    before = 0
    for batch in columnar_batches(path, kind):
        rows = batch.num_rows
        table = pa.Table.from_batches([batch])
        fitted, misfits = try_table(table, columns, limit=max(rows, 1))
        whole = [misfit for misfit in misfits if misfit.row is None]
        if whole:
            raise InvalidRequestError(
                "\n".join(f"{path}: {misfit}" for misfit in whole) + "\nnothing was sent"
            )
        if fitted is not None:
            yield Piece(fitted, batch.nbytes)
        else:
            bad = sorted({misfit.row for misfit in misfits if misfit.row is not None})
            fits = np.ones(rows, bool)
            fits[bad] = False
            kept, _ = try_table(table.filter(pa.array(fits)), columns)
            if kept is None:
                raise AssertionError("rows that fitted do not fit without the others")
            listed = [
                f"{path}: row {before + (misfit.row or 0)}: column {misfit.column}: {misfit.reason}"
                for misfit in misfits[:MAX_REPORTED]
            ]
            yield Piece(kept, batch.nbytes, tuple(listed), len(bad))
        before += rows
