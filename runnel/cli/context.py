"""What every command needs: which SC, and an open connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

import runnel

ScOption = Annotated[
    str | None,
    typer.Option(
        "--sc",
        metavar="HOST:PORT",
        help="The SC to talk to; several, separated by commas. Else RUNNEL_SC, else the profile.",
        show_default=False,
    ),
]


@contextmanager
def connected(sc: str | None) -> Iterator[runnel.Cluster]:
    """An open cluster for the length of a command."""
    with runnel.connect(sc) as cluster:
        yield cluster
