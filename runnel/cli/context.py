"""What every command needs: which SC, and an open connection to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

import runnel
from runnel.local.home import load_profile

ScOption = Annotated[
    str | None,
    typer.Option(
        "--sc",
        metavar="HOST:PORT",
        help="The SC to talk to; several, separated by commas. Else RUNNEL_SC, else the profile.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command goes."""

    sc: str


def target(sc: str | None) -> Target:
    """The SC of the option, of RUNNEL_SC, or of the profile."""
    return Target(sc or os.environ.get("RUNNEL_SC") or load_profile().sc)


@contextmanager
def connected(sc: str | None) -> Iterator[runnel.Cluster]:
    """An open cluster for the length of a command."""
    with runnel.connect(target(sc).sc) as cluster:
        yield cluster
