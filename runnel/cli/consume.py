"""``runnel consume``: records of a topic to standard output."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import pyarrow as pa
import typer

import runnel
from runnel.cli.arguments import ScOption, TopicArgument
from runnel.cli.context import connected
from runnel.cli.readiness import say_what_is_awaited
from runnel.consumer import Start
from schemas.errors import InvalidRequestError
from schemas.quantities import parse_duration_ms


class RecordOutput(StrEnum):
    VALUE = "value"
    JSON = "json"
    TABLE = "table"


def consume(
    topic: TopicArgument,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", "-B")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="The last N records.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="From this offset on.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME|-1h", help="From a time on: ISO 8601, or ago.")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", min=0, help="Stop after N.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more, or end with what is there.")
    ] = True,
    key_separator: Annotated[
        str | None, typer.Option(metavar="S", help="With -o value: print key, S, value.")
    ] = None,
    output: Annotated[RecordOutput, typer.Option("-o", "--output")] = RecordOutput.VALUE,
    sc: ScOption = None,
) -> None:
    """Print records of a topic. Starts at its end and follows, unless told otherwise."""
    chosen = [from_beginning, tail is not None, offset is not None, at is not None]
    if sum(chosen) > 1:
        raise InvalidRequestError("give one of --from-beginning, --tail, --offset and --at")
    partitions = None if partition is None else [partition]
    write = _Writer(output, topic, key_separator)
    with connected(sc) as cluster:
        say_what_is_awaited(cluster, topic, committing=True, wanted=partitions)
        if tail is not None:
            batches = _tail(cluster, topic, tail, partitions, follow)
        else:
            start = _start(from_beginning, offset, at)
            batches = _batches(cluster, topic, start, partitions, follow)
        try:
            left = count
            for batch in batches:
                part = batch if left is None else batch.slice(0, left)
                write(part)
                if left is not None:
                    left -= part.num_rows
                    if left <= 0:
                        break
        except KeyboardInterrupt:
            # Following has no other end than this one.
            if not follow:
                raise


def _start(from_beginning: bool, offset: int | None, at: str | None) -> Start:
    if from_beginning:
        return "earliest"
    if offset is not None:
        return offset
    return parse_time(at, datetime.now(UTC)) if at is not None else "latest"


def parse_time(text: str, now: datetime) -> datetime:
    """A time in ISO 8601 (UTC unless it says otherwise), or ``-1h`` for an hour before ``now``.

    Raises InvalidRequestError.
    """
    if re.match(r"^-\d", text):
        try:
            return now - timedelta(milliseconds=parse_duration_ms(text[1:]))
        except ValueError as error:
            raise InvalidRequestError(f"--at: {error}") from error
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"--at: {text!r} is no time; write 2026-01-31T12:00:00, or -1h for an hour ago"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _batches(
    cluster: runnel.Cluster,
    topic: str,
    start: Start,
    partitions: Iterable[int] | None,
    follow: bool,
) -> Iterator[pa.RecordBatch]:
    stop = None if follow else "latest"
    with cluster.consumer(topic, start, stop, partitions) as consumer:  # type: ignore[arg-type]
        yield from consumer.batches()


def _tail(
    cluster: runnel.Cluster,
    topic: str,
    wanted: int,
    partitions: list[int] | None,
    follow: bool,
) -> Iterator[pa.RecordBatch]:
    """The last records by time, then what follows.

    Offsets have gaps: it reaches further back until that is enough.
    """
    bounds = cluster.offsets(topic, partitions)
    end = {p: found.latest for p, found in bounds.items()}
    reach = wanted
    while True:
        start = {p: max(f.earliest, f.latest - reach) for p, f in bounds.items()}
        with cluster.consumer(topic, start, end, list(bounds)) as consumer:
            found = list(consumer.batches())
        records = sum(batch.num_rows for batch in found)
        if records >= wanted or all(start[p] == bounds[p].earliest for p in bounds):
            break
        reach *= 2
    if found:
        table = pa.Table.from_batches(found).sort_by(
            [("timestamp", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
        )
        yield from table.slice(max(0, table.num_rows - wanted)).to_batches()
    if follow:
        with cluster.consumer(topic, end, None, list(bounds)) as consumer:
            yield from consumer.batches()


class _Writer:
    """Prints batches; flushes after each, so that a pipe sees records as they come."""

    def __init__(self, output: RecordOutput, topic: str, key_separator: str | None) -> None:
        self._output = output
        self._topic = topic
        self._separator = key_separator.encode() if key_separator is not None else None
        self._header_printed = False

    def __call__(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        match self._output:
            case RecordOutput.VALUE:
                data = self._values(batch)
            case RecordOutput.JSON:
                data = "".join(
                    json.dumps(record_json(self._topic, row), ensure_ascii=False) + "\n"
                    for row in batch.to_pylist()
                ).encode()
            case RecordOutput.TABLE:
                data = self._table(batch).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def _values(self, batch: pa.RecordBatch) -> bytes:
        values = batch.column("value").to_pylist()
        if self._separator is None:
            return b"".join((value or b"") + b"\n" for value in values)
        keys = batch.column("key").to_pylist()
        separator = self._separator
        return b"".join(
            (key or b"") + separator + (value or b"") + b"\n"
            for key, value in zip(keys, values, strict=True)
        )

    def _table(self, batch: pa.RecordBatch) -> str:
        lines = []
        if not self._header_printed:
            lines.append(f"{'PARTITION':>9} {'OFFSET':>10}  {'TIMESTAMP':26}  {'KEY':20}  VALUE")
            self._header_printed = True
        for row in batch.to_pylist():
            when = row["timestamp"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            key, value = shown(row["key"]), shown(row["value"])
            lines.append(f"{row['partition']:>9} {row['offset']:>10}  {when:26}  {key:20}  {value}")
        return "\n".join(lines) + "\n"


def shown(data: bytes | None) -> str:
    """Bytes for a line of a table: nothing in them moves the cursor or begins a new line."""
    if data is None:
        return "-"
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def record_json(topic: str, row: dict[str, Any]) -> dict[str, Any]:
    """One record as JSON. Bytes that are not UTF-8 come in base64, under ``valueBase64``.

    Headers stay a list: their order counts, and a key may stand there twice.
    """
    found: dict[str, Any] = {
        "topic": topic,
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": row["timestamp"].astimezone(UTC).isoformat(timespec="microseconds"),
    }
    for name in ("key", "value"):
        found |= _bytes_json(name, row[name])
    if row["headers"]:
        found["headers"] = [
            {"key": h["key"], **_bytes_json("value", h["value"])} for h in row["headers"]
        ]
    return found


def _bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: data.decode() if data is not None else None}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data or b"").decode()}
