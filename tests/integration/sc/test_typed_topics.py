"""Schemas of topics at the API: what may change, and why anything else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.sc.calls import call, created, online
from tests.integration.sc.conftest import RunningSc, manifest

COLUMNS: list[dict[str, Any]] = [
    {"name": "orderId", "type": "int64", "nullable": False},
    {"name": "note", "type": "utf8"},
]
SPEC: dict[str, Any] = {"schema": COLUMNS, "keyColumn": "orderId"}
ADDED = {"name": "amount", "type": "decimal(12, 2)"}


async def test_given_a_nullable_column_at_the_end_then_it_is_added(sc: RunningSc) -> None:
    made = await created(sc, "Topic", "orders", SPEC)
    assert made["spec"]["schema"][1] == {"name": "note", "type": "string", "nullable": True}
    grown = manifest("Topic", "orders", {**SPEC, "schema": [*COLUMNS, ADDED]})
    status, changed = await call(sc, "PUT", "/v1/topics/orders", grown)
    assert status == 200
    assert [column["name"] for column in changed["spec"]["schema"]] == ["orderId", "note", "amount"]
    assert changed["metadata"]["generation"] == 2


async def test_given_the_same_in_another_spelling_then_nothing_changes(sc: RunningSc) -> None:
    made = await created(sc, "Topic", "orders", SPEC)
    status, same = await call(sc, "PUT", "/v1/topics/orders", manifest("Topic", "orders", SPEC))
    assert (status, same["spec"], same["metadata"]["generation"]) == (200, made["spec"], 1)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "given-a-schema-removed-then-why": (SPEC, {}, "spec.schema: cannot be removed"),
    "given-a-schema-added-then-why": ({}, SPEC, "spec.schema: cannot be added"),
    "given-another-type-then-both": (
        SPEC,
        {**SPEC, "schema": [{**COLUMNS[0], "type": "int32"}, COLUMNS[1]]},
        "spec.schema[0].type: column orderId cannot change from int64 to int32",
    ),
    "given-a-required-column-then-why": (
        SPEC,
        {**SPEC, "schema": [*COLUMNS, {**ADDED, "nullable": False}]},
        "spec.schema[2].nullable: the new column amount must be nullable",
    ),
    "given-another-key-then-why": (
        SPEC,
        {**SPEC, "keyColumn": "note"},
        "spec.keyColumn: cannot change from orderId to note",
    ),
    "given-a-zone-that-is-nowhere-then-which": (
        SPEC,
        {**SPEC, "schema": [*COLUMNS, {"name": "at", "type": "timestamp(us, Europe/Berln)"}]},
        "spec.schema[2].type: there is no time zone Europe/Berln",
    ),
}


@pytest.mark.parametrize(("before", "after", "says"), REFUSED.values(), ids=REFUSED)
async def test_given_any_other_change_then_refused_and_nothing_changes(
    sc: RunningSc, before: dict[str, Any], after: dict[str, Any], says: str
) -> None:
    made = await created(sc, "Topic", "orders", before)
    status, error = await call(sc, "PUT", "/v1/topics/orders", manifest("Topic", "orders", after))
    assert (status, error["code"]) == (400, "INVALID_REQUEST")
    assert says in error["message"]
    assert (await call(sc, "GET", "/v1/topics/orders"))[1]["spec"] == made["spec"]


async def test_given_a_patch_then_the_same_rules(sc: RunningSc) -> None:
    await created(sc, "Topic", "orders", SPEC)
    status, error = await call(sc, "PATCH", "/v1/topics/orders", {"spec": {"schema": COLUMNS[:1]}})
    assert status == 400
    assert "column note cannot be removed" in error["message"]


async def test_given_many_columns_and_partitions_then_placed_in_several_writes(
    sc: RunningSc,
) -> None:
    """2.9 MB of partitions: more than one transaction of the KV takes."""
    columns = [{"name": f"column_{i:03}_{'x' * 30}", "type": "string"} for i in range(400)]
    async with online(sc, 1):
        await created(sc, "Topic", "wide", {"partitions": 100, "schema": columns})
        topic = await sc.until("topics", "wide", "provisioned")
    assert len(topic.status.replica_map) == 100
