"""Hints for habits from kubectl, Kafka's tools and rpk: the right command, and one that exists."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.core import TyperGroup

from runnel.cli import habits
from runnel.cli.commands import COMMANDS, load
from schemas.objects.kinds import find_kind
from tests.architecture.howto import parse, until_a_shell_takes_over
from tests.unit.runnel.cli.conftest import CommandLine

APPLY = "runnel apply -f FILE"
HINTS = {
    "topic list": "runnel get topics",
    "topic ls": "runnel get topics",
    "topics": "runnel get topics",
    "topics list": "runnel get topics",
    "list topics": "runnel get topics",
    "list": "runnel get topics",
    "kafka-topics.sh --list": "runnel get topics",
    "topic get orders": "runnel get topic orders",
    "topic create orders -p 3": "runnel create topic orders",
    "topic describe orders": "runnel describe topic orders",
    "topic delete orders": "runnel delete topic orders",
    "topic alter-config orders": "runnel edit topic orders",
    "topic consume orders": "runnel consume orders",
    "topic produce": "runnel produce TOPIC",
    "rm topic orders": "runnel delete topic orders",
    "show topics": "runnel get topics",
    "cat orders": "runnel consume orders",
    "create -f orders.yaml": APPLY,
    "create topics orders": "runnel create topic orders",
    "create t orders": "runnel create topic orders",
    "create spu edge-7": APPLY,
    "create topic orders --replicas 3": "--replication-factor N",
    "brokers": "runnel get spus",
    "broker list": "runnel get spus",
    "spu list": "runnel get spus",
    "spu start": "runnel spu run -c spu.yaml",
    "partition list": "runnel get partitions",
    "partition create": "runnel scale topic NAME --partitions N",
    "topic add-partitions orders": "runnel scale topic orders --partitions N",
    "spu scale": "runnel scale spugroup NAME --replicas N",
    "group ls": "runnel group list",
    "group rm billing": "runnel group delete GROUP",
    "group seek billing": "runnel group reset GROUP --to earliest",
    "get groups": "runnel group list",
    "kafka-consumer-groups --list": "runnel group list",
    "consumer list": "runnel get consumers",
    "consumer delete billing": "runnel delete consumer billing",
    "config get-contexts": "runnel context list",
    "config use-context prod": "runnel context use NAME",
    "profile create prod": "runnel context add NAME --sc HOST:PORT",
    "contexts": "runnel context list",
    "context current": "runnel context list",
    "cluster list": "runnel context list",
    "cluster up": "runnel cluster start",
    "cluster health": "runnel cluster check",
    "cluster start --nodes 3": "--spus N",
    "status": "runnel cluster status",
    "logs": "runnel cluster logs",
    "version": "runnel --version",
    "get brokers": "runnel get spus",
    "describe group billing": "runnel group list",
    "get messages": "runnel consume TOPIC",
    "get topic/orders": "write the name as a word of its own: topic orders",
    "describe topic/orders x": "write the name as a word of its own: topic orders",
    "get topics -n default": "Runnel has no namespaces: leave the option out",
    "get topics --bootstrap-server x:1": "--sc HOST:PORT names the cluster, or --context NAME",
    "consume orders --group-id billing": "--group NAME",
    "consume --topic orders": "runnel consume TOPIC",
    "delete topic orders --yes": "delete does not ask: leave the option out",
    "--context prod get topics": "write options after the command: runnel COMMAND … --context",
}


@pytest.mark.parametrize(("line", "hint"), HINTS.items(), ids=HINTS)
def test_hint(command: CommandLine, line: str, hint: str) -> None:
    done = command(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"hint: {hint}"
    assert "error: " in done.err


KAFKAS = "hint: Kafka's all (-1) is committed, 1 is leader, 0 is none"
NO_CHOICES = {
    "consume t -o csv": ("'-o' / '--output'", "'csv' is not one of 'value', 'json', 'table'."),
    "context list -o csv": ("'-o' / '--output'", "'csv' is not one of 'table', 'json'."),
    **{
        f"{name} --acks {word}": (
            "'--acks'",
            f"'{word}' is not one of 'committed', 'leader', 'none'.\n{KAFKAS}",
        )
        for name in ("produce t", "bench produce")
        for word in ("all", "ALL", "-1", "1", "0")
    },
    "produce t --acks some": ("'--acks'", "'some' is not one of 'committed', 'leader', 'none'."),
}


@pytest.mark.parametrize(("line", "said"), NO_CHOICES.items(), ids=NO_CHOICES)
def test_given_a_word_that_is_no_choice_then_the_choices(
    command: CommandLine, line: str, said: tuple[str, str]
) -> None:
    done = command(*line.split())
    assert (done.code, done.out) == (2, "")
    option, choices = said
    assert done.err.endswith(f"\nerror: Invalid value for {option}: {choices}\n")


NO_HINT = [
    "aplly", "partition delete orders-0", "create topci orders", "get topics --wathc",
    "get topcs", "get topics -o xml", "topic offsets", "consume",
]  # fmt: skip


@pytest.mark.parametrize("line", NO_HINT)
def test_given_another_mistake_then_no_hint(command: CommandLine, line: str) -> None:
    done = command(*line.split())
    assert (done.code, "hint:" in done.err) == (2, False)


ANSWERS = sorted(
    {*HINTS.values(), *habits._AT_ROOT.values(), *habits._IN_GROUPS.values(),
     *habits._OPTIONS.values(), *habits._KINDS.values()}
)  # fmt: skip


@pytest.mark.parametrize("answer", [one for one in ANSWERS if one.startswith("runnel ")])
def test_every_command_that_is_answered_exists(answer: str) -> None:
    words = list(until_a_shell_takes_over(shlex.split(re.sub(r"\bN$", "1", answer))))
    # A sentence that begins with a command ends before its verb; these two act while parsed.
    if {"--version", "--help", "names"} & set(words):
        return
    parse(words)


def found(path: str) -> Any:
    """A command below the root."""
    first, *below = path.split()
    command = load(first)
    for name in below:
        command = command.commands[name]
    return command


def test_no_word_with_a_hint_is_a_command() -> None:
    assert not set(habits._AT_ROOT) & set(COMMANDS)
    for group, word in habits._IN_GROUPS:
        command = found(group)
        assert isinstance(command, TyperGroup)
        assert word not in command.commands, (group, word)


def test_no_option_with_a_hint_is_one_of_its_command() -> None:
    for path, option in habits._OPTIONS:
        if path:
            options = {name for one in found(path).params for name in one.opts}
            assert option not in options, (path, option)


def test_every_option_that_is_answered_exists() -> None:
    for (path, _), answer in habits._OPTIONS.items():
        if path and answer.startswith("--"):
            options = {
                name for one in found(path).params for name in (*one.opts, *one.secondary_opts)
            }
            assert answer.split()[0].rstrip(":") in options, (path, answer)


def test_no_word_with_a_hint_is_a_kind() -> None:
    for word in habits._KINDS:
        with pytest.raises(Exception, match="unknown kind"):
            find_kind(word)
