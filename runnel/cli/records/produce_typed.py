"""``runnel produce`` to a typed topic: rows from standard input or a file.

A file is read twice: it is checked before any of it is sent. Lines of standard input are sent as
they come, up to the first that does not fit. With ``--skip-bad-rows`` the rows that do not fit are
reported, and the others sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

import runnel
from runnel.cli.failure import say, stderr
from runnel.cli.records.inputs import Ids, placed
from runnel.cli.records.refusals import stop_if_refused
from runnel.cli.records.typed_inputs import LineReader, Misfits, Unfit, check_file, read_pieces
from runnel.cli.render import count
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import InvalidRequestError


@contextmanager
def progress_of(file: Path) -> Iterator[Callable[[int, int], None]]:
    """A progress bar for a file, if standard error is a terminal; its callback takes the bytes read
    since the last call and all records.
    """
    if not sys.stderr.isatty():
        yield lambda _advance, _records: None
        return
    columns = (
        TextColumn(f"{file.name}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TransferSpeedColumn(),
        TextColumn("{task.fields[records]:,} records"),
        TimeElapsedColumn(),
    )
    total = file.stat().st_size if file.is_file() else None
    with Progress(*columns, console=stderr(), transient=True) as progress:
        task = progress.add_task("produce", total=total, records=0)
        yield lambda advance, records: progress.update(task, advance=advance, records=records)


def _require_two_reads(file: Path) -> None:
    """Raise InvalidRequestError for a pipe, which would be empty after the check."""
    if file.is_fifo():
        raise InvalidRequestError(
            f"{file} is a pipe, and all rows of a file are checked before the first one is sent:"
            " store it in a file, give JSON lines as standard input without --file, or add"
            " --skip-bad-rows, which checks each row as it is sent"
        )


class TypedInput:
    """Sends the rows of one input. Their transaction ids are in the column ``id_field``."""

    def __init__(
        self,
        producer: runnel.Producer,
        rows: TopicSchema,
        skip: bool,
        id_field: str | None = None,
        nulls: Collection[str] = (),
    ) -> None:
        self._producer = producer
        self._columns = rows.columns
        self._skip = skip
        self._misfits = Misfits()
        self._id_field = id_field
        self._nulls = nulls
        self._ids = Ids(id_field or "")

    def produce(self, file: Path | None) -> tuple[int, int]:
        """Records and bytes that were sent. Raises InvalidRequestError that lists bad rows."""
        sent = self._send_lines() if file is None else self._send_file(file)
        if self._misfits.rows:
            say(f"{count(self._misfits.rows, 'row')} did not fit and were skipped")
        return sent

    def _send_file(self, file: Path) -> tuple[int, int]:
        if not self._skip:
            _require_two_reads(file)
            check_file(file, self._columns, self._nulls)
        records = size = 0
        with progress_of(file) as advance:
            for piece in read_pieces(file, self._columns, self._nulls):
                stop_if_refused(self._producer)
                self._note(piece.misfits, piece.bad_rows)
                ids = None
                if self._id_field is not None:
                    column = piece.table[self._id_field].to_pylist()
                    ids = self._ids.take_all(column, str(file), records)
                with placed(f"{file}: of the rows from {records} on"):
                    self._producer.send_table(piece.table, transaction_ids=ids)
                records += piece.table.num_rows
                size += piece.table.nbytes
                advance(piece.input_bytes, records)
        return records, size

    def _send_lines(self) -> tuple[int, int]:
        interactive = sys.stdin.isatty()
        reader = LineReader(self._columns, "<stdin>")
        names = [column.name for column in self._columns]
        records = size = number = 0
        if interactive:
            print("one JSON object a line; end with Ctrl-D", file=sys.stderr)
        while line := sys.stdin.buffer.readline():
            stop_if_refused(self._producer)
            number += 1
            if not line.strip():
                continue
            row = reader.read(line, number)
            if isinstance(row, Unfit):
                self._note(row, 1)
                if not (self._skip or interactive):
                    raise self._misfits.error(f"sent before it: {count(records, 'row')}")
                continue
            values = dict(zip(names, row, strict=True))
            transaction_id = None
            if self._id_field is not None:
                transaction_id = self._ids.take(values[self._id_field], f"<stdin>:{number}")
            with placed(f"<stdin>:{number}"):
                delivery = self._producer.send(values, transaction_id=transaction_id)
            records += 1
            size += len(line)
            if interactive:
                self._producer.flush()
                sent = delivery.result()
                print(f"partition {sent.partition} offset {sent.offset}", file=sys.stderr)
        return records, size

    def _note(self, misfits: tuple[str, ...], rows: int) -> None:
        """Count bad rows, and report the first ones at once if the input goes on after them."""
        for text in self._misfits.add(misfits, rows):
            if self._skip or sys.stdin.isatty():
                say(text)
