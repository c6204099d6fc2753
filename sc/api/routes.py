"""The table of routes: the server answers these, and the OpenAPI document describes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_ring import DEFAULT_ANSWER_LINES, MAX_ANSWER_LINES
from schemas.objects.kinds import KINDS
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import Pipeline
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic

MAX_LIMIT: Final = 10_000
"""Most objects of one page, and the highest limit of a history."""
DEFAULT_HISTORY: Final = 20
DEFAULT_EVENTS: Final = 200
MAX_EPOCHS: Final = 100
"""Most epochs of one answer."""
MAX_REVISION: Final = 2**63 - 1
MAX_SECONDS: Final = 900
"""Seconds of which the SC keeps rates."""
STATISTICS: Final = "stats"
"""What asks for statistics among the kinds of a watch."""
MAX_HEADER: Final = 256
"""Most characters of a name or of a causality id in a header."""


class Operation(Enum):
    """What a route does; all kinds share theirs."""

    HEALTH = "health"
    METRICS = "metrics"
    CLUSTER = "cluster"
    RECOVER = "recover"
    CONTROLLERS = "controllers"
    STEP_DOWN = "stepDown"
    SCHEMAS = "schemas"
    OPENAPI = "openapi"
    ASSIGNMENTS = "assignments"
    LOGS = "logs"
    EVENTS = "events"
    STATISTICS = "statistics"
    WATCH = "watch"
    LIST = "list"
    CREATE = "create"
    GET = "get"
    REPLACE = "replace"
    PATCH = "patch"
    DELETE = "delete"
    HISTORY = "history"
    ELECT = "elect"
    REPLICAS = "replicas"
    TRUNCATE = "truncate"
    ARCHIVED = "archived"
    SYSTEM_TOPIC = "systemTopic"
    ISSUE = "issueSecretOf"
    REPORT = "report"
    SCALE = "scale"
    SEAL = "seal"
    TRUNCATE_STREAM = "truncateAtCut"
    HEAD = "headOf"
    REQUEST = "requestOf"
    EPOCHS = "scalingEventsOf"
    EPOCH = "epochOf"
    SEGMENT = "segmentOf"
    SUBSCRIBERS = "subscribersOf"
    PUBLISH = "publish"
    UNSUBSCRIBE = "unsubscribe"


#: What users may write of partitions.
_OF_PARTITIONS: Final = (Operation.ELECT, Operation.TRUNCATE)


class Form(Enum):
    """How the value of a query parameter is written."""

    TEXT = "text"
    FLAG = "true or false"
    NUMBER = "whole number"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter. ``low`` and ``high`` bound a NUMBER; ``many`` may be repeated."""

    name: str
    description: str
    form: Form = Form.TEXT
    low: int = 0
    high: int = MAX_REVISION
    many: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. ``errors`` are the statuses that it may answer with besides those of
    every route; ``cls`` is the kind of its objects."""

    method: str
    path: str
    operation: Operation
    summary: str
    cls: type[Object] | None = None
    query: tuple[Parameter, ...] = ()
    success: int = 200
    errors: tuple[int, ...] = field(default=())

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def versioned(self) -> bool:
        """Whether it is under ``/v1``, where unknown parameters are refused."""
        return self.path.startswith("/v1/")

    @property
    def documented(self) -> bool:
        """False for a write of a kind that users may not write: it only answers why."""
        if self.cls is None or not self.writes or self.operation in _OF_PARTITIONS:
            return True
        return not self.cls.SYSTEM_WRITTEN


_WATCH = Parameter(
    "watch", "Answer with server-sent events: first the state, then every change.", Form.FLAG
)
_ROLE = Parameter(
    "role", "leader: only an SC that leads is ready; standby: only one that does not."
)
_DRY_RUN = Parameter("dryRun", "Check everything, write nothing.", Form.FLAG)
_REVISION = Parameter(
    "resourceVersion", "Only if the object is at this resourceVersion.", Form.NUMBER
)
_FORCE = Parameter(
    "force",
    "Delete it although it holds replicas. Their partitions stay, and are offline while too few"
    " other replicas are live; their status names the SPU.",
    Form.FLAG,
)
_FORCE_SYSTEM = Parameter(
    "force",
    "Delete it although it belongs to the system. Its contents are lost for good.",
    Form.FLAG,
)
_LIST = (
    Parameter(
        "labelSelector",
        "Terms a=b, a!=b, a in (b,c), a notin (b,c), a, !a; joined by commas, all must hold.",
    ),
    Parameter("fieldSelector", "One object: metadata.name=NAME."),
    Parameter("limit", "Most objects of one page.", Form.NUMBER, low=1, high=MAX_LIMIT),
    Parameter("continue", "The `continue` of the previous page; repeat its selectors."),
    _WATCH,
    Parameter(
        "resourceVersion",
        "With watch: only changes after this one. The header Last-Event-ID takes precedence.",
        Form.NUMBER,
    ),
)
_HISTORY = Parameter(
    "limit",
    f"Most writes to list; {DEFAULT_HISTORY} when left out.",
    Form.NUMBER,
    low=1,
    high=MAX_LIMIT,
)
_LOGS: Final = (
    Parameter("since", "Only lines from this time on: ISO 8601, UTC unless it says otherwise."),
    Parameter("level", f"Only lines of this level or more severe ones: {', '.join(LogLevel)}."),
    Parameter("cause", "Only lines with this causality id."),
    Parameter(
        "limit",
        f"Most lines of an answer; {DEFAULT_ANSWER_LINES} when left out. Without `after` these are"
        " the newest ones.",
        Form.NUMBER,
        low=1,
        high=MAX_ANSWER_LINES,
    ),
    Parameter(
        "after",
        "`next` of an earlier answer: only lines behind it, the oldest of them first. After a"
        " restart of the SC it counts as left out.",
    ),
)
_EVENTS: Final = (
    Parameter("for", "Only events of this object: KIND/NAME."),
    Parameter("since", "Only events from this time on: ISO 8601, UTC unless it says otherwise."),
    Parameter("cause", "Only events with this causality id."),
    Parameter("after", "Only events of later revisions than this one.", Form.NUMBER),
    Parameter(
        "limit",
        f"Most events to list, the newest ones; {DEFAULT_EVENTS} when left out.",
        Form.NUMBER,
        low=1,
        high=MAX_LIMIT,
    ),
)
_TOPIC = Parameter("topic", "Only this topic; may be repeated.", many=True)
_SECONDS = Parameter(
    "seconds",
    "Also the rates of so many seconds, one by one.",
    Form.NUMBER,
    low=1,
    high=MAX_SECONDS,
)
_TOPICS_LIMIT = Parameter("limit", "Most topics of one page.", Form.NUMBER, low=1, high=MAX_LIMIT)
_EPOCHS_LIMIT = Parameter(
    "limit",
    "Most epochs to list, the newest ones.",
    Form.NUMBER,
    low=1,
    high=MAX_EPOCHS,
)
_AFTER_TOPIC = Parameter("continue", "The `next` of the previous page.")
_LEADER = Parameter(
    "leader",
    "The name of the SC that is to step down. If another one leads by then, nothing changes.",
)
_KINDS = Parameter(
    "kinds",
    f"What to send, joined by commas: {', '.join(cls.PLURAL for cls in KINDS)}, and {STATISTICS},"
    " which are sent once a second if they changed.",
)
_CATCHING_UP = Parameter(
    "catchingUp",
    f"In {STATISTICS}, only the partitions of which a replica is not live.",
    Form.FLAG,
)
_SINCE = Parameter(
    "resourceVersion",
    "Only changes after this one. The header Last-Event-ID takes precedence.",
    Form.NUMBER,
)


def routes() -> tuple[Route, ...]:
    """Every route, in the order of the document."""
    return (
        Route(
            "GET",
            "/health",
            Operation.HEALTH,
            "Whether the SC is ready",
            query=(_ROLE,),
            errors=(503,),
        ),
        Route("GET", "/metrics", Operation.METRICS, "Metrics in Prometheus' text format"),
        Route("GET", "/v1/cluster", Operation.CLUSTER, "The cluster and the SC that leads it"),
        Route(
            "POST",
            "/v1/cluster/recover",
            Operation.RECOVER,
            "Begin a recovery from a restored KV that the SC does not begin by itself",
            query=(_DRY_RUN,),
            errors=(409, 413, 415, 503, 504),
        ),
        Route("GET", "/v1/controllers", Operation.CONTROLLERS, "The SCs that run, and who leads"),
        Route(
            "POST",
            "/v1/controllers/step-down",
            Operation.STEP_DOWN,
            "Have the SC that leads let another one lead",
            query=(_LEADER,),
            errors=(409, 503, 504),
        ),
        Route("GET", "/v1/schemas", Operation.SCHEMAS, "JSON Schema of every kind"),
        Route("GET", "/v1/openapi.json", Operation.OPENAPI, "This document"),
        Route(
            "GET",
            "/v1/assignments",
            Operation.ASSIGNMENTS,
            "Leaders and replicas of the partitions of topics",
            query=(_TOPIC, _WATCH),
            errors=(503,),
        ),
        Route("GET", "/v1/logs", Operation.LOGS, "The last log lines of the SC", query=_LOGS),
        Route("GET", "/v1/events", Operation.EVENTS, "The last changes of objects", query=_EVENTS),
        Route(
            "GET",
            "/v1/stats",
            Operation.STATISTICS,
            "The latest numbers of SPUs and topics, and of the partitions of the topics named",
            query=(_TOPIC, _SECONDS, _TOPICS_LIMIT, _AFTER_TOPIC),
        ),
        Route(
            "GET",
            "/v1/watch",
            Operation.WATCH,
            "One stream of server-sent events for several kinds and for statistics",
            query=(_KINDS, _TOPIC, _CATCHING_UP, _SINCE),
            errors=(410, 503),
        ),
        *(route for cls in KINDS for route in _of_kind(cls)),
        Route(
            "POST",
            "/v1/spus/{name}/secret",
            Operation.ISSUE,
            "Make a secret by which an SPU proves who it is; in force once the SPU has used it",
            Spu,
            success=201,
            errors=(404, 409, 503, 504),
        ),
        Route(
            "GET",
            "/v1/partitions/{name}/replicas",
            Operation.REPLICAS,
            "What the replicas of a partition last reported",
            Partition,
            errors=(404,),
        ),
        Route(
            "POST",
            "/v1/partitions/{name}/elect",
            Operation.ELECT,
            "Elect a replica that may lack committed records, where no live replica can lead",
            Partition,
            (_DRY_RUN,),
            202,
            (404, 409, 413, 415, 503, 504),
        ),
        Route(
            "POST",
            "/v1/partitions/{name}/truncate",
            Operation.TRUNCATE,
            "Remove the oldest records of a partition on every replica",
            Partition,
            (_DRY_RUN,),
            200,
            (404, 409, 413, 415, 503, 504),
        ),
        Route(
            "POST",
            "/v1/partitions/{name}/archived",
            Operation.ARCHIVED,
            "Say which records of a partition are in its archive",
            Partition,
            (_DRY_RUN,),
            200,
            (404, 409, 413, 415, 503, 504),
        ),
        Route(
            "PUT",
            "/v1/system-topics/{name}",
            Operation.SYSTEM_TOPIC,
            "Get a topic of the system, creating it if necessary: positions, of named consumers;"
            " archive, of the files of archives",
            Topic,
            (_DRY_RUN,),
            200,
            (404, 409, 503, 504),
        ),
        *_of_streams(),
        Route(
            "PUT",
            "/v1/pipelines/{name}/status",
            Operation.REPORT,
            "Say what the runner of a pipeline does, and so keep its lease; answers the pipeline",
            Pipeline,
            (),
            200,
            (404, 409, 413, 415, 503, 504),
        ),
    )


def _of_streams() -> Iterator[Route]:
    """What streams have besides their objects."""
    one = path_of_one(Stream)
    asked = (400, 404, 409, 413, 415, 503, 504)
    yield Route(
        "POST",
        f"{one}/scale",
        Operation.SCALE,
        "Seal some segments of a stream, and divide their keys among new ones",
        Stream,
        (_DRY_RUN,),
        202,
        asked,
    )
    yield Route(
        "POST",
        f"{one}/seal",
        Operation.SEAL,
        "Seal a stream: nothing more is written to it, for good",
        Stream,
        (_DRY_RUN,),
        202,
        asked,
    )
    yield Route(
        "POST",
        f"{one}/truncate",
        Operation.TRUNCATE_STREAM,
        "Remove everything that a stream holds before a cut, for good",
        Stream,
        (_DRY_RUN,),
        202,
        asked,
    )
    yield Route(
        "GET",
        f"{one}/head",
        Operation.HEAD,
        "Where a stream begins, as a cut",
        Stream,
        errors=(404, 503, 504),
    )
    yield Route(
        "GET",
        f"{one}/requests/{{request}}",
        Operation.REQUEST,
        "How far a request to a stream is; what became of it is kept for an hour",
        Stream,
        errors=(404, 503, 504),
    )
    yield Route(
        "GET",
        f"{one}/epochs",
        Operation.EPOCHS,
        "When a stream was scaled",
        Stream,
        (_EPOCHS_LIMIT,),
        errors=(404, 503, 504),
    )
    yield Route(
        "GET",
        f"{one}/epochs/{{epoch}}",
        Operation.EPOCH,
        "The segments of an epoch of a stream, by its number; `current`: those that writers use",
        Stream,
        errors=(404, 503, 504),
    )
    yield Route(
        "GET",
        f"{one}/segments/{{segment}}",
        Operation.SEGMENT,
        "A segment of a stream, with those before and after it",
        Stream,
        errors=(404, 503, 504),
    )
    yield Route(
        "GET",
        f"{one}/subscribers",
        Operation.SUBSCRIBERS,
        "The reader groups for which the retention of a stream waits",
        Stream,
        errors=(404, 503, 504),
    )
    yield Route(
        "PUT",
        f"{one}/subscribers/{{group}}",
        Operation.PUBLISH,
        "Say how far a reader group is: the stream's retention keeps what comes after that",
        Stream,
        errors=asked,
    )
    yield Route(
        "DELETE",
        f"{one}/subscribers/{{group}}",
        Operation.UNSUBSCRIBE,
        "Have the retention of a stream wait for a reader group no more; gives the others",
        Stream,
        errors=(404, 409, 503, 504),
    )


def path_of_one(cls: type[Object]) -> str:
    """The path of one object of a kind."""
    scope = "{scope}/" if cls is Stream else ""
    return f"/v1/{cls.PLURAL}/{scope}{{name}}"


def _of_kind(cls: type[Object]) -> Iterator[Route]:
    kind, many = cls.kind_name(), f"/v1/{cls.PLURAL}"
    one = path_of_one(cls)
    force = (_FORCE,) if cls is Spu else (_FORCE_SYSTEM,) if cls is Topic else ()
    stores = (503, 504)
    body = (413, 415, 422)
    yield Route(
        "GET", many, Operation.LIST, f"List or watch {cls.PLURAL}", cls, _LIST, 200, (410, *stores)
    )
    yield Route(
        "POST",
        many,
        Operation.CREATE,
        f"Create a {kind}",
        cls,
        (_DRY_RUN,),
        201,
        # The scope of a stream must exist.
        (*((404,) if cls is Stream else ()), 409, *body, *stores),
    )
    yield Route("GET", one, Operation.GET, f"Read a {kind}", cls, errors=(404,))
    yield Route(
        "PUT",
        one,
        Operation.REPLACE,
        f"Replace labels, annotations and spec of a {kind}",
        cls,
        (_DRY_RUN,),
        200,
        (404, 409, *body, *stores),
    )
    yield Route(
        "PATCH",
        one,
        Operation.PATCH,
        f"Change labels, annotations and spec of a {kind} by a JSON Merge Patch",
        cls,
        (_DRY_RUN,),
        200,
        (404, 409, *body, *stores),
    )
    yield Route(
        "DELETE",
        one,
        Operation.DELETE,
        f"Delete a {kind}",
        cls,
        (_DRY_RUN, _REVISION, *force),
        202,
        (404, 409, *stores),
    )
    yield Route(
        "GET",
        f"{one}/history",
        Operation.HISTORY,
        f"Who wrote a {kind}, when, why and what",
        cls,
        (_HISTORY,),
        200,
        (404, *stores),
    )
