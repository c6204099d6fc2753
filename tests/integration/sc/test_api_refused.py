"""What the API refuses, and how it says so."""

from __future__ import annotations

import json
from io import BytesIO

import pytest
from yarl import URL

from sc.kv.interface import KV
from sc.store.view import Provisioning
from tests.integration.sc.calls import call, created, send
from tests.integration.sc.conftest import RunningSc, manifest


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        pytest.param("GET", "/v1/topics/x", None, "Topic 'x' does not exist", id="given-get"),
        pytest.param("DELETE", "/v1/spus/x", None, "Spu 'x' does not exist", id="given-delete"),
        pytest.param(
            "PUT",
            "/v1/topics/x",
            manifest("Topic", "x", {}),
            "Topic 'x' does not exist",
            id="given-put",
        ),
        pytest.param(
            "GET",
            "/v1/things",
            None,
            "there is no /v1/things; known kinds: spus, spugroups, topics, partitions, scopes,"
            " streams, pipelines, rebalances",
            id="given-unknown-kind",
        ),
        pytest.param("GET", "/nowhere", None, "GET /nowhere: Not Found", id="given-unknown-path"),
    ],
)
async def test_not_found(sc: RunningSc, method: str, path: str, body: object, message: str) -> None:
    status, error = await call(sc, method, path, body)
    assert (status, error["code"], error["message"]) == (404, "NOT_FOUND", message)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        pytest.param("POST", "/v1/topics/x", "DELETE,GET,HEAD,PATCH,PUT", id="given-post-of-one"),
        pytest.param("PUT", "/v1/topics", "GET,HEAD,POST", id="given-put-of-all"),
        pytest.param("DELETE", "/v1/cluster", "GET,HEAD", id="given-delete-of-the-cluster"),
        pytest.param("PROPFIND", "/v1/spus", "GET,HEAD,POST", id="given-a-method-of-others"),
        pytest.param("OPTIONS", "/v1/topics/x/history", "GET,HEAD", id="given-options"),
    ],
)
async def test_given_method_that_is_not_served_then_those_that_are(
    sc: RunningSc, method: str, path: str, allowed: str
) -> None:
    async with sc.http.request(method, f"{sc.public}{path}") as response:
        assert response.status == 405
        assert response.headers["Allow"] == allowed
        error = await response.json()
    assert error["code"] == "INVALID_REQUEST"
    assert "Method Not Allowed" in error["message"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param(
            "labelselector=a",
            "unknown query parameter 'labelselector'; did you mean labelSelector?",
            id="given-a-near-miss",
        ),
        pytest.param(
            "colour=red",
            "unknown query parameter 'colour'; known here: labelSelector, fieldSelector, limit,"
            " continue, watch, resourceVersion",
            id="given-nothing-near",
        ),
        pytest.param("limit=1&limit=2", "limit: appears twice", id="given-one-twice"),
        pytest.param(
            "watch=yes", "watch: 'yes' is neither true nor false", id="given-a-flag-of-another-word"
        ),
        pytest.param(
            "limit=0", "limit: '0' is not a whole number from 1 to 10000", id="given-a-limit-of-0"
        ),
        pytest.param(
            "labelSelector=a=b,,c",
            "labelSelector: a term is empty; write a=b, a!=b, a in (b,c), a notin (b,c), a or !a",
            id="given-an-empty-term",
        ),
        pytest.param(
            "fieldSelector=spec.x=1",
            "fieldSelector: 'spec.x=1' is not supported; write metadata.name=NAME",
            id="given-another-field",
        ),
        pytest.param(
            "resourceVersion=3",
            "resourceVersion: allowed with watch=true only",
            id="given-a-revision-without-watch",
        ),
        pytest.param(
            "watch=true&limit=3",
            "limit and continue: a watch has no pages",
            id="given-a-limit-with-watch",
        ),
        pytest.param(
            "continue=xyz",
            "continue: repeat the limit of the previous page",
            id="given-a-token-without-limit",
        ),
        pytest.param(
            "limit=3&continue=xyz",
            "continue: not the `continue` of a page",
            id="given-a-token-of-nothing",
        ),
    ],
)
async def test_given_wrong_query_then_refused_by_name(
    sc: RunningSc, query: str, message: str
) -> None:
    status, error = await call(sc, "GET", f"/v1/topics?{query}")
    assert (status, error["code"], error["message"]) == (400, "INVALID_REQUEST", message)


