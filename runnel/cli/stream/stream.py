"""``runnel stream``: the segments of a stream, and requests to change them."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from runnel.cli import completion
from runnel.cli.arguments import ScOption, TimeoutOption, parse_cut, parse_timeout
from runnel.cli.connection import administered, connected
from runnel.cli.progress import going_on, progress
from runnel.cli.render import age, count, print_rows
from schemas.control.streams import ScalingEvent
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.streams.epochs import creation_epoch, segment_text
from schemas.streams.key_space import KeyRange, merged
from schemas.streams.scaling import evenly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.control.streams import EpochInfo, SegmentInfo
    from schemas.streams.cuts import StreamCut
    from schemas.streams.epochs import Epoch

#: Segments that a message names.
SHOWN: Final = 5
#: How an error begins that is about the ranges of a request: the command has options for them.
_INTO: Final = re.compile(r"^into(\[\d+\])?:")

app = typer.Typer(
    help="Show the segments of a stream, scale, truncate or seal it.", no_args_is_help=True
)

StreamArgument = Annotated[
    str,
    typer.Argument(
        metavar="STREAM",
        help="SCOPE/NAME, or NAME in the scope default.",
        autocompletion=completion.streams,
    ),
]


class CutPlace(StrEnum):
    HEAD = "head"
    TAIL = "tail"


@app.command()
def scale(
    stream: StreamArgument,
    segments: Annotated[
        int | None,
        typer.Option(
            min=1, help="Divide all keys evenly among so many segments.", show_default=False
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="SEGMENT", help="Split this segment.", show_default=False),
    ] = None,
    parts: Annotated[int, typer.Option(min=2, help="Of --split: into so many.")] = 2,
    merge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SEGMENT",
            help="Merge this segment with the others that are named so; may be repeated.",
            show_default=False,
        ),
    ] = None,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Replace segments of a stream by more or fewer ones.

    The old ones are sealed: what they hold stays readable, and is read before what the new ones
    get. Segments are named EPOCH.NUMBER, as `runnel stream segments` shows them.
    """
    given = [one for one in (segments, split, merge) if one]
    if len(given) != 1:
        raise InvalidRequestError("give one of --segments, --split and --merge")
    seconds = parse_timeout(timeout)
    from runnel.admin.streams import request_of
    from schemas.control.streams import epoch_of

    with administered(sc) as cluster:
        of = cluster.stream(stream)
        now = epoch_of(of.epoch())
        seal, into = _wanted(now, segments, split, parts, merge)
        if not seal:
            print(f"stream {of.name} unchanged: {count(len(now.segments), 'segment')}")
            return
        doing = f"scaling stream {of.name}: new segments get leaders, old ones are sealed"
        with _going_on("scaling", of.name), progress(doing):
            try:
                done = of.scale(*request_of(seal, into), timeout=seconds)
            except InvalidRequestError as error:
                option = "--segments" if segments else "--parts" if split else "--merge"
                error.message = _INTO.sub(f"{option}:", error.message)
                raise
        after = of.epoch(done.epoch)
    print(
        f"stream {of.name} scaled from {len(now.segments):,} to"
        f" {count(len(after.segments), 'segment')} in epoch {after.epoch}"
    )
    replaced = {one.id for one in now.segments}
    from schemas.streams.epochs import parse_segment

    _print_segments([one for one in after.segments if parse_segment(one.id) not in replaced])


