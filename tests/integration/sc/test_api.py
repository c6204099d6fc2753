"""The public API over HTTP: what users may write, what they read, and what they are told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
import structlog

from sc.kv.interface import KV
from schemas.assignments import Assignments
from schemas.partition import Partition
from tests.integration.sc.conftest import RunningSc, manifest
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu

JSON = dict[str, Any]


async def call(sc: RunningSc, method: str, path: str, body: object = None) -> tuple[int, JSON]:
    status, answer = await sc.call(method, path, body)
    return status, dict(answer)


async def send_raw(sc: RunningSc, method: str, path: str, body: bytes) -> tuple[int, JSON]:
    async with sc.http.request(method, f"{sc.public}{path}", data=body) as response:
        return response.status, await response.json()


async def created(sc: RunningSc, kind: str, name: str, spec: JSON) -> JSON:
    status, body = await sc.create(kind, name, spec)
    assert status == 201, body
    assert isinstance(body, dict)
    return body


@asynccontextmanager
async def online(sc: RunningSc, *ids: int) -> AsyncIterator[list[SimulatedSpu]]:
    """Registered SPUs with a session."""
    async with AsyncExitStack() as stack:
        spus = []
        for i in ids:
            await created(sc, "Spu", f"spu-{i}", {"spuId": i})
            spus.append(await stack.enter_async_context(SimulatedSpu(i, sc.private)))
        for i in ids:
            await sc.until("spus", f"spu-{i}", "online")
        yield spus


# -- objects ------------------------------------------------------------------------------------


async def test_given_created_then_the_server_has_set_its_fields_and_it_is_read_at_once(
    sc: RunningSc,
) -> None:
    made = await created(sc, "Topic", "orders", {"partitions": 3})
    metadata = made["metadata"]
    assert metadata["name"] == "orders"
    assert metadata["generation"] == 1
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    status, found = await call(sc, "GET", "/v1/topics/orders")
    assert status == 200
    assert found["metadata"]["uid"] == metadata["uid"]
    assert found["spec"]["partitions"] == 3


async def test_given_status_and_server_fields_in_the_body_then_they_are_not_the_users_to_set(
    sc: RunningSc,
) -> None:
    wish = manifest("Spu", "spu-1", {"spuId": 1}) | {"status": {"resolution": "online"}}
    wish["metadata"] = {"name": "spu-1", "uid": "mine", "generation": 99}
    status, made = await call(sc, "POST", "/v1/spus", wish)
    assert status == 201
    assert made["status"]["resolution"] == "init"
    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["generation"] == 1


async def test_given_several_then_listed_by_name_and_selected_by_label(sc: RunningSc) -> None:
    for name, labels in (("b", {"team": "x", "env": "prod"}), ("a", {"team": "x"}), ("c", {})):
        body = manifest("Topic", name, {})
        body["metadata"] = {"name": name, "labels": labels}
        assert (await call(sc, "POST", "/v1/topics", body))[0] == 201

    async def names(query: str) -> list[str]:
        status, found = await call(sc, "GET", f"/v1/topics{query}")
        assert status == 200
        assert int(found["revision"]) > 0
        return [item["metadata"]["name"] for item in found["items"]]

    assert await names("") == ["a", "b", "c"]
    assert await names("?labelSelector=team=x") == ["a", "b"]
    assert await names("?labelSelector=team=x,env=prod") == ["b"]
    assert await names("?labelSelector=team=y") == []
    status, error = await call(sc, "GET", "/v1/topics?labelSelector=team")
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert error["message"] == "labelSelector: 'team' is not KEY=VALUE"


async def test_given_replaced_then_spec_and_labels_change_and_the_status_stays(
    sc: RunningSc,
) -> None:
    before = await created(sc, "Topic", "t", {"partitions": 1})
    await sc.until("topics", "t", "insufficientResources")
    body = manifest("Topic", "t", {"partitions": 2})
    body["metadata"] = {"name": "t", "labels": {"team": "x"}}
    status, after = await call(sc, "PUT", "/v1/topics/t", body)
    assert status == 200
    assert after["metadata"]["generation"] == 2
    assert after["metadata"]["labels"] == {"team": "x"}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["partitions"] == 2
    assert after["status"]["resolution"] == "insufficientResources"


async def test_given_read_and_written_back_then_nothing_is_written(sc: RunningSc, kv: KV) -> None:
    await created(sc, "Spu", "spu-1", {"spuId": 1})
    await sc.until("spus", "spu-1", "init")
    await eventually(lambda: sc.controller.queue.idle)
    _, read = await call(sc, "GET", "/v1/spus/spu-1")
    before = await kv.revision()
    status, again = await call(sc, "PUT", "/v1/spus/spu-1", read)
    assert (status, again) == (200, read)
    assert await kv.revision() == before


async def test_given_an_older_resource_version_then_a_conflict_that_names_both(
    sc: RunningSc,
) -> None:
    await created(sc, "Topic", "t", {"partitions": 1})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    _, read = await call(sc, "GET", "/v1/topics/t")
    read["spec"]["partitions"] = 2
    assert (await call(sc, "PUT", "/v1/topics/t", read))[0] == 200
    await eventually(lambda: sc.controller.queue.idle)
    _, now = await call(sc, "GET", "/v1/topics/t")
    read["spec"]["partitions"] = 3
    status, error = await call(sc, "PUT", "/v1/topics/t", read)
    assert (status, error["code"]) == (409, "CONFLICT")
    mine, theirs = read["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"]
    assert error["message"] == (
        f"Topic t was changed meanwhile: it is at resourceVersion {theirs}, not {mine};"
        " read it again"
    )


async def test_given_many_writers_at_once_then_all_land_one_after_the_other(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {"partitions": 1})

    async def write(number: int) -> tuple[int, JSON]:
        body = manifest("Topic", "t", {"partitions": 1})
        body["metadata"] = {"name": "t", "labels": {"writer": str(number)}}
        return await call(sc, "PUT", "/v1/topics/t", body)

    answers = await asyncio.gather(*(write(n) for n in range(5)))
    assert [status for status, _ in answers] == [200] * 5
    assert len({body["metadata"]["resourceVersion"] for _, body in answers}) == 5


async def test_given_deleted_then_gone(sc: RunningSc) -> None:
    await created(sc, "Spu", "spu-1", {"spuId": 1})
    assert (await call(sc, "DELETE", "/v1/spus/spu-1"))[0] == 202
    assert (await call(sc, "GET", "/v1/spus/spu-1"))[0] == 404
    again = await created(sc, "Spu", "spu-1", {"spuId": 1})
    assert again["status"]["resolution"] == "init"
    await created(sc, "Topic", "t", {})
    assert (await call(sc, "DELETE", "/v1/topics/t"))[0] == 202
    await sc.until_gone("topics", "t")


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
            " streams, pipelines",
            id="given-unknown-kind",
        ),
        pytest.param("GET", "/nowhere", None, "GET /nowhere: Not Found", id="given-unknown-path"),
    ],
)
async def test_not_found(sc: RunningSc, method: str, path: str, body: object, message: str) -> None:
    status, error = await call(sc, method, path, body)
    assert (status, error["code"], error["message"]) == (404, "NOT_FOUND", message)


async def test_given_method_that_is_not_served_then_json_all_the_same(sc: RunningSc) -> None:
    status, error = await call(sc, "PATCH", "/v1/topics/x", {})
    assert (status, error["code"]) == (405, "INVALID_REQUEST")
    assert "Method Not Allowed" in error["message"]


GROUP = {"replicas": 1}
REFUSED = [
    pytest.param(
        "spugroups",
        manifest("SpuGroup", "g", {"replicas": 1}),
        501,
        "UNSUPPORTED",
        "kind SpuGroup: managed SPUs are not provisioned by this version; register each SPU as a"
        " kind: Spu",
        id="given-spu-group-then-not-served",
    ),
    pytest.param(
        "streams",
        manifest("Stream", "s", {"scope": "a"}),
        501,
        "UNSUPPORTED",
        "kind Stream: streams are not served by this version; use a kind: Topic",
        id="given-stream-then-not-served",
    ),
    pytest.param(
        "pipelines",
        manifest("Pipeline", "p", {"source": {"topic": "a"}, "query": "q", "sink": {"topic": "b"}}),
        501,
        "UNSUPPORTED",
        "kind Pipeline: pipelines are not run by this version; submit the Spark job yourself",
        id="given-pipeline-then-not-served",
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
        501,
        "UNSUPPORTED",
        "spec.publicEndpoint.encryption: TLS is not available in this version, and it is never"
        " replaced by plaintext silently; write encryption: plaintext, on a trusted network",
        id="given-public-tls-then-refused",
    ),
    pytest.param(
        "spus",
        manifest("Spu", "s", {"spuId": 1, "privateEndpoint": {"encryption": "tls"}}),
        501,
        "UNSUPPORTED",
        "spec.privateEndpoint.encryption: TLS is not available in this version, and it is never"
        " replaced by plaintext silently; write encryption: plaintext, on a trusted network",
        id="given-private-tls-then-refused",
    ),
    pytest.param(
        "spus",
        manifest("Spu", "s", {"spuId": 1, "spuType": "Managed"}),
        501,
        "UNSUPPORTED",
        "spec.spuType: managed SPUs are provisioned by an SpuGroup, which this version does not"
        " serve; register it as custom",
        id="given-managed-spu-then-refused",
    ),
    pytest.param(
        "topics",
        manifest("Topic", "_mine", {}),
        400,
        "INVALID_REQUEST",
        "metadata.name: '_mine': names that begin with _ are the system's",
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
    status, error = await send_raw(sc, "POST", "/v1/topics", body)
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
    status, error = await send_raw(sc, "POST", "/v1/topics", body)
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert "half of a surrogate pair" in error["message"]
    assert (await call(sc, "GET", "/v1/topics/t"))[0] == 404


@pytest.mark.parametrize("depth", [900, 100_000])
async def test_given_a_body_nested_too_deeply_then_refused(sc: RunningSc, depth: int) -> None:
    status, error = await send_raw(sc, "POST", "/v1/topics", b"[" * depth + b"]" * depth)
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert depth < 1_000 or error["message"] == "the body is nested too deeply"


async def test_given_name_taken_then_conflict(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {})
    status, error = await call(sc, "POST", "/v1/topics", manifest("Topic", "t", {"partitions": 9}))
    assert (status, error["code"], error["message"]) == (409, "CONFLICT", "Topic t exists")


async def test_given_name_in_the_address_and_another_in_the_body_then_refused(
    sc: RunningSc,
) -> None:
    await created(sc, "Topic", "t", {})
    status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "u", {}))
    assert (status, error["message"]) == (400, "metadata.name is 'u', the address says 't'")


async def test_given_spu_id_taken_then_conflict_that_names_the_holder(sc: RunningSc) -> None:
    await created(sc, "Spu", "one", {"spuId": 1})
    status, error = await call(sc, "POST", "/v1/spus", manifest("Spu", "two", {"spuId": 1}))
    assert (status, error["message"]) == (409, "spuId 1 belongs to SPU one")
    status, error = await call(sc, "PUT", "/v1/spus/one", manifest("Spu", "one", {"spuId": 2}))
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert "spec.spuId: cannot change from 1 to 2" in error["message"]
    assert (await call(sc, "DELETE", "/v1/spus/one"))[0] == 202
    await created(sc, "Spu", "two", {"spuId": 1})


async def test_given_two_spus_with_one_id_at_once_then_one_wins(sc: RunningSc) -> None:
    answers = await asyncio.gather(
        *(call(sc, "POST", "/v1/spus", manifest("Spu", f"s{n}", {"spuId": 1})) for n in range(6))
    )
    assert sorted(status for status, _ in answers) == [201] + [409] * 5


async def test_given_spu_that_holds_replicas_then_its_deletion_is_refused(sc: RunningSc) -> None:
    async with online(sc, 1):
        await created(sc, "Topic", "t", {"partitions": 7})
        await sc.until("topics", "t", "provisioned")
        status, error = await call(sc, "DELETE", "/v1/spus/spu-1")
        assert (status, error["code"]) == (409, "CONFLICT")
        assert error["message"] == (
            "SPU spu-1 holds replicas of t-0, t-1, t-2, t-3, t-4 and 2 more;"
            " delete their topics first"
        )
        await call(sc, "DELETE", "/v1/topics/t")
        await sc.until_gone("topics", "t")
        assert (await call(sc, "DELETE", "/v1/spus/spu-1"))[0] == 202


async def test_given_placed_topic_then_it_grows_and_never_shrinks(sc: RunningSc) -> None:
    async with online(sc, 1, 2):
        await created(sc, "Topic", "t", {"partitions": 2})
        for index in (0, 1):
            await sc.until("partitions", f"t-{index}", "online")
        first = {p.name: p.uid for p in sc.controller.view.store.objects(Partition)}
        status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "t", {}))
        assert (status, error["code"]) == (400, "INVALID_REQUEST")
        assert error["message"] == (
            "spec.partitions: cannot shrink from 2 to 1: records would be lost;"
            " create another topic"
        )
        more: JSON = {"partitions": 2, "replicationFactor": 2}
        status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "t", more))
        assert "spec.replicationFactor: cannot change from 1 to 2" in error["message"]
        rows: JSON = {"assignment": [{"id": 0, "replicas": [1]}, {"id": 1, "replicas": [1]}]}
        status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "t", rows))
        assert error["message"] == "spec.assignment: cannot switch between computed and manual"
        wish = manifest("Topic", "t", {"partitions": 4})
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 200
        for index in range(4):
            await sc.until("partitions", f"t-{index}", "online")
        now = {p.name: p.uid for p in sc.controller.view.store.objects(Partition)}
        assert first.items() <= now.items()

        async def mapped() -> bool:
            _, topic = await call(sc, "GET", "/v1/topics/t")
            return len(topic["status"]["replicaMap"]) == 4

        await eventually(mapped)


async def test_given_manual_rows_then_new_ones_may_follow_and_placed_ones_stay(
    sc: RunningSc,
) -> None:
    def rows(*replicas: int) -> JSON:
        return {"assignment": [{"id": i, "replicas": [r]} for i, r in enumerate(replicas)]}

    async with online(sc, 1, 2):
        await created(sc, "Topic", "t", rows(1))
        await sc.until("partitions", "t-0", "online")
        status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "t", rows(2)))
        assert (status, error["message"]) == (
            400,
            "spec.assignment: row 0 is placed on [1]; placed rows cannot move",
        )
        wish = manifest("Topic", "t", rows(1, 9))
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 200
        invalid = await sc.until("topics", "t", "invalidConfig")
        assert invalid.status.reason == "assignment row 1: SPU 9 is not registered"
        await sc.until("partitions", "t-0", "online")
        wish = manifest("Topic", "t", rows(2, 2))
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 400
        wish = manifest("Topic", "t", rows(1, 2))
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 200
        await sc.until("topics", "t", "provisioned")
        await sc.until("partitions", "t-1", "online")


async def test_given_topic_being_deleted_then_it_cannot_be_changed(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {})
    store = sc.controller.view.store
    sc.work.cancel()
    await asyncio.gather(sc.work, return_exceptions=True)
    follow = asyncio.create_task(sc.controller.reader.run())
    try:
        assert (await call(sc, "DELETE", "/v1/topics/t"))[0] == 202
        assert (await call(sc, "DELETE", "/v1/topics/t"))[0] == 202
        status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "t", {}))
        assert (status, error["message"]) == (
            409,
            "Topic t is being deleted; wait until it is gone",
        )
        assert store.object_keys() == {("Topic", "t")}
    finally:
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)


async def test_given_many_topics_at_once_then_their_leaders_are_spread(sc: RunningSc) -> None:
    async with online(sc, 1, 2, 3):
        names = [f"t{n}" for n in range(12)]
        await asyncio.gather(*(created(sc, "Topic", name, {}) for name in names))
        for name in names:
            await sc.until("topics", name, "provisioned")
    partitions = sc.controller.view.store.objects(Partition)
    leaders = Counter(p.spec.preferred_leader for p in partitions)
    assert leaders == {1: 4, 2: 4, 3: 4}


# -- the cluster, metrics, health ---------------------------------------------------------------


async def test_health_metrics_cluster_and_schemas(sc: RunningSc) -> None:
    async def healthy() -> bool:
        return (await call(sc, "GET", "/health"))[0] == 200

    await eventually(healthy)
    assert (await call(sc, "GET", "/health"))[1]["status"] == "ok"
    async with online(sc, 1):
        await created(sc, "Topic", "t", {})
        await sc.until("topics", "t", "provisioned")
        async with sc.http.get(f"{sc.public}/metrics") as response:
            assert response.content_type == "text/plain"
            metrics = await response.text()
    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert lines["runnel_sc_spu_sessions"] == "1.0"
    assert float(lines["runnel_sc_store_revision"]) > 0
    assert float(lines['runnel_sc_actions_total{action="CreatePartitions"}']) == 1
    assert float(lines['runnel_sc_reconcile_seconds_count{kind="Topic"}']) >= 3
    assert float(lines['runnel_sc_http_requests_total{method="POST",status="201"}']) == 2
    _, cluster = await call(sc, "GET", "/v1/cluster")
    assert cluster["cluster"] == "test"
    assert cluster["clusterUid"] == sc.controller.office.cluster_uid
    _, schemas = await call(sc, "GET", "/v1/schemas")
    assert {"Spu", "Topic", "Partition"} <= set(schemas)


# -- feeds --------------------------------------------------------------------------------------


class Feed:
    """A stream of server-sent events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        assert response.content_type == "text/event-stream"
        self._lines = response.content

    async def next(self) -> tuple[str, JSON]:
        """The next event: its name and data."""
        name, data = "", ""
        async with asyncio.timeout(15):
            while line := (await self._lines.readline()).decode():
                match line.rstrip("\n").partition(": "):
                    case ("event", _, value):
                        name = value
                    case ("data", _, value):
                        data = value
                    case ("", _, _) if name:
                        return name, json.loads(data)
        raise AssertionError("the feed ended")

    async def until(self, *wanted: tuple[str, str]) -> list[JSON]:
        """Skip to objects events with these (event, object name), in any order."""
        left, found = list(wanted), []
        while left:
            event, data = await self.next()
            seen = (event, data.get("metadata", {}).get("name", ""))
            if seen in left:
                left.remove(seen)
                found.append(data)
        return found

    async def assignments(self) -> Assignments:
        name, data = await self.next()
        assert name == "assignments"
        return Assignments.model_validate(data)


