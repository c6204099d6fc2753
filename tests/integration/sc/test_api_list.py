"""Lists: selectors, and pages as of one moment."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sc.kv.interface import KV, Put
from sc.store.codec import encode_object
from tests.integration.sc.calls import call, created
from tests.integration.sc.conftest import RunningSc
from tests.unit.sc.builders import topic_of


@dataclass(frozen=True)
class Listed:
    """One answer to a list."""

    names: list[str]
    revision: str
    following: str | None


async def listed(sc: RunningSc, query: str) -> Listed:
    status, found = await call(sc, "GET", f"/v1/topics{query}")
    assert status == 200, found
    names = [item["metadata"]["name"] for item in found["items"]]
    return Listed(names, found["revision"], found.get("continue"))


async def test_given_several_then_listed_by_name_and_selected_by_label(sc: RunningSc) -> None:
    for name, labels in (("b", {"team": "x", "env": "prod"}), ("a", {"team": "x"}), ("c", {})):
        await created(sc, "Topic", name, {}, labels=labels)
    for query, expected in (
        ("", "abc"),
        ("?labelSelector=team=x", "ab"),
        ("?labelSelector=team==x,env=prod", "b"),
        ("?labelSelector=team!=x", "c"),
        ("?labelSelector=team in (x,y)", "ab"),
        ("?labelSelector=env notin (prod)", "ac"),
        ("?labelSelector=env", "b"),
        ("?labelSelector=!env,team", "a"),
        ("?labelSelector=team=y", ""),
        ("?fieldSelector=metadata.name=b", "b"),
        ("?fieldSelector=metadata.name=b&labelSelector=!env", ""),
    ):
        page = await listed(sc, query)
        assert (query, "".join(page.names)) == (query, expected)
        assert page.following is None


async def test_given_pages_then_all_of_one_moment(sc: RunningSc) -> None:
    names = [f"t{n}" for n in range(7)]
    for name in names:
        await created(sc, "Topic", name, {}, labels={"odd": str(int(name[1]) % 2)})
    first = await listed(sc, "?limit=3")
    assert first.names == names[:3]
    assert first.following is not None
    # Neither what is new nor what is gone shows on the pages that follow.
    await created(sc, "Topic", "t5b", {})
    await call(sc, "DELETE", "/v1/topics/t6")
    await sc.until_gone("topics", "t6")
    second = await listed(sc, f"?limit=3&continue={first.following}")
    assert second.names == names[3:6]
    third = await listed(sc, f"?limit=3&continue={second.following}")
    assert (third.names, third.following) == (["t6"], None)
    assert first.revision == second.revision == third.revision
    assert (await listed(sc, "")).names == [*names[:6], "t5b"]


@pytest.mark.parametrize(
    ("limit", "pages"),
    [
        pytest.param(1, [["t1"], ["t3"], ["t5"]], id="given-one-a-page"),
        pytest.param(2, [["t1", "t3"], ["t5"]], id="given-the-last-page-not-full"),
        pytest.param(3, [["t1", "t3", "t5"]], id="given-as-many-as-there-are-then-no-empty-page"),
    ],
)
async def test_given_selector_then_pages_of_what_it_selects(
    sc: RunningSc, limit: int, pages: list[list[str]]
) -> None:
    for n in range(7):
        await created(sc, "Topic", f"t{n}", {}, labels={"odd": str(n % 2)})
    found, query = [], f"?labelSelector=odd=1&limit={limit}"
    page = await listed(sc, query)
    found.append(page.names)
    while page.following is not None:
        page = await listed(sc, f"{query}&continue={page.following}")
        found.append(page.names)
    assert found == pages


async def test_given_more_than_the_kv_gives_at_once_then_every_page_is_whole(
    sc: RunningSc, kv: KV
) -> None:
    keys = sc.controller.keys
    names = [f"t{n:03}" for n in range(600)]
    for start in range(0, 600, 100):
        puts = [
            Put(keys.object("topics", name), encode_object(topic_of(name), "test"))
            for name in names[start : start + 100]
        ]
        result = await kv.txn([], puts)
    await sc.controller.feed.applied(result.revision)
    first = await listed(sc, "?limit=550")
    second = await listed(sc, f"?limit=550&continue={first.following}")
    assert first.names + second.names == names
    assert len(first.names) == 550


async def test_given_token_of_another_list_then_refused(sc: RunningSc) -> None:
    for n in range(3):
        await created(sc, "Topic", f"t{n}", {})
    token = (await listed(sc, "?limit=1")).following
    for path in (
        f"/v1/topics?limit=1&labelSelector=a&continue={token}",
        f"/v1/spus?limit=1&continue={token}",
    ):
        status, error = await call(sc, "GET", path)
        assert (status, error["message"]) == (
            400,
            "continue: belongs to another list; repeat the selectors of the previous page",
        )


async def test_given_compacted_between_pages_then_begin_again(sc: RunningSc, kv: KV) -> None:
    for n in range(3):
        await created(sc, "Topic", f"t{n}", {})
    page = await listed(sc, "?limit=1")
    await created(sc, "Topic", "later", {})
    now = await kv.revision()
    await kv.compact(now)
    status, error = await call(sc, "GET", f"/v1/topics?limit=1&continue={page.following}")
    assert (status, error["code"]) == (410, "COMPACTED")
    assert error["message"] == (
        f"the list began at revision {page.revision}, which is compacted; begin again without"
        " continue"
    )
    assert error["details"] == {"firstAvailable": now}


async def test_given_object_that_does_not_parse_then_pages_leave_it_out(
    sc: RunningSc, kv: KV
) -> None:
    await created(sc, "Topic", "good", {})
    result = await kv.txn([], [Put(sc.controller.keys.object("topics", "bad"), b"{")])
    await sc.controller.feed.applied(result.revision)
    assert (await listed(sc, "?limit=5")).names == ["good"]
    assert (await listed(sc, "")).names == ["good"]
