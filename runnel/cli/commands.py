"""All commands in one tree: ``runnel`` with kubectl's habits.

Commands live in modules by what they are about. A module is imported when one of its commands is
called (or described): ``get`` does not wait for Arrow, nor TAB for anything it does not need.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

import runnel
from runnel.cli.interrupts import importing

#: Where commands are, in the order of ``runnel --help``. A `typer.Typer` is a group of commands.
_HOMES: Final = {
    "cluster": (".cluster.cluster", "app"),
    "sc": (".daemons", "sc_app"),
    "spu": (".daemons", "spu_app"),
    "create": (".objects.apply", "create_app"),
    "apply": (".objects.apply", "apply"),
    "diff": (".objects.edit", "diff"),
    "edit": (".objects.edit", "edit"),
    "get": (".objects.get", "get"),
    "describe": (".objects.get", "describe"),
    "explain": (".objects.explain", "explain"),
    "delete": (".objects.apply", "delete"),
    "wait": (".objects.apply", "wait"),
    "topic": (".partition.topic", "app"),
    "partition": (".partition.partition", "app"),
    "produce": (".records.produce", "produce"),
    "consume": (".records.consume", "consume"),
    "consumer": (".records.consumers", "app"),
    "bench": (".bench", "app"),
}


class _Commands(TyperGroup):
    """The top of the tree, which imports a command when it is asked for it."""

    _offering = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        if self._offering:
            return TyperCommand(cmd_name)
        if cmd_name in _HOMES and cmd_name not in self.commands:
            module, name = _HOMES[cmd_name]
            with importing():
                target = getattr(importlib.import_module(module, __package__), name)
            self.commands[cmd_name] = _built(cmd_name, target)
        return self.commands.get(cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Offers names without importing what they stand for."""
        self._offering = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._offering = False

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises what a mistyped name is answered with; all others are looked at for that."""
        if args and args[0] not in _HOMES:
            for name in _HOMES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


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