async def test_given_misspelt_dry_run_then_nothing_is_written(sc: RunningSc, kv: KV) -> None:
    before = await kv.revision()
    body = manifest("Topic", "t", {})
    status, error = await call(sc, "POST", "/v1/topics?dryrun=true", body)
    assert (status, error["message"]) == (
        400,
        "unknown query parameter 'dryrun'; did you mean dryRun?",
    )
    assert await kv.revision() == before


async def test_given_unknown_query_on_health_and_metrics_then_probes_work(sc: RunningSc) -> None:
    async with sc.http.get(f"{sc.public}/metrics?x=1") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("method", "path", "kind", "wanted"),
    [
        pytest.param("POST", "/v1/topics", "text/plain", "application/json", id="given-post"),
        pytest.param("PUT", "/v1/topics/t", "application/yaml", "application/json", id="given-put"),
        pytest.param(
            "PATCH",
            "/v1/topics/t",
            "application/json",
            "application/merge-patch+json",
            id="given-patch-as-json",
        ),
        pytest.param(
            "PATCH",
            "/v1/topics/t",
            "application/json-patch+json",
            "application/merge-patch+json",
            id="given-a-json-patch",
        ),
    ],
)
async def test_given_another_media_type_then_the_one_that_is_taken(
    sc: RunningSc, method: str, path: str, kind: str, wanted: str
) -> None:
    status, error = await send(sc, method, path, b"{}", {"Content-Type": kind})
    assert (status, error["code"]) == (415, "INVALID_REQUEST")
    assert error["message"] == f"send the body as Content-Type: {wanted}, not {kind!r}"


async def test_given_body_without_end_then_too_large(sc: RunningSc) -> None:
    status, error = await send(sc, "POST", "/v1/topics", BytesIO(b" " * ((1 << 20) + 1)))
    assert (status, error["message"]) == (413, "the body is larger than 1Mi")


@pytest.mark.parametrize(
    ("header", "value", "message"),
    [
        pytest.param(
            "X-Runnel-By", "sc", "X-Runnel-By: sc is reserved for controllers", id="given-sc"
        ),
        pytest.param(
            "X-Runnel-By",
            "x" * 257,
            "X-Runnel-By: write who you are in at most 256 printable characters",
            id="given-too-long-a-name",
        ),
        pytest.param(
            "X-Runnel-Cause",
            "a b",
            "X-Runnel-Cause: use at most 256 ASCII characters, without spaces",
            id="given-a-cause-with-a-space",
        ),
    ],
)
async def test_given_wrong_header_then_refused_and_nothing_written(
    sc: RunningSc, kv: KV, header: str, value: str, message: str
) -> None:
    before = await kv.revision()
    headers = {"Content-Type": "application/json", header: value}
    body = json.dumps(manifest("Topic", "t", {})).encode()
    status, error = await send(sc, "POST", "/v1/topics", body, headers)
    assert (status, error["code"], error["message"]) == (400, "INVALID_REQUEST", message)
    assert await kv.revision() == before


@pytest.mark.parametrize("path", ["a%2Fb", "a%20b", "%F0%9F%90%9F", "%ff", "x" * 250])
@pytest.mark.parametrize("rest", ["", "/history"])
async def test_given_name_that_no_object_can_have_then_not_found(
    sc: RunningSc, path: str, rest: str
) -> None:
    async with sc.http.get(URL(f"{sc.public}/v1/topics/{path}{rest}", encoded=True)) as response:
        assert response.status == 404
        assert (await response.json())["code"] == "NOT_FOUND"


