"""All commands in one tree: ``runnel`` with kubectl's habits.

Commands live in modules by what they are about. A module is imported when one of its commands is
called or asked for its help: ``get`` does not wait for Arrow, and ``runnel --help``, a mistyped
name and TAB wait for no command at all. So `COMMANDS` repeats the first sentence of each command's
help; a test holds it equal to what the command says.

Neighbours: `runnel.cli.main` starts it; `runnel.cli.interrupts` is about Ctrl-C while it imports.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import runnel
from runnel.cli.interrupts import importing


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """One command or group: its module, its name there, and the first sentence of its help."""

    module: str
    name: str
    help: str


#: All commands in the order of ``runnel --help``. A name that stands for a `typer.Typer` is a
#: group. Modules are named as relative imports name them.
COMMANDS: Final = {
    "cluster": LazyCommand(
        ".cluster.cluster", "app", "Start, inspect and stop a cluster on this machine."
    ),
    "sc": LazyCommand(".daemons", "sc_app", "The streaming controller."),
    "spu": LazyCommand(".daemons", "spu_app", "A streaming processing unit."),
    "create": LazyCommand(".objects.apply", "create_app", "Create an object from options."),
    "apply": LazyCommand(
        ".objects.apply",
        "apply",
        "Create what manifests describe, or change it to what they say.",
    ),
    "diff": LazyCommand(".objects.edit", "diff", "Show what apply would change."),
    "edit": LazyCommand(
        ".objects.edit",
        "edit",
        "Change an object in an editor: RUNNEL_EDITOR, else EDITOR, else vi.",
    ),
    "get": LazyCommand(
        ".objects.get",
        "get",
        "List objects of a kind, or one of them; or consumers, and how far they are.",
    ),
    "describe": LazyCommand(
        ".objects.describe",
        "describe",
        "Show one object in full: why it is in its state, what belongs to it, and its history.",
    ),
    "explain": LazyCommand(
        ".objects.explain",
        "explain",
        "Say what a field of a manifest means, its type, its default, and what is below it.",
    ),
    "delete": LazyCommand(
        ".objects.apply",
        "delete",
        "Delete objects by kind and name, or those that manifests describe; or a consumer.",
    ),
    "wait": LazyCommand(
        ".objects.apply", "wait", "Wait until an object has a resolution, or is gone."
    ),
    "topic": LazyCommand(".partition.topic", "app", "See and change what a topic holds."),
    "partition": LazyCommand(
        ".partition.partition", "app", "Decide about single partitions, look into them."
    ),
    "produce": LazyCommand(
        ".records.produce",
        "produce",
        "Send records to a topic: one a line from standard input, or those of a file.",
    ),
    "consume": LazyCommand(".records.consume", "consume", "Print records of a topic."),
    "consumer": LazyCommand(
        ".records.consumers", "app", "Decide where consumers with names read on."
    ),
    "bench": LazyCommand(
        ".bench", "app", "Measure a running cluster, beside what this machine could do at most."
    ),
}


def load(name: str) -> Any:
    """The command or group of this name, from its module. Raises KeyError for any other name."""
    lazy = COMMANDS[name]
    with importing():
        target = getattr(importlib.import_module(lazy.module, __package__), lazy.name)
    return _built(name, target)


class _Commands(TyperGroup):
    """The top of the tree. Its commands only carry the help of `COMMANDS`: enough to list them, to
    offer them on TAB and to say which one a mistyped name is near to. `resolve_command` puts the
    command itself in the place of the one that is called.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=lazy.help) for name, lazy in COMMANDS.items()
        }

    def get_params(self, ctx: Any) -> Any:
        """The options before a command."""
        found = super().get_params(ctx)
        for option in found:
            # A flag that is False is what it shall be; to convert None, Typer imports Pydantic.
            if isinstance(option, TyperOption) and option.is_flag and option.default is None:
                option.default = False
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The called command, imported. Raises what wrong usage is answered with."""
        name, command, rest = super().resolve_command(ctx, args)
        # While a shell completes a line, its words may name nothing.
        return name, command and load(command.name or ""), rest


def _built(name: str, target: Any) -> Any:
    """What typer makes of a function, or of the `typer.Typer` of a group."""
    tree = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    # Without a callback, typer would take a single command for the whole program.
    tree.callback()(lambda: None)
    if isinstance(target, typer.Typer):
        tree.add_typer(target, name=name)
    else:
        tree.command(name)(target)
    group = typer.main.get_command(tree)
    assert isinstance(group, TyperGroup)  # noqa: S101 - it has a callback
    return group.commands[name]


app = typer.Typer(
    name="runnel",
    cls=_Commands,
    help="Runnel: records stay columnar from the producer to Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
