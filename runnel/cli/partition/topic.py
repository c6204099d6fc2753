"""``runnel topic``: the records of a topic as a whole: where they are, and their removal."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.arguments import (
    OnlyPartitionsOption,
    ScOption,
    TimeoutOption,
    TopicArgument,
    parse_timeout,
)
from runnel.cli.context import connected
from runnel.cli.partition.offsets import offsets
from runnel.cli.records.consume import parse_time
from runnel.cli.render import print_rows
from schemas.errors import InvalidRequestError

if TYPE_CHECKING:
    from runnel.partition.truncate import Before

app = typer.Typer(help="See and change what a topic holds.", no_args_is_help=True)
app.command()(offsets)


@app.command()
def truncate(
    topic: TopicArgument,
    partition: OnlyPartitionsOption = None,
    before: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET", min=0, help="The first offset that stays.", show_default=False
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Keep records from a time on, as 2026-01-31T12:00:00 or -1h.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every record that is committed now.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Remove the oldest records of a topic, on every replica and for good.

    Offsets stay what they were. A replica that is away truncates when it returns. Files that are
    truncated as a whole stay on the disks for retention.grace of the topic.
    """
    wanted = _wanted(before, at, everything=everything)
    seconds = parse_timeout(timeout)
    with connected(sc) as cluster:
        bounds = cluster.offsets(topic, partition)
        if not yes:
            _ask(topic, sum(max(0, b.latest - b.earliest) for b in bounds.values()))
        done = cluster.truncate(topic, wanted, partitions=list(bounds), timeout=seconds)
    rows = [(f"{topic}-{one.partition}", str(one.first), str(one.removed)) for one in done]
    print_rows(("PARTITION", "FIRST OFFSET", "OFFSETS REMOVED"), rows)


def _wanted(before: int | None, at: str | None, *, everything: bool) -> Before:
    given = [value for value in (before, at, everything or None) if value is not None]
    if len(given) != 1:
        raise InvalidRequestError("give one of --before, --at and --all")
    if before is not None:
        return before
    return parse_time(at, datetime.now(UTC)) if at is not None else "latest"


def _ask(topic: str, offsets: int) -> None:
    """Have the user agree. Raises InvalidRequestError where nobody is there."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("this removes records for good; add --yes to do it unasked")
    typer.confirm(f"remove the oldest of {offsets} records of topic {topic!r}?", abort=True)
