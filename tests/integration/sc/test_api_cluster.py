"""What the API says of the cluster, and of itself."""

from __future__ import annotations

from unittest import mock

import pytest

from sc.api.openapi import document
from sc.api.server import PublicServer
from sc.election.office import LocalOffice
from tests.integration.sc.calls import call, created, online
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.unit.sc.builders import SC


async def test_health_metrics_cluster_and_schemas(sc: RunningSc) -> None:
    async def healthy() -> bool:
        return (await call(sc, "GET", "/health"))[0] == 200

    await eventually(healthy)
    assert (await call(sc, "GET", "/health"))[1]["status"] == "ok"
    async with online(sc, 1):
        await created(sc, "Topic", "t", {})
        await sc.until("topics", "t", "provisioned")
        await sc.until("partitions", "t-0", "online")
        async with sc.http.get(f"{sc.public}/metrics") as response:
            assert response.content_type == "text/plain"
            metrics = await response.text()
    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert lines["runnel_sc_spu_sessions"] == "1.0"
    assert float(lines["runnel_sc_store_revision"]) > 0
    assert lines['runnel_sc_spus{resolution="online"}'] == "1.0"
    assert lines['runnel_sc_spus{resolution="offline"}'] == "0.0"
    assert lines['runnel_sc_topics{resolution="provisioned"}'] == "1.0"
    assert lines['runnel_sc_topics{resolution="pending"}'] == "0.0"
    assert lines['runnel_sc_spu_groups{resolution="reserved"}'] == "0.0"
    assert lines["runnel_sc_under_replicated_partitions"] == "0.0"
    assert float(lines['runnel_sc_kv_seconds_count{operation="txn"}']) >= 3
    assert float(lines['runnel_sc_session_request_seconds_count{type="assign"}']) >= 1
    assert float(lines['runnel_sc_actions_total{action="CreatePartitions"}']) == 1
    assert float(lines['runnel_sc_reconcile_seconds_count{kind="Topic"}']) >= 3
    assert float(lines['runnel_sc_http_requests_total{method="POST",status="201"}']) == 2
    _, cluster = await call(sc, "GET", "/v1/cluster")
    assert cluster["cluster"] == "test"
    assert cluster["clusterUid"] == sc.controller.leadership.cluster_uid
    _, schemas = await call(sc, "GET", "/v1/schemas")
    assert {"Spu", "Topic", "Partition"} <= set(schemas)


async def test_openapi_document(sc: RunningSc) -> None:
    status, found = await call(sc, "GET", "/v1/openapi.json")
    assert (status, found) == (200, document())


async def test_given_a_start_then_no_document_is_made(sc: RunningSc) -> None:
    with mock.patch("sc.api.documents.json.dumps", side_effect=AssertionError("made")) as made:
        PublicServer(sc.controller.mirror, LocalOffice(SC), "1")
    assert not made.called


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/health", "application/json"),
        ("/metrics", "text/plain"),
        ("/v1/topics", "application/json"),
        ("/v1/topics/t", "application/json"),
        ("/v1/topics/t/history", "application/json"),
        ("/v1/topics?watch=true", "text/event-stream"),
        ("/v1/assignments?watch=true", "text/event-stream"),
    ],
)
async def test_given_head_then_the_headers_of_get_and_no_body(
    sc: RunningSc, path: str, kind: str
) -> None:
    await eventually(lambda: sc.controller.ready)
    await created(sc, "Topic", "t", {})
    async with sc.http.head(f"{sc.public}{path}") as response:
        assert (response.status, response.content_type) == (200, kind)
        assert await response.read() == b""
    await eventually(lambda: len(sc.server.feeds) == 0)


async def test_given_one_sc_then_it_leads_and_does_not_step_down(sc: RunningSc) -> None:
    status, found = await call(sc, "GET", "/v1/controllers")
    assert (status, found["asked"]) == (200, SC.name)
    (only,) = found["items"]
    assert (only["name"], only["role"], only["public"]) == (SC.name, "leader", SC.public)
    assert "pid" not in only
    status, error = await call(sc, "POST", "/v1/controllers/step-down")
    assert (status, error["code"]) == (409, "CONFLICT")
    assert "runnel cluster migrate" in error["message"]
