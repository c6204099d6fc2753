"""Merge patches and dry runs: what is changed, what is only checked."""

from __future__ import annotations

import asyncio

import pytest

from sc.kv.interface import KV, Put
from tests.integration.sc.calls import JSON, call, created, online
from tests.integration.sc.conftest import RunningSc, manifest
from tests.polling import eventually


async def test_given_patch_then_what_it_names_changes_and_the_rest_stays(sc: RunningSc) -> None:
    spec: JSON = {
        "partitions": 2,
        "compression": "zstd",
        "retention": {"time": "1d", "size": "1Gi"},
    }
    made = await created(sc, "Topic", "t", spec, labels={"a": "1", "b": "2"})
    patch = {
        "metadata": {"labels": {"a": None, "c": "3"}, "annotations": {"note": "x"}},
        "spec": {"partitions": 3, "compression": None, "retention": {"time": "2d"}},
    }
    status, now = await call(sc, "PATCH", "/v1/topics/t", patch)
    assert status == 200
    assert now["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert now["metadata"]["annotations"] == {"note": "x"}
    assert now["metadata"]["generation"] == 2
    assert now["metadata"]["uid"] == made["metadata"]["uid"]
    assert now["spec"]["partitions"] == 3
    # Taken out, it is what it is when left out.
    assert now["spec"]["compression"] == "none"
    assert now["spec"]["retention"] == {"time": "2d", "size": "1Gi", "grace": "1m"}
    assert (await call(sc, "GET", "/v1/topics/t"))[1]["spec"] == now["spec"]


async def test_given_patch_that_changes_nothing_then_nothing_is_written(
    sc: RunningSc, kv: KV
) -> None:
    await created(sc, "Topic", "t", {"partitions": 2})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    before = await kv.revision()
    _, read = await call(sc, "GET", "/v1/topics/t")
    identity = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "t"}}
    for patch in ({}, {"spec": {"partitions": 2}}, identity):
        assert await call(sc, "PATCH", "/v1/topics/t", patch) == (200, read)
    assert await kv.revision() == before


async def test_given_patches_at_once_then_none_undoes_another(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {})
    answers = await asyncio.gather(
        *(
            call(sc, "PATCH", "/v1/topics/t", {"metadata": {"labels": {f"l{n}": "x"}}})
            for n in range(6)
        )
    )
    assert [status for status, _ in answers] == [200] * 6
    _, now = await call(sc, "GET", "/v1/topics/t")
    assert set(now["metadata"]["labels"]) == {f"l{n}" for n in range(6)}


ONLY = "a patch changes metadata.labels, metadata.annotations and spec only"


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param({"status": {}}, f"status: {ONLY}", id="given-the-status"),
        pytest.param({"metadata": {"uid": "x"}}, f"metadata.uid: {ONLY}", id="given-the-uid"),
        pytest.param({"metadata": {"name": "u"}}, f"metadata.name: {ONLY}", id="given-a-name"),
        pytest.param({"kind": "Spu"}, f"kind: {ONLY}", id="given-another-kind"),
        pytest.param({"spoc": 1}, f"spoc: {ONLY}", id="given-an-unknown-field"),
        pytest.param(
            {"metadata": None},
            "metadata: must be a mapping of the fields to change",
            id="given-no-metadata",
        ),
        pytest.param([], "a merge patch is a mapping of the fields to change", id="given-a-list"),
        pytest.param(
            {"spec": {"partition": 1}},
            "spec.partition: unknown field; did you mean partitions?",
            id="given-a-misspelt-field",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": 1}}},
            "metadata.labels.a: must be text, not the number 1; put it in quotes",
            id="given-a-label-that-is-no-text",
        ),
        pytest.param(
            {"spec": {"partitions": 0}},
            "spec.partitions: must be at least 1, it is 0",
            id="given-a-number-out-of-range",
        ),
    ],
)
async def test_given_wrong_patch_then_refused_and_nothing_written(
    sc: RunningSc, kv: KV, patch: object, message: str
) -> None:
    await created(sc, "Topic", "t", {})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    before = await kv.revision()
    status, error = await call(sc, "PATCH", "/v1/topics/t", patch)
    assert (status, error["code"], error["message"]) == (400, "INVALID_REQUEST", message)
    assert await kv.revision() == before


