"""Topics of the system by the API: made once when asked for, and left alone by users."""

from __future__ import annotations

import asyncio

import pytest

from sc.api.system_topics import PARTITIONS
from tests.integration.sc.calls import call, online
from tests.integration.sc.conftest import RunningSc

ASK = "/v1/system-topics/positions"
TOPIC = "/v1/topics/_positions"


async def test_given_several_that_ask_then_one_topic_that_is_placed(sc: RunningSc) -> None:
    async with online(sc, 1, 2):
        answers = await asyncio.gather(*(call(sc, "PUT", ASK) for _ in range(4)))
        assert {status for status, _ in answers} == {200}
        assert len({made["metadata"]["uid"] for _, made in answers}) == 1
        made = await sc.until("topics", "_positions", "provisioned")
        spec = made.to_json()["spec"]
        assert (spec["partitions"], spec["replicationFactor"]) == (PARTITIONS, 2)
        assert (spec["durability"], spec["retention"]["time"]) == ("fsync", None)
        again = (await call(sc, "PUT", ASK))[1]
        assert again["metadata"]["uid"] == made.uid


async def test_given_dry_run_then_nothing_is_made(sc: RunningSc) -> None:
    status, made = await call(sc, "PUT", f"{ASK}?dryRun=true")
    assert (status, made["metadata"]["name"]) == (200, "_positions")
    assert (await call(sc, "GET", TOPIC))[0] == 404


async def test_given_another_name_then_not_found(sc: RunningSc) -> None:
    status, answer = await call(sc, "PUT", "/v1/system-topics/orders")
    assert (status, answer["message"]) == (
        404,
        "there is no system topic 'orders'; known ones: positions, archive, groups, states",
    )


async def test_given_a_deletion_then_only_with_force(sc: RunningSc) -> None:
    await call(sc, "PUT", ASK)
    status, answer = await call(sc, "DELETE", TOPIC)
    assert (status, "repeat with force=true" in answer["message"]) == (400, True)
    assert (await call(sc, "DELETE", f"{TOPIC}?force=true"))[0] == 202
    await sc.until_gone("topics", "_positions")
    # Asked for again, it is another one.
    assert (await call(sc, "PUT", ASK))[0] == 200


async def test_given_force_on_a_topic_of_a_user_then_refused(sc: RunningSc) -> None:
    await sc.create("Topic", "orders", {})
    status, answer = await call(sc, "DELETE", "/v1/topics/orders?force=true")
    assert (status, answer["message"]) == (
        400,
        "force: for topics of the system only; delete orders without it",
    )


@pytest.mark.parametrize(
    ("method", "body"),
    [
        pytest.param("PATCH", {"spec": {"partitions": 9}}, id="given-a-patch-then-refused"),
        pytest.param("PUT", None, id="given-what-it-is-then-refused"),
    ],
)
async def test_given_users_then_it_is_left_alone(sc: RunningSc, method: str, body: object) -> None:
    made = (await call(sc, "PUT", ASK))[1]
    del made["metadata"]["resourceVersion"]
    status, answer = await call(sc, method, TOPIC, made if method == "PUT" else body)
    assert (status, answer["message"]) == (
        400,
        "metadata.name: '_positions': names that begin with _ belong to the system",
    )
    assert (await call(sc, "GET", TOPIC))[1]["spec"] == made["spec"]


async def test_given_fewer_spus_then_an_operator_may_have_fewer_replicas(sc: RunningSc) -> None:
    made = (await call(sc, "PUT", ASK))[1]
    factor = made["spec"]["replicationFactor"] + 1
    wish = {"spec": {"replicationFactor": factor}}
    status, changed = await call(sc, "PATCH", TOPIC, wish)
    assert (status, changed["spec"]["replicationFactor"]) == (200, factor)
    status, _ = await call(sc, "PATCH", TOPIC, {"spec": {**wish["spec"], "partitions": 99}})
    assert status == 400
