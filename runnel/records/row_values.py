"""Rows of a typed topic from values: of Python, of JSON, of the cells of a CSV file. Pure.

A value fits a column only if the column keeps it unchanged: whole numbers are not cut, decimals
not rounded, text is not taken for a number. Two exceptions are usual everywhere: a float becomes
the nearest one that the column holds, and a number in JSON or CSV the nearest float. Times need a
zone where the column has one, and must not have one where it has none.

Types that JSON does not have are text: dates and times in ISO 8601, binary in base64. A decimal may
be a number or text. In CSV an empty cell is null (the empty text, where a text column is not
nullable); lists, structs and maps are JSON. Arrow never refuses a value that passed.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.records.converters import Source, converter_of, mapping_of, shown
from runnel.records.row_sizes import sizer_of
from schemas.columns.column_types import (
    Scalar,
)
from schemas.columns.topic_schema import Column, names
from schemas.errors import InvalidRequestError
from schemas.objects.spelling import nearest

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that does not fit. ``row`` counts from 0; None means the whole column."""

    row: int | None
    column: str | None
    reason: str

    def __str__(self) -> str:
        parts = [f"row {self.row}"] if self.row is not None else []
        parts += [f"column {self.column}"] if self.column is not None else []
        return f"{', '.join(parts)}: {self.reason}" if parts else self.reason


class MisfitError(InvalidRequestError):
    """Rows that do not fit the columns of their topic; ``misfits`` says which and why."""

    def __init__(self, message: str, misfits: Sequence[Misfit]) -> None:
        super().__init__(message)
        self.misfits = tuple(misfits)


class RowReader:
    """Makes rows of mappings (dicts, dataclass instances) with the columns' names as keys."""

    def __init__(self, columns: Sequence[Column], source: Source = Source.PYTHON) -> None:
        self._columns = [
            (c.name, converter_of(c.parsed, source), c.nullable, _text_of_empty(c, source))
            for c in columns
        ]
        self._names = frozenset(c.name for c in columns)
        self._listed = names(columns)
        self._source = source
        sizers = [sizer_of(c.parsed) for c in columns]
        self._fixed_bytes = sum(size for size in sizers if isinstance(size, int))
        self._sizers = [(i, size) for i, size in enumerate(sizers) if not isinstance(size, int)]

    def read(self, values: Any) -> Row:
        """The row of one mapping or dataclass. Raises MisfitError that names every column."""
        if not isinstance(values, dict):
            values = mapping_of(values)
        misfits: list[Misfit] = []
        row: list[Any] = []
        for name, convert, nullable, empty in self._columns:
            value = values.get(name)
            if self._source is Source.CSV and value == "":
                value = empty
            if value is None:
                if not nullable:
                    missing = "must not be null" if name in values else "is missing"
                    misfits.append(Misfit(None, name, missing))
                row.append(None)
                continue
            try:
                row.append(convert(value))
            except ValueError as error:
                misfits.append(Misfit(None, name, str(error)))
        if not values.keys() <= self._names:
            misfits.extend(self._unknown(values))
        if misfits:
            raise MisfitError("; ".join(map(str, misfits)), misfits)
        return tuple(row)

    def size(self, row: Row) -> int:
        """Approximate bytes of a row in a batch before compression."""
        total = self._fixed_bytes
        for index, size in self._sizers:
            total += size(row[index])
        return total

    def _unknown(self, values: Mapping[str, Any]) -> Iterable[Misfit]:
        for name in values:
            if name not in self._names:
                meant = nearest(str(name), self._names)
                hint = f"did you mean {meant}?" if meant else f"there are {self._listed}"
                yield Misfit(None, str(name), f"there is no such column; {hint}")


def parse_json_row(text: str | bytes) -> dict[str, Any]:
    """A JSON object whose numbers are exact. Raises MisfitError for anything else."""
    try:
        # A newline at the end would be the place of what is missing.
        found = json.loads(text.rstrip(), parse_float=decimal.Decimal)
    except (ValueError, RecursionError) as error:
        raise MisfitError("", [Misfit(None, None, not_json(error))]) from error
    if not isinstance(found, dict):
        raise MisfitError("", [Misfit(None, None, f"a row is a JSON object, not {shown(found)}")])
    return found


def not_json(error: ValueError | RecursionError) -> str:
    """What is wrong with one line, and in which column of it: the caller knows the line."""
    match error:
        case json.JSONDecodeError():
            return f"not JSON: {error.msg} in column {error.colno}"
        case UnicodeDecodeError():
            return f"not JSON: not UTF-8 text from its byte {error.start + 1} on"
        case RecursionError():
            return "not JSON that can be read: it is nested too deeply"
        case _:
            return f"not JSON: {error}"


def _text_of_empty(column: Column, source: Source) -> str | None:
    is_text = column.parsed == Scalar("string")
    return "" if source is Source.CSV and is_text and not column.nullable else None
