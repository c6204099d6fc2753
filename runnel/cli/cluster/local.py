"""Which local cluster a command is about: ``--data-dir``, else that of the context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.context_option import data_dir_of_context
from runnel.cli.failure import say, stderr
from runnel.contexts import current_context, runnel_home
from runnel.local.cluster import ClusterDaemons

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        callback=data_dir_of_context,
        help="The cluster's data directory. Default: that of the context, or RUNNEL_HOME/local.",
        show_default=False,
    ),
]


def local_cluster(data_dir: Path | None) -> ClusterDaemons:
    """The cluster in a directory, by default in that of the context in use."""
    if data_dir is None:
        context = current_context()
        if context is not None and context.data_dir is not None:
            return ClusterDaemons(Path(context.data_dir))
        data_dir = runnel_home() / "local"
        if context is not None:
            say(f"the cluster of context {context.name} is elsewhere; this is about {data_dir}")
    return ClusterDaemons(data_dir)


def print_notes(notes: list[str]) -> None:
    """Show what a start said."""
    for note in notes:
        stderr().print(f"but {note}")
