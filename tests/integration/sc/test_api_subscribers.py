"""Reader groups that say how far they are in a stream, over REST."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sc.api import subscribers
from sc.api.stream_records import StreamRecords
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import parse_segment
from tests.integration.sc.calls import JSON, call
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually

from .test_api_streams import HALVES, NAME, PATH, asked, outcome, stream, until

GROUPS = f"{PATH}/subscribers"


async def published(sc: RunningSc, group: str, **offsets: int) -> tuple[int, JSON]:
    """Say where a group is: s0_0 is segment 0.0."""
    _, epoch = await call(sc, "GET", f"{PATH}/epochs/current")
    segments = {parse_segment(name[1:].replace("_", ".")): at for name, at in offsets.items()}
    cut = StreamCut(NAME, epoch["uid"], segments)
    return await call(sc, "PUT", f"{GROUPS}/{group}", {"cut": str(cut)})


async def found(sc: RunningSc) -> dict[str, dict[int, int]]:
    status, answer = await call(sc, "GET", GROUPS)
    assert status == 200
    return {one["group"]: dict(StreamCut.parse(one["cut"]).offsets) for one in answer["items"]}


async def test_given_groups_then_they_go_on_and_never_back(sc: RunningSc) -> None:
    async with stream(sc):
        assert await found(sc) == {}
        assert (await published(sc, "a", s0_0=7))[0] == 200
        assert (await published(sc, "a", s0_0=7))[0] == 200
        assert (await published(sc, "b", s0_0=3))[0] == 200
        status, answer = await published(sc, "a", s0_0=6)
        assert status == 409
        assert "group a was further in stream shop/orders already" in answer["message"]
        assert await found(sc) == {"a": {0: 7}, "b": {0: 3}}
        await outcome(sc, await asked(sc, "scale", {"seal": ["0.0"], "into": HALVES}))
        assert (await published(sc, "a", s1_1=2, s1_2=0))[0] == 200
        assert (await published(sc, "a", s1_1=1, s1_2=5))[0] == 409
        for _ in range(2):
            status, answer = await call(sc, "DELETE", f"{GROUPS}/b")
            assert (status, [one["group"] for one in answer["items"]]) == (200, ["a"])
        assert list(await found(sc)) == ["a"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (f"{GROUPS}/g", {"cut": "x"}, 400, "not a stream cut"),
        (f"{GROUPS}/g", {}, 400, "cut"),
        (f"{GROUPS}/a%20b", {"cut": "x"}, 400, "is not a valid name"),
        ("/v1/streams/shop/none/subscribers/g", {"cut": "x"}, 400, "not a stream cut"),
    ],
)
async def test_given_what_is_no_place_then_refused(
    sc: RunningSc, path: str, body: JSON, status: int, message: str
) -> None:
    async with stream(sc):
        seen, answer = await call(sc, "PUT", path, body)
        assert (seen, message in answer["message"]) == (status, True), answer


async def test_given_a_cut_of_something_else_then_refused(sc: RunningSc) -> None:
    async with stream(sc):
        for cut, status, message in (
            (StreamCut("shop/other", "u", {0: 1}), 400, "the cut is of stream shop/other"),
            (StreamCut(NAME, "u", {0: 1}), 400, "of an earlier stream shop/orders"),
        ):
            seen, answer = await call(sc, "PUT", f"{GROUPS}/g", {"cut": str(cut)})
            assert (seen, message in answer["message"]) == (status, True), answer
        status, answer = await published(sc, "g", s7_7=1)
        assert (status, "has no segment 7.7" in answer["message"]) == (400, True), answer
        assert await found(sc) == {}


async def test_given_too_many_then_refused_and_those_there_go_on(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "MAX_SUBSCRIBERS", 2)
    async with stream(sc):
        assert (await published(sc, "a", s0_0=1))[0] == 200
        assert (await published(sc, "b", s0_0=1))[0] == 200
        status, answer = await published(sc, "c", s0_0=1)
        assert (status, "takes no more" in answer["message"]) == (409, True), answer
        assert (await published(sc, "a", s0_0=2))[0] == 200


async def test_given_many_at_once_then_the_furthest_is_kept(sc: RunningSc) -> None:
    async with stream(sc):
        answers = await asyncio.gather(*(published(sc, "g", s0_0=at) for at in range(1, 9)))
        assert {status for status, _ in answers} <= {200, 409}
        assert await found(sc) == {"g": {0: 8}}


async def test_given_a_deleted_stream_then_nothing_of_it_is_left(sc: RunningSc) -> None:
    async with stream(sc):
        assert (await published(sc, "g", s0_0=1))[0] == 200
        await outcome(sc, await asked(sc, "seal", {}))
        await until(sc, "sealed")
        assert (await call(sc, "DELETE", PATH))[0] == 202
        await sc.until_gone("streams", NAME)
        assert (await call(sc, "GET", GROUPS))[0] == 404
        assert (await call(sc, "DELETE", f"{GROUPS}/g"))[0] == 404
        page = await sc.controller.kv.range(sc.controller.keys.records)
        assert page.items == ()


def before_the_first_write(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[object]]
) -> None:
    """Have something happen between what the next publication reads and what it writes."""
    commit = StreamRecords.commit
    waits = [happens]

    async def late(of: StreamRecords, *args: Any, **options: Any) -> bool:
        if waits:
            await waits.pop()()
        return await commit(of, *args, **options)

    monkeypatch.setattr(StreamRecords, "commit", late)


async def test_given_a_later_place_meanwhile_then_it_stays(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stream(sc):
        for mine, theirs in ((5, 9), (12, 20)):

            async def overtaken(theirs: int = theirs) -> object:
                return await published(sc, "g", s0_0=theirs)

            before_the_first_write(monkeypatch, overtaken)
            status, answer = await published(sc, "g", s0_0=mine)
            assert (status, answer["details"]) == (409, {"further": True})
        assert await found(sc) == {"g": {0: 20}}


async def test_given_a_stream_that_is_deleted_meanwhile_then_nothing_of_it_is_left(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deleted() -> None:
        await call(sc, "DELETE", PATH)
        await sc.until_gone("streams", NAME)

    async with stream(sc):
        await outcome(sc, await asked(sc, "seal", {}))
        await until(sc, "sealed")
        before_the_first_write(monkeypatch, deleted)
        status, _ = await published(sc, "g", s0_0=1)
        assert status in (404, 409, 503)
        page = await sc.controller.kv.range(sc.controller.keys.records)
        assert page.items == ()


async def test_given_a_quiet_cluster_then_a_place_keeps_the_retention_from_nothing(
    sc: RunningSc,
) -> None:
    """What the controller reads, the place of the group among it, is written with a bell."""
    async with stream(sc):
        for done in (published(sc, "g", s0_0=1), call(sc, "DELETE", f"{GROUPS}/g")):
            await done
            page = await sc.controller.kv.range(sc.controller.keys.records)
            newest = await sc.controller.kv.revision()
            assert max(item.mod_revision for item in page.items) <= newest
            await eventually(lambda newest=newest: sc.controller.view.store.revision >= newest)
