"""``runnel consume``: records of a topic or a stream to standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Final

import pyarrow as pa
import typer

import runnel
from runnel.cli.arguments import OnlyPartitionsOption, ScOption, StreamOption, TopicArgument
from runnel.cli.connection import connected
from runnel.cli.readiness import say_what_is_awaited
from runnel.cli.records.consume_group import check_options, consume_in_group
from runnel.cli.records.consume_stream import (
    places,
    print_stream,
    refuse_options,
    stream_consumer,
)
from runnel.cli.records.escapes import ESCAPES, unescaped
from runnel.cli.records.output import RecordOutput, RecordWriter, print_bytes
from runnel.cli.records.record_format import DETAILS, VERBS, RecordFormat
from runnel.cli.times import parse_time
from runnel.consume.settings import ConsumerSettings
from runnel.local.signals import shielded
from runnel.net.offsets import Start, Stop, TransactionId
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.quantities import parse_duration_ms
from schemas.objects.topic import Topic
from schemas.wire.payload import TRANSACTION_ID

#: With a name, so many records are printed between two chances to commit.
_MAX_RECORDS: Final = 1000


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
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|-1h",
            help="Stop before the first record of this time or a later one, and at the end, as"
            " --no-follow does.",
        ),
    ] = None,
    from_cut: Annotated[
        str | None,
        typer.Option(
            metavar="CUT|@FILE", help="Of a stream: from this place on.", show_default=False
        ),
    ] = None,
    until_cut: Annotated[
        str | None,
        typer.Option(
            metavar="CUT|@FILE", help="Of a stream: stop before this place.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="5s", help="Stop when no record has come for this long."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", min=0, help="Stop after N records.")
    ] = None,
    partition: OnlyPartitionsOption = None,
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
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Share the records with the other readers of this group, which is made if there is"
            " none and begins at the beginning.",
            show_default=False,
        ),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --group: the name of this reader; by default, a new one.",
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
        typer.Option(
            metavar="S",
            help=f"With -o value: print the key and S before the value. S may have {ESCAPES}.",
        ),
    ] = None,
    record_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Print records by verbs, without a newline of its own: "
            + "; ".join(f"{verb} {meaning}" for verb, meaning in VERBS.items())
            + f". Also {DETAILS}. Text may have {ESCAPES}.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        RecordOutput, typer.Option("-o", "--output", help="How to print.")
    ] = RecordOutput.VALUE,
    stream: StreamOption = False,
    sc: ScOption = None,
) -> None:
    """Print records of a topic or a stream. Starts at the end and waits for new records by default.

    With --name it continues where that consumer was; any other reader of that name is fenced and
    exits with 4. With --group it gets a part of the records, and others get the rest.
    """
    starts = (tail, offset, at, transaction_id, from_cut)
    if sum([from_beginning, *(one is not None for one in starts)]) > 1:
        raise InvalidRequestError(
            "give one of --from-beginning, --tail, --offset, --at, --transaction-id and --from-cut"
        )
    if name is not None and tail is not None:
        raise InvalidRequestError("--tail: not with --name, which continues where it was")
    separator = None if key_separator is None else unescaped(key_separator, "--key-separator")
    if record_format is not None and not (output is RecordOutput.VALUE and separator is None):
        raise InvalidRequestError("give --format, or -o and --key-separator, not both")
    chosen = None if record_format is None else RecordFormat(record_format)
    now = datetime.now(UTC)
    follow = follow and until is None
    end: Stop = None if follow else "latest" if until is None else parse_time(until, now, "--until")
    timeout_s = _seconds(timeout) if timeout is not None else None
    partitions = partition or None
    reading = False
    check_options(
        reader,
        group,
        {
            "--from-beginning": from_beginning,
            "--tail": tail is not None,
            "--offset": offset is not None,
            "--at": at is not None,
            "--transaction-id": transaction_id is not None,
            "--until": until is not None,
            "--from-cut": from_cut is not None,
            "--until-cut": until_cut is not None,
            "--partition": partitions is not None,
            "--name": name is not None,
            "--no-follow": not follow,
        },
    )
    if group is not None:
        consume_in_group(
            sc,
            group,
            reader,
            topic,
            is_stream=stream or "/" in topic,
            timeout_s=timeout_s,
            settings=ConsumerSettings(on_truncated=on_truncated.value),
            printer=lambda cluster: _printer(
                output,
                topic,
                separator,
                chosen,
                None if stream or "/" in topic else _schema(cluster, topic),
            ),
            count=count,
        )
        return
    if stream or "/" in topic:
        refuse_options(
            {
                "--tail": tail is not None,
                "--offset": offset is not None,
                "--at": at is not None,
                "--transaction-id": transaction_id is not None,
                "--until": until is not None,
                "--partition": partitions is not None,
                "--name": name is not None,
            }
        )
        printed_as = _printer(output, topic, separator, chosen, None)
        begin, stop = places(from_cut, until_cut, from_beginning=from_beginning, follow=follow)
        try:
            with stream_consumer(
                sc,
                topic,
                start=begin,
                stop=stop,
                timeout_s=timeout_s,
                settings=ConsumerSettings(on_truncated=on_truncated.value),
            ) as stream_reader:
                reading = True
                print_stream(stream_reader, printed_as, count)
        except KeyboardInterrupt:
            # Only Ctrl-C ends a consumer that follows.
            if not (follow and reading):
                raise
        return
    if from_cut is not None or until_cut is not None:
        raise InvalidRequestError(
            "--from-cut, --until-cut: for a stream; name one as SCOPE/NAME, or add --stream. Of a"
            " topic, give --offset, --at or --until"
        )
    try:
        with connected(sc) as cluster:
            say_what_is_awaited(cluster, topic, committing=True, wanted=partitions)
            rows = _schema(cluster, topic)
            with_ids = output is RecordOutput.JSON and not _has_column(rows, TRANSACTION_ID.name)
            settings = ConsumerSettings(on_truncated=on_truncated.value, transaction_ids=with_ids)
            write: Callable[[pa.RecordBatch], None] = RecordWriter(
                output, topic, separator, typed=rows is not None, with_ids=with_ids
            )
            if chosen is not None:
                write = partial(_print_formatted, chosen, topic, rows)
            reading = True
            if tail is not None:
                last = _tail(cluster, topic, tail, partitions, end, timeout_s, settings)
                _write(last, write, count)
                return
            start = _start(from_beginning, offset, at, transaction_id, now)
            opened = cluster.consumer(
                topic, start, end, partitions, name=name, timeout=timeout_s, settings=settings
            )
            with _committing(opened) as consumer:
                batches = consumer.batches(max_records=_MAX_RECORDS if name is not None else None)
                if (printed := _write(batches, write, count)) and name is not None:
                    # The consumer has handed out more records than were printed.
                    consumer.commit({**consumer.position(), **printed})
                    consumer.close(commit=False)
    except KeyboardInterrupt:
        # Only Ctrl-C ends a consumer that follows. The cluster has seen it too: a consumer whose
        # end was interrupted commits nothing that was not printed.
        if not (follow and reading):
            raise


@contextmanager
def _committing(consumer: runnel.Consumer) -> Iterator[runnel.Consumer]:
    """Leave the consumer at the end, and say so if it could not commit.

    A signal or a closed pipe would end the command with success. The consumer's last commit is
    bounded to seconds then, and a second signal, as `timeout` sends it, does not cut it short.
    """
    try:
        yield consumer
    except BaseException as error:
        with shielded():
            consumer.__exit__(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt | BrokenPipeError) and (
            notes := getattr(error, "__notes__", [])
        ):
            raise RunnelError("; ".join(notes)) from error
        raise
    try:
        consumer.close()
    except KeyboardInterrupt:
        raise typer.Abort from None


def _printer(
    output: RecordOutput,
    topic: str,
    separator: bytes | None,
    chosen: RecordFormat | None,
    rows: TopicSchema | None,
) -> Callable[[pa.RecordBatch], None]:
    if chosen is not None:
        return partial(_print_formatted, chosen, topic, rows)
    return RecordWriter(output, topic, separator, typed=rows is not None)


def _print_formatted(
    chosen: RecordFormat, topic: str, rows: TopicSchema | None, batch: pa.RecordBatch
) -> None:
    print_bytes(chosen.render(topic, batch, rows))


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
    from_beginning: bool,
    offset: int | None,
    at: str | None,
    transaction_id: int | None,
    now: datetime,
) -> Start | None:
    if from_beginning:
        return "earliest"
    if offset is not None:
        return offset
    if transaction_id is not None:
        return TransactionId(transaction_id)
    return parse_time(at, now) if at is not None else None


def _seconds(text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"--timeout: {error}") from error


def _tail(
    cluster: runnel.Cluster,
    topic: str,
    wanted: int,
    partitions: list[int] | None,
    end: Stop,
    timeout_s: float | None,
    settings: ConsumerSettings,
) -> Iterator[pa.RecordBatch]:
    """The last records by time, then what follows if there is no ``end``."""
    now = {p: found.latest for p, found in cluster.offsets(topic, partitions).items()}
    with cluster.consumer(
        topic, stop=now if end is None else end, partitions=now, tail=wanted, settings=settings
    ) as consumer:
        found = list(consumer.batches())
    if found:
        yield from (
            pa.Table.from_batches(found)
            .sort_by(
                [("timestamp", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
            )
            .to_batches()
        )
    if end is None:
        with cluster.consumer(
            topic, now, None, partitions, timeout=timeout_s, settings=settings
        ) as consumer:
            yield from consumer.batches()
