"""Reports of runners of pipelines over HTTP: leases, what is stored and what is only shown."""

from __future__ import annotations

from typing import Any

import pytest

from sc.kv.interface import KV
from sc.pipelines.lease import LEASE_MS, UNKNOWN_MS
from tests.integration.sc.calls import JSON, call, feed
from tests.integration.sc.conftest import RunningSc, manifest, run_sc

A, B = "aaaaaaaa", "bbbbbbbb"
SPEC: dict[str, object] = {
    "source": {"topic": "in"},
    "query": "SELECT * FROM in",
    "sink": {"topic": "out"},
    "checkpoint": "/c",
}


async def put(sc: RunningSc, run: str, state: str, **more: Any) -> tuple[int, JSON]:
    body = {"runId": run, "host": f"host-{run[0]}", "state": state, **more}
    return await call(sc, "PUT", "/v1/pipelines/p/status", body)


async def status_of(sc: RunningSc) -> JSON:
    status, found = await call(sc, "GET", "/v1/pipelines/p")
    assert status == 200
    shown: JSON = found["status"]
    return shown


@pytest.fixture
async def pipeline(sc: RunningSc) -> RunningSc:
    assert (await call(sc, "POST", "/v1/pipelines", manifest("Pipeline", "p", SPEC)))[0] == 201
    return sc


async def test_a_run_reports_and_another_is_refused(pipeline: RunningSc) -> None:
    sc = pipeline
    assert (await put(sc, A, "init", generation=1))[0] == 200
    status, answer = await put(sc, A, "running", generation=1, lastBatch=3, rowsIn=5, lag=7)
    assert (status, answer["spec"]["desired"]) == (200, "running")
    stored = (await status_of(sc))["lastBatch"]
    assert stored == 3
    revision = sc.controller.view.store.revision
    for batch in range(4, 9):
        await put(sc, A, "running", generation=1, lastBatch=batch)
    assert sc.controller.view.store.revision == revision, "batches write nothing"
    (listed,) = (await call(sc, "GET", "/v1/pipelines"))[1]["items"]
    assert listed["status"]["lastBatch"] == 8

    status, error = await put(sc, B, "init")
    assert (status, error["code"]) == (409, "CONFLICT")
    assert error["message"].startswith(f"pipeline p is run by run {A} on host host-a; if that one")
    assert error["details"] == {"runId": A, "host": "host-a"}

    assert (await put(sc, B, "init", takeOver=True))[0] == 200
    status, error = await put(sc, A, "running")
    assert (status, error["code"]) == (409, "CONFLICT")
    assert f"run {B} on host host-b has taken it over" in error["message"]
    assert (await put(sc, B, "failed", lastError="boom"))[0] == 200
    found = await status_of(sc)
    assert (found["state"], found["reason"], found["runId"]) == ("failed", "boom", B)
    history = (await call(sc, "GET", "/v1/pipelines/p/history"))[1]["items"]
    assert [item["resolution"] for item in history] == ["failed", "init", "running", "init", "init"]


async def test_given_silence_then_unknown_and_another_may_begin(
    pipeline: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    sc = pipeline
    await put(sc, A, "init")
    await put(sc, A, "running", lastBatch=1)
    clock_ms = sc.controller.clock_ms
    passed_ms = LEASE_MS - 1_000
    monkeypatch.setattr(sc.controller, "clock_ms", lambda: clock_ms() + passed_ms)
    assert (await put(sc, B, "init"))[0] == 409
    passed_ms = UNKNOWN_MS
    found = await status_of(sc)
    assert (found["state"], found["lastBatch"], found["runId"]) == ("unknown", 1, A)
    assert (await put(sc, B, "init"))[0] == 200


async def test_given_another_sc_then_the_lease_stays_and_the_next_report_brings_all_back(
    kv: KV,
) -> None:
    async with run_sc(kv) as sc:
        await call(sc, "POST", "/v1/pipelines", manifest("Pipeline", "p", SPEC))
        await put(sc, A, "init")
        await put(sc, A, "running", lastBatch=1)
        await put(sc, A, "running", lastBatch=2, lag=4)
    async with run_sc(kv) as sc:
        found = await status_of(sc)
        assert (found["state"], found["runId"], found["lastBatch"]) == ("running", A, 1)
        assert (await put(sc, B, "init"))[0] == 409
        await put(sc, A, "running", lastBatch=3, lag=2)
        found = await status_of(sc)
        assert (found["lastBatch"], found["lag"]) == (3, 2)


async def test_the_stream_of_statistics_has_pipelines_if_they_are_watched(
    pipeline: RunningSc,
) -> None:
    sc = pipeline
    await put(sc, A, "init")
    async with feed(sc, "/v1/watch?kinds=pipelines,stats") as watched:
        await watched.until(("added", "p"))
        await put(sc, A, "running", lastBatch=4, rowsPerSecond=2.5)
        while True:
            event = await watched.next()
            rows = event.data.get("pipelines", [])
            if event.name == "stats" and rows and rows[0]["lastBatch"] == 4:
                break
        assert (rows[0]["name"], rows[0]["rowsPerSecond"]) == ("p", 2.5)


async def test_what_a_report_cannot_say(pipeline: RunningSc) -> None:
    status, error = await put(pipeline, "short", "init")
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    status, error = await put(pipeline, A, "unknown")
    assert (status, error["message"][:24]) == (400, "state: 'unknown' is not ")
    status, _ = await put(pipeline, A, "failed", lastError="x" * 1025)
    assert status == 400
    body = {"runId": A, "host": "h", "state": "init"}
    status, error = await call(pipeline, "PUT", "/v1/pipelines/other/status", body)
    assert (status, error["message"]) == (404, "Pipeline 'other' does not exist")


async def test_given_stopped_is_desired_then_a_run_ends_and_none_begins(
    pipeline: RunningSc,
) -> None:
    sc = pipeline
    await put(sc, A, "init")
    status, _ = await call(sc, "PATCH", "/v1/pipelines/p", {"spec": {"desired": "stopped"}})
    assert status == 200
    status, answer = await put(sc, A, "running")
    assert (status, answer["spec"]["desired"]) == (200, "stopped")
    assert "spec.desired is stopped" in answer["status"]["reason"]
    assert (await put(sc, A, "stopped", lastBatch=9))[0] == 200
    status, error = await put(sc, B, "init")
    assert (status, error["code"]) == (409, "CONFLICT")
    assert "runnel pipeline start p" in error["message"]
