"""``/v1/events``: changes of all objects over a real SC, also those before it started."""

from __future__ import annotations

from typing import Any

import pytest

from sc.kv.interface import KV
from tests.integration.sc.calls import call
from tests.integration.sc.conftest import RunningSc, manifest, run_sc
from tests.polling import eventually

TOPIC = manifest("Topic", "orders", {"partitions": 1})


async def events(sc: RunningSc, query: str = "") -> list[dict[str, Any]]:
    status, answer = await call(sc, "GET", f"/v1/events{query}")
    assert status == 200, answer
    items: list[dict[str, Any]] = answer["items"]
    return items


async def until(sc: RunningSc, change: str, query: str = "") -> list[dict[str, Any]]:
    """The events, once there is such a change."""

    async def there() -> bool:
        return any(item["change"] == change for item in await events(sc, query))

    await eventually(there)
    return await events(sc, query)


async def test_given_changes_then_who_when_why_and_what_became_of_them(sc: RunningSc) -> None:
    await call(sc, "POST", "/v1/topics", TOPIC, by="ann", cause="api-7")
    found = await until(sc, "modified", "?for=topic/orders")
    created, written = found[0], found[1]
    assert (created["kind"], created["name"], created["change"]) == ("Topic", "orders", "created")
    assert (created["by"], created["cause"], created["resolution"]) == ("ann", "api-7", "init")
    assert (written["by"], written["cause"]) == ("sc", "api-7")
    assert written["resolution"] is not None
    assert created["at"] <= written["at"]
    assert [int(item["revision"]) for item in found] == sorted(
        int(item["revision"]) for item in found
    )


async def test_given_a_deletion_then_who_asked_for_it(sc: RunningSc) -> None:
    await call(sc, "POST", "/v1/topics", TOPIC, by="ann", cause="api-7")
    await call(sc, "DELETE", "/v1/topics/orders", by="bob", cause="api-8")
    last = (await until(sc, "deleted", "?for=topics/orders"))[-1]
    assert (last["change"], last["by"], last["cause"]) == ("deleted", "bob", "api-8")
    assert last["at"] is not None


async def test_given_filters_then_only_those(sc: RunningSc) -> None:
    await call(sc, "POST", "/v1/topics", TOPIC, cause="api-7")
    other = manifest("Topic", "others", {"partitions": 1})
    await call(sc, "POST", "/v1/topics", other, cause="a b".replace(" ", '"'))
    await until(sc, "created", "?for=topic/others")
    assert {item["name"] for item in await events(sc, "?cause=api-7")} == {"orders"}
    assert {item["name"] for item in await events(sc, "?cause=a%22b")} == {"others"}
    assert not await events(sc, "?cause=api")
    assert not await events(sc, "?since=2100-01-01")
    assert await events(sc, "?since=2001-01-01")
    known = (await events(sc))[-2]["revision"]
    assert [item["revision"] > known for item in await events(sc, f"?after={known}")] == [True]
    _status, answer = await call(sc, "GET", "/v1/events?limit=1")
    assert (len(answer["items"]), answer["complete"]) == (1, False)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("for=orders", "for: 'orders' is not KIND/NAME; write topic/orders"),
        ("since=10m", "since: '10m' is not a time; write 2026-01-31T12:00:00Z"),
        ("limit=0", "limit: '0' is not a whole number from 1 to 10000"),
    ],
)
async def test_given_a_bad_parameter_then_refused(sc: RunningSc, query: str, message: str) -> None:
    status, answer = await call(sc, "GET", f"/v1/events?{query}")
    assert (status, answer["message"]) == (400, message)


async def test_given_another_sc_then_it_knows_what_happened_before_it(kv: KV) -> None:
    async with run_sc(kv) as first:
        await call(first, "POST", "/v1/topics", TOPIC, by="ann", cause="api-7")
        await until(first, "modified", "?for=topic/orders")
        before = await events(first, "?cause=api-7")
    async with run_sc(kv) as second:
        await until(second, "created", "?for=topic/orders")
        after = await events(second, "?cause=api-7")
    assert after[: len(before)] == before


async def test_given_a_compacted_kv_then_events_from_then_on(kv: KV) -> None:
    async with run_sc(kv) as first:
        await call(first, "POST", "/v1/topics", TOPIC, by="ann")
        await until(first, "modified")
    await kv.compact(await kv.revision())
    async with run_sc(kv) as second:
        await call(second, "POST", "/v1/topics", manifest("Topic", "others", {"partitions": 1}))
        await until(second, "created", "?for=topic/others")
