"""Arguments and options that several commands share, with their shell completion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import completion
from runnel.cli.context_option import sc_of_context
from runnel.cli.render import TableOutput
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import parse_duration_ms

if TYPE_CHECKING:
    from schemas.streams.cuts import StreamCut

ScOption = Annotated[
    str | None,
    typer.Option(
        "--sc",
        metavar="HOST:PORT",
        callback=sc_of_context,
        help="The SC's address; separate several by commas. Default: RUNNEL_SC, else that of the"
        " context.",
        show_default=False,
    ),
]
OnlyPartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, help="Only this partition; may be repeated.", show_default=False
    ),
]
FilesOption = Annotated[
    list[str],
    typer.Option("-f", "--filename", metavar="FILE|DIR|-", help="Manifests; may be repeated."),
]
RecursiveOption = Annotated[
    bool,
    typer.Option("-R", "--recursive", help="Of a directory, take also the directories below."),
]
OutputOption = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FORMAT",
        help="How to print: table, wide, yaml, json, name, or jsonpath=TEMPLATE as in kubectl.",
        autocompletion=completion.outputs,
    ),
]
TableOutputOption = Annotated[
    TableOutput, typer.Option("-o", "--output", help="How to print: table or json.")
]
KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="spus, topics, partitions, consumers, …",
        autocompletion=completion.kinds,
    ),
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=completion.names, show_default=False)
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics, show_default=False)
]
StreamOption = Annotated[
    bool,
    typer.Option(
        "--stream", help="TOPIC names a stream in the scope default; SCOPE/NAME does without."
    ),
]
SelectorOption = Annotated[
    str,
    typer.Option(
        "-l",
        "--selector",
        metavar="SELECTOR",
        help="Only objects with these labels: a=b, a!=b, a in (b,c), a notin (b,c), a, !a; join"
        " several with commas, all must match.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[str, typer.Option(metavar="DURATION", help="Wait at most this long.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="The SC checks everything and changes nothing.")
]


def is_consumers(kind: str) -> bool:
    """Whether a KIND argument means consumers, which are not objects of the SC."""
    return kind.lower() in {"consumer", "consumers"}


def is_controllers(kind: str) -> bool:
    """Whether a KIND argument means SCs, which are not objects of the SC."""
    return kind.lower() in {"controller", "controllers"}


def is_events(kind: str) -> bool:
    """Whether a KIND argument means events, which are not objects of the SC."""
    return kind.lower() in {"event", "events"}


def parse_cut(option: str, given: str | None) -> StreamCut | None:
    """The stream cut that an option gives, as text or as @FILE. Raises InvalidRequestError."""
    if given is None:
        return None
    from schemas.streams.cuts import StreamCut

    text = given
    if given == "@":
        raise InvalidRequestError(f"{option}: @ has no file behind it; give @FILE")
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise InvalidRequestError(f"{option}: cannot read {given[1:]}: {why}") from None
    try:
        return StreamCut.parse(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{option}: {error}") from None


def parse_timeout(text: str) -> float:
    """Seconds of a duration option. Raises InvalidRequestError."""
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"--timeout: {error}") from error
