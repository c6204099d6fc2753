"""What goes over the REST API: requests that an SC accepts, answers and streams of events."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from tests.fuzz.client_targets import CALLS, NEXT
from tests.unit.sc.builders import partition_of, topic_of

_MERGE: Final = "application/merge-patch+json"


def requested() -> list[bytes]:
    topic = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "new"}}
    spec = {
        "partitions": 2,
        "retention": {"time": "1h"},
        "schema": [{"name": "a", "type": "int64"}],
    }
    whole = topic_of(partitions=3, factor=2).to_json()
    spu = {"apiVersion": "runnel/v1", "kind": "Spu", "metadata": {"name": "spu-9"}}
    page = json.dumps([1, "a", "topics", "team=x", ""], separators=(",", ":")).encode()
    token = base64.urlsafe_b64encode(page).decode().rstrip("=")
    patch = {"metadata": {"labels": {"team": "x", "old": None}}, "spec": {"partitions": 3}}
    return [
        _request("GET", "/health"),
        _request("GET", "/v1/cluster", cause="me-1"),
        _request("GET", "/v1/assignments?topic=t&topic=none"),
        _request("GET", "/v1/assignments?watch=true"),
        _request("GET", "/v1/topics?labelSelector=a%3Db,c!%3Dd,e+in+(f,g),h+notin+(i),!j"),
        _request("GET", "/v1/topics?fieldSelector=metadata.name%3Dt&limit=1"),
        _request("GET", f"/v1/topics?limit=2&labelSelector=team%3Dx&continue={token}"),
        _request("GET", "/v1/topics?watch=true&resourceVersion=1"),
        _request("GET", "/v1/topics?watch=true", last="1"),
        _request("GET", "/v1/topics/t/history?limit=3"),
        _request("GET", "/v1/partitions/t-0/replicas"),
        _request("POST", "/v1/topics?dryRun=false", {**topic, "spec": spec}, by="me"),
        _request("POST", "/v1/spus", {**spu, "spec": {"spuId": 9, "rack": "a"}}),
        _request("PUT", "/v1/topics/t?dryRun=true", whole | {"metadata": {"name": "t"}}),
        _request("PATCH", "/v1/topics/t", patch, kind=_MERGE),
        _request("DELETE", "/v1/topics/t?dryRun=true&force=false"),
        _request("POST", "/v1/partitions/t-0/elect", {"term": 65536, "leader": 2}),
        _request("POST", "/v1/partitions/t-0/truncate?dryRun=true", {"before": 7}),
        _request("PUT", "/v1/system-topics/positions?dryRun=true"),
    ]


def _request(
    method: str,
    path: str,
    body: Any = None,
    *,
    kind: str = "application/json",
    by: str = "",
    cause: str = "",
    last: str = "",
) -> bytes:
    fields = {"X-Runnel-By": by, "X-Runnel-Cause": cause, "Last-Event-ID": last, "Host": "sc"}
    if body is not None:
        fields["Content-Type"] = kind
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items() if v), "", ""]
    content = b"" if body is None else json.dumps(body).encode()
    return b"\x01" + "\r\n".join(lines).encode() + content


def replied() -> list[bytes]:
    topic = topic_of().to_json()
    item = {"revision": "7", "by": "me", "cause": "api-1", "generation": 1, "changed": ["spec"]}
    replica = {"spu": 1, "live": True, "role": "leader", "fit": True, "nextOffset": 9}
    refused = {"code": "COMPACTED", "message": "gone", "details": {"firstAvailable": 4}}
    endpoint = {"host": "localhost", "port": 9005}
    leader = {"index": 0, "uid": "u", "resolution": "online", "leader": 1, "endpoint": endpoint}
    assigned = {
        "name": "t",
        "uid": "u",
        "resolution": "provisioned",
        "partitionCount": 1,
        "replicationFactor": 1,
        "compression": "none",
        "durability": "fsync",
        "maxRecordSize": "1Mi",
        "partitions": [leader],
    }
    cluster = {"cluster": "c", "clusterUid": "u"}
    pages = [{"items": [topic], "revision": "7", "continue": "abc"}, {"items": [], "revision": "7"}]
    return [
        _reply("cluster", cluster | {"version": "1"}),
        _reply("list", *pages),
        _reply("list", pages[0], refused, pages[1], status=410),
        _reply("get", topic),
        _reply("get", refused, status=500),
        _reply("history", {"items": [item], "complete": True}),
        _reply("replicas", {"items": [replica, {"spu": 2, "live": False}]}),
        _reply("apply", topic, topic),
        _reply("delete", topic),
        _reply("truncate", partition_of("t", 0, (1, 2)).to_json()),
        _reply(
            "assignments", {"cluster": "c", "clusterUid": "u", "revision": 7, "topics": [assigned]}
        ),
    ]


def watched() -> list[bytes]:
    first, second = (topic_of(name, revision=3).to_json() for name in ("a", "b"))
    begun = _event("added", first) + _event("synced", {"revision": "5"}, "5")
    changed = _event("modified", first | {"status": {"reason": "why"}}, "6") + b": alive\n\n"
    changed += _event("added", second) + _event("deleted", first, "8") + _event("later", {})
    compacted = _event("compacted", {"firstAvailable": 9})
    again = _event("added", second) + _event("synced", {"revision": "12"}, "12")
    return [
        b"\x00" + begun,
        b"\x00" + begun + changed,
        b"\x00" + NEXT.join([begun, changed, compacted, again]),
        b"\x01" + NEXT.join([changed, changed]),
    ]


def _event(name: str, data: Any, revision: str = "") -> bytes:
    place = f"id: {revision}\n" if revision else ""
    return f"{place}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _reply(call: str, *answers: Any, status: int = 200) -> bytes:
    """Answers to a call. ``status`` is that of those that are errors."""
    pieces = []
    for answer in answers:
        code = status if "code" in answer else 200
        head = f"HTTP/1.1 {code} R\r\nContent-Type: application/json; charset=utf-8\r\n\r\n"
        pieces.append(head.encode() + json.dumps(answer).encode())
    return bytes([2 * list(CALLS).index(call) + 1]) + NEXT.join(pieces)
