"""TAB: what is offered, and that nothing is said or waited for when no SC answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from runnel.cli import completion
from tests.unit.runnel.cli.conftest import CommandLine


@pytest.fixture
def complete(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Complete:
    command.sc.add_topic("orders")
    command.sc.add_topic("order-lines")
    command.sc.add_topic("views")
    return Complete(command, monkeypatch)


class Complete:
    """What bash is offered for a line that ends where the cursor is."""

    def __init__(self, command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._command = command
        self._monkeypatch = monkeypatch

    def __call__(self, line: str) -> list[str]:
        words = line.split(" ")
        self._monkeypatch.setenv("_RUNNEL_COMPLETE", "complete_bash")
        self._monkeypatch.setenv("COMP_WORDS", line)
        self._monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        done = self._command()
        assert (done.code, done.err) == (0, "")
        return done.out.split()


OFFERED = {
    "given-part-of-a-command": ("runnel de", ["describe", "delete"]),
    "given-part-of-a-group": ("runnel cluster ch", ["check"]),
    "given-part-of-a-kind": ("runnel get t", ["topics"]),
    "given-part-of-a-singular": ("runnel get topi", ["topics"]),
    "given-a-singular-that-is-no-beginning-of-a-plural": ("runnel get spugroup", ["spugroups"]),
    "given-a-kind-then-its-names": ("runnel get t ord", ["order-lines", "orders"]),
    "given-a-kind-without-objects-then-nothing": ("runnel describe spu ", []),
    "given-no-kind-of-that-name-then-nothing": ("runnel describe spoo ", []),
    "given-a-topic": ("runnel consume v", ["views"]),
    "given-names-to-delete": ("runnel delete topic v", ["views"]),
    "given-a-resolution": ("runnel wait t orders --for p", ["pending", "provisioned"]),
    "given-a-resolution-of-no-kind-then-nothing": ("runnel wait x y --for p", []),
    "given-a-field": ("runnel explain topic.spec.re", [
        "topic.spec.replicationFactor", "topic.spec.retention",
    ]),
    "given-a-field-of-nothing-then-nothing": ("runnel explain topic.spoc.re", []),
    "given-a-kind-to-explain": ("runnel explain stre", ["stream"]),
    "given-an-output": ("runnel get t -o y", ["yaml"]),
    "given-the-output-that-takes-a-template": ("runnel get t -o js", ["json", "jsonpath="]),
    "given-a-second-kind": ("runnel get topics,part", ["topics,partitions"]),
}  # fmt: skip


@pytest.mark.parametrize(("line", "offered"), OFFERED.values(), ids=OFFERED)
def test_offered(complete: Complete, line: str, offered: list[str]) -> None:
    assert complete(line) == offered


def test_names_come_from_all_pages(complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_PAGE_OBJECTS", 1)
    assert complete("runnel get topics ") == ["order-lines", "orders", "views"]


def test_the_sc_that_is_named_is_asked(
    complete: Complete, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_SC", "127.0.0.1:1")
    assert complete("runnel get topics v") == []
    assert complete(f"runnel get --sc {command.sc.address} topics v") == ["views"]


def test_contexts_are_offered_and_asked(
    complete: Complete, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNNEL_SC")
    assert command("context", "add", "prod", "--sc", "127.0.0.1:1", "--use").code == 0
    assert command("context", "add", "lab", "--sc", command.sc.address).code == 0
    assert complete("runnel get topics --context ") == ["prod", "lab"]
    assert complete("runnel context use l") == ["lab"]
    assert complete("runnel get topics v") == []
    assert complete("runnel get --context lab topics v") == ["views"]
    assert complete("runnel get --context gone topics v") == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://nonsense", "no.such.host.invalid:1"])
def test_given_no_sc_then_nothing_is_offered_nor_said(
    complete: Complete, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RUNNEL_SC", address)
    assert complete("runnel get topics v") == []


def test_given_an_sc_that_never_answers_then_it_is_not_waited_for(
    complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "PATIENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("RUNNEL_SC", f"127.0.0.1:{silent.getsockname()[1]}")
        # It ends at all: nothing ever comes from there.
        assert complete("runnel get topics v") == []


def test_given_something_that_takes_long_then_what_was_found_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "PATIENCE_S", 0.2)
    released = threading.Event()

    def look() -> Iterator[str]:
        yield "orders"
        released.wait()
        yield "views"

    try:
        assert completion._within(look) == ["orders"]
    finally:
        released.set()
