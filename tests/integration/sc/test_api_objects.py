"""Creating, replacing and deleting objects over HTTP, and what may become of a topic."""

from __future__ import annotations

import asyncio
from collections import Counter

from sc.kv.interface import KV
from schemas.objects.partition import Partition
from schemas.objects.topic import Topic
from tests.integration.sc.calls import JSON, call, created, online
from tests.integration.sc.conftest import RunningSc, manifest
from tests.polling import eventually


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


async def test_given_two_spus_with_one_id_at_once_then_one_wins(sc: RunningSc) -> None:
    answers = await asyncio.gather(
        *(call(sc, "POST", "/v1/spus", manifest("Spu", f"s{n}", {"spuId": 1})) for n in range(6))
    )
    assert sorted(status for status, _ in answers) == [201] + [409] * 5


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


async def test_given_manual_rows_then_new_ones_may_follow_and_placed_ones_move(
    sc: RunningSc,
) -> None:
    def rows(*replicas: int) -> JSON:
        return {"assignment": [{"id": i, "replicas": [r]} for i, r in enumerate(replicas)]}

    async with online(sc, 1, 2):
        await created(sc, "Topic", "t", rows(1))
        await sc.until("partitions", "t-0", "online")
        wish = manifest("Topic", "t", rows(1, 9))
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 200
        invalid = await sc.until("topics", "t", "invalidConfig")
        assert invalid.status.reason == "assignment row 1: SPU 9 is not registered"
        await sc.until("partitions", "t-0", "online")
        wish = manifest("Topic", "t", rows(1, 2))
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 200
        await sc.until("topics", "t", "provisioned")
        await sc.until("partitions", "t-1", "online")
        wish = manifest("Topic", "t", rows(2, 2))
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 200

        def moves() -> bool:
            found = sc.controller.view.store.get(Partition, "t-0")
            assert found is not None
            return (found.spec.replicas, found.spec.leaving) == ((2,), (1,))

        await eventually(moves)
        topic = await sc.until("topics", "t", "provisioned")
        assert isinstance(topic, Topic)
        assert topic.status.moving
        # Back in the middle: the newcomer leaves, and nothing was lost.
        wish = manifest("Topic", "t", rows(1, 2))
        assert (await call(sc, "PUT", "/v1/topics/t", wish))[0] == 200
        await eventually(lambda: not any(sc.controller.view.store.moving()))
        await eventually(lambda: not sc.controller.view.store.topics_moving())


async def test_given_an_spu_that_drains_then_it_gets_nothing_new_and_says_how_far_it_is(
    sc: RunningSc,
) -> None:
    async with online(sc, 1, 2):
        await created(sc, "Topic", "t", {"partitions": 2})
        await sc.until("topics", "t", "provisioned")
        wish: JSON = {"spec": {"drain": True}}
        assert (await call(sc, "PATCH", "/v1/spus/spu-1", wish))[0] == 200
        spu = await sc.until("spus", "spu-1", "draining")
        await eventually(lambda: any(sc.controller.view.store.moving()))
        assert "1 replica is left" in (spu.status.reason or "")
        await created(sc, "Topic", "u", {"partitions": 4})
        found = await sc.until("topics", "u", "provisioned")
        assert isinstance(found, Topic)
        assert found.status.replica_map == ((2,),) * 4
        assert (await call(sc, "PATCH", "/v1/spus/spu-1", {"spec": {"drain": None}}))[0] == 200
        await sc.until("spus", "spu-1", "online")


async def test_given_many_topics_at_once_then_their_leaders_are_spread(sc: RunningSc) -> None:
    async with online(sc, 1, 2, 3):
        names = [f"t{n}" for n in range(12)]
        await asyncio.gather(*(created(sc, "Topic", name, {}) for name in names))
        for name in names:
            await sc.until("topics", name, "provisioned")
    partitions = sc.controller.view.store.objects(Partition)
    leaders = Counter(p.spec.preferred_leader for p in partitions)
    assert leaders == {1: 4, 2: 4, 3: 4}


async def test_given_an_assignment_that_no_spus_could_make_right_then_refused_and_not_stored(
    sc: RunningSc,
) -> None:
    wrong = manifest("Topic", "t", {"assignment": [{"id": 0, "replicas": [1, 1]}]})
    status, error = await call(sc, "POST", "/v1/topics", wrong)
    assert (status, error["message"]) == (
        400,
        "spec.assignment[0].replicas: row 0 names SPU 1 twice",
    )
    assert (await call(sc, "GET", "/v1/topics/t"))[0] == 404


async def test_given_a_spec_without_effect_then_every_write_answers_with_warnings(
    sc: RunningSc,
) -> None:
    async def warned(method: str, path: str, spec: JSON, media: str = "application/json") -> int:
        body = {"spec": spec} if method == "PATCH" else manifest("Topic", "t", spec)
        async with sc.http.request(
            method, f"{sc.public}{path}", json=body, headers={"Content-Type": media}
        ) as response:
            assert response.status in (200, 201)
            found = response.headers.getall("Warning", [])
            assert all(value.startswith('299 - "spec.') for value in found)
            return len(found)

    await created(sc, "Spu", "spu-1", {"spuId": 1})
    both: JSON = {"retention": {"size": 1}, "replicationFactor": 2}
    assert await warned("POST", "/v1/topics?dryRun=true", both) == 2
    assert await warned("POST", "/v1/topics", both) == 2
    assert await warned("PUT", "/v1/topics/t", {"retention": {"size": 1}}) == 1
    merge = "application/merge-patch+json"
    assert await warned("PATCH", "/v1/topics/t", {"partitions": 2}, merge) == 1
    assert await warned("PUT", "/v1/topics/t", {}) == 0
