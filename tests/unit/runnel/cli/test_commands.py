"""The table of commands: it repeats what each command says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperCommand, TyperGroup

from runnel.cli.commands import COMMANDS, load
from runnel.cli.render import Output
from tests.unit.runnel.cli.conftest import CommandLine


@pytest.mark.parametrize("name", COMMANDS)
def test_given_a_command_then_the_table_repeats_the_first_sentence_of_its_help(name: str) -> None:
    command = load(name)
    assert COMMANDS[name].help == command.get_short_help_str(1_000)
    assert not command.hidden
    listed = TyperCommand(name, help=COMMANDS[name].help)
    for width in range(10, 100):
        assert listed.get_short_help_str(width) == command.get_short_help_str(width)


def test_help_lists_all_commands_in_the_order_of_the_table(command: CommandLine) -> None:
    _, _, below = command("--help").out.partition("Commands:\n")
    assert [line.split()[0] for line in below.splitlines()] == list(COMMANDS)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("aplly", "No such command 'aplly'. Did you mean 'apply'?"),
        (
            "topics",
            "No such command 'topics'. Did you mean 'topic', 'top'?\nhint: runnel get topics",
        ),
        ("xyz", "No such command 'xyz'."),
    ],
    ids=["given-a-command-is-near", "given-a-group-is-near", "given-none-is-near"],
)
def test_mistyped_command(command: CommandLine, typed: str, answer: str) -> None:
    done = command(typed)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"error: {answer}\n")


#: Commands that take ``-o``, with arguments under which they look at it. No topic exists.
PRINTING = {
    ("get",): ("topics",),
    ("top",): ("--once",),
    ("consume",): ("orders", "--no-follow"),
    ("topic", "offsets"): ("orders",),
    ("archive", "list"): ("orders",),
    ("partition", "dump"): ("orders-0",),
    ("partition", "segments"): ("orders-0",),
    ("partition", "verify"): ("--all",),
    ("cluster", "check"): (),
    ("cluster", "logs"): (),
    ("cluster", "status"): (),
    ("context", "list"): (),
    ("group", "describe"): ("g",),
    ("group", "list"): (),
    ("trace",): ("api-1",),
}


def printing_commands() -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every command with ``-o``, and the formats that its help names."""
    left: list[tuple[tuple[str, ...], Any]] = [((name,), load(name)) for name in COMMANDS]
    while left:
        path, command = left.pop()
        if isinstance(command, TyperGroup):
            left += [((*path, name), below) for name, below in command.commands.items()]
        for option in command.params:
            if "-o" in option.opts and option.metavar != "FILE":
                formats = option.type_descriptor.annotation
                # A template is no member of an enumeration.
                yield path, [str(one) for one in (Output if formats is str else formats)]


def test_every_format_in_the_help_is_taken(command: CommandLine) -> None:
    found = dict(printing_commands())
    assert found.keys() == PRINTING.keys()
    for path, formats in found.items():
        for wanted in formats:
            done = command(*path, *PRINTING[path], "-o", wanted)
            assert done.code != 2, (path, wanted, done.err)
            assert "--output" not in done.err


def test_every_other_format_is_wrong_usage(command: CommandLine) -> None:
    for path, formats in printing_commands():
        for other in {"table", "wide", "yaml", "json", "name", "value"} - set(formats):
            done = command(*path, *PRINTING[path], "-o", other)
            assert done.code == 2, (path, other)
            assert f"'{other}' is not one of" in done.err
