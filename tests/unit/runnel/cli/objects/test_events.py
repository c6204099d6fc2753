"""``get events``: a table of changes, the newest last."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from runnel.cli.objects import events
from runnel.logs.events import list_events
from schemas.errors import OverloadedError
from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.fake_sc import FakeSc


def event(revision: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "Topic",
        "name": "orders",
        "change": "modified",
        "revision": str(revision),
        "at": f"2026-01-31T12:00:{revision:02}.000Z",
        "by": "sc",
        "cause": "api-1",
        "generation": 1,
        "resolution": "pending",
        "reason": "placing partitions",
        "changed": ["status.reason"],
    } | more


def test_given_events_then_a_table(command: CommandLine, sc: FakeSc) -> None:
    sc.events = [event(1, change="created", by="ann", reason=None), event(2, at=None, by=None)]
    done = command("get", "events")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["TIME", "OBJECT", "CHANGE", "BY", "CAUSE", "RESOLUTION", "DETAIL"],
        [
            "2026-01-31T12:00:01.000Z",
            "topic/orders",
            "created",
            "ann",
            "api-1",
            "pending",
            "status.reason",
        ],
        ["-", "topic/orders", "modified", "-", "api-1", "pending", "placing", "partitions"],
    ]


def test_given_json_then_items(command: CommandLine, sc: FakeSc) -> None:
    sc.events = [event(1)]
    (found,) = json.loads(command("get", "events", "-o", "json").out)["items"]
    assert (found["kind"], found["cause"], found["changed"]) == (
        "Topic",
        "api-1",
        ["status.reason"],
    )


def test_given_options_then_the_sc_is_asked_for_these(command: CommandLine, sc: FakeSc) -> None:
    since = "2026-01-31T12:00:00"
    done = command("get", "events", "--for", "topic/orders", "--since", since)
    assert (done.code, done.out, done.err) == (0, "", "no events found\n")
    assert sc.seen.queries[-1] == {"for": "topic/orders", "since": f"{since}+00:00"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["events", "orders"], "events are no objects: leave NAME, -l and --sort-by out"),
        (["events", "-w", "-o", "yaml"], "-o: events are printed as table, wide or json"),
        (["events", "-o", "yaml"], "-o: events are printed as table, wide or json"),
        (["events", "--since", "x"], "--since: 'x' is neither a duration nor a time"),
        (["topics", "--since", "1h"], "--for and --since choose events: runnel get events"),
    ],
)
def test_mistakes(arguments: list[str], message: str, command: CommandLine) -> None:
    done = command("get", *arguments)
    assert done.code == 2
    assert message in done.err


def test_given_an_sc_of_an_earlier_version_then_said(command: CommandLine, sc: FakeSc) -> None:
    sc.events = None
    done = command("get", "events")
    assert done.code == 3
    assert "the SC is of an earlier version, which lists no events; upgrade it" in done.err


def turns(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """``-w`` waits this often, and each time something happens; then it is interrupted."""
    left = list(steps)

    def wait(seconds: float) -> None:
        assert seconds == events.LOOK_S
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(events, "sleep", wait)


def test_given_w_then_new_events_are_printed_as_they_come(
    command: CommandLine, sc: FakeSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = sc.events = [event(1), event(2)]
    more = [event(3, change="deleted"), event(3, name="second")]
    turns(monkeypatch, lambda: None, lambda: kept.extend(more), lambda: None)
    done = command("get", "events", "-w", "--for", "topic/orders")
    assert done.code == 130
    shown = [line.split()[:3] for line in done.out.splitlines()]
    assert shown[0] == ["TIME", "OBJECT", "CHANGE"]
    assert [line[1:] for line in shown[1:]] == [
        ["topic/orders", "modified"],
        ["topic/orders", "modified"],
        ["topic/orders", "deleted"],
        ["topic/second", "modified"],
    ]
    asked = [query.get("after") for query in sc.seen.queries]
    assert asked == [None, "2", "2", "3"]


def test_given_w_and_json_then_an_object_a_line(
    command: CommandLine, sc: FakeSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    sc.events = [event(1), event(2)]
    turns(monkeypatch)
    done = command("get", "events", "-w", "-o", "json")
    assert [json.loads(line)["revision"] for line in done.out.splitlines()] == ["1", "2"]


def test_given_w_and_an_sc_that_is_away_then_said_once_and_asked_again(
    command: CommandLine, sc: FakeSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = sc.events = []
    answers = [(), OverloadedError("busy"), OverloadedError("busy"), None]

    async def scripted(*arguments: Any, **options: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return await list_events(*arguments, **options)

    monkeypatch.setattr(events, "list_events", scripted)
    turns(monkeypatch, lambda: None, lambda: None, lambda: kept.append(event(7)))
    done = command("get", "events", "-w")
    assert done.err.count("busy; asking again") == 1
    assert "topic/orders" in done.out
