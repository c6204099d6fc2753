"""``runnel topic``: the offsets of a topic's records, their truncation, and its seal."""

from __future__ import annotations

import sys
import time
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
from runnel.cli.connection import connected
from runnel.cli.partition.offsets import offsets
from runnel.cli.progress import going_on, progress
from runnel.cli.render import print_rows
from runnel.cli.times import parse_time
from schemas.errors import InvalidRequestError

if TYPE_CHECKING:
    from runnel.partition.truncate import Before

app = typer.Typer(help="Show the offsets of a topic, truncate or seal it.", no_args_is_help=True)
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
            help="Keep records from a time on: 2026-01-31T12:00:00, or -1h.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every record that is committed now.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also records that are in no archive yet.")
    ] = False,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Remove the oldest records of a topic, on every replica and for good.

    The offsets of other records do not change. An offline replica truncates when it returns. Files
    without any remaining record stay on disk for the topic's retention.grace.
    """
    wanted = _wanted(before, at, everything=everything)
    seconds = parse_timeout(timeout)
    began = time.monotonic()
    with connected(sc) as cluster:
        with progress(f"asking where the partitions of {topic} begin and end"):
            bounds = cluster.offsets(topic, partition, timeout=seconds)
        left = max(0.0, seconds - (time.monotonic() - began))
        if not yes:
            _ask(topic, sum(max(0, b.latest - b.first) for b in bounds.values()))
        goes_on = (
            f"leaders that have been asked truncate all the same; see: runnel topic offsets {topic}"
        )
        with going_on(goes_on), progress(f"truncating topic {topic}"):
            done = cluster.truncate(
                topic, wanted, partitions=list(bounds), timeout=left, force=force
            )
    rows = [(f"{topic}-{one.partition}", str(one.first), str(one.removed)) for one in done]
    print_rows(("PARTITION", "FIRST OFFSET", "OFFSETS REMOVED"), rows)


@app.command()
def seal(
    topic: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Seal a topic: it takes no more records, for good.

    Producers are refused from then on (SEALED), and consumers that follow end when they have read
    all. What the topic holds can be read as before; retention goes on.
    """
    seconds = parse_timeout(timeout)
    with connected(sc) as cluster:
        # An unknown topic is an error before the question.
        cluster.topic(topic)
        if not yes:
            _ask_to_seal(topic)
        goes_on = f"once it has begun, the sealing goes on; see: runnel describe topic {topic}"
        doing = f"sealing topic {topic}: its leaders end their logs"
        with going_on(goes_on), progress(doing):
            done = cluster.seal(topic, seconds)
    print_rows(("PARTITION", "END"), [(f"{topic}-{one.partition}", str(one.end)) for one in done])


def _wanted(before: int | None, at: str | None, *, everything: bool) -> Before:
    given = [value for value in (before, at, everything or None) if value is not None]
    if len(given) != 1:
        raise InvalidRequestError("give one of --before, --at and --all")
    if before is not None:
        return before
    return parse_time(at, datetime.now(UTC)) if at is not None else "latest"


def _ask_to_seal(topic: str) -> None:
    """Ask the user to confirm. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("a topic is sealed for good; add --yes to confirm")
    typer.confirm(f"seal topic {topic!r}, so that it never takes another record?", abort=True)


def _ask(topic: str, offsets: int) -> None:
    """Ask the user to confirm. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("this removes records for good; add --yes to confirm")
    typer.confirm(f"remove the oldest of the {offsets} records of topic {topic!r}?", abort=True)
