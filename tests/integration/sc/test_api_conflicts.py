"""Conflicts name who won: whose write it was, when, and why."""

from __future__ import annotations

import asyncio

import pytest

from sc.kv.interface import KV, Put
from sc.store.codec import encode_object
from schemas.objects.partition import PartitionResolution
from tests.integration.sc.calls import JSON, call, created, online
from tests.integration.sc.conftest import RunningSc, manifest
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu
from tests.unit.sc.builders import topic_of


async def settled(sc: RunningSc, name: str) -> JSON:
    """A topic that the controllers are done with."""
    await sc.until("topics", name, "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    return (await call(sc, "GET", f"/v1/topics/{name}"))[1]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_given_an_older_resource_version_then_who_won_and_when(
    sc: RunningSc, method: str
) -> None:
    await created(sc, "Topic", "t", {"partitions": 1}, by="alice@box")
    mine = (await settled(sc, "t"))["metadata"]["resourceVersion"]
    wish = manifest("Topic", "t", {"partitions": 2})
    status, won = await call(sc, "PUT", "/v1/topics/t", wish, by="bob@desk")
    assert status == 200
    # What the controllers write after it does not hide who it was.
    theirs = (await settled(sc, "t"))["metadata"]["resourceVersion"]
    assert theirs != won["metadata"]["resourceVersion"]
    path, body = "/v1/topics/t", manifest("Topic", "t", {"partitions": 3})
    body["metadata"] = {"name": "t", "resourceVersion": mine}
    match method:
        case "PATCH":
            body = {"metadata": {"resourceVersion": mine}, "spec": {"partitions": 3}}
        case "DELETE":
            path = f"{path}?resourceVersion={mine}"
    status, error = await call(sc, method, path, body, by="alice@box")
    assert (status, error["code"]) == (409, "CONFLICT")
    details = error["details"]
    assert details["resourceVersion"] == won["metadata"]["resourceVersion"]
    assert details["by"] == "bob@desk"
    assert details["cause"].startswith("api-")
    assert error["message"] == (
        f"Topic t was changed meanwhile by bob@desk at {details['at']}: it is at resourceVersion"
        f" {theirs}, not {mine}; read it again"
    )
    body = {"metadata": {"resourceVersion": theirs}, "spec": {"partitions": 3}}
    assert (await call(sc, "PATCH", "/v1/topics/t", body))[0] == 200


async def test_given_only_the_controllers_wrote_since_then_they_are_named(sc: RunningSc) -> None:
    made = await created(sc, "Topic", "t", {}, by="alice@box")
    now = await settled(sc, "t")
    path = f"/v1/topics/t?resourceVersion={made['metadata']['resourceVersion']}"
    status, error = await call(sc, "DELETE", path)
    assert (status, error["details"]["by"]) == (409, "sc")
    assert error["details"]["resourceVersion"] == now["metadata"]["resourceVersion"]


async def test_given_resource_version_that_is_none_then_conflict(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {})
    await settled(sc, "t")
    body = {"metadata": {"resourceVersion": "yesterday"}, "spec": {"partitions": 3}}
    status, error = await call(sc, "PATCH", "/v1/topics/t", body)
    assert (status, error["code"]) == (409, "CONFLICT")
    assert ", not yesterday; read it again" in error["message"]


