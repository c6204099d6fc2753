"""Who wrote, when and why: beside the stored object, in its history, in the logs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import structlog

from sc.kv.interface import KV
from tests.integration.sc.calls import JSON, MERGE_PATCH, call, created, send
from tests.integration.sc.conftest import RunningSc, manifest
from tests.polling import eventually


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
    assert json.loads(stored.value)["by"] == "sc"
    wrote = [line for line in logs if line["event"] == "wrote"]
    assert wrote
    assert {line["cause"] for line in wrote} == {"cli-42"}


async def test_given_no_cause_then_the_answer_names_the_one_it_was_given(sc: RunningSc) -> None:
    async with sc.http.get(f"{sc.public}/v1/topics/x") as response:
        assert response.status == 404
        assert response.headers["X-Runnel-Cause"].startswith("api-")


async def test_given_writer_in_the_header_then_stored_with_the_time(sc: RunningSc, kv: KV) -> None:
    stored = await first_stored(sc, kv, by="alice@box")
    assert stored["by"] == "alice@box"
    at = datetime.fromisoformat(stored["at"])
    assert at.utcoffset() == timedelta(0)
    assert stored["at"].endswith("Z")
    assert len(stored["at"]) == len("2026-01-01T00:00:00.000Z")


async def test_given_no_writer_then_the_peers_address(sc: RunningSc, kv: KV) -> None:
    assert (await first_stored(sc, kv))["by"] == "127.0.0.1"


async def first_stored(sc: RunningSc, kv: KV, by: str | None = None) -> JSON:
    made = await created(sc, "Topic", "t", {}, by=by)
    revision = int(made["metadata"]["resourceVersion"])
    stored = await kv.get(sc.controller.keys.object("topics", "t"), revision=revision)
    assert stored is not None
    data: JSON = json.loads(stored.value)
    return data


async def test_given_writes_then_their_history_newest_first(sc: RunningSc) -> None:
    made = await created(sc, "Topic", "t", {"partitions": 1}, by="alice")
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    patch = {"metadata": {"labels": {"team": "x"}}, "spec": {"partitions": 2}}
    headers = {"Content-Type": MERGE_PATCH, "X-Runnel-By": "bob", "X-Runnel-Cause": "cli-9"}
    status, _ = await send(sc, "PATCH", "/v1/topics/t", json.dumps(patch).encode(), headers)
    assert status == 200
    await eventually(lambda: sc.controller.queue.idle)
    status, found = await call(sc, "GET", "/v1/topics/t/history")
    assert (status, found["complete"]) == (200, True)
    items = found["items"]
    revisions = [int(item["revision"]) for item in items]
    assert revisions == sorted(revisions, reverse=True)
    first = items[-1]
    assert first["revision"] == made["metadata"]["resourceVersion"]
    assert (first["by"], first["generation"], first["resolution"]) == ("alice", 1, "init")
    assert first["changed"] == ["metadata", "spec", "status"]
    (bobs,) = (item for item in items if item["by"] == "bob")
    assert bobs["changed"] == ["metadata.labels.team", "spec.partitions"]
    assert (bobs["cause"], bobs["generation"]) == ("cli-9", 2)
    controllers = [item for item in items if item["by"] == "sc"]
    assert controllers[-1]["changed"][0].startswith("status.")
    insufficient = [i for i in controllers if i["resolution"] == "insufficientResources"]
    assert insufficient[-1]["reason"]
    assert all(item["at"].endswith("Z") for item in items)


async def test_given_limit_then_so_many_and_not_complete(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {})
    for n in range(4):
        await call(sc, "PATCH", "/v1/topics/t", {"metadata": {"labels": {"n": str(n)}}}, by="bob")
    await eventually(lambda: sc.controller.queue.idle)
    _, whole = await call(sc, "GET", "/v1/topics/t/history?limit=1000")
    _, some = await call(sc, "GET", "/v1/topics/t/history?limit=3")
    assert whole["complete"]
    assert not some["complete"]
    assert some["items"] == whole["items"][:3]
    count = len(whole["items"])
    _, all_of_it = await call(sc, "GET", f"/v1/topics/t/history?limit={count}")
    assert all_of_it == whole


async def test_given_compacted_then_what_is_left_and_not_complete(sc: RunningSc, kv: KV) -> None:
    await created(sc, "Topic", "t", {})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    await kv.compact(await kv.revision())
    await call(sc, "PATCH", "/v1/topics/t", {"spec": {"partitions": 2}}, by="bob")
    _, found = await call(sc, "GET", "/v1/topics/t/history")
    (bobs,) = (item for item in found["items"] if item["by"] == "bob")
    assert bobs["changed"] == ["spec.partitions"]
    # What it changed is compacted, what it left is not.
    assert found["items"][-1]["changed"] == []
    assert found["items"][-1]["by"] == "sc"
    assert not found["complete"]


async def test_given_deleted_and_created_again_then_the_history_of_the_new_one(
    sc: RunningSc,
) -> None:
    await created(sc, "Spu", "one", {"spuId": 1}, by="alice")
    assert (await call(sc, "DELETE", "/v1/spus/one"))[0] == 202
    status, error = await call(sc, "GET", "/v1/spus/one/history")
    assert (status, error["message"]) == (404, "Spu 'one' does not exist")
    await created(sc, "Spu", "one", {"spuId": 1}, by="bob")
    await eventually(lambda: sc.controller.queue.idle)
    _, found = await call(sc, "GET", "/v1/spus/one/history")
    assert {item["by"] for item in found["items"]} == {"bob", "sc"}
    assert found["complete"]


def _with_cause(_logger: Any, _method: str, event: Any) -> Any:
    from schemas.causality import current_cause

    return {**event, "cause": current_cause()}
