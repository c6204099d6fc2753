"""Consumers with names: ``runnel consumer``, and ``get``, ``describe`` and ``delete`` of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
import yaml

from runnel.cli import completion
from runnel.cli.arguments import OnlyPartitionsOption, ScOption
from runnel.cli.connection import connected
from runnel.cli.render import (
    Output,
    age,
    column_widths,
    count,
    format_row,
    print_document,
    print_rows,
)
from runnel.cli.times import parse_time
from schemas.errors import InvalidRequestError

if TYPE_CHECKING:
    from runnel.cli.jsonpath import Template
    from runnel.net.offsets import Start
    from runnel.positions.admin import NamedConsumer, PartitionProgress

#: Offsets have gaps: nobody can say exactly how many records are left.
_LAG: Final = "LAG AT MOST"
_HEADINGS: Final = ("NAME", "TOPIC", "STATE", "PARTITIONS", _LAG, "LAST COMMIT")
_PROGRESS: Final = ("COMMITTED", "EARLIEST", "END", _LAG, "LAST COMMIT")
#: How often ``-w`` looks at the consumers.
_LOOK_S: Final = 2.0

app = typer.Typer(help="Move named consumers to another offset.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def reset(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    topic: Annotated[
        str,
        typer.Option(metavar="TOPIC", autocompletion=completion.topics, show_default=False),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="earliest|latest|TIME|-1h",
            help="The first record, the end, or from a time on: ISO 8601, or -1h.",
            show_default=False,
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="The next offset to read.", show_default=False)
    ] = None,
    partition: OnlyPartitionsOption = None,
    sc: ScOption = None,
) -> None:
    """Move a consumer to another offset. A process that reads under its name is fenced."""
    wanted = _wanted(to, offset)
    with connected(sc) as cluster:
        done = cluster.reset_consumer(name, topic, wanted, partition)
    print_rows(
        ("PARTITION", "NEXT OFFSET"),
        [(f"{topic}-{index}", str(next_)) for index, next_ in done.offsets.items()],
    )
    if done.fenced is not None:
        print(f"opened by {done.fenced}, who is fenced at the next commit", file=sys.stderr)


def print_consumers(name: str | None, output: Output | Template, sc: str | None) -> None:
    """``get consumers [NAME]``."""
    with connected(sc) as cluster:
        found = cluster.consumers(name)
    if not isinstance(output, Output):
        print_document({"items": list(map(_json, found))}, output)
        return
    match output:
        case Output.JSON:
            print(json.dumps({"items": list(map(_json, found))}, indent=2))
        case Output.YAML:
            print(yaml.safe_dump({"items": list(map(_json, found))}, sort_keys=False), end="")
        case Output.NAME:
            for each in dict.fromkeys(consumer.name for consumer in found):
                print(f"consumers/{each}")
        case Output.TABLE | Output.WIDE if not found:
            print("no consumers found", file=sys.stderr)
        case Output.TABLE:
            print_rows(_HEADINGS, [_row(consumer) for consumer in found])
        case Output.WIDE:
            rows = [
                [consumer.name, consumer.topic, *_progress(p)]
                for consumer in found
                for p in consumer.partitions
            ]
            print_rows(["NAME", "TOPIC", "PARTITION", *_PROGRESS], rows)


def follow_consumers(name: str | None, output: Output | Template, sc: str | None) -> NoReturn:
    """``get consumers -w``: all consumers, then a line for each that has moved, until interrupted.

    Positions change with every record and there is no watch on them, so this polls.
    """
    if output is not Output.TABLE:
        raise InvalidRequestError("-w: consumers are printed as a table only")
    known: dict[tuple[str, str], list[str]] = {}
    widths: list[int] = []
    with connected(sc) as cluster:
        while True:
            rows = [_row(consumer) for consumer in cluster.consumers(name)]
            # The age of the last commit, in the last column, always changes.
            moved = [row for row in rows if known.get((row[0], row[1])) != row[:-1]]
            known = {(row[0], row[1]): row[:-1] for row in rows}
            if moved:
                lines = moved if widths else [list(_HEADINGS), *moved]
                found = column_widths(_HEADINGS, moved)
                widths = list(map(max, widths, found)) if widths else found
                for line in lines:
                    print(format_row(line, widths), flush=True)
            time.sleep(_LOOK_S)


def describe_consumer(name: str, sc: str | None) -> None:
    """``describe consumer NAME``."""
    with connected(sc) as cluster:
        found = cluster.consumers(name)
    for number, consumer in enumerate(found):
        if number:
            print()
        print(f"Name:         {consumer.name}")
        print(f"Topic:        {consumer.topic}{_gone(consumer)}")
        print(f"State:        {_state(consumer)}, by {consumer.by}")
        print(f"Since:        {_time(consumer.since)} ({_age(consumer.since)} ago)")
        if consumer.open:
            print("              (not closed since; whether it still runs is not known)")
        if (at := consumer.committed_at) is not None:
            print(f"Last commit:  {_time(at)} ({_age(at)} ago)")
        if consumer.lag is not None:
            print(f"Lag:          {count(consumer.lag, 'record')} at most")
        _print_partitions(consumer.partitions)


def delete_consumer(name: str, topic: str | None, sc: str | None) -> None:
    """``delete consumer NAME [--topic TOPIC]``."""
    with connected(sc) as cluster:
        topics = cluster.delete_consumer(name, topic)
    print(f"consumer/{name} deleted ({', '.join(topics)})")


def _wanted(to: str | None, offset: int | None) -> Start:
    if (to is None) == (offset is None):
        raise InvalidRequestError("give one of --to and --offset")
    if offset is not None:
        return offset
    match to:
        case "earliest" | "latest":
            return to
        case _:
            return parse_time(to or "", datetime.now(UTC), "--to")


def _progress(progress: PartitionProgress) -> list[str]:
    numbers = (progress.committed, progress.earliest, progress.end, progress.lag)
    shown = ["-" if number is None else str(number) for number in numbers]
    return [str(progress.partition), *shown, _age(progress.committed_at)]


def _print_partitions(partitions: Sequence[PartitionProgress]) -> None:
    if not partitions:
        return
    print("Partitions:")
    rows = []
    for progress in partitions:
        index, *rest = _progress(progress)
        rows.append([f"  {index}", *rest, _note(progress)])
    print_rows(["  ID", *_PROGRESS, "NOTE"], rows)


def _note(progress: PartitionProgress) -> str:
    if progress.committed is None or progress.earliest is None:
        return ""
    if progress.end is not None and progress.committed > progress.end:
        return f"above the end: {count(progress.committed - progress.end, 'offset')} lost"
    gone = progress.earliest - progress.committed
    return f"{count(gone, 'offset')} truncated before they were read" if gone > 0 else ""


def _row(consumer: NamedConsumer) -> list[str]:
    return [
        consumer.name,
        consumer.topic,
        "topic gone" if consumer.topic_gone else _state(consumer),
        str(len(consumer.partitions)),
        "-" if consumer.lag is None else str(consumer.lag),
        _age(consumer.committed_at),
    ]


def _json(consumer: NamedConsumer) -> dict[str, Any]:
    return {
        "name": consumer.name,
        "topic": consumer.topic,
        "topicGone": consumer.topic_gone,
        "state": _state(consumer),
        "by": consumer.by,
        "since": _time(consumer.since),
        "lagAtMost": consumer.lag,
        "lastCommit": _time(consumer.committed_at),
        "partitions": [
            {
                "partition": progress.partition,
                "committed": progress.committed,
                "earliest": progress.earliest,
                "end": progress.end,
                "lagAtMost": progress.lag,
                "lastCommit": _time(progress.committed_at),
            }
            for progress in consumer.partitions
        ],
    }


def _state(consumer: NamedConsumer) -> str:
    return "open" if consumer.open else "closed"


def _gone(consumer: NamedConsumer) -> str:
    return " (deleted; a new one of that name starts from scratch)" if consumer.topic_gone else ""


def _time(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="milliseconds")


def _age(when: datetime | None) -> str:
    return age(_time(when))