@asynccontextmanager
async def feed(sc: RunningSc, path: str) -> AsyncIterator[Feed]:
    async with sc.http.get(f"{sc.public}{path}") as response:
        assert response.status == 200
        yield Feed(response)


async def test_given_assignments_then_leaders_with_endpoints_or_the_reason_for_none(
    sc: RunningSc,
) -> None:
    await created(
        sc,
        "Spu",
        "spu-1",
        {"spuId": 1, "publicEndpoint": {"port": 7001, "ingress": [{"hostname": "box.lan"}]}},
    )
    await created(sc, "Topic", "empty", {})
    async with SimulatedSpu(1, sc.private):
        await sc.until("spus", "spu-1", "online")
        await created(sc, "Topic", "t", {"partitions": 2, "compression": "zstd"})
        for name in ("t-0", "t-1", "empty-0"):
            await sc.until("partitions", name, "online")
        _, body = await call(sc, "GET", "/v1/assignments?topic=t&topic=absent")
    found = Assignments.model_validate(body)
    assert found.cluster_uid == sc.controller.office.cluster_uid
    (topic,) = found.topics
    assert (topic.name, topic.partition_count, topic.compression) == ("t", 2, "zstd")
    assert [p.index for p in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert partition.leader == 1
        assert partition.endpoint is not None
        assert (partition.endpoint.host, partition.endpoint.port) == ("box.lan", 7001)
        assert partition.term > 0
    _, everything = await call(sc, "GET", "/v1/assignments")
    assert [t["name"] for t in everything["topics"]] == ["empty", "t"]


async def test_given_assignments_watched_then_the_leader_is_seen_to_come_and_go(
    sc: RunningSc,
) -> None:
    async with feed(sc, "/v1/assignments?topic=t&watch=true") as watch:
        first = await watch.assignments()
        assert first.topics == ()
        last = first
        async with online(sc, 1):
            await created(sc, "Topic", "other", {})
            await created(sc, "Topic", "t", {})
            while not (last.topics and any(p.leader == 1 for p in last.topics[0].partitions)):
                following = await watch.assignments()
                assert following.revision > last.revision
                assert following.topics != last.topics
                last = following
            (led,) = last.topics[0].partitions
            assert led.endpoint is not None
        while any(p.leader is not None for p in last.topics[0].partitions):
            last = await watch.assignments()
        (gone,) = last.topics[0].partitions
        assert (gone.endpoint, gone.reason) == (None, "its leader, SPU 1, is offline")
        assert gone.term == led.term
        await call(sc, "DELETE", "/v1/topics/t")
        while last.topics:
            last = await watch.assignments()


async def test_given_objects_watched_then_all_at_first_and_every_change_after(
    sc: RunningSc,
) -> None:
    await created(sc, "Topic", "before", {})
    async with feed(sc, "/v1/topics?watch=true") as watch:
        name, data = await watch.next()
        assert (name, data["metadata"]["name"]) == ("added", "before")
        name, data = await watch.next()
        assert name == "synced"
        assert data["revision"] > 0
        await created(sc, "Spu", "spu-1", {"spuId": 1})
        await created(sc, "Topic", "after", {})
        await watch.until(("added", "after"))
        await call(sc, "DELETE", "/v1/topics/after")
        (gone,) = await watch.until(("deleted", "after"))
        assert gone["kind"] == "Topic"


async def test_given_watch_with_a_selector_then_what_leaves_the_selection_is_deleted(
    sc: RunningSc,
) -> None:
    async def label(name: str, team: str, method: str = "PUT") -> None:
        body = manifest("Topic", name, {})
        body["metadata"] = {"name": name, "labels": {"team": team}}
        path = "/v1/topics" if method == "POST" else f"/v1/topics/{name}"
        assert (await call(sc, method, path, body))[0] in (200, 201)

    await label("mine", "x", "POST")
    await label("theirs", "y", "POST")
    async with feed(sc, "/v1/topics?watch=true&labelSelector=team=x") as watch:
        assert (await watch.next())[1]["metadata"]["name"] == "mine"
        await label("mine", "y")
        await watch.until(("deleted", "mine"))
        await label("theirs", "x")
        await watch.until(("added", "theirs"))


# -- causality ----------------------------------------------------------------------------------


async def test_given_cause_in_the_header_then_it_is_in_the_stored_value_and_in_the_logs(
    sc: RunningSc, kv: KV
) -> None:
    url = f"{sc.public}/v1/topics"
    with structlog.testing.capture_logs(processors=[_with_cause]) as logs:
        async with sc.http.post(
            url, json=manifest("Topic", "t", {}), headers={"X-Runnel-Cause": "cli-42"}
        ) as response:
            assert response.status == 201
            assert response.headers["X-Runnel-Cause"] == "cli-42"
        await sc.until("topics", "t", "insufficientResources")
    key = sc.controller.keys.object("topics", "t")
    stored = await kv.get(key)
    assert stored is not None
    assert stored.version >= 2
    assert json.loads(stored.value)["cause"] == "cli-42"
    wrote = [line for line in logs if line["event"] == "wrote"]
    assert wrote
    assert {line["cause"] for line in wrote} == {"cli-42"}


async def test_given_no_cause_then_the_answer_names_the_one_it_was_given(sc: RunningSc) -> None:
    async with sc.http.get(f"{sc.public}/v1/topics/x") as response:
        assert response.status == 404
        assert response.headers["X-Runnel-Cause"].startswith("api-")


def _with_cause(_logger: Any, _method: str, event: Any) -> Any:
    from schemas.causality import current_cause

    return {**event, "cause": current_cause()}
