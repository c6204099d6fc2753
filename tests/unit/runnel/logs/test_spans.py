"""A trace as spans: who stands below whom, from when to when, and what happened there."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from runnel.logs.events import ObjectEvent
from runnel.logs.spans import otlp_request, trace_id
from runnel.logs.trace import TraceStep

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def change(at_ms: int, kind: str, name: str) -> TraceStep:
    what = ObjectEvent(kind, name, "modified", 7, None, "ann", "api-1", "online", None, ("spec",))
    return TraceStep(START + timedelta(milliseconds=at_ms), "sc", what.object, what)


def line(at_ms: int, process: str, name: str | None, event: str = "x", **fields: Any) -> TraceStep:
    return TraceStep(
        START + timedelta(milliseconds=at_ms), process, name, {"event": event, **fields}
    )


STEPS = (
    change(0, "Topic", "a-b"),
    line(1, "sc", "topic/a-b", "placed", level="info", replicas=3, ok=True, share=0.5),
    change(2, "Partition", "a-b-0"),
    line(5, "spu-1", "partition/a-b-0", "opened"),
    line(9, "spu-1", "partition/a-b-0", "the disk is broken", level="error"),
    line(6, "spu-2", "partition/other-0", "opened"),
    line(4, "spu-2", None, "connected"),
)


def spans() -> dict[tuple[str, str], dict[str, Any]]:
    """All spans, by the service and their name."""
    return {
        (entry["resource"]["attributes"][0]["value"]["stringValue"], span["name"]): span
        for entry in otlp_request("api-1", STEPS, "0.1")["resourceSpans"]
        for scope in entry["scopeSpans"]
        for span in scope["spans"]
    }


def test_spans_stand_below_what_they_belong_to() -> None:
    found = spans()
    names = {span["spanId"]: name for name, span in found.items()}
    assert len(names) == len(found) == 6, "every span has an id of its own"
    parents = {name: names.get(span["parentSpanId"]) for name, span in found.items()}
    root = ("sc", "api-1")
    assert parents == {
        root: None,
        ("sc", "topic/a-b"): root,
        ("sc", "partition/a-b-0"): ("sc", "topic/a-b"),
        ("spu-1", "partition/a-b-0"): ("sc", "partition/a-b-0"),
        ("spu-2", "partition/other-0"): root,
        ("spu-2", "spu-2"): root,
    }
    assert found[root]["parentSpanId"] == ""


def test_ids_and_times_have_the_form_of_otlp_and_are_the_same_each_time() -> None:
    found = spans()
    assert found == spans()
    for span in found.values():
        assert span["traceId"] == trace_id("api-1")
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
    assert trace_id("api-2") != trace_id("api-1")
    began = int(START.timestamp()) * 10**9
    whole, opened = found["sc", "api-1"], found["spu-1", "partition/a-b-0"]
    assert (whole["startTimeUnixNano"], whole["endTimeUnixNano"]) == (
        str(began),
        str(began + 9 * 10**6),
    )
    assert (opened["startTimeUnixNano"], opened["endTimeUnixNano"]) == (
        str(began + 5 * 10**6),
        str(began + 9 * 10**6),
    )


def test_what_happened_is_in_events_and_an_error_is_the_status() -> None:
    found = spans()
    written, placed = found["sc", "topic/a-b"]["events"]
    assert written["name"] == "topic/a-b modified"
    assert {"key": "by", "value": {"stringValue": "ann"}} in written["attributes"]
    assert placed["name"] == "placed"
    assert placed["attributes"] == [
        {"key": "level", "value": {"stringValue": "info"}},
        {"key": "replicas", "value": {"intValue": "3"}},
        {"key": "ok", "value": {"boolValue": True}},
        {"key": "share", "value": {"doubleValue": 0.5}},
    ]
    assert found["spu-1", "partition/a-b-0"]["status"] == {
        "code": 2,
        "message": "the disk is broken",
    }
    assert "status" not in found["sc", "topic/a-b"]
