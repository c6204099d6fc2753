"""``get``, ``describe``, ``wait``, ``delete`` and dry runs: what a user reads."""

from __future__ import annotations

import getpass
import json
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

import runnel
from runnel.admin.answers import HistoryEntry, ReplicaState
from runnel.admin.watch import EventType, WatchEvent
from runnel.cli.connection import who
from runnel.cli.objects import watch
from runnel.cli.objects.describe import history_rows, replica_row
from runnel.cli.objects.reasons import explain_state
from runnel.cli.objects.watch import EventPrinter, Once
from runnel.cli.render import Output
from schemas.errors import UnreachableError
from schemas.objects.metadata import Object
from schemas.objects.topic import Topic
from tests.unit.runnel.cli.conftest import CommandLine

MISSING = "no SPU is online"
EDIT = "runnel edit topic orders"
BEHIND = "which its controller has not looked at yet"


def topic(name: str = "orders", revision: int = 1, reason: str | None = None) -> Topic:
    obj = runnel.Topic(name).with_metadata(
        uid="u", resource_version=str(revision), creation_timestamp=datetime.now(UTC).isoformat()
    )
    return obj.with_status(obj.status.model_copy(update={"reason": reason}))


def change(type_: EventType, obj: Object) -> WatchEvent:
    return WatchEvent(type_, obj, obj.revision)


def test_table_of_changes_has_one_heading_and_lines_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = EventPrinter(Output.TABLE)
    printer.begin([topic("orders")])
    printer.change(change("modified", topic("orders", 2, MISSING)))
    printer.change(change("deleted", topic("orders", 3)))
    heading, first, second, third = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "NAME", "PARTITIONS", "REPLICAS", "RESOLUTION", "REASON", "AGE", "EVENT",
    ]  # fmt: skip
    assert first.split() == ["orders", "1", "1", "init", "0s"]
    assert second.endswith("  modified")
    assert MISSING in second
    # Columns that have grown stay that wide.
    assert third.index("0s") == second.index("0s")
    assert third.endswith("deleted")


def test_given_nothing_at_first_then_the_heading_comes_with_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = EventPrinter(Output.WIDE)
    printer.begin([])
    assert capsys.readouterr().out == ""
    printer.change(change("added", topic()))
    heading, line = capsys.readouterr().out.splitlines()
    assert (heading.startswith("NAME"), line.startswith("orders")) == (True, True)
    assert "PLACEMENT" in heading


def test_json_is_one_object_a_line_with_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    printer = EventPrinter(Output.JSON)
    printer.begin([topic("orders", 4)])
    printer.change(change("deleted", topic("orders", 7)))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["type"], line["revision"]) for line in lines] == [("added", 4), ("deleted", 7)]
    assert lines[0]["object"]["metadata"]["name"] == "orders"


def test_names_and_yaml_of_changes(capsys: pytest.CaptureFixture[str]) -> None:
    EventPrinter(Output.NAME).begin([topic()])
    assert capsys.readouterr().out == "topics/orders\n"
    EventPrinter(Output.YAML).change(change("modified", topic()))
    assert capsys.readouterr().out.startswith("---\n# modified\napiVersion: runnel/v1\n")


def test_the_same_trouble_is_said_once() -> None:
    told: list[str] = []
    once = Once(lambda error: told.append(error.message))
    for message in ("away", "away", "back", "away"):
        once(UnreachableError(message))
    assert told == ["away", "back", "away"]


def test_get_watch_ends_with_130_at_an_interrupt(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.sc.add_topic("orders")

    class Interrupting(EventPrinter):
        """The connection breaks after the first line; the user presses Ctrl-C at the second."""

        lines = 0

        def change(self, event: WatchEvent) -> None:
            super().change(event)
            self.lines += 1
            if self.lines == 1:
                command.sc.cut()
                command.sc.add_topic("clicks")
            else:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(watch, "EventPrinter", Interrupting)
    done = command("get", "topics", "-w", "-o", "name")
    assert done.code == 130
    assert done.out.split() == ["topics/orders", "topics/clicks"]
    assert done.err.splitlines()[-1] == "interrupted"


def test_get_watch_of_one_name_and_of_none(command: CommandLine) -> None:
    done = command("get", "topic", "nope", "-w")
    assert (done.code, "does not exist" in done.err) == (3, True)
    both = command("get", "topic", "orders", "-l", "a=b")
    assert (both.code, "not both" in both.err) == (2, True)


def test_what_is_the_systems_is_shown_when_asked_for(command: CommandLine) -> None:
    command.sc.add_topic("orders")
    command.sc.add_topic("_positions")
    assert command("get", "topics", "-o", "name").out == "topics/orders\n"
    both = command("get", "topics", "--show-system", "-o", "name")
    assert both.out.split() == ["topics/_positions", "topics/orders"]
    assert command("get", "topic", "_positions", "-o", "name").out == "topics/_positions\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("get", "consumers", "-w", "-o", "json"), id="given-a-watch-of-json"),
        pytest.param(("get", "consumers", "-l", "a=b"), id="given-labels"),
        pytest.param(("delete", "consumer"), id="given-no-name"),
        pytest.param(("delete", "consumer", "a", "--force"), id="given-force"),
        pytest.param(("delete", "topic", "a", "--topic", "b"), id="given-a-topic-of-a-topic"),
        pytest.param(("consume", "a", "--name", "b", "--tail", "1"), id="given-a-tail"),
        pytest.param(("consumer", "reset", "a", "--topic", "b"), id="given-no-place"),
        pytest.param(
            ("consumer", "reset", "a", "--topic", "b", "--to", "noon"), id="given-no-time"
        ),
        pytest.param(("consumer", "reset", "a", "--to", "latest"), id="given-no-topic"),
    ],
)
def test_refused_of_consumers(command: CommandLine, arguments: tuple[str, ...]) -> None:
    assert command(*arguments).code == 2


