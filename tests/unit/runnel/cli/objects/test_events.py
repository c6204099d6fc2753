"""``get events``: a table of changes, the newest last."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
        (["events", "orders"], "events are no objects: leave NAME, -l, --sort-by and -w out"),
        (["events", "-w"], "events are no objects: leave NAME, -l, --sort-by and -w out"),
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
