"""``runnel produce``: standard input or a file into a topic."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

import runnel
from runnel.cli.arguments import ScOption, TopicArgument
from runnel.cli.context import connected
from runnel.cli.failure import say, stderr
from runnel.cli.inputs import KeyRule, read_chunks, split_line
from runnel.cli.readiness import say_what_is_awaited
from runnel.cli.tables import count
from runnel.producer import ProducerOptions
from schemas.errors import InvalidRequestError
from schemas.topic import Compression


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
        str | None, typer.Option(metavar="S", help="The key is what stands before S in a line.")
    ] = None,
    key_field: Annotated[
        str | None, typer.Option(metavar="F", help="The key is this field or column.")
    ] = None,
    acks: Annotated[AcksChoice, typer.Option(help="When a record counts.")] = AcksChoice.COMMITTED,
    compression: Annotated[
        Compression | None, typer.Option(help="Default: the topic's.", show_default=False)
    ] = None,
    linger_ms: Annotated[float, typer.Option(min=0, help="How long a batch waits.")] = 5.0,
    sc: ScOption = None,
) -> None:
    """Send records to a topic: one a line from standard input, or those of a file."""
    if key_separator is not None and key_field is not None:
        raise InvalidRequestError("give --key-separator or --key-field, not both")
    if key_separator == "":
        raise InvalidRequestError("--key-separator: cannot be empty")
    rule = KeyRule(key_separator.encode() if key_separator else None, key_field)
    options: ProducerOptions = {"acks": acks.value, "linger_ms": linger_ms}
    if compression is not None:
        options["compression"] = compression.value
    begin = time.monotonic()
    with connected(sc) as cluster:
        say_what_is_awaited(cluster, topic, committing=acks is AcksChoice.COMMITTED)
        producer = cluster.producer(topic, **options)
        try:
            with producer:
                if file is None:
                    records, size = _produce_lines(producer, rule)
                else:
                    records, size = _produce_file(producer, file, rule)
                producer.flush()
        except KeyboardInterrupt:
            # Counted after the producer had its last try to get everything out.
            done = producer.metrics.records_sent
            state = "sent" if acks is AcksChoice.NONE else "acknowledged"
            say(f"{count(done, 'record')} {state} before the interrupt")
            raise
    seconds = max(time.monotonic() - begin, 1e-6)
    print(
        f"produced {count(records, 'record')} to {topic} in {seconds:.2f} s"
        f" ({records / seconds:,.0f} records/s, {size / seconds / 1e6:,.1f} MB/s)"
    )


def _produce_lines(producer: runnel.Producer, rule: KeyRule) -> tuple[int, int]:
    """Send lines as they come; a terminal gets a prompt and an answer to each line."""
    interactive = sys.stdin.isatty()
    records = size = 0
    if interactive:
        print("one record a line; end with Ctrl-D", file=sys.stderr)
    while line := sys.stdin.buffer.readline():
        records += 1
        key, value = split_line(line.rstrip(b"\r\n"), rule, "<stdin>", records)
        size += len(value) + len(key or b"")
        delivery = producer.send(value, key)
        if interactive:
            producer.flush()
            sent = delivery.result()
            print(f"partition {sent.partition} offset {sent.offset}", file=sys.stderr)
    return records, size


def _produce_file(producer: runnel.Producer, file: Path, rule: KeyRule) -> tuple[int, int]:
    records = size = 0
    columns = (
        TextColumn(f"{file.name}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TransferSpeedColumn(),
        TextColumn("{task.fields[records]:,} records"),
        TimeElapsedColumn(),
    )
    total = file.stat().st_size if file.is_file() else None
    with Progress(*columns, console=stderr, transient=True) as progress:
        task = progress.add_task("produce", total=total, records=0)
        for chunk in read_chunks(file, rule):
            producer.send_table(chunk.table)
            records += chunk.table.num_rows
            size += chunk.table.nbytes
            progress.update(task, advance=chunk.input_bytes, records=records)
    return records, size