REFUSED = [
    pytest.param(
        "pipelines",
        manifest(
            "Pipeline",
            "p",
            {
                "source": {"topic": "a"},
                "query": "q",
                "sink": {"topic": "_positions"},
                "checkpoint": "/c",
            },
        ),
        400,
        "INVALID_REQUEST",
        "spec.sink.topic: '_positions' is a system topic: only Runnel writes to it",
        id="given-pipeline-into-a-system-topic-then-refused",
    ),
    pytest.param(
        "partitions",
        manifest(
            "Partition",
            "t-0",
            {
                "owner": {"kind": "Topic", "name": "t", "uid": "u"},
                "replicas": [1],
                "preferredLeader": 1,
            },
        ),
        400,
        "INVALID_REQUEST",
        "partitions are written by the system; change the object that owns them",
        id="given-partition-then-written-by-the-system",
    ),
    pytest.param(
        "spus",
        manifest("Spu", "s", {"spuId": 1, "publicEndpoint": {"encryption": "TLS"}}),
        422,
        "UNSUPPORTED",
        "spec.publicEndpoint.encryption: TLS is not available in this version, and plaintext"
        " never replaces it silently; on a trusted network, write encryption: plaintext",
        id="given-public-tls-then-refused",
    ),
    pytest.param(
        "spus",
        manifest("Spu", "s", {"spuId": 1, "privateEndpoint": {"encryption": "tls"}}),
        422,
        "UNSUPPORTED",
        "spec.privateEndpoint.encryption: TLS is not available in this version, and plaintext"
        " never replaces it silently; on a trusted network, write encryption: plaintext",
        id="given-private-tls-then-refused",
    ),
    pytest.param(
        "spus",
        manifest("Spu", "s", {"spuId": 1, "spuType": "Managed"}),
        400,
        "INVALID_REQUEST",
        "spec.spuType: managed SPUs are created by an SpuGroup: apply one, or register this SPU as"
        " custom and start it yourself",
        id="given-managed-spu-then-refused",
    ),
    pytest.param(
        "topics",
        manifest("Topic", "_mine", {}),
        400,
        "INVALID_REQUEST",
        "metadata.name: '_mine': names that begin with _ belong to the system",
        id="given-leading-underscore-then-refused",
    ),
    pytest.param(
        "topics",
        manifest("Topic", "n" * 248, {"partitions": 11}),
        400,
        "INVALID_REQUEST",
        f"metadata.name: too long by 2 characters: its partitions are named {'n' * 20}…{'n' * 5}"
        "-10",
        id="given-name-too-long-for-its-partitions-then-refused",
    ),
    pytest.param(
        "topics",
        manifest("Spu", "s", {"spuId": 1}),
        400,
        "INVALID_REQUEST",
        "kind: Spu does not belong under /v1/topics",
        id="given-kind-under-another-address-then-refused",
    ),
    pytest.param(
        "topics",
        manifest("Topic", "t", {"partition": 3}),
        400,
        "INVALID_REQUEST",
        "spec.partition: unknown field; did you mean partitions?",
        id="given-unknown-field-then-named-with-the-nearest",
    ),
    pytest.param(
        "topics",
        manifest("Topic", "t", {"partitions": "three", "replicationFactor": 0}),
        400,
        "INVALID_REQUEST",
        "spec.partitions: must be a whole number, not the text 'three';"
        " spec.replicationFactor: must be at least 1, it is 0",
        id="given-two-problems-then-both-named",
    ),
    pytest.param(
        "topics",
        [],
        400,
        "INVALID_REQUEST",
        "a manifest is a mapping, this is a list",
        id="given-a-list-then-refused",
    ),
]


@pytest.mark.parametrize(("plural", "body", "status", "code", "message"), REFUSED)
async def test_refused(
    sc: RunningSc, kv: KV, plural: str, body: object, status: int, code: str, message: str
) -> None:
    before = await kv.revision()
    found, error = await call(sc, "POST", f"/v1/{plural}", body)
    assert (found, error["code"], error["message"]) == (status, code, message)
    assert await kv.revision() == before


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"kind: Topic"])
async def test_given_body_that_is_not_json_then_said_so(sc: RunningSc, body: bytes) -> None:
    status, error = await send(sc, "POST", "/v1/topics", body)
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert error["message"].startswith("the body is not JSON")


