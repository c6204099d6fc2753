"""Arguments and options that several commands share, with what completes them in a shell."""

from __future__ import annotations

from typing import Annotated

import typer

from runnel.cli import completion
from runnel.cli.render import Output
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import parse_duration_ms

ScOption = Annotated[
    str | None,
    typer.Option(
        "--sc",
        metavar="HOST:PORT",
        help="The SC to talk to; several, separated by commas. Else RUNNEL_SC, else the profile.",
        show_default=False,
    ),
]
OnlyPartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, help="Only this one; may be repeated.", show_default=False
    ),
]
FilesOption = Annotated[
    list[str],
    typer.Option(
        "-f", "--filename", metavar="FILE|DIR|-", help="Manifests; may be given several times."
    ),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
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
SelectorOption = Annotated[
    str,
    typer.Option(
        "-l",
        "--selector",
        metavar="SELECTOR",
        help="Only objects with these labels: a=b, a!=b, a in (b,c), a notin (b,c), a, !a;"
        " a comma between two means both.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[str, typer.Option(metavar="DURATION", help="How long to wait at most.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Have the SC check everything, and change nothing.")
]


def is_consumers(kind: str) -> bool:
    """Whether what stands for a kind means consumers: they are no objects of the SC."""
    return kind.lower() in {"consumer", "consumers"}


def parse_timeout(text: str) -> float:
    """Seconds of a duration option. Raises InvalidRequestError."""
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"--timeout: {error}") from error
