"""``runnel context`` and ``--context``: what users read, and which cluster a command talks to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.core import TyperGroup

from runnel.cli.commands import COMMANDS, load
from runnel.contexts import load_contexts, remember_cluster, runnel_home
from runnel.local.cluster import ClusterDaemons
from runnel.local.plan import ClusterPlan
from runnel.local.state import ClusterState
from tests.unit.runnel.cli.conftest import CommandLine

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def contexts(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command with a context for its SC, ``real``, and one in use for no SC."""
    command.sc.add_topic("orders")
    monkeypatch.delenv("RUNNEL_SC")
    assert command("context", "add", "real", "--sc", command.sc.address).code == 0
    assert command("context", "add", "nowhere", "--sc", NOWHERE, "--use").code == 0
    return command


def test_list_use_and_remove(contexts: CommandLine) -> None:
    listed = contexts("context", "list").out.splitlines()
    assert [line.split() for line in listed] == [
        ["CURRENT", "NAME", "SC", "DATA", "DIRECTORY"],
        ["*", "nowhere", NOWHERE, "-"],
        ["real", contexts.sc.address, "-"],
    ]
    done = contexts("context", "use", "real")
    assert (done.out, done.err) == (f"context real is in use: SC at {contexts.sc.address}\n", "")
    assert contexts("get", "topics", "-o", "name").out == "topics/orders\n"
    items = json.loads(contexts("context", "list", "-o", "json").out)["items"]
    assert [(item["name"], item["current"]) for item in items] == [
        ("nowhere", False),
        ("real", True),
    ]
    done = contexts("context", "remove", "real")
    assert (done.code, done.out) == (0, "context real removed\n")
    assert "no context is in use" in done.err
    assert contexts("context", "list").out.count("*") == 0


def test_add_takes_a_name_once(contexts: CommandLine) -> None:
    again = contexts("context", "add", "nowhere", "--sc", NOWHERE)
    assert (again.code, again.out.splitlines()[0]) == (
        0,
        f"context nowhere unchanged: SC at {NOWHERE}",
    )
    other = contexts("context", "add", "nowhere", "--sc", "x:1")
    assert (other.code, "runnel context remove nowhere" in other.err) == (4, True)
    wrong = contexts("context", "add", "x", "--sc", "http://x")
    assert (wrong.code, "is a URL" in wrong.err) == (2, True)


def test_given_a_name_of_nothing_then_not_found(contexts: CommandLine) -> None:
    for word in ("use", "remove"):
        done = contexts("context", word, "rael")
        assert (done.code, "did you mean real?" in done.err) == (3, True)


def test_given_a_local_cluster_then_remove_says_that_its_data_stays(command: CommandLine) -> None:
    remember_cluster("lab", "localhost:1", runnel_home() / "lab")
    done = command("context", "remove", "lab")
    assert f"the data of its cluster stays in {runnel_home() / 'lab'}" in done.err


def test_given_a_variable_then_it_is_said_to_decide(
    contexts: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_CONTEXT", "gone")
    said = "but RUNNEL_CONTEXT=gone decides which cluster commands talk to\n"
    for words in (["list"], ["use", "real"]):
        done = contexts("context", *words)
        assert (done.code, done.err) == (0, said)
    assert load_contexts().current == "real"
    monkeypatch.setenv("RUNNEL_SC", "x:1")
    assert "but RUNNEL_SC=x:1 decides" in contexts("context", "list").err


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("RUNNEL_SC", "b:2", False),
        ("RUNNEL_SC", "c:3,a:1", False),
        ("RUNNEL_SC", "a:1,d:4", True),
        ("RUNNEL_SC", "http://a:1", True),
        ("RUNNEL_CONTEXT", "three", False),
        ("RUNNEL_CONTEXT", "real", True),
    ],
)
def test_given_a_variable_that_leads_to_the_same_cluster_then_nothing_is_said(
    contexts: CommandLine, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: bool
) -> None:
    assert contexts("context", "add", "three", "--sc", "a:1,b:2,c:3", "--use").code == 0
    monkeypatch.setenv(variable, value)
    assert ("decides" in contexts("context", "list").err) == says


SC_CHOICES: dict[str, tuple[dict[str, str], list[str], int]] = {
    "given-nothing-then-the-one-in-use": ({}, [], 5),
    "given-the-option-then-it": ({}, ["--context", "real"], 0),
    "given-a-variable-then-it": ({"RUNNEL_CONTEXT": "real"}, [], 0),
    "given-both-then-the-option": ({"RUNNEL_CONTEXT": "real"}, ["--context", "nowhere"], 5),
    "given-an-address-in-a-variable-then-the-option": (
        {"RUNNEL_SC": NOWHERE}, ["--context", "real"], 0,
    ),
    "given-an-address-and-a-context-in-variables-then-the-address": (
        {"RUNNEL_SC": NOWHERE, "RUNNEL_CONTEXT": "real"}, [], 5,
    ),
    "given-an-unknown-context": ({}, ["--context", "rael"], 2),
    "given-two-options": ({}, ["--context", "real", "--sc", NOWHERE], 2),
    "given-two-options-the-other-way-round": ({}, ["--sc", NOWHERE, "--context", "real"], 2),
}  # fmt: skip


