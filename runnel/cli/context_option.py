"""``--context`` on every command that talks to a cluster, or that runs one of this machine.

The option stands beside ``--sc`` or ``--data-dir`` and decides what they are if they are not given.
So it is put on a command by that option, in one place, and no command has to pass it on.

Neighbours: `runnel.cli.commands` puts it on the commands it loads; `runnel.cli.arguments` and
`runnel.cli.cluster.cluster` declare the options it stands beside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from runnel.cli import completion
from runnel.contexts import Context, named_context
from schemas.errors import InvalidRequestError

#: Where the parsed line holds what was given, for the callbacks of the other options.
_KEY: Final = "runnel.context"
#: Parameters of commands beside which the option stands.
_BESIDE: Final = frozenset({"sc", "data_dir"})


def offer_context(command: Any) -> None:
    """Put the option on a command that has ``--sc`` or ``--data-dir``, or on those of a group."""
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            offer_context(below)
        return
    for place, parameter in enumerate(command.params):
        if parameter.name in _BESIDE:
            command.params.insert(place + 1, _option())
            return


def sc_of_context(context: typer.Context, sc: str | None) -> str | None:
    """The callback of ``--sc``: what was given, else the SC of ``--context``."""
    found = _given(context, "--sc", sc)
    return sc if found is None else found.sc


def data_dir_of_context(context: typer.Context, data_dir: Path | None) -> Path | None:
    """The callback of ``--data-dir``: what was given, else the directory of ``--context``."""
    found = _given(context, "--data-dir", data_dir)
    if found is None:
        return data_dir
    if found.data_dir is None:
        raise InvalidRequestError(
            f"--context: the cluster of context {found.name}, with its SC at {found.sc}, was not"
            " started on this machine; name a local one with --data-dir"
        )
    return Path(found.data_dir)


def _given(context: typer.Context, beside: str, value: object) -> Context | None:
    name = context.meta.get(_KEY)
    if name is None:
        return None
    try:
        if value is not None:
            raise InvalidRequestError(f"give --context or {beside}, not both")
        return named_context(name, "--context")
    except InvalidRequestError:
        # While a shell completes a line, nothing may fail.
        if context.resilient_parsing:
            return None
        raise


def _keep(context: typer.Context, name: str | None) -> None:
    if name is not None:
        context.meta[_KEY] = name


def _option() -> Any:
    """The option as typer makes it, for a command that was made without it."""
    tree = typer.Typer(add_completion=False)
    tree.command()(_bare)
    (option,) = (one for one in typer.main.get_command(tree).params if one.name == "context")
    return option


def _bare(
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="The context that names the cluster. Default: RUNNEL_CONTEXT, else the one in"
            " use.",
            callback=_keep,
            # Before the options that it stands beside, wherever it is written.
            is_eager=True,
            expose_value=False,
            autocompletion=completion.contexts,
            show_default=False,
        ),
    ] = None,
) -> None:
    """A command with nothing but the option."""
