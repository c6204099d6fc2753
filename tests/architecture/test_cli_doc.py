"""The page of commands names every command and every option there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup, TyperOption

from docs.generators import cli
from runnel.cli.commands import COMMANDS, load

SECTIONS = dict(
    re.findall(r"^##+ (runnel .*)\n((?:(?!##).*\n)*)", cli.pages()["cli.md"], re.MULTILINE)
)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


ALL = dict(found for name in COMMANDS for found in commands(load(name), f"runnel {name}"))


@pytest.mark.parametrize(("path", "command"), ALL.items(), ids=ALL)
def test_given_a_command_then_its_section_names_each_option(path: str, command: Any) -> None:
    section = SECTIONS[path]
    options = [one for one in command.params if isinstance(one, TyperOption) and not one.hidden]
    missing = [name for one in options for name in one.opts if f"`{name}" not in section]
    assert missing == []
    assert " ".join(command.help.split()[:5]) in section