@pytest.mark.parametrize(("variables", "options", "code"), SC_CHOICES.values(), ids=SC_CHOICES)
def test_which_cluster_a_command_talks_to(
    contexts: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    options: list[str],
    code: int,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = contexts("get", "topics", *options, "-o", "name")
    assert (done.code, done.out) == (code, "topics/orders\n" if code == 0 else "")


def test_given_a_context_then_commands_of_local_clusters_take_its_directory(
    contexts: CommandLine,
) -> None:
    remember_cluster("lab", "localhost:1", runnel_home() / "lab")
    assert contexts("context", "use", "real").code == 0
    here = contexts("cluster", "status", "--context", "lab")
    assert (here.code, f"no cluster in {runnel_home() / 'lab'}" in here.err) == (3, True)
    elsewhere = contexts("cluster", "status", "--context", "real")
    assert (elsewhere.code, "was not started on this machine" in elsewhere.err) == (2, True)
    both = contexts("cluster", "status", "--context", "lab", "--data-dir", "x")
    assert (both.code, "--context or --data-dir, not both" in both.err) == (2, True)


def test_given_a_context_elsewhere_then_commands_of_local_clusters_say_what_they_are_about(
    contexts: CommandLine,
) -> None:
    done = contexts("cluster", "status")
    said = f"the cluster of context nowhere is elsewhere; this is about {runnel_home() / 'local'}"
    assert (done.code, done.err.splitlines()[0]) == (3, said)


def test_given_another_context_in_use_then_start_says_which_one_commands_use_now(
    contexts: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(self: ClusterDaemons, plan: ClusterPlan, _progress: object) -> bool:
        remember_cluster(plan.cluster, plan.sc_address, self.data_dir)
        return True

    monkeypatch.setattr(ClusterDaemons, "start", started)
    monkeypatch.setattr(ClusterDaemons, "require", lambda _self: ClusterState(spus=1))
    lab = str(runnel_home() / "lab")
    said = "commands use context lab now; for the one before: runnel context use nowhere\n"
    first = contexts("cluster", "start", "--name", "lab", "--data-dir", lab)
    assert (first.code, said in first.err) == (0, True)
    again = contexts("cluster", "start", "--name", "lab")
    assert (again.code, "context" in again.err) == (0, False)
    assert load_contexts().current == "lab"
    monkeypatch.setenv("RUNNEL_SC", "x:1")
    assert "but RUNNEL_SC=x:1 decides" in contexts("cluster", "start", "--name", "lab").err


def test_every_command_with_a_cluster_takes_a_context() -> None:
    left: list[tuple[str, Any]] = [(name, load(name)) for name in COMMANDS]
    found: set[str] = set()
    lacking: set[str] = set()
    while left:
        path, one = left.pop()
        if isinstance(one, TyperGroup):
            left += [(f"{path} {name}", below) for name, below in one.commands.items()]
            continue
        options = {name for parameter in one.params for name in parameter.opts}
        if options & {"--sc", "--data-dir"}:
            (found if "--context" in options else lacking).add(path)
    # This one tells what a context is.
    assert lacking == {"context add"}
    assert {"get", "cluster status", "bench e2e", "partition verify", "cluster check"} <= found


def test_what_a_file_holds_does_nothing_to_a_terminal(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNNEL_SC")
    runnel_home().mkdir(parents=True)
    entries = {
        "\x1b[31mred": {"sc": "x:1\x1b[2J"},
        "half\ud800": {"sc": "y:1", "data_dir": "/\x07"},
    }
    (runnel_home() / "contexts.json").write_text(json.dumps({"contexts": entries}))
    done = command("context", "list")
    assert [line.split() for line in done.out.splitlines()[1:]] == [
        ["\\x1b[31mred", "x:1\\x1b[2J", "-"],
        ["half\\ud800", "y:1", "/\\x07"],
    ]
    # An error lists the names.
    done = command("context", "use", "x")
    assert (done.code, done.err) == (
        3,
        "error: there is no context 'x'; Known: \\x1b[31mred, half\\ud800\n",
    )
    done = command("context", "use", "half\ud800")
    assert (done.code, done.out) == (0, "context half\\ud800 is in use: SC at y:1\n")
    done = command("context", "remove", "half\ud800")
    assert (done.code, done.out) == (0, "context half\\ud800 removed\n")
    assert "stays in /\\x07\n" in done.err