def test_selectors_go_to_the_sc(command: CommandLine) -> None:
    command.sc.add_topic("orders")
    done = command("get", "topics", "-l", "a=b")
    assert (done.code, done.out, "no topics found" in done.err) == (0, "", True)
    assert command.sc.seen.queries[-1]["labelSelector"] == "a=b"


STATES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "given-placed-then-what-that-means": (
        {"resolution": "provisioned", "observedGeneration": 3},
        ["provisioned: all of its partitions are placed on SPUs"],
    ),
    "given-a-reason-then-it-is-said": (
        {"resolution": "pending", "observedGeneration": 3, "reason": MISSING},
        ["pending: its partitions are not placed yet", f"because {MISSING}"],
    ),
    "given-an-older-generation-then-it-is-said": (
        {"resolution": "invalidConfig", "observedGeneration": 2},
        [
            f"invalidConfig: its spec cannot be satisfied; change it with: {EDIT}",
            f"as of generation 2; the spec is at generation 3, {BEHIND}",
        ],
    ),
}


@pytest.mark.parametrize(("status", "lines"), STATES.values(), ids=STATES)
def test_why_it_is_in_its_state(status: dict[str, Any], lines: list[str]) -> None:
    obj = topic().with_metadata(generation=3)
    made = type(obj.status).model_validate({**obj.status.to_json(), **status})
    assert explain_state(obj.with_status(made)) == lines


def test_given_a_deletion_that_is_not_in_the_status_yet_then_it_is_said() -> None:
    lines = explain_state(topic().with_metadata(deletion_timestamp="2026-01-01T00:00:00Z"))
    assert "to be deleted since 2026-01-01T00:00:00Z" in lines


def entry(revision: int, *changed: str, **more: Any) -> HistoryEntry:
    fields = {
        "at": None, "by": "ann@desk", "cause": "api-1", "generation": 1,
        "resolution": "pending", "reason": None, **more,
    }  # fmt: skip
    return HistoryEntry(revision=revision, changed=changed, **fields)


HISTORIES: dict[str, tuple[list[HistoryEntry], bool, list[str]]] = {
    "given-the-creation-then-it-is-called-that": (
        [entry(3, "spec.partitions"), entry(2, "metadata", "spec", "status")], True,
        ["spec.partitions", "created"],
    ),
    "given-the-beginning-is-forgotten-then-the-last-is-a-change": (
        [entry(3, "spec.partitions")], False, ["spec.partitions"],
    ),
    "given-a-resolution-then-which": (
        [entry(3, "status.reason", "status.replicaMap", "status.resolution")], False,
        ["status.replicaMap, resolution → pending"],
    ),
    "given-only-a-reason-then-that": ([entry(3, "status.reason")], False, ["status.reason"]),
    "given-nothing-then-a-dash": ([entry(3)], False, ["-"]),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "complete", "changes"), HISTORIES.values(), ids=HISTORIES)
def test_histories(entries: list[HistoryEntry], complete: bool, changes: list[str]) -> None:
    rows = history_rows(entries, complete=complete)
    assert [row[3] for row in rows] == changes
    assert [row[1] for row in rows] == [str(e.revision) for e in entries]


def test_given_a_name_that_moves_the_cursor_then_it_does_not() -> None:
    (row,) = history_rows([entry(1, "spec", by="\x1b[2Jann", cause=None)], complete=False)
    assert (row[2], row[5]) == ("?[2Jann", "-")