HALF_A_PAIR = {
    "given-an-escape-in-a-value-then-refused": rb'{"labels": {"a": "x\ud800"}}',
    "given-an-escape-in-a-name-then-refused": rb'{"annotations": {"\udc00": "x"}}',
    "given-its-bytes-then-refused": b'{"annotations": {"a": "\xed\xa0\x80"}}',
}


@pytest.mark.parametrize("metadata", HALF_A_PAIR.values(), ids=HALF_A_PAIR)
async def test_given_half_of_a_surrogate_pair_then_refused_and_not_stored(
    sc: RunningSc, metadata: bytes
) -> None:
    body = (
        b'{"apiVersion": "runnel/v1", "kind": "Topic", "spec": {}, "metadata": {"name": "t", '
        + metadata.strip()[1:]
        + b"}"
    )
    status, error = await send(sc, "POST", "/v1/topics", body)
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert "half of a surrogate pair" in error["message"]
    assert (await call(sc, "GET", "/v1/topics/t"))[0] == 404


@pytest.mark.parametrize("depth", [900, 100_000])
async def test_given_a_body_nested_too_deeply_then_refused(sc: RunningSc, depth: int) -> None:
    status, error = await send(sc, "POST", "/v1/topics", b"[" * depth + b"]" * depth)
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert depth < 1_000 or error["message"] == "the body is nested too deeply"


async def test_given_name_in_the_address_and_another_in_the_body_then_refused(
    sc: RunningSc,
) -> None:
    await created(sc, "Topic", "t", {})
    status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "u", {}))
    assert (status, error["message"]) == (400, "metadata.name is 'u', the address says 't'")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_given_a_name_that_is_not_the_scs_then_refused_before_anything_is_done(
    sc: RunningSc, method: str
) -> None:
    """A web page whose name resolves to the SC's address (DNS rebinding)."""
    path = "/v1/topics" if method != "DELETE" else "/v1/topics/t"
    await created(sc, "Topic", "t", {"partitions": 1})
    status, answer = await send(sc, method, path, b"{}", {"Host": "evil.example:9003"})
    assert (status, answer["code"]) == (403, "UNAUTHORIZED")
    assert "allowedHosts" in answer["message"]
    assert (await call(sc, "GET", "/v1/topics/t"))[1]["metadata"].get("deletionTimestamp") is None


async def test_given_a_name_that_an_spu_advertises_then_answered(sc: RunningSc) -> None:
    endpoint = {"port": 9005, "ingress": [{"hostname": "edge-7.example"}]}
    await created(sc, "Spu", "edge-7", {"spuId": 7, "publicEndpoint": endpoint})
    headers = {"Host": "edge-7.example:9003"}
    assert (await send(sc, "GET", "/v1/topics", None, headers))[0] == 200


async def test_given_a_group_outside_the_directories_then_refused(sc: RunningSc) -> None:
    sc.controller.view.provisioning = Provisioning(3, {}, directories=("/data",))
    spec = {"replicas": 0, "template": {"storage": {"logDir": "/data/../etc"}}}
    status, error = await call(sc, "POST", "/v1/spugroups", manifest("SpuGroup", "g", spec))
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert error["message"].startswith("spec.template.storage.logDir: '/data/../etc' is not below")
    assert (await call(sc, "GET", "/v1/spugroups/g"))[0] == 404
    spec = {"replicas": 0, "template": {"storage": {"logDir": "/data/a"}}}
    assert (await call(sc, "POST", "/v1/spugroups", manifest("SpuGroup", "g", spec)))[0] == 201
    patch = {"spec": {"template": {"storage": {"logDir": "/etc"}}}}
    assert (await call(sc, "PATCH", "/v1/spugroups/g", patch))[0] == 400
