"""``runnel consume``: records of a topic to standard output."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Final

import pyarrow as pa
import typer

import runnel
from runnel.cli.arguments import ScOption, TopicArgument
from runnel.cli.context import connected
from runnel.cli.readiness import say_what_is_awaited
from runnel.consume.settings import ConsumerSettings
from runnel.net.offsets import Start, Stop, TransactionId
from schemas.columns.topic_schema import READER_COLUMNS, TopicSchema
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.objects.quantities import parse_duration_ms
from schemas.objects.topic import Topic
from schemas.wire.batch import TRANSACTION_ID

#: Of columns in a table, by their Arrow types.
_WIDTHS: Final = {"bool": 5, "int8": 4, "int16": 6, "uint8": 3, "uint16": 5, "date32[day]": 10}
_USUAL_WIDTH: Final = 16


class RecordOutput(StrEnum):
    VALUE = "value"
    JSON = "json"
    TABLE = "table"


class OnTruncatedChoice(StrEnum):
    ERROR = "error"
    EARLIEST = "earliest"


def consume(
    topic: TopicArgument,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", "-B")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="The last N records.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="From this offset on.")] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME|-1h", help="From a time on: ISO 8601, or -1h for an hour ago."),
    ] = None,
    transaction_id: Annotated[
        int | None,
        typer.Option(min=0, help="From the first record with this transaction id or a larger one."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", min=0, help="Stop after N records.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new records, or stop at the end.")
    ] = True,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Continue at the position that this consumer has committed (the first time at the"
            " beginning, unless another option sets the start), and commit what is printed.",
            show_default=False,
        ),
    ] = None,
    on_truncated: Annotated[
        OnTruncatedChoice,
        typer.Option(
            help="If the next records are gone: fail, or continue with the first that exist."
        ),
    ] = OnTruncatedChoice.ERROR,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="S", help="With -o value: print the key and S before the value."),
    ] = None,
    output: Annotated[RecordOutput, typer.Option("-o", "--output")] = RecordOutput.VALUE,
    sc: ScOption = None,
) -> None:
    """Print records of a topic. Starts at the end and waits for new records by default.

    With --name it continues where that consumer was; any other reader of that name is fenced and
    exits with 4.
    """
    places = (tail, offset, at, transaction_id)
    if sum([from_beginning, *(place is not None for place in places)]) > 1:
        raise InvalidRequestError(
            "give one of --from-beginning, --tail, --offset, --at and --transaction-id"
        )
    if name is not None and tail is not None:
        raise InvalidRequestError("--tail: not with --name, which continues where it was")
    partitions = None if partition is None else [partition]
    with connected(sc) as cluster:
        say_what_is_awaited(cluster, topic, committing=True, wanted=partitions)
        rows = _schema(cluster, topic)
        with_ids = output is RecordOutput.JSON and not _has_column(rows, TRANSACTION_ID.name)
        settings = ConsumerSettings(on_truncated=on_truncated.value, transaction_ids=with_ids)
        write = _Writer(output, topic, key_separator, typed=rows is not None, with_ids=with_ids)
        try:
            if tail is not None:
                _write(_tail(cluster, topic, tail, partitions, follow, settings), write, count)
                return
            start = _start(from_beginning, offset, at, transaction_id)
            stop: Stop = None if follow else "latest"
            with cluster.consumer(
                topic, start, stop, partitions, name=name, settings=settings
            ) as consumer:
                if (last := _write(consumer.batches(), write, count)) and name is not None:
                    # The consumer has handed out more records than were printed.
                    consumer.commit({**consumer.position(), **last})
                    consumer.close(commit=False)
        except KeyboardInterrupt:
            # Only Ctrl-C ends a consumer that follows.
            if not follow:
                raise


def _write(
    batches: Iterator[pa.RecordBatch], write: Callable[[pa.RecordBatch], None], count: int | None
) -> dict[int, int]:
    """Print batches until ``count`` records are printed. If that is in the middle of a batch, gives
    its partition and the partition's next offset.
    """
    if count == 0:
        return {}
    left = count
    for batch in batches:
        part = batch if left is None else batch.slice(0, left)
        write(part)
        if left is not None:
            left -= part.num_rows
            if left <= 0:
                if part.num_rows == batch.num_rows:
                    break
                partition, following = (part.column(n)[-1].as_py() for n in ("partition", "offset"))
                return {partition: following + 1}
    return {}


def _schema(cluster: runnel.Cluster, topic: str) -> TopicSchema | None:
    try:
        found = cluster.get("topic", topic)
    except NotFoundError:
        # Opening the topic reports that, and how to create it.
        return None
    return found.spec.row_schema if isinstance(found, Topic) else None


def _has_column(rows: TopicSchema | None, name: str) -> bool:
    return rows is not None and any(column.name == name for column in rows.columns)


def _start(
    from_beginning: bool, offset: int | None, at: str | None, transaction_id: int | None
) -> Start | None:
    if from_beginning:
        return "earliest"
    if offset is not None:
        return offset
    if transaction_id is not None:
        return TransactionId(transaction_id)
    return parse_time(at, datetime.now(UTC)) if at is not None else None


def parse_time(text: str, now: datetime, option: str = "--at") -> datetime:
    """A time in ISO 8601 (UTC unless it says otherwise), or ``-1h`` for an hour before ``now``.

    Raises InvalidRequestError that names the option.
    """
    if re.match(r"^-\d", text):
        try:
            return now - timedelta(milliseconds=parse_duration_ms(text[1:]))
        except ValueError as error:
            raise InvalidRequestError(f"{option}: {error}") from error
        except OverflowError:
            raise InvalidRequestError(
                f"{option}: {text!r} is before the year 1; write -1h for an hour ago"
            ) from None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"{option}: {text!r} is not a time; write 2026-01-31T12:00:00, or -1h for an hour ago"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _tail(
    cluster: runnel.Cluster,
    topic: str,
    wanted: int,
    partitions: list[int] | None,
    follow: bool,
    settings: ConsumerSettings,
) -> Iterator[pa.RecordBatch]:
    """The last records by time, then what follows.

    Offsets have gaps: it reaches further back until that is enough.
    """
    bounds = cluster.offsets(topic, partitions)
    end = {p: found.latest for p, found in bounds.items()}
    reach = wanted
    while True:
        start = {p: max(f.earliest, f.latest - reach) for p, f in bounds.items()}
        with cluster.consumer(topic, start, end, list(bounds), settings=settings) as consumer:
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
        with cluster.consumer(topic, end, None, list(bounds), settings=settings) as consumer:
            yield from consumer.batches()


class _Writer:
    """Prints batches; flushes after each, so that a pipe sees records as they come."""

    def __init__(
        self,
        output: RecordOutput,
        topic: str,
        key_separator: str | None,
        *,
        typed: bool = False,
        with_ids: bool = False,
    ) -> None:
        if typed and key_separator is not None:
            raise InvalidRequestError("--key-separator: records of a typed topic are JSON objects")
        self._typed = typed
        self._with_ids = with_ids
        self._output = output
        self._topic = topic
        self._separator = key_separator.encode() if key_separator is not None else None
        self._header_printed = False

    def __call__(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        match self._output:
            case RecordOutput.VALUE if self._typed:
                data = "".join(f"{_json(row)}\n" for row in rows_json(batch)).encode()
            case RecordOutput.JSON if self._typed:
                data = "".join(
                    json.dumps(record, ensure_ascii=False) + "\n"
                    for record in typed_json(self._topic, batch, with_ids=self._with_ids)
                ).encode()
            case RecordOutput.TABLE if self._typed:
                data = self._typed_table(batch).encode()
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

    def _typed_table(self, batch: pa.RecordBatch) -> str:
        """Widths follow the columns' names and types: they are the same for every batch."""
        fields = list(batch.schema)[len(READER_COLUMNS) :]
        widths = [max(len(f.name), _WIDTHS.get(str(f.type), _USUAL_WIDTH)) for f in fields]
        place = "{:>9} {:>10}  {:26}  "
        lines = []
        if not self._header_printed:
            columns = "  ".join(f"{f.name:{w}}" for f, w in zip(fields, widths, strict=True))
            lines.append(place.format("PARTITION", "OFFSET", "TIMESTAMP") + columns.rstrip())
            self._header_printed = True
        for row, values in zip(_places(batch), rows_json(batch), strict=True):
            when = row["timestamp"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            cells = (
                f"{_cell(value):{width}}"
                for value, width in zip(values.values(), widths, strict=True)
            )
            line = place.format(row["partition"], row["offset"], when) + "  ".join(cells)
            lines.append(line.rstrip())
        return "\n".join(lines) + "\n"


def _places(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batch.select(READER_COLUMNS).to_pylist()
    return found


def rows_json(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The columns of typed records in JSON, in the form that ``runnel produce`` takes.

    Decimals are text, for their digits; so are dates and times, and binary in base64.
    """
    rows = batch.select(range(len(READER_COLUMNS), batch.num_columns))
    return [
        {name: value_json(value) for name, value in row.items()}
        for row in rows.to_pylist(maps_as_pydicts="strict")
    ]


def typed_json(
    topic: str, batch: pa.RecordBatch, *, with_ids: bool = False
) -> Iterator[dict[str, Any]]:
    """Typed records as JSON: their place, and their columns under ``value``.

    ``with_ids``: the last column holds transaction ids.
    """
    ids: list[int | None] = [None] * batch.num_rows
    if with_ids:
        width = batch.num_columns - 1
        ids, batch = batch.column(width).to_pylist(), batch.select(range(width))
    for place, row, transaction_id in zip(_places(batch), rows_json(batch), ids, strict=True):
        yield {
            "topic": topic,
            "partition": place["partition"],
            "offset": place["offset"],
            "timestamp": place["timestamp"].astimezone(UTC).isoformat(timespec="microseconds"),
            **({} if transaction_id is None else {"transactionId": transaction_id}),
            "value": row,
        }


def value_json(value: Any) -> Any:
    """One value of a column for JSON; a value that JSON cannot express becomes text."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [value_json(item) for item in value]
        case dict():
            return {name: value_json(part) for name, part in value.items()}
        case _:
            return value


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _cell(value: Any) -> str:
    """A value for a line of a table."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else _json(value)
    return shown(text.encode())


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
    if row.get(TRANSACTION_ID.name) is not None:
        found["transactionId"] = row[TRANSACTION_ID.name]
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
