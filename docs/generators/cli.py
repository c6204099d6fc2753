"""Every command of ``runnel``, with its usage, arguments and options: ``cli.md``.

The help texts in `runnel.cli` are the only source: this lays out what ``--help`` says.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from runnel.cli.commands import COMMANDS, app, load

_HEAD = """\
<!-- Written by docs/generate.py from runnel/cli/. Do not edit. -->
# The command line

`runnel COMMAND --help` says the same in a terminal. Every command ends with one of the
[exit codes](exit-codes.md). Commands that talk to a cluster take the SC from `--sc` or `--context`,
else from `RUNNEL_SC`, else from the [context](../howto/contexts.md) in use; see
[environment variables](environment.md).

"""
_TABLE: Final = "| {kind} | meaning | default | variable |\n|---|---|---|---|\n"


def pages() -> dict[str, str]:
    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="runnel")
    contents = "".join(
        f"- [`runnel {name}`](#runnel-{name}): {COMMANDS[name].help}\n" for name in COMMANDS
    )
    options = "\n## Options before a command\n" + "".join(_parameters(root, context))
    sections = (part for name in COMMANDS for part in _command(load(name), name, context, 2))
    return {"cli.md": _HEAD + contents + options + "".join(sections)}


def _command(command: Any, name: str, parent: Any, level: int) -> Iterator[str]:
    """The sections of a command and of those below it."""
    context = typer.Context(command, info_name=name, parent=parent)
    yield f"\n{'#' * level} {context.command_path}\n\n{_text(command.help)}\n"
    if isinstance(command, TyperGroup):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                yield from _command(found, inner, context, level + 1)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"\n```text\n{context.command_path} {usage}\n```\n"
    yield from _parameters(command, context)


def _parameters(command: Any, context: Any) -> Iterator[str]:
    """Tables of arguments and options; ``--help`` goes without saying."""
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    for kind, cls in (("argument", TyperArgument), ("option", TyperOption)):
        rows = [_row(one, context) for one in shown if isinstance(one, cls)]
        if rows:
            yield "\n" + _TABLE.format(kind=kind) + "".join(rows)


def _row(parameter: Any, context: Any) -> str:
    names = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)]
    if isinstance(parameter, TyperArgument):
        name = parameter.metavar or parameter.name.upper()
        # A bracket without its other half belongs to the usage line of the whole command.
        names = [f"`{name if name.count('[') == name.count(']') else name.strip('[]')}`"]
    elif not parameter.is_flag:
        value = parameter.metavar or _type(parameter, context)
        names[-1] = f"{names[-1][:-1]} {value}`"
    if parameter.multiple if isinstance(parameter, TyperOption) else parameter.nargs != 1:
        names[-1] += " …"
    variables = parameter.envvar or ()
    variables = [variables] if isinstance(variables, str) else variables
    cells = (
        ", ".join(names),
        _text(parameter.help),
        _default(parameter),
        ", ".join(f"`{variable}`" for variable in variables),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _type(option: Any, context: Any) -> str:
    """What an option takes, where its metavar does not say it."""
    shown = str(option.display_type(context)).strip("<>")
    shown = shown.removeprefix("list[").removesuffix("]").removesuffix(" range")
    return {"str": "TEXT", "int": "NUMBER", "float": "NUMBER"}.get(shown, shown)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if isinstance(parameter, TyperOption) and parameter.is_flag:
        # A flag that has an opposite: the one that holds when neither is given.
        return f"`{parameter.opts[0]}`" if value and parameter.secondary_opts else ""
    if value is None or value in ("", [], ()):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _text(text: str | None) -> str:
    """Help as Markdown: paragraphs in a table cell become one."""
    return " ".join(inspect.cleandoc(text or "").split())
