"""``runnel group``: make, show, move and delete reader groups."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from runnel.cli import completion
from runnel.cli.arguments import ScOption, TimeoutOption, parse_timeout
from runnel.cli.connection import connected
from runnel.cli.render import age, print_rows
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import parse_duration_ms, readable_size

if TYPE_CHECKING:
    from datetime import datetime

    from runnel.groups.cut import GroupCut
    from runnel.groups.group import GroupInfo
    from runnel.groups.sources import GroupStart

#: Offsets have gaps: nobody can say exactly how many records are left.
_LAG: Final = "LAG AT MOST"
app = typer.Typer(
    help="Groups of readers that share the records of streams and topics.", no_args_is_help=True
)

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Its name.", show_default=False)
]


class GroupOutput(StrEnum):
    TABLE = "table"
    JSON = "json"


class Place(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


class Retention(StrEnum):
    NONE = "none"
    MANUAL = "manual"
    AUTOMATIC = "automatic"


OutputOption = Annotated[GroupOutput, typer.Option("-o", "--output", help="How to print.")]


@app.command()
def create(
    group: GroupArgument,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="A topic to read; may be repeated.",
            autocompletion=completion.topics,
            show_default=False,
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STREAM",
            help="A stream to read; may be repeated.",
            autocompletion=completion.streams,
            show_default=False,
        ),
    ] = None,
    start: Annotated[Place, typer.Option("--from", help="Where it begins.")] = Place.EARLIEST,
    lease: Annotated[
        str,
        typer.Option(
            metavar="15s", help="A reader that shows no life for so long loses its segments."
        ),
    ] = "15s",
    checkpoint_every: Annotated[
        str,
        typer.Option(
            metavar="30s", help="How often it notes a place of all readers; 0s for never."
        ),
    ] = "30s",
    retention: Annotated[
        Retention,
        typer.Option(
            help="Whether its streams keep what it has not read: manual, up to what"
            " `runnel group publish` said last; automatic, up to its last checkpoint."
        ),
    ] = Retention.NONE,
    end: Annotated[
        str | None,
        typer.Option(
            metavar="CUT|@FILE",
            help="Where it ends: a place that `runnel group checkpoint` printed, of this group or"
            " another one of the same sources. By default, it goes on for ever.",
            show_default=False,
        ),
    ] = None,
    sc: ScOption = None,
) -> None:
    """Make a reader group.

    `runnel consume TOPIC --group GROUP` makes one, too, when there is none.
    """
    if not topic and not stream:
        raise InvalidRequestError("give at least one --topic or --stream")
    lease_s, every_s = _seconds("--lease", lease), _seconds("--checkpoint-every", checkpoint_every)
    with connected(sc) as cluster:
        cluster.reader_group(
            group,
            streams=stream or (),
            topics=topic or (),
            start=start.value,
            lease=lease_s,
            checkpoint_every=every_s or None,
            retention=retention.value,
            end=None if end is None else _cut("--end", end),
        )
    print(f"group {group} is there")


@app.command(name="list")
def list_(output: OutputOption = GroupOutput.TABLE, sc: ScOption = None) -> None:
    """Print all reader groups."""
    with connected(sc) as cluster:
        found = cluster.reader_groups()
    if output is GroupOutput.JSON:
        print(json.dumps({"items": list(map(_json, found))}, indent=2))
    elif not found:
        print("no reader groups found", file=sys.stderr)
    else:
        print_rows(
            ("NAME", "SOURCES", "READERS", "SEGMENTS", "FREE", "LAST CHECKPOINT"),
            [
                (
                    one.name,
                    ",".join(one.sources),
                    str(len(one.readers)),
                    str(len(one.segments)),
                    str(sum(each.reader is None for each in one.segments)),
                    _age(one.last_checkpoint),
                )
                for one in found
            ],
        )


@app.command()
def describe(
    group: GroupArgument, output: OutputOption = GroupOutput.TABLE, sc: ScOption = None
) -> None:
    """Show a reader group: its readers, who reads what, and how far behind it is."""
    with connected(sc) as cluster:
        found = cluster.reader_group(group).describe()
    if output is GroupOutput.JSON:
        print(json.dumps(_json(found), indent=2))
        return
    print(f"Name:             {found.name}")
    print(f"Sources:          {', '.join(found.sources)}")
    if found.gone:
        anew = f"delete the group and make it again: runnel group delete {found.name}"
        print(
            f"Gone:             {', '.join(found.gone)} (deleted, or created again since); {anew}"
        )
    print(f"Lease:            {found.lease_s:g} s")
    every = f" (every {found.checkpoint_every_s:g} s)" if found.checkpoint_every_s else ""
    print(f"Last checkpoint:  {_age(found.last_checkpoint)}{every}")
    for waiting in found.checkpoints:
        print(f"                  one waits for {', '.join(waiting)}")
    if found.retention != "none":
        print(f"Retention:        {found.retention}")
        for source in found.sources:
            if "/" in source:
                print(f"Published:        {_published(found, source)}")
    if found.end is not None:
        print(f"End:              {found.end}")
    lag = "not known" if found.lag is None else f"{found.lag:,} records at most"
    if found.unread_bytes is not None:
        lag += f", about {readable_size(found.unread_bytes)}"
    print(f"Lag:              {lag}")
    print()
    if found.readers:
        print_rows(
            ("READER", "SEGMENTS", "SINCE", "PROCESS"),
            [(one.name, str(one.segments), _age(one.since), one.by) for one in found.readers],
        )
    else:
        print("No readers: start one with `runnel consume SOURCE --group " + f"{found.name}`")
    print()
    print_rows(
        ("SOURCE", "SEGMENT", "READER", "POSITION", "END", _LAG, "UNREAD ABOUT"),
        [
            (
                one.source,
                one.segment,
                one.reader or "-",
                str(one.position),
                "?" if one.end is None else str(one.end),
                "?" if one.lag is None else str(one.lag),
                "?" if one.unread_bytes is None else readable_size(one.unread_bytes),
            )
            for one in found.segments
        ],
    )
    if found.waiting:
        print(f"\nwaiting for earlier segments: {', '.join(found.waiting)}")


@app.command()
def checkpoint(group: GroupArgument, timeout: TimeoutOption = "60s", sc: ScOption = None) -> None:
    """Print a place of the whole group, once all its readers have passed it.

    Everything that they printed before it lies before it, and nothing else. A group without readers
    is where it is. `runnel group reset --to` takes it.
    """
    seconds = parse_timeout(timeout)
    with connected(sc) as cluster:
        print(cluster.reader_group(group).checkpoint(timeout=seconds))


@app.command()
def reset(
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|checkpoint|CUT|@FILE",
            help="The beginning of its sources, their end, the last checkpoint, or one that"
            " `runnel group checkpoint` printed.",
            show_default=False,
        ),
    ],
    sc: ScOption = None,
) -> None:
    """Have a group go on from another place. Readers that are open follow by themselves."""
    with connected(sc) as cluster:
        found = cluster.reader_group(group)
        place: GroupStart
        match to:
            case "earliest":
                place = "earliest"
            case "latest":
                place = "latest"
            case "checkpoint":
                place = found.last_checkpoint()
            case _:
                place = _cut("--to", to)
        found.reset(place)
    print(f"group {group} reset to {'the place given' if to[:1] in '{@' else to}")


@app.command()
def publish(
    group: GroupArgument,
    place: Annotated[
        str,
        typer.Argument(
            metavar="[checkpoint|CUT|@FILE]",
            help="The last checkpoint, or one that `runnel group checkpoint` printed.",
        ),
    ] = "checkpoint",
    sc: ScOption = None,
) -> None:
    """Tell the streams of a group that it has read what lies before a place.

    Their retention keeps the rest, if the group has --retention manual or automatic. A place never
    goes back: an earlier one changes nothing. Topics have no such retention, and are told nothing.
    """
    with connected(sc) as cluster:
        found = cluster.reader_group(group)
        found.publish(None if place == "checkpoint" else _cut("CUT", place))
    what = "its last checkpoint" if place == "checkpoint" else "the place given"
    print(f"group {group} published {what}")


@app.command()
def offline(
    group: GroupArgument,
    reader: Annotated[str, typer.Argument(metavar="READER", show_default=False)],
    sc: ScOption = None,
) -> None:
    """Say that a reader is gone, so that others take its segments before its lease is over.

    A reader that is not gone joins again by itself.
    """
    with connected(sc) as cluster:
        cluster.reader_group(group).offline(reader)
    print(f"reader {reader} of group {group} is offline")


@app.command()
def delete(group: GroupArgument, sc: ScOption = None) -> None:
    """Delete a reader group with its positions. Readers that are open end with an error.

    The retention of its streams waits for it no more.
    """
    with connected(sc) as cluster:
        cluster.reader_group(group).delete()
    print(f"group {group} deleted")


def _published(group: GroupInfo, stream: str) -> str:
    if stream not in group.published:
        return f"{stream}: not known"
    found = group.published[stream]
    return f"{stream}: nothing yet" if found is None else str(found)


def _cut(option: str, text: str) -> GroupCut:
    from runnel.groups.cut import GroupCut

    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"{option}: cannot read {text[1:]}: {error}") from error
    return GroupCut.parse(text)


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"{option}: {error}") from error


def _age(when: datetime | None) -> str:
    return "never" if when is None else f"{age(when.isoformat())} ago"


def _json(group: GroupInfo) -> dict[str, Any]:
    data = {_camel(name): value for name, value in asdict(group).items()}
    data["lag"] = group.lag
    data["readers"] = [{**asdict(one), "since": one.since.isoformat()} for one in group.readers]
    data["unreadBytes"] = group.unread_bytes
    data["segments"] = [
        {**{_camel(name): value for name, value in asdict(one).items()}, "lag": one.lag}
        for one in group.segments
    ]
    data["published"] = {
        name: None if cut is None else str(cut) for name, cut in group.published.items()
    }
    data["end"] = None if group.end is None else str(group.end)
    last = group.last_checkpoint
    data["lastCheckpoint"] = None if last is None else last.isoformat()
    return data


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
