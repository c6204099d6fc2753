"""The tree of all commands; they follow kubectl's conventions.

Modules group commands by subject. A module is imported only when one of its commands runs or prints
its help: ``get`` does not import Arrow, and ``runnel --help``, a mistyped name and TAB import no
command at all. `COMMANDS` therefore repeats the first sentence of each command's help; a test
compares them.

Neighbours: `runnel.cli.main` starts it; `runnel.cli.interrupts` handles Ctrl-C.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import runnel
from runnel.cli.interrupts import importing
from schemas.daemon.collector import held_for_imports


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """One command or group: its module, its name there, and the first sentence of its help."""

    module: str
    name: str
    help: str


#: All commands in the order of ``runnel --help``. A name of a `typer.Typer` is a group. Modules are
#: named as in relative imports.
COMMANDS: Final = {
    "cluster": LazyCommand(
        ".cluster.cluster", "app", "Start, inspect and stop a cluster on this machine."
    ),
    "context": LazyCommand(
        ".contexts", "app", "Name clusters, and choose the one that commands talk to."
    ),
    "sc": LazyCommand(".daemons", "sc_app", "The streaming controller."),
    "spu": LazyCommand(".daemons", "spu_app", "A streaming processing unit."),
    "dashboard": LazyCommand(
        ".dashboard", "dashboard", "Serve the cluster's dashboard to browsers."
    ),
    "create": LazyCommand(".objects.apply", "create_app", "Create an object from options."),
    "apply": LazyCommand(
        ".objects.apply",
        "apply",
        "Create or update objects from manifests.",
    ),
    "diff": LazyCommand(".objects.edit", "diff", "Show what apply would change."),
    "edit": LazyCommand(
        ".objects.edit",
        "edit",
        "Change an object in an editor: RUNNEL_EDITOR, else EDITOR, else vi.",
    ),
    "label": LazyCommand(
        ".objects.label",
        "label",
        "Set labels of objects, or remove them: team=a sets one, team- removes it.",
    ),
    "scale": LazyCommand(
        ".objects.scale",
        "scale",
        "Change the number of SPUs of a group, of partitions of a topic, or of replicas.",
    ),
    "get": LazyCommand(
        ".objects.get",
        "get",
        "List objects of a kind, or one object; or named consumers, controllers, or events.",
    ),
    "describe": LazyCommand(
        ".objects.describe",
        "describe",
        "Show one object in full: the reason for its state, its parts, and its history.",
    ),
    "trace": LazyCommand(
        ".trace",
        "trace",
        "Show what one causality id led to: changes of objects, and log lines of all daemons.",
    ),
    "explain": LazyCommand(
        ".objects.explain",
        "explain",
        "Explain a field of a manifest: its meaning, type, default, and the fields below it.",
    ),
    "delete": LazyCommand(
        ".objects.apply",
        "delete",
        "Delete objects by kind and name or by manifests, or delete a named consumer.",
    ),
    "wait": LazyCommand(
        ".objects.apply",
        "wait",
        "Wait until an object has a resolution, is deleted, or is writable.",
    ),
    "top": LazyCommand(
        ".top.command",
        "top",
        "Show the cluster live: its health, what needs a person, SPUs and topics with their rates.",
    ),
    "topic": LazyCommand(
        ".partition.topic", "app", "Show the offsets of a topic, truncate or seal it."
    ),
    "stream": LazyCommand(
        ".stream.stream", "app", "Show the segments of a stream, scale, truncate or seal it."
    ),
    "group": LazyCommand(
        ".group.group", "app", "Groups of readers that share the records of streams and topics."
    ),
    "archive": LazyCommand(
        ".archive.archive", "app", "Take topics into their archives, and show what is there."
    ),
    "partition": LazyCommand(
        ".partition.partition", "app", "Elect the leader of a partition, or inspect its log."
    ),
    "pipeline": LazyCommand(".pipelines", "app", "Run the query of a pipeline, or stop it."),
    "produce": LazyCommand(
        ".records.produce",
        "produce",
        "Send records to a topic or a stream: lines of standard input, or the rows of a file.",
    ),
    "consume": LazyCommand(".records.consume", "consume", "Print records of a topic or a stream."),
    "consumer": LazyCommand(".records.consumers", "app", "Move named consumers to another offset."),
    "bench": LazyCommand(
        ".bench",
        "app",
        "Measure a running cluster, and compare it with the limits of this machine.",
    ),
}


def load(name: str) -> Any:
    """The command or group of this name, from its module. Raises KeyError for any other name."""
    lazy = COMMANDS[name]
    with importing(), held_for_imports():
        target = getattr(importlib.import_module(lazy.module, __package__), lazy.name)
        # Here, because `runnel --help` and TAB do without it.
        from runnel.cli.context_option import offer_context

    command = _built(name, target)
    offer_context(command)
    return command


class _Commands(TyperGroup):
    """The root of the tree. Its commands carry only their help from `COMMANDS`: enough to list
    them, to complete them on TAB and to suggest one for a mistyped name. `resolve_command` replaces
    the one that is called with the command itself.
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
            # A default of False gives the same result; to convert None, Typer imports Pydantic.
            if isinstance(option, TyperOption) and option.is_flag and option.default is None:
                option.default = False
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The called command, imported. Raises click's error for wrong usage."""
        name, command, rest = super().resolve_command(ctx, args)
        # While a shell completes a line, its words may not name a command yet.
        return name, command and load(command.name or ""), rest


def _built(name: str, target: Any) -> Any:
    """The command that typer builds from a function, or from the `typer.Typer` of a group."""
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
    # Commands inherit it.
    context_settings={"help_option_names": ["-h", "--help"]},
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
