"""A trace as spans of OpenTelemetry. Pure.

Daemons log moments, not durations. So a span stands for one object in one process: it begins with
the first thing that was logged or written about it there, ends with the last, and has all of them
as its events. Spans of an SPU stand below that of the same object in the SC, partitions below their
topic, and all below one span for the whole chain. Ids are computed from the causality id, so that
the same trace sent twice is the same trace.

Source of the form: the protobuf definitions of OTLP 1, in their JSON encoding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from runnel.logs.events import ObjectEvent
from runnel.logs.trace import TraceStep

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: `SPAN_KIND_INTERNAL` and `STATUS_CODE_ERROR` of OTLP.
_INTERNAL: Final = 1
_ERROR: Final = 2
_FAILED: Final = frozenset({"error", "critical"})
_SC: Final = "sc"


@dataclass(slots=True)
class _Group:
    """What is one span: the steps of one object in one process, or of the process itself."""

    process: str
    object: str | None
    steps: list[TraceStep] = field(default_factory=list)


def trace_id(cause: str) -> str:
    """The id of the trace of a causality id: 32 hexadecimal digits."""
    return _id(16, cause)


def otlp_request(cause: str, steps: Sequence[TraceStep], version: str) -> dict[str, Any]:
    """The body of a request that exports the trace: ``ExportTraceServiceRequest``. ``version`` is
    that of this program. There is at least one step."""
    groups: dict[tuple[str, str | None], _Group] = {}
    for step in steps:
        key = (step.process, step.object)
        groups.setdefault(key, _Group(*key)).steps.append(step)
    first, last = steps[0].at, max(step.at for step in steps)
    whole = _span(cause, _id(8, cause), "", cause, first, last, ())
    spans = {_SC: [whole]}
    for group in groups.values():
        found = _span_of(cause, group, _parent(cause, group, groups))
        spans.setdefault(group.process, []).append(found)
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": _attributes(
                        {"service.name": process, "service.namespace": "runnel"}
                    )
                },
                "scopeSpans": [{"scope": {"name": "runnel", "version": version}, "spans": own}],
            }
            for process, own in spans.items()
        ]
    }


def _parent(cause: str, group: _Group, groups: Mapping[tuple[str, str | None], _Group]) -> str:
    """The id of the span that the span of a group stands below."""
    above = [(_SC, group.object)] if group.process != _SC else []
    kind, _, name = (group.object or "").partition("/")
    if kind == "partition":
        # A partition is named after its topic.
        above.append((_SC, f"topic/{name.rpartition('-')[0]}"))
    for key in above:
        if key in groups and key[1] is not None:
            return _id(8, cause, *key)
    return _id(8, cause)


def _span_of(cause: str, group: _Group, parent: str) -> dict[str, Any]:
    first, last = group.steps[0].at, max(step.at for step in group.steps)
    own = _id(8, cause, group.process, group.object)
    found = _span(
        cause, own, parent, group.object or group.process, first, last, map(_event, group.steps)
    )
    failures = [what for step in group.steps if (what := _failure(step)) is not None]
    if failures:
        found["status"] = {"code": _ERROR, "message": failures[0]}
    return found


def _span(
    cause: str,
    own: str,
    parent: str,
    name: str,
    first: datetime,
    last: datetime,
    events: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "traceId": trace_id(cause),
        "spanId": own,
        "parentSpanId": parent,
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(first),
        "endTimeUnixNano": _nanoseconds(last),
        "attributes": _attributes({"runnel.cause": cause}),
        "events": list(events),
    }


def _event(step: TraceStep) -> dict[str, Any]:
    what = step.what
    if isinstance(what, ObjectEvent):
        name = f"{what.object} {what.change}"
        fields: Mapping[str, Any] = {
            "by": what.by,
            "revision": what.revision,
            "resolution": what.resolution,
            "reason": what.reason,
            "changed": ", ".join(what.changed),
        }
    else:
        name = str(what.get("event", ""))
        fields = {
            key: value
            for key, value in what.items()
            if key not in ("event", "timestamp", "process", "cause")
        }
    return {"timeUnixNano": _nanoseconds(step.at), "name": name, "attributes": _attributes(fields)}


def _failure(step: TraceStep) -> str | None:
    what = step.what
    if isinstance(what, ObjectEvent) or what.get("level") not in _FAILED:
        return None
    return str(what.get("event", ""))


def _attributes(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": _value(value)}
        for key, value in fields.items()
        if value is not None and value != ""
    ]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int() if -(1 << 63) <= value < 1 << 63:
            # 64 bits are more than JSON's numbers hold everywhere.
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": str(value)}


def _nanoseconds(at: datetime) -> str:
    return str((at - _EPOCH) // timedelta(microseconds=1) * 1000)


def _id(size: int, *parts: str | None) -> str:
    named = "\n".join("" if part is None else part for part in parts)
    return hashlib.sha256(named.encode()).hexdigest()[: 2 * size]
