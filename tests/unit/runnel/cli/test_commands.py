"""The table of commands: it repeats what each command says of itself."""

from __future__ import annotations

import pytest
from typer.core import TyperCommand

from runnel.cli.commands import COMMANDS, load
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
        ("topics", "No such command 'topics'. Did you mean 'topic'?"),
        ("xyz", "No such command 'xyz'."),
    ],
    ids=["given-a-command-is-near", "given-a-group-is-near", "given-none-is-near"],
)
def test_mistyped_command(command: CommandLine, typed: str, answer: str) -> None:
    done = command(typed)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"error: {answer}\n")