@app.command()
def seal(
    stream: StreamArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Seal a stream: it takes no more records, for good.

    What it holds stays readable. Only a sealed stream can be deleted.
    """
    seconds = parse_timeout(timeout)
    with administered(sc) as cluster:
        of = cluster.stream(stream)
        # An unknown stream is an error before the question.
        of.epoch()
        if not yes:
            _ask_to_seal(of.name)
        with _going_on("sealing", of.name), progress(f"sealing stream {of.name}"):
            of.seal(timeout=seconds)
    print(f"stream {of.name} sealed")


@app.command()
def truncate(
    stream: StreamArgument,
    before: Annotated[
        str | None,
        typer.Option(metavar="CUT|@FILE", help="The first place that stays.", show_default=False),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every record that is committed now.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Remove what a stream holds before a cut, on every replica and for good.

    Segments of which nothing stays are deleted. `runnel stream cut` prints cuts, and so does a
    consumer's position in Python. An offline replica truncates when it returns.
    """
    seconds = parse_timeout(timeout)
    if (before is not None) == everything:
        raise InvalidRequestError("give one of --before and --all")
    wanted = parse_cut("--before", before)
    with connected(sc) as cluster:
        of = cluster.stream(stream)
        place = of.tail(timeout=seconds) if wanted is None else wanted
        # An unknown stream is an error before the question.
        of.epoch()
        if not yes:
            _ask_to_truncate(of.name)
        with _going_on("truncation", of.name), progress(f"truncating stream {of.name}"):
            of.truncate(place, timeout=seconds)
    print(f"stream {of.name} truncated; it begins with {_places(place)}")


def _going_on(what: str, stream: str) -> AbstractContextManager[None]:
    return going_on(f"once it has begun, the {what} goes on; see: runnel describe stream {stream}")


@app.command()
def segments(
    stream: StreamArgument,
    epoch: Annotated[
        int | None,
        typer.Option(min=0, help="An earlier epoch. Default: the current one.", show_default=False),
    ] = None,
    sc: ScOption = None,
) -> None:
    """List the segments of a stream, in the order of their keys."""
    with administered(sc) as cluster:
        found = cluster.stream(stream).epoch(epoch)
    _print_segments(found.segments)


@app.command()
def segment(
    stream: StreamArgument,
    segment: Annotated[str, typer.Argument(metavar="SEGMENT", help="EPOCH.NUMBER")],
    sc: ScOption = None,
) -> None:
    """Show a segment, and which ones had its keys before and after it."""
    with administered(sc) as cluster:
        found = cluster.stream(stream).segment(segment)
    print(f"Segment:       {found.id}")
    print(f"Keys:          {found.low:g} to {found.high:g}")
    print(f"Partition:     {found.partition}")
    if found.sealed_in is not None:
        print(f"Replaced in:   epoch {found.sealed_in}")
    if found.end is not None:
        print(f"End:           offset {found.end:,}")
    for title, some in (("Predecessors", found.predecessors), ("Successors", found.successors)):
        print(f"{title + ':':14} {', '.join(one.id for one in some) or '-'}")


@app.command()
def epochs(
    stream: StreamArgument,
    limit: Annotated[int, typer.Option(min=1, max=100, help="So many, the newest.")] = 20,
    sc: ScOption = None,
) -> None:
    """Show when and why a stream was scaled, the newest last."""
    with administered(sc) as cluster:
        found = cluster.stream(stream).events(limit)
    rows = [
        (str(one.epoch), age(_iso(one.time_ms)), str(one.splits), str(one.merges), _because(one))
        for one in found.items
    ]
    print_rows(("EPOCH", "AGE", "SPLITS", "MERGES", "BECAUSE OF"), rows)


def _because(event: ScalingEvent) -> str:
    if event.by_load:
        return "load"
    return "request" if event.epoch else "creation"


@app.command()
def cut(
    stream: StreamArgument,
    at: Annotated[CutPlace, typer.Option(help="The beginning of the stream, or its end now.")] = (
        CutPlace.TAIL
    ),
    sc: ScOption = None,
) -> None:
    """Print a stream cut: a place in a stream, for all its keys at once.

    `runnel consume STREAM --from-cut` begins at one, `--until-cut` stops before one.
    """
    with connected(sc) as cluster:
        of = cluster.stream(stream)
        print(of.tail() if at is CutPlace.TAIL else of.head())


def print_map(epochs: Sequence[EpochInfo]) -> None:
    """Draw the segments of some epochs of a stream."""
    from runnel.cli.stream.segment_map import draw

    print("Segments:")
    for line in draw(epochs):
        print(f"  {line}")


def print_beginning(head: StreamCut) -> None:
    """Say where a stream begins, if it was truncated."""
    if any(creation_epoch(one) or offset for one, offset in head.offsets.items()):
        print(f"Truncated:\n  it begins with {_places(head)}")


def print_subscribers(subscribers: Mapping[str, StreamCut]) -> None:
    """Say for which groups the retention of a stream waits, if it does for any."""
    if subscribers:
        print("Subscribers:")
        print_rows(
            ("  GROUP", "HAS READ UP TO"),
            [(f"  {group}", _places(cut)) for group, cut in subscribers.items()],
        )


def _places(cut: StreamCut) -> str:
    shown = ", ".join(
        f"{segment_text(one)} at {max(0, offset)}"
        for one, offset in sorted(cut.offsets.items())[:SHOWN]
    )
    return shown + (f" and {len(cut.offsets) - SHOWN:,} more" if len(cut.offsets) > SHOWN else "")


def _wanted(
    now: Epoch, segments: int | None, split: str | None, parts: int, merge: list[str] | None
) -> tuple[tuple[int, ...], tuple[KeyRange, ...]]:
    """Segments to seal and the ranges that replace them. Raises InvalidRequestError,
    NotFoundError."""
    if segments is not None:
        return evenly(now, segments)
    named = [split] if split is not None else merge or []
    found = [_current(now, text) for text in named]
    if split is not None:
        try:
            return (found[0][0],), found[0][1].split(parts)
        except ValueError as error:
            raise InvalidRequestError(f"--parts: {error}") from None
    if len(found) < 2:
        raise InvalidRequestError("--merge: name at least two segments: --merge 1.1 --merge 1.2")
    try:
        return tuple(one for one, _ in found), merged(keys for _, keys in found)
    except ValueError:
        raise InvalidRequestError("--merge: a segment is named twice") from None


def _current(now: Epoch, text: str) -> tuple[int, KeyRange]:
    from schemas.streams.epochs import parse_segment, segment_text

    wanted = parse_segment(text)
    found = now.by_id().get(wanted)
    if found is None:
        known = ", ".join(segment_text(one.id) for one in now.segments[:10])
        raise NotFoundError(
            f"segment {text} is not among the current ones (epoch {now.number}): {known}"
        )
    return wanted, found.keys


def _print_segments(segments: Sequence[SegmentInfo]) -> None:
    rows = [(one.id, f"{one.low:g}", f"{one.high:g}", one.partition) for one in segments]
    print_rows(("SEGMENT", "KEYS FROM", "TO", "PARTITION"), rows)


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def _ask_to_truncate(stream: str) -> None:
    """Ask the user to confirm. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("this removes records for good; add --yes to confirm")
    typer.confirm(f"remove the records of stream {stream!r} before the cut?", abort=True)


def _ask_to_seal(stream: str) -> None:
    """Ask the user to confirm. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("a stream is sealed for good; add --yes to confirm")
    typer.confirm(f"seal stream {stream!r}, so that it never takes another record?", abort=True)
