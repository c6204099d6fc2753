"""The OpenAPI 3.1 document of the REST API: the routes and models, written out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from sc.api.admission_warnings import WARNING_HEADER
from sc.api.answers import (
    ClusterAnswer,
    Compacted,
    ErrorAnswer,
    Events,
    Health,
    History,
    LogLines,
    RecoveryRequest,
    Replicas,
    SpuSecret,
    StatisticsAnswer,
    Synced,
)
from sc.api.merge_patch import MEDIA_TYPE
from sc.api.older_clients import IGNORE, UNKNOWN_FIELDS_HEADER
from sc.api.requests import BY_HEADER, CAUSE_HEADER, CAUSE_PATTERN, LAST_EVENT_HEADER
from sc.api.routes import MAX_HEADER, MAX_REVISION, Form, Operation, Parameter, Route, routes
from schemas.control.assignments import Assignments
from schemas.control.controllers import ControllersAnswer
from schemas.control.streams import (
    REQUEST_PATTERN,
    EpochInfo,
    Published,
    ScaleRequest,
    ScalingEvents,
    SealRequest,
    SegmentHistory,
    StreamHead,
    StreamRequest,
    SubscriberInfo,
    Subscribers,
    TruncateRequest,
)
from schemas.model import Model
from schemas.objects.kinds import KINDS
from schemas.objects.partition import ArchivedRange, Truncation, UncleanElection
from schemas.objects.pipeline import PipelineReport
from schemas.objects.quantities import NAME_PATTERN

Json = dict[str, Any]

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_ALWAYS: Final = (400, 403, 500)
_MODELS: Final[tuple[type[Model], ...]] = (
    *KINDS,
    Assignments,
    ClusterAnswer,
    Compacted,
    ControllersAnswer,
    ErrorAnswer,
    Events,
    Health,
    History,
    LogLines,
    PipelineReport,
    RecoveryRequest,
    Replicas,
    SpuSecret,
    StatisticsAnswer,
    Synced,
    ArchivedRange,
    Truncation,
    UncleanElection,
    ScaleRequest,
    SealRequest,
    TruncateRequest,
    StreamRequest,
    EpochInfo,
    SegmentHistory,
    StreamHead,
    ScalingEvents,
    Published,
    SubscriberInfo,
    Subscribers,
)
_PATTERNS: Final = {
    "size": r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|[kKMGTP])?[bB]?$",
    "duration": r"^([0-9]+(\.[0-9]+)?(ms|[wdhms]))+$|^[0-9]+(\.[0-9]+)?$",
}
#: Parameters of paths, in their order.
_IN_PATH: Final = {
    "scope": NAME_PATTERN,
    "name": NAME_PATTERN,
    "request": REQUEST_PATTERN,
    "epoch": r"^(current|[0-9]{1,10})$",
    "segment": r"^[0-9]{1,10}\.[0-9]{1,10}$",
    "group": NAME_PATTERN,
}
_STATUSES: Final = {
    200: "Done.",
    201: "Created.",
    202: "The change has begun, or is done; the object as it was written last.",
    400: "The request is wrong; the message says what to change.",
    403: "The header Host names none of the SC's addresses.",
    404: "There is no such object.",
    409: "It conflicts with the present state: the name is taken, or somebody else wrote meanwhile."
    " The details name the write that won: resourceVersion, by, at, cause.",
    410: "The revision is compacted; list again.",
    413: "The body is too large.",
    415: "The body has the wrong media type.",
    422: "This version does not serve it.",
    500: "A fault of the SC.",
    503: "The SC or its store is not ready; try again.",
    504: "The store did not answer in time; whether a write happened is unknown: read again.",
}
_OBJECT_ANSWERS: Final = (
    Operation.CREATE,
    Operation.GET,
    Operation.REPLACE,
    Operation.PATCH,
    Operation.DELETE,
    Operation.ELECT,
    Operation.TRUNCATE,
    Operation.SYSTEM_TOPIC,
    Operation.REPORT,
)
_WARNED: Final = (Operation.CREATE, Operation.REPLACE, Operation.PATCH)
_ANSWERS: Final[dict[Operation, type[Model]]] = {
    Operation.HEALTH: Health,
    Operation.CLUSTER: ClusterAnswer,
    Operation.RECOVER: ClusterAnswer,
    Operation.CONTROLLERS: ControllersAnswer,
    Operation.STEP_DOWN: ControllersAnswer,
    Operation.ASSIGNMENTS: Assignments,
    Operation.HISTORY: History,
    Operation.EVENTS: Events,
    Operation.LOGS: LogLines,
    Operation.REPLICAS: Replicas,
    Operation.STATISTICS: StatisticsAnswer,
    Operation.ISSUE: SpuSecret,
    Operation.SCALE: StreamRequest,
    Operation.SEAL: StreamRequest,
    Operation.TRUNCATE_STREAM: StreamRequest,
    Operation.HEAD: StreamHead,
    Operation.REQUEST: StreamRequest,
    Operation.EPOCHS: ScalingEvents,
    Operation.EPOCH: EpochInfo,
    Operation.SEGMENT: SegmentHistory,
    Operation.SUBSCRIBERS: Subscribers,
    Operation.PUBLISH: SubscriberInfo,
    Operation.UNSUBSCRIBE: Subscribers,
}


def document() -> Json:
    """The whole document; it is the same for every cluster."""
    paths: dict[str, Json] = {}
    for route in routes():
        if route.documented:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Runnel",
            "version": "v1",
            "description": "The REST API of the streaming controller (SC). It is explained in"
            " docs/reference/api.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": _schemas()},
    }


def _operation(route: Route) -> Json:
    found: Json = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.cls.kind_name() if route.cls is not None else "Cluster"],
        "parameters": list(_parameters(route)),
        "responses": {
            str(route.success): {
                "description": _STATUSES[route.success],
                "content": _content(route),
            }
        },
    }
    if route.operation in _WARNED:
        found["responses"][str(route.success)]["headers"] = {
            WARNING_HEADER: {
                "description": 'One or more of `299 - "TEXT"`: the object is accepted, but may not'
                " do what its spec says.",
                "schema": {"type": "string"},
            }
        }
    for status in sorted({*_ALWAYS, *route.errors}):
        found["responses"][str(status)] = {
            "description": _STATUSES[status],
            "content": {_JSON: {"schema": _ref("ErrorAnswer")}},
        }
    if (body := _body(route)) is not None:
        found["requestBody"] = {"required": True, "content": body}
    return found


def _operation_id(route: Route) -> str:
    if route.cls is None:
        return route.operation.value
    if route.operation is Operation.LIST:
        return f"list{route.cls.PLURAL.capitalize()}"
    return f"{route.operation.value}{route.cls.kind_name()}"


def _parameters(route: Route) -> Iterator[Json]:
    for name, pattern in _IN_PATH.items():
        if f"{{{name}}}" in route.path:
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "pattern": pattern},
            }
    for parameter in route.query:
        yield {
            "name": parameter.name,
            "in": "query",
            "description": parameter.description,
            "schema": _parameter_schema(parameter),
        }
    if route.operation in (Operation.LIST, Operation.WATCH):
        yield _header(
            LAST_EVENT_HEADER,
            "In a watch: only changes after this revision.",
            {"type": "integer", "minimum": 0, "maximum": MAX_REVISION},
        )
    if route.writes:
        yield _header(
            BY_HEADER,
            "Name of the writer, in printable characters; by default, the peer's address.",
            {"type": "string", "maxLength": MAX_HEADER},
        )
    if route.cls is not None:
        yield _header(
            UNKNOWN_FIELDS_HEADER,
            f"`{IGNORE}` from a client that passes over fields of a status that it does not know."
            f" One that sends {BY_HEADER} without this gets only those that it knows.",
            {"type": "string", "enum": [IGNORE]},
        )
    yield _header(
        CAUSE_HEADER,
        "The causality id of the request; by default, a new one.",
        {"type": "string", "pattern": f"^{CAUSE_PATTERN}$"},
    )


def _header(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _parameter_schema(parameter: Parameter) -> Json:
    match parameter.form:
        case Form.FLAG:
            return {"type": "boolean"}
        case Form.NUMBER:
            return {"type": "integer", "minimum": parameter.low, "maximum": parameter.high}
        case Form.TEXT if parameter.many:
            return {"type": "array", "items": {"type": "string"}}
        case Form.TEXT:
            return {"type": "string"}


def _content(route: Route) -> Json:
    """What a successful answer holds, by media type."""
    events = {_EVENTS: {"schema": {"type": "string"}}}
    kind = route.cls.kind_name() if route.cls is not None else ""
    match route.operation:
        case Operation.METRICS:
            return {"text/plain": {"schema": {"type": "string"}}}
        case Operation.WATCH:
            return events
        case Operation.SCHEMAS | Operation.OPENAPI:
            return {_JSON: {"schema": {"type": "object"}}}
        case Operation.ASSIGNMENTS:
            return {_JSON: {"schema": _ref("Assignments")}, **events}
        case Operation.LIST:
            return {_JSON: {"schema": _ref(f"{kind}List")}, **events}
        case operation if operation in _OBJECT_ANSWERS:
            return {_JSON: {"schema": _ref(kind)}}
        case operation:
            return {_JSON: {"schema": _ref(_ANSWERS[operation].__name__)}}


def _body(route: Route) -> Json | None:
    match route.operation:
        case Operation.CREATE | Operation.REPLACE if route.cls is not None:
            return {_JSON: {"schema": _ref(route.cls.kind_name())}}
        case Operation.ELECT:
            return {_JSON: {"schema": _ref("UncleanElection")}}
        case Operation.TRUNCATE:
            return {_JSON: {"schema": _ref("Truncation")}}
        case Operation.ARCHIVED:
            return {_JSON: {"schema": _ref("ArchivedRange")}}
        case Operation.SCALE:
            return {_JSON: {"schema": _ref("ScaleRequest")}}
        case Operation.SEAL:
            return {_JSON: {"schema": _ref("SealRequest")}}
        case Operation.TRUNCATE_STREAM:
            return {_JSON: {"schema": _ref("TruncateRequest")}}
        case Operation.PUBLISH:
            return {_JSON: {"schema": _ref("Published")}}
        case Operation.RECOVER:
            return {_JSON: {"schema": _ref("RecoveryRequest")}}
        case Operation.REPORT:
            return {_JSON: {"schema": _ref("PipelineReport")}}
        case Operation.PATCH:
            return {MEDIA_TYPE: {"schema": _ref("MergePatch")}}
        case _:
            return None


def _schemas() -> Json:
    _, found = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    schemas: Json = _quantities(found["$defs"])
    for cls in KINDS:
        schemas[f"{cls.kind_name()}List"] = {
            "type": "object",
            "description": "The whole list, or one page of it, as of its revision.",
            "required": ["items", "revision"],
            "additionalProperties": False,
            "properties": {
                "items": {"type": "array", "items": _ref(cls.kind_name())},
                "revision": {
                    "type": "string",
                    "description": "The state of the list; watch with it as resourceVersion.",
                },
                "continue": {
                    "type": "string",
                    "description": "Names the next page; absent on the last.",
                },
            },
        }
    schemas["MergePatch"] = _merge_patch()
    return dict(sorted(schemas.items()))


def _quantities(schema: Any) -> Any:
    """Sizes and durations by their patterns: JSON Schema means something else by ``duration``."""
    if isinstance(schema, list):
        return [_quantities(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _quantities(value) for name, value in schema.items()}
    if (pattern := _PATTERNS.get(str(found.get("format")))) is not None:
        del found["format"]
        found |= {"pattern": pattern, "minimum": found.get("minimum", 0)}
    return found


def _merge_patch() -> Json:
    texts = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}}
    return {
        "type": "object",
        "description": "RFC 7386: null removes a field, mappings are merged, all else replaces.",
        "additionalProperties": False,
        "properties": {
            "apiVersion": {"type": "string", "description": "If given, that of the object."},
            "kind": {"type": "string", "description": "If given, that of the object."},
            "metadata": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string", "description": "If given, that of the object."},
                    "labels": texts,
                    "annotations": texts,
                    "resourceVersion": {
                        "type": ["string", "null"],
                        "description": "Only if the object is at this resourceVersion.",
                    },
                },
            },
            "spec": {"type": ["object", "null"]},
        },
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
