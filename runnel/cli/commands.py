"""All commands in one tree: ``runnel`` with kubectl's habits.

Commands live in modules by what they are about. Importing this one takes most of a second:
`runnel.cli.main` does it once the process is ready for whatever may happen meanwhile.
"""

from __future__ import annotations

from typing import Annotated

import typer

import runnel
from runnel.cli import cluster, consume, daemons, objects, produce

app = typer.Typer(
    name="runnel",
    help="Runnel: records stay columnar from the producer to Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(daemons.sc_app, name="sc")
app.add_typer(daemons.spu_app, name="spu")
app.add_typer(objects.create_app, name="create")
app.command()(objects.apply)
app.command()(objects.get)
app.command()(objects.describe)
app.command()(objects.delete)
app.command()(objects.wait)
app.command()(produce.produce)
app.command()(consume.consume)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"runnel {runnel.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
