"""``runnel context``: the clusters that this user knows by name, and the one that commands take.

Neighbours: `runnel.contexts` keeps them; `runnel.cli.context_option` is ``--context``.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated

import typer

from runnel.cli import completion
from runnel.cli.arguments import TableOutputOption
from runnel.cli.failure import say
from runnel.cli.render import TableOutput, print_rows, printable
from runnel.contexts import (
    DEFAULT_SC,
    Context,
    Contexts,
    change_contexts,
    current_name,
    load_contexts,
    overriding_variable,
)
from runnel.environment import SC
from runnel.net.address import parse_addresses
from schemas.errors import InvalidRequestError

app = typer.Typer(
    help="Name clusters, and choose the one that commands talk to.", no_args_is_help=True
)
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=completion.contexts, show_default=False)
]


@app.command("list")
def list_(output: TableOutputOption = TableOutput.TABLE) -> None:
    """List the contexts; a star marks the one in use."""
    current = current_name()
    known = sorted(load_contexts().known, key=lambda one: one.name)
    if output is TableOutput.JSON:
        items = [
            {
                "name": one.name,
                "current": one.name == current,
                "sc": one.sc,
                "dataDir": one.data_dir,
            }
            for one in known
        ]
        print(json.dumps({"items": items}, indent=2))
        return
    if not known:
        say(f"no contexts; commands talk to {DEFAULT_SC}")
    else:
        rows = [
            [
                "*" if one.name == current else "",
                *map(printable, (one.name, one.sc, one.data_dir or "-")),
            ]
            for one in known
        ]
        print_rows(["CURRENT", "NAME", "SC", "DATA DIRECTORY"], rows)
    note_override()


@app.command()
def use(name: NameArgument) -> None:
    """Choose the context that commands and the library take from now on."""
    chosen = change_contexts(lambda contexts: contexts.used(name)).find(name)
    print(f"context {printable(chosen.name)} is in use: SC at {printable(chosen.sc)}")
    note_override()


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    address: Annotated[
        str,
        typer.Option(
            "--sc",
            metavar="HOST:PORT",
            help="The address of the cluster's SC; separate several by commas.",
            show_default=False,
        ),
    ],
    use_it: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Give a cluster a name. Nothing is sent to it."""
    sc = ",".join(map(str, parse_addresses(address)))
    added = False

    def step(contexts: Contexts) -> Contexts:
        nonlocal added
        after = contexts.added(Context(name, sc))
        added = after != contexts
        return after.used(name) if use_it else after

    change_contexts(step)
    print(f"context {name} {'added' if added else 'unchanged'}: SC at {sc}")
    if use_it:
        note_override()
    else:
        print(f"next: runnel context use {name}")


@app.command()
def remove(name: NameArgument) -> None:
    """Forget the name of a cluster. The cluster itself stays as it is."""
    before = load_contexts()
    gone = before.find(name)
    after = change_contexts(lambda contexts: contexts.removed(name))
    print(f"context {printable(name)} removed")
    if gone.data_dir is not None:
        say(f"the data of its cluster stays in {printable(gone.data_dir)}")
    if before.current is not None and after.current is None:
        say(f"no context is in use; commands talk to {DEFAULT_SC}")


def note_override() -> None:
    """Tell users that a variable decides, whatever context is in use, unless that is the same."""
    variable = overriding_variable()
    if variable is None:
        return
    value, used = variable.value() or "", load_contexts().in_use()
    if used is not None and (_is_among(value, used.sc) if variable is SC else value == used.name):
        return
    say(f"but {variable.name}={printable(value)} decides which cluster commands talk to")


def _is_among(addresses: str, of_cluster: str) -> bool:
    """Whether the addresses are some of those of a cluster. What is no address is none of them."""
    with suppress(InvalidRequestError):
        return {*parse_addresses(addresses)} <= {*parse_addresses(of_cluster)}
    return False