async def test_given_patch_nested_too_deeply_then_refused(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {})
    patch: JSON = {}
    for _ in range(900):
        patch = {"a": patch}
    status, error = await call(sc, "PATCH", "/v1/topics/t", {"spec": patch})
    assert (status, error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/v1/topics/absent", 404, id="given-none-then-not-found"),
        pytest.param("/v1/partitions/t-0", 400, id="given-a-partition-then-the-systems"),
        pytest.param("/v1/streams/a/s", 404, id="given-no-stream-then-not-found"),
    ],
)
async def test_given_nothing_to_patch(sc: RunningSc, path: str, status: int) -> None:
    assert (await call(sc, "PATCH", path, {}))[0] == status


# -- dry runs -----------------------------------------------------------------------------------


async def test_given_dry_run_of_each_write_then_the_answer_and_nothing_written(
    sc: RunningSc, kv: KV
) -> None:
    await created(sc, "Topic", "t", {"partitions": 1})
    await created(sc, "Spu", "spu-1", {"spuId": 1})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    before = await kv.revision()
    _, read = await call(sc, "GET", "/v1/topics/t")

    status, made = await call(sc, "POST", "/v1/topics?dryRun=true", manifest("Topic", "new", {}))
    assert status == 201
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    assert made["status"]["resolution"] == "init"

    wish = manifest("Topic", "t", {"partitions": 4})
    status, replaced = await call(sc, "PUT", "/v1/topics/t?dryRun=true", wish)
    assert (status, replaced["spec"]["partitions"]) == (200, 4)
    assert replaced["metadata"]["generation"] == 2
    patch = {"spec": {"partitions": 5}}
    status, patched = await call(sc, "PATCH", "/v1/topics/t?dryRun=true", patch)
    assert (status, patched["spec"]["partitions"]) == (200, 5)

    status, gone = await call(sc, "DELETE", "/v1/topics/t?dryRun=true")
    assert status == 202
    assert gone["metadata"]["deletionTimestamp"]
    assert (await call(sc, "DELETE", "/v1/spus/spu-1?dryRun=true"))[0] == 202

    assert await kv.revision() == before
    assert (await call(sc, "GET", "/v1/topics/t"))[1] == read
    assert (await call(sc, "GET", "/v1/spus/spu-1"))[0] == 200
    assert (await call(sc, "GET", "/v1/topics/new"))[0] == 404


async def test_given_dry_run_of_what_would_be_refused_then_refused(sc: RunningSc, kv: KV) -> None:
    async with online(sc, 1):
        await created(sc, "Topic", "t", {"partitions": 2})
        for name in ("t-0", "t-1"):
            await sc.until("partitions", name, "online")
        await sc.until("topics", "t", "provisioned")
        await eventually(lambda: sc.controller.queue.idle)
        before = await kv.revision()
        topic, spu = manifest("Topic", "t", {}), manifest("Spu", "other", {"spuId": 1})
        stale = {"metadata": {"resourceVersion": "1"}, "spec": {"partitions": 3}}
        for method, path, body, wanted in (
            ("POST", "/v1/topics", topic, 409),
            ("POST", "/v1/spus", spu, 409),
            ("POST", "/v1/topics", manifest("Topic", "_x", {}), 400),
            ("PUT", "/v1/topics/t", topic, 400),
            ("PUT", "/v1/topics/absent", manifest("Topic", "absent", {}), 404),
            ("PATCH", "/v1/topics/t", stale, 409),
            ("DELETE", "/v1/topics/absent", None, 404),
            ("DELETE", "/v1/spus/spu-1", None, 409),
            ("POST", "/v1/streams", manifest("Stream", "a/s", {}), 404),
        ):
            dry, answer = await call(sc, method, f"{path}?dryRun=true", body)
            assert (method, path, dry) == (method, path, wanted), answer
        assert await kv.revision() == before


async def test_given_moved_cluster_then_neither_writes_nor_dry_runs(sc: RunningSc, kv: KV) -> None:
    await kv.txn([], [Put(sc.controller.keys.moved, b"{}")])
    for query in ("", "?dryRun=true"):
        status, error = await call(sc, "POST", f"/v1/topics{query}", manifest("Topic", "t", {}))
        assert (status, error["message"]) == (
            409,
            "the cluster was moved to another store; this SC is stopping",
        )