def test_describe_tells_state_and_history(command: CommandLine) -> None:
    command.sc.change(
        command.sc.add_topic("orders").with_metadata(creation_timestamp="2026-01-01T00:00:00Z")
    )
    command.sc.history["topics", "orders"] = [
        {"revision": 9, "at": "2026-01-01T00:00:00.000Z", "by": "ann@desk", "cause": "api-1",
         "generation": 2, "resolution": "pending", "reason": MISSING,
         "changed": ["spec.partitions", "status.resolution"]},
    ]  # fmt: skip
    said = command("describe", "topic", "orders").out
    assert "State:        provisioned: all of its partitions are placed on SPUs\n" in said
    table = said[said.index("History:") :].splitlines()
    assert table[1].split() == ["AGE", "REVISION", "BY", "CHANGE", "REASON", "CAUSE"]
    assert "created" in table[2]
    assert MISSING in table[2]


DRY: dict[str, tuple[tuple[str, ...], str]] = {
    "create": (("create", "topic", "new", "--dry-run"), "topic/new created (dry run)\n"),
    "delete": (("delete", "topic", "orders", "--dry-run"), "topic/orders deleted (dry run)\n"),
    "apply": (("apply", "-f", "m.yaml", "--dry-run"), "topic/new created (dry run)\n"),
}


@pytest.mark.parametrize(("arguments", "said"), DRY.values(), ids=DRY)
def test_dry_runs(
    command: CommandLine,
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text("apiVersion: runnel/v1\nkind: Topic\nmetadata: {name: new}\n")
    command.sc.add_topic("orders")
    done = command(*arguments)
    assert (done.code, done.out) == (0, said)
    assert command("get", "topics", "-o", "name").out == "topics/orders\n"
    assert command.sc.seen.queries[0].get("dryRun", command.sc.seen.queries[-2:]) == "true"


def test_force_is_for_spus(command: CommandLine) -> None:
    command.sc._store(runnel.Spu("edge", 1))
    command.sc.add_topic("orders")
    refused = command("delete", "topic", "orders", "--force")
    assert (refused.code, "--force is for SPUs, not for topics" in refused.err) == (2, True)
    done = command("delete", "spu", "edge", "--force")
    assert (done.code, done.out) == (0, "spu/edge deleted\n")
    assert {"force": "true"} in command.sc.seen.queries


def test_the_command_says_who_writes(command: CommandLine) -> None:
    command("create", "topic", "orders", "--no-wait")
    assert command.sc.seen.by == [who()]
    assert who().startswith(f"{getpass.getuser()}@")


def test_who_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert who().startswith("unknown@")


def test_wait_names_the_last_state(command: CommandLine) -> None:
    command.sc.add_topic("orders")
    late = command("wait", "topic", "orders", "--for", "pending", "--timeout", "0s")
    assert (late.code, "it is provisioned" in late.err) == (5, True)
    done = command("wait", "topic", "orders", "--for", "provisioned")
    assert (done.code, done.out) == (0, "topic/orders provisioned\n")


def test_a_mistyped_command_is_answered_with_the_right_one(command: CommandLine) -> None:
    done = command("descibe")
    assert (done.code, "Did you mean 'describe'?" in done.err) == (2, True)
    listed = command("--help").out
    assert [line.split()[0] for line in listed[listed.index("Commands:") :].splitlines()[1:]] == [
        "cluster", "context", "sc", "spu", "dashboard", "create", "apply", "diff", "edit", "label",
        "scale", "get", "describe", "trace", "explain", "delete", "wait", "top", "topic", "stream",
        "group", "archive", "partition", "pipeline", "produce", "consume", "consumer", "bench",
    ]  # fmt: skip


def replica(**changes: Any) -> ReplicaState:
    values = {
        "spu": 2,
        "live": True,
        "role": "follower",
        "fit": True,
        "log_start": 5,
        "next_offset": 900,
        "reason": None,
    }
    return ReplicaState(**{**values, **changes})


@pytest.mark.parametrize(
    ("found", "end", "row"),
    [
        pytest.param(
            replica(role="leader"),
            1_000,
            ["  2", "leader", "5", "-", "-", ""],
            id="given-the-leader-then-its-report-says-nothing-of-its-end",
        ),
        pytest.param(
            replica(), 1_000, ["  2", "live", "5", "-", "-", ""], id="given-a-live-one-then-so"
        ),
        pytest.param(
            replica(live=False),
            12_900,
            ["  2", "catching up", "5", "900", "12,000", ""],
            id="given-one-that-catches-up-then-how-far-it-is",
        ),
        pytest.param(
            replica(live=False),
            None,
            ["  2", "catching up", "5", "900", "-", ""],
            id="given-no-end-then-only-where-it-is",
        ),
        pytest.param(
            replica(live=False, fit=False, role="stopped", reason="wet"),
            1_000,
            ["  2", "unfit", "5", "900", "-", "wet"],
            id="given-an-unfit-one-then-why",
        ),
        pytest.param(
            replica(role=None, fit=None, log_start=None, next_offset=None),
            1_000,
            ["  2", "away", "-", "-", "-", ""],
            id="given-one-that-is-away-then-so",
        ),
    ],
)
def test_rows_of_replicas(found: ReplicaState, end: int | None, row: list[str]) -> None:
    assert replica_row(found, end) == row
