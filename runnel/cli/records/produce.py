"""``runnel produce``: standard input or a file into a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import runnel
from runnel.cli.arguments import ScOption, StreamOption, TopicArgument
from runnel.cli.connection import connected
from runnel.cli.failure import say
from runnel.cli.readiness import say_what_is_awaited
from runnel.cli.records.escapes import ESCAPES, unescaped
from runnel.cli.records.inputs import KeyRule, kind_of, placed, read_chunks, splitter
from runnel.cli.records.produce_typed import TypedInput, progress_of
from runnel.cli.records.refusals import stop_if_refused
from runnel.cli.render import count
from runnel.local.signals import shielded
from runnel.produce.settings import ProducerOptions
from schemas.columns.topic_schema import TopicSchema, names
from schemas.errors import InvalidRequestError, RunnelError
from schemas.objects.topic import Compression, Topic


class AcksChoice(StrEnum):
    COMMITTED = "committed"
    LEADER = "leader"
    NONE = "none"


def produce(
    topic: TopicArgument,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Lines, or .ndjson .csv .parquet .arrow by suffix."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="S", help=f"The key is the text before S in a line. S may have {ESCAPES}."
        ),
    ] = None,
    key_field: Annotated[
        str | None, typer.Option(metavar="F", help="The key is this field or column.")
    ] = None,
    transaction_id_field: Annotated[
        str | None,
        typer.Option(metavar="F", help="The transaction id is this field or column; sort by it."),
    ] = None,
    acks: Annotated[
        AcksChoice, typer.Option(help="When a record counts as sent.")
    ] = AcksChoice.COMMITTED,
    compression: Annotated[
        Compression | None, typer.Option(help="Default: that of the topic.", show_default=False)
    ] = None,
    linger_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="MS",
            help="How long a batch waits for more. Default: up to 5, while others are in flight.",
            show_default=False,
        ),
    ] = None,
    null: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="CSV: cells with this text are null, besides empty ones; may be repeated.",
            show_default=False,
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool,
        typer.Option(
            "--skip-bad-rows", help="Typed topics: skip rows that do not fit, and send the others."
        ),
    ] = False,
    stream: StreamOption = False,
    sc: ScOption = None,
) -> None:
    """Send records to a topic or a stream: lines of standard input, or the rows of a file.

    A typed topic takes rows with its columns; a line is then a JSON object. A file with a row that
    does not fit is refused before any of its rows is sent.
    """
    if key_separator is not None and key_field is not None:
        raise InvalidRequestError("give --key-separator or --key-field, not both")
    if key_separator == "":
        raise InvalidRequestError("--key-separator: cannot be empty")
    if key_separator is not None and transaction_id_field is not None:
        raise InvalidRequestError(
            "--transaction-id-field needs rows with fields; give --key-field, not --key-separator"
        )
    separator = None if key_separator is None else unescaped(key_separator, "--key-separator")
    if separator is not None and b"\n" in separator:
        raise InvalidRequestError("--key-separator: a line has no newline in it")
    rule = KeyRule(separator, key_field, transaction_id_field)
    if null and (file is None or kind_of(file) != "csv"):
        raise InvalidRequestError("--null: is for CSV files (--file NAME.csv)")
    nulls = frozenset(null or ())
    options: ProducerOptions = {"acks": acks.value, "linger_ms": linger_ms}
    if compression is not None:
        options["compression"] = compression.value
    producer: runnel.Producer | None = None
    try:
        with connected(sc) as cluster:
            rows = None
            if stream or "/" in topic:
                producer = cluster.stream(topic).producer(**options)
            else:
                say_what_is_awaited(cluster, topic, committing=acks is AcksChoice.COMMITTED)
                producer = cluster.producer(topic, **options)
                rows = _schema(cluster, topic)
            begin = time.monotonic()
            with producer:
                if rows is not None:
                    _check_rule(rule, rows)
                    typed = TypedInput(producer, rows, skip_bad_rows, transaction_id_field, nulls)
                    records, size = typed.produce(file)
                elif file is None:
                    records, size = _produce_lines(producer, rule)
                else:
                    records, size = _produce_file(producer, file, rule, nulls)
                producer.flush()
    except (KeyboardInterrupt, RunnelError) as end:
        # A second signal must not take away the only account of what is stored.
        with shielded():
            _say_what_was_sent(producer, acks, end)
        raise
    seconds = max(time.monotonic() - begin, 1e-6)
    print(
        f"produced {count(records, 'record')} to {topic} in {seconds:.2f} s"
        f" ({records / seconds:,.0f} records/s, {size / seconds / 1e6:,.1f} MB/s)"
    )


def _say_what_was_sent(
    producer: runnel.Producer | None, acks: AcksChoice, end: KeyboardInterrupt | RunnelError
) -> None:
    """Say how many records are stored, after the producer's last attempt to send everything."""
    if producer is None and isinstance(end, RunnelError):
        # The error says why nothing was sent.
        return
    metrics = None if producer is None else producer.metrics
    done, failed = (0, 0) if metrics is None else (metrics.records_sent, metrics.records_failed)
    state = "sent" if acks is AcksChoice.NONE else "acknowledged"
    what = "error" if isinstance(end, RunnelError) else "interrupt"
    lost = f", {failed} not" if failed else ""
    say(f"{count(done, 'record')} {state} before the {what}{lost}")