async def test_given_name_taken_then_who_created_it(sc: RunningSc) -> None:
    made = await created(sc, "Topic", "t", {}, by="alice@box")
    await settled(sc, "t")
    wish = manifest("Topic", "t", {"partitions": 9})
    assert (await call(sc, "PATCH", "/v1/topics/t", {"spec": {"partitions": 2}}, by="bob"))[
        0
    ] == 200
    status, error = await call(sc, "POST", "/v1/topics", wish)
    assert (status, error["code"]) == (409, "CONFLICT")
    assert error["message"] == f"Topic t exists, created by alice@box at {error['details']['at']}"
    assert error["details"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_given_creation_compacted_then_the_last_write_and_no_creator(
    sc: RunningSc, kv: KV
) -> None:
    await created(sc, "Topic", "t", {}, by="alice@box")
    now = await settled(sc, "t")
    await kv.compact(await kv.revision())
    status, error = await call(sc, "POST", "/v1/topics", manifest("Topic", "t", {}))
    assert (status, error["message"]) == (409, "Topic t exists")
    assert error["details"]["resourceVersion"] == now["metadata"]["resourceVersion"]
    stale = {"metadata": {"resourceVersion": "2"}, "spec": {"partitions": 3}}
    status, error = await call(sc, "PATCH", "/v1/topics/t", stale)
    assert (status, error["details"]["by"]) == (409, "sc")


async def test_given_value_of_a_version_that_kept_no_writers_then_a_conflict_without_one(
    sc: RunningSc, kv: KV
) -> None:
    key = sc.controller.keys.object("topics", "t")
    result = await kv.txn([], [Put(key, encode_object(topic_of("t"), "old-1"))])
    await sc.controller.feed.applied(result.revision)
    status, error = await call(sc, "POST", "/v1/topics", manifest("Topic", "t", {}))
    assert (status, error["message"]) == (409, "Topic t exists")
    assert error["details"] == {
        "resourceVersion": str(result.revision),
        "by": None,
        "at": None,
        "cause": "old-1",
    }


async def test_given_spu_id_taken_then_conflict_that_names_the_holder(sc: RunningSc) -> None:
    await created(sc, "Spu", "one", {"spuId": 1}, by="alice@box")
    status, error = await call(sc, "POST", "/v1/spus", manifest("Spu", "two", {"spuId": 1}))
    at = error["details"]["at"]
    assert (status, error["message"]) == (
        409,
        f"spuId 1 belongs to SPU one, created by alice@box at {at}",
    )
    status, error = await call(sc, "PUT", "/v1/spus/one", manifest("Spu", "one", {"spuId": 2}))
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert "spec.spuId: cannot change from 1 to 2" in error["message"]
    assert (await call(sc, "DELETE", "/v1/spus/one"))[0] == 202
    await created(sc, "Spu", "two", {"spuId": 1})


async def test_given_spu_that_holds_replicas_then_its_deletion_is_refused(sc: RunningSc) -> None:
    async with online(sc, 1):
        await created(sc, "Topic", "t", {"partitions": 7})
        await sc.until("topics", "t", "provisioned")
        status, error = await call(sc, "DELETE", "/v1/spus/spu-1")
        assert (status, error["code"]) == (409, "CONFLICT")
        assert error["message"] == (
            "SPU spu-1 holds replicas of t-0, t-1, t-2, t-3, t-4 and 2 more;"
            " move them to other SPUs first: runnel spu drain spu-1; or repeat with force=true:"
            " their partitions stay, without this replica, and name the missing SPU"
        )
        assert error["details"] == {"partitions": [f"t-{n}" for n in range(7)], "count": 7}
        await call(sc, "DELETE", "/v1/topics/t")
        await sc.until_gone("topics", "t")
        assert (await call(sc, "DELETE", "/v1/spus/spu-1"))[0] == 202


async def test_given_topic_being_deleted_then_it_cannot_be_changed(sc: RunningSc) -> None:
    await created(sc, "Topic", "t", {})
    store = sc.controller.view.store
    (controllers,) = [one for one in asyncio.all_tasks() if one.get_name() == "controllers"]
    controllers.cancel()
    await asyncio.wait([controllers])
    assert (await call(sc, "DELETE", "/v1/topics/t", by="carol"))[0] == 202
    assert (await call(sc, "DELETE", "/v1/topics/t"))[0] == 202
    status, error = await call(sc, "PUT", "/v1/topics/t", manifest("Topic", "t", {}))
    assert (status, error["message"]) == (
        409,
        "Topic t is being deleted; wait until it is gone",
    )
    assert error["details"]["by"] == "carol"
    assert store.object_keys() == {("Topic", "t")}


async def test_given_force_then_the_spu_goes_and_its_partitions_stay_offline_and_name_it(
    sc: RunningSc,
) -> None:
    await created(sc, "Spu", "spu-1", {"spuId": 1})
    spu = SimulatedSpu(1, sc.private)
    async with spu:
        await created(sc, "Topic", "t", {"partitions": 2})
        for name in ("t-0", "t-1"):
            await sc.until("partitions", name, "online")
        assert (await call(sc, "DELETE", "/v1/spus/spu-1?force=false"))[0] == 409
        assert (await call(sc, "DELETE", "/v1/spus/spu-1?force=true"))[0] == 202
        assert (await call(sc, "GET", "/v1/spus/spu-1"))[0] == 404
        for name in ("t-0", "t-1"):
            left = await sc.until("partitions", name, PartitionResolution.OFFLINE.value)
            assert left.spec.replicas == (1,)
            assert "SPU 1" in left.status.reason
    status, topic = await call(sc, "GET", "/v1/topics/t")
    assert (status, topic["status"]["replicaMap"]) == (200, [[1], [1]])


async def test_given_force_on_what_is_no_spu_then_unknown(sc: RunningSc) -> None:
    status, error = await call(sc, "DELETE", "/v1/spugroups/t?force=true")
    assert (status, error["message"]) == (
        400,
        "unknown query parameter 'force'; known here: dryRun, resourceVersion",
    )
