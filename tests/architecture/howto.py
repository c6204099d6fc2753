"""The commands and the Python that the pages of ``docs/howto`` show. Pure, but for the reading."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from runnel.cli.commands import app
from tests.architecture.source import ROOT

FOLDER = ROOT / "docs" / "howto"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
_PROMPT = re.compile(r"^(?:\$ )?(runnel .+)$")


@dataclass(frozen=True)
class Shown:
    """A command of a page, and the lines that the page shows below it."""

    words: tuple[str, ...]
    printed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(self.words)


class Page:
    """What one page shows."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self.name = path.stem
        fenced: list[tuple[str, str]] = _FENCED.findall(text)
        rest = _FENCED.sub("", text)
        indented = [textwrap.dedent(block).strip() for block in _INDENTED.findall(rest)]
        python = [block for block in indented if block.startswith("import ")]
        self.yaml = [body for language, body in fenced if language == "yaml"]
        self.python = [body for language, body in fenced if language == "python"] + python
        shells = [body for language, body in fenced if language in ("console", "sh")]
        self.commands = [c for block in [*shells, *indented] for c in _commands(block)]


def _commands(block: str) -> list[Shown]:
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if match := _PROMPT.match(line):
            found.append((match[1], []))
        elif found:
            found[-1][1].append(line)
    return [
        Shown(tuple(shlex.split(command, comments=True)), tuple(printed))
        for command, printed in found
    ]


def parse(words: Sequence[str]) -> None:
    """Parse a command without running it. Raises click's errors for wrong usage."""
    command: Any = typer.main.get_command(app)
    name, arguments, parent = "runnel", list(words[1:]), None
    while True:
        context = command.make_context(name, arguments, parent=parent)
        rest = [*context._protected_args, *context.args]
        if not hasattr(command, "resolve_command") or not rest:
            return
        name, command, arguments = command.resolve_command(context, rest)
        parent = context


def until_a_shell_takes_over(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word in ("|", ">", "||", "&&"):
            return
        yield word


PAGES = [Page(path) for path in sorted(FOLDER.glob("*.md"))]