def _schema(cluster: runnel.Cluster, topic: str) -> TopicSchema | None:
    found = cluster.get("topic", topic)
    return found.spec.row_schema if isinstance(found, Topic) else None


def _check_rule(rule: KeyRule, rows: TopicSchema) -> None:
    """Keys of a typed topic are where the topic has them. Raises InvalidRequestError."""
    if rule.separator is not None:
        raise InvalidRequestError("--key-separator: records of a typed topic are rows of columns")
    if rule.field is not None and rule.field != rows.key_column:
        has = f"is in its column {rows.key_column}" if rows.key_column else "is not declared"
        raise InvalidRequestError(f"--key-field: the key of a typed topic {has} (spec.keyColumn)")
    if rule.id_field is not None and rule.id_field not in [one.name for one in rows.columns]:
        raise InvalidRequestError(
            f"--transaction-id-field: the topic has no column {rule.id_field}; there are"
            f" {names(rows.columns)}"
        )


def _produce_lines(producer: runnel.Producer, rule: KeyRule) -> tuple[int, int]:
    """Send lines as they come; a terminal gets a prompt and an answer to each line."""
    interactive = sys.stdin.isatty()
    records = size = 0
    if interactive:
        print("one record a line; end with Ctrl-D", file=sys.stderr)
    split = splitter(rule, "<stdin>")
    while line := sys.stdin.buffer.readline():
        stop_if_refused(producer)
        records += 1
        key, value, transaction_id = split(line.rstrip(b"\r\n"), records)
        size += len(value) + len(key or b"")
        with placed(f"<stdin>:{records}"):
            delivery = producer.send(value, key, transaction_id=transaction_id)
        if interactive:
            producer.flush()
            sent = delivery.result()
            print(f"partition {sent.partition} offset {sent.offset}", file=sys.stderr)
    return records, size


def _produce_file(
    producer: runnel.Producer, file: Path, rule: KeyRule, nulls: Collection[str]
) -> tuple[int, int]:
    records = size = 0
    with progress_of(file) as advance:
        for chunk in read_chunks(file, rule, nulls):
            stop_if_refused(producer)
            with placed(f"{file}: of the rows from {records} on"):
                producer.send_table(chunk.table, transaction_ids=chunk.transaction_ids)
            records += chunk.table.num_rows
            size += chunk.table.nbytes
            advance(chunk.input_bytes, records)
    return records, size
