"""Streams over REST: their life, requests in turn, what is refused, and what questions cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runnel.admin.http import ScClient
from runnel.admin.streams import StreamAdmin
from sc.api import streams
from sc.controllers.streams.records import MAX_WAITING
from sc.kv.interface import KV
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import parse_segment
from tests.integration.sc.calls import JSON, call, created, online
from tests.integration.sc.conftest import RunningSc, manifest
from tests.polling import eventually

NAME = "shop/orders"
PATH = f"/v1/streams/{NAME}"
HALVES = [{"low": 0, "high": 0.5}, {"low": 0.5, "high": 1}]


#: Reads of the records about a segment itself.
NEIGHBOURS = ["revision", "get", "get", "get"]


async def until(sc: RunningSc, state: str, name: str = NAME) -> JSON:
    """The stream, once it is in a state, about its current spec."""
    found: JSON = {}
    async with asyncio.timeout(10):
        while True:
            _, found = await call(sc, "GET", f"/v1/streams/{name}")
            status = found["status"]
            seen = status["observedGeneration"] == found["metadata"]["generation"]
            if status.get("state") == state and seen:
                return found
            await asyncio.sleep(0.01)


@asynccontextmanager
async def stream(sc: RunningSc, **spec: object) -> AsyncIterator[JSON]:
    async with online(sc, 1, 2):
        await created(sc, "Scope", "shop", {})
        await created(sc, "Stream", NAME, spec)
        made = await until(sc, "active")

        async def quiet() -> bool:
            _, found = await call(sc, "GET", "/v1/partitions")
            states = {one["status"]["resolution"] for one in found["items"]}
            return states == {"online"} and sc.controller.queue.idle

        await eventually(quiet)
        yield made


async def asked(sc: RunningSc, verb: str, body: JSON) -> JSON:
    status, found = await call(sc, "POST", f"{PATH}/{verb}", body, by="ann")
    assert status == 202, found
    return found


async def outcome(sc: RunningSc, request: JSON) -> JSON:
    """A request, once it is done or failed."""
    async with asyncio.timeout(10):
        while request["state"] in ("waiting", "running"):
            _, request = await call(sc, "GET", f"{PATH}/requests/{request['id']}")
            await asyncio.sleep(0.01)
    return request


async def test_given_a_stream_then_it_is_scaled_sealed_and_deleted(sc: RunningSc) -> None:
    async with stream(sc):
        _, epoch = await call(sc, "GET", f"{PATH}/epochs/current")
        assert [(s["id"], s["low"], s["high"]) for s in epoch["segments"]] == [("0.0", 0, 1)]
        assert epoch["segments"][0]["partition"] == f"{epoch['uid']}.0"
        done = await outcome(sc, await asked(sc, "scale", {"seal": ["0.0"], "into": HALVES}))
        assert (done["state"], done["epoch"]) == ("done", 1)
        _, old = await call(sc, "GET", f"{PATH}/segments/0.0")
        assert (old["sealedIn"], old["end"]) == (1, 0)
        assert [one["id"] for one in old["successors"]] == ["1.1", "1.2"]
        _, new = await call(sc, "GET", f"{PATH}/segments/1.2")
        assert ([one["id"] for one in new["predecessors"]], new["successors"]) == (["0.0"], [])
        _, events = await call(sc, "GET", f"{PATH}/epochs")
        assert [(e["epoch"], e["splits"], e["merges"]) for e in events["items"]] == [
            (0, 0, 0),
            (1, 1, 0),
        ]
        assert events["complete"]
        status, refused = await call(sc, "DELETE", PATH)
        assert (status, "seal it first: runnel stream seal" in refused["message"]) == (409, True)
        assert (await outcome(sc, await asked(sc, "seal", {})))["state"] == "done"
        await until(sc, "sealed")
        assert (await call(sc, "DELETE", PATH))[0] == 202
        await sc.until_gone("streams", NAME)
        _, left = await call(sc, "GET", "/v1/partitions")
        assert left["items"] == []
        assert (await call(sc, "DELETE", "/v1/scopes/shop"))[0] == 202


async def test_given_a_stream_that_is_being_created_then_clients_wait_for_it(sc: RunningSc) -> None:
    await created(sc, "Scope", "shop", {})
    await created(sc, "Stream", NAME, {})
    for path in ("epochs", "epochs/current", "head"):
        status, refused = await call(sc, "GET", f"{PATH}/{path}")
        assert (status, refused["code"]) == (503, "NOT_READY")
        assert (refused["details"]["retryAfterMs"], "being created" in refused["message"]) == (
            100,
            True,
        )
    client = ScClient.parse(sc.public.removeprefix("http://"))
    try:
        asked = asyncio.create_task(StreamAdmin(client, NAME).epoch())
        await asyncio.sleep(0.2)
        assert not asked.done()
        async with online(sc, 1, 2):
            assert (await asked).epoch == 0
    finally:
        await client.close()


async def test_given_the_same_request_again_then_it_is_the_first(sc: RunningSc) -> None:
    async with stream(sc):
        body: JSON = {"id": "one", "seal": ["0.0"], "into": HALVES}
        first, again, other = await asyncio.gather(
            asked(sc, "scale", body),
            asked(sc, "scale", body),
            asked(sc, "scale", {**body, "id": "two"}),
        )
        assert {one["id"] for one in (first, again, other)} <= {"one", "two"}
        assert first["id"] == again["id"] == other["id"]
        assert (await outcome(sc, first))["epoch"] == 1
        # An hour long, it is known what became of it.
        assert (await asked(sc, "scale", {**body, "id": first["id"]}))["state"] == "done"


async def test_given_an_id_that_asked_for_something_else_then_refused(sc: RunningSc) -> None:
    async with stream(sc):
        body: JSON = {"id": "deploy", "seal": ["0.0"], "into": HALVES}
        assert (await outcome(sc, await asked(sc, "scale", body)))["state"] == "done"
        other: JSON = {"id": "deploy", "seal": ["1.1"], "into": [{"low": 0, "high": 0.5}]}
        for verb, again in (("scale", other), ("seal", {"id": "deploy"})):
            status, answer = await call(sc, "POST", f"{PATH}/{verb}", again)
            assert (status, "asked for something else" in answer["message"]) == (409, True)


@pytest.mark.parametrize(
    ("verb", "body", "status", "message"),
    [
        pytest.param(
            "scale",
            {"seal": ["0.0"], "into": [{"low": 0, "high": 0.5}]},
            400,
            "into: the ranges cover 0 to 0.5, and those of the segments to replace 0 to 1",
            id="given-keys-left-out",
        ),
        pytest.param(
            "scale",
            {"seal": ["0.0"], "into": [{"low": 0, "high": 0.6}, {"low": 0.5, "high": 1}]},
            400,
            "the ranges 0 to 0.6 and 0.5 to 1 overlap",
            id="given-an-overlap",
        ),
        pytest.param(
            "scale",
            {"seal": ["0.0"], "into": [{"low": 0.5, "high": 0.5}]},
            400,
            "into[0]: 0.5 to 0.5 holds no key",
            id="given-an-empty-range",
        ),
        pytest.param(
            "scale",
            {"seal": ["0.7"], "into": HALVES},
            409,
            "segment 0.7 is not among the current segments, which are 0.0",
            id="given-an-unknown-segment",
        ),
        pytest.param(
            "scale",
            {"seal": ["x"], "into": HALVES},
            400,
            "'x' is no segment; write EPOCH.NUMBER",
            id="given-no-segment",
        ),
        pytest.param(
            "scale", {"seal": [], "into": HALVES}, 400, "seal", id="given-nothing-to-replace"
        ),
        pytest.param("seal", {"id": "a b"}, 400, "id", id="given-a-bad-name"),
    ],
)
async def test_given_a_request_that_cannot_be_then_refused(
    sc: RunningSc, kv: KV, verb: str, body: JSON, status: int, message: str
) -> None:
    async with stream(sc):
        before = await kv.revision()
        found, answer = await call(sc, "POST", f"{PATH}/{verb}", body)
        assert (found, message in answer["message"]) == (status, True), answer
        assert await kv.revision() == before


async def test_given_a_cut_then_what_is_before_it_goes(sc: RunningSc, kv: KV) -> None:
    async with stream(sc) as made:
        uid = made["metadata"]["uid"]
        _, head = await call(sc, "GET", f"{PATH}/head")
        assert StreamCut.parse(head["cut"]) == StreamCut(NAME, uid, {0: 0})
        await outcome(sc, await asked(sc, "scale", {"seal": ["0.0"], "into": HALVES}))
        await until(sc, "active")
        ids = [parse_segment(one) for one in ("1.1", "1.2")]
        wanted = str(StreamCut(NAME, uid, dict.fromkeys(ids, 0)))
        before = await kv.revision()
        dry = await call(sc, "POST", f"{PATH}/truncate?dryRun=true", {"cut": wanted})
        assert (dry[0], await kv.revision()) == (202, before)
        done = await outcome(sc, await asked(sc, "truncate", {"id": "one", "cut": wanted}))
        assert (done["kind"], done["state"]) == ("truncate", "done")
        assert (await asked(sc, "truncate", {"id": "one", "cut": f" {wanted}\n"}))[
            "state"
        ] == "done"
        assert (await call(sc, "GET", f"{PATH}/head"))[1]["cut"] == wanted

        async def one_is_left() -> bool:
            _, found = await call(sc, "GET", "/v1/partitions")
            return {one["metadata"]["name"] for one in found["items"]} == {
                f"{uid}.100000001",
                f"{uid}.100000002",
            }

        await eventually(one_is_left)
        # What became of it is still known.
        _, old = await call(sc, "GET", f"{PATH}/segments/0.0")
        assert [one["id"] for one in old["successors"]] == ["1.1", "1.2"]
        other = {0: 0}
        for status, text, message in (
            (409, str(StreamCut(NAME, uid, other)), "begins behind the cut already"),
            (400, str(StreamCut(NAME, "x", other)), "of an earlier stream shop/orders"),
            (400, str(StreamCut("a/b", uid, other)), "is of stream a/b, not of shop/orders"),
            (400, str(StreamCut(NAME, uid, {ids[0]: 0})), "no segment for the keys 0.5 to 1"),
            (400, "nonsense", "not a stream cut: 'nonsense'"),
        ):
            found, answer = await call(sc, "POST", f"{PATH}/truncate", {"cut": text})
            assert (found, message in answer["message"]) == (status, True), answer
        assert (await outcome(sc, await asked(sc, "seal", {})))["state"] == "done"
        found, answer = await call(sc, "POST", f"{PATH}/truncate", {"cut": wanted})
        assert (found, "is sealed: it takes no more" in answer["message"]) == (409, True)


async def test_given_a_scale_that_waits_for_seals_then_its_epoch_is_known(sc: RunningSc) -> None:
    async with online(sc, 1) as spus:
        spus[0].seals_logs = False
        await created(sc, "Stream", "default/slow", {})
        await until(sc, "active", "default/slow")
        body: JSON = {"seal": ["0.0"], "into": HALVES}
        _, request = await call(sc, "POST", "/v1/streams/default/slow/scale", body)

        async def waits() -> bool:
            _, found = await call(sc, "GET", f"/v1/streams/default/slow/requests/{request['id']}")
            return "waiting for the seal of segment 0.0" in (found.get("reason") or "")

        await eventually(waits)
        _, behind = await call(sc, "POST", "/v1/streams/default/slow/seal", {})
        _, behind = await call(sc, "GET", f"/v1/streams/default/slow/requests/{behind['id']}")
        assert behind["state"] == "waiting"
        assert behind["reason"] == "the stream is scaling: waiting for the seal of segment 0.0"
        found = {
            one: await call(sc, "GET", f"/v1/streams/default/slow/epochs/{one}")
            for one in ("current", "1", "2")
        }
        assert [status for status, _ in found.values()] == [200, 200, 404]
        assert found["current"][1]["epoch"] == 0
        assert [one["id"] for one in found["1"][1]["segments"]] == ["1.1", "1.2"]


async def test_given_fewer_segments_than_the_minimum_then_refused(sc: RunningSc) -> None:
    async with stream(sc, scaling={"minSegments": 2}):
        body = {"seal": ["0.0", "0.1"], "into": [{"low": 0, "high": 1}]}
        status, answer = await call(sc, "POST", f"{PATH}/scale", body)
        assert status == 400
        assert "1 segment would be left, fewer than spec.scaling.minSegments" in answer["message"]


async def test_given_a_dry_run_then_nothing_is_written(sc: RunningSc, kv: KV) -> None:
    async with stream(sc):
        before = await kv.revision()
        body = {"seal": ["0.0"], "into": HALVES}
        status, _ = await call(sc, "POST", f"{PATH}/scale?dryRun=true", body)
        assert (status, await kv.revision()) == (202, before)


async def test_given_requests_that_wait_then_overlaps_and_floods_are_refused(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with online(sc, 1):
        await created(sc, "Scope", "shop", {})
        await created(sc, "Stream", NAME, {"scaling": {"minSegments": 2}})
        await until(sc, "active")
        # One that cannot be carried out: no SPU is left.
    monkeypatch.setattr(streams, "MAX_WAITING", 2)
    first = await asked(sc, "scale", {"seal": ["0.0"], "into": [{"low": 0, "high": 0.5}]})
    body: JSON = {"seal": ["0.0"], "into": [{"low": 0, "high": 0.1}]}
    status, answer = await call(sc, "POST", f"{PATH}/scale", body)
    assert status == 409
    assert f"request {first['id']} replaces segment 0.0 already" in answer["message"]
    await asked(sc, "seal", {})
    body = {"seal": ["0.1"], "into": [{"low": 0.5, "high": 1}]}
    status, answer = await call(sc, "POST", f"{PATH}/scale", body)
    assert (status, "2 requests of stream shop/orders wait" in answer["message"]) == (409, True)
    _, found = await call(sc, "GET", f"{PATH}/requests/{first['id']}")
    assert found["state"] in ("waiting", "running")
    assert MAX_WAITING > 2


async def test_given_scopes_then_streams_need_them_and_keep_them(sc: RunningSc) -> None:
    status, answer = await call(sc, "POST", "/v1/streams", manifest("Stream", NAME, {}))
    assert (status, "runnel create scope shop" in answer["message"]) == (404, True)
    await created(sc, "Stream", "clicks", {})
    assert (await call(sc, "GET", "/v1/streams/default/clicks"))[0] == 200
    for scope, message in (("default", "always exists"), ("shop", "has streams: shop/orders")):
        if scope == "shop":
            await created(sc, "Scope", scope, {})
            await created(sc, "Stream", NAME, {})
        status, answer = await call(sc, "DELETE", f"/v1/scopes/{scope}")
        assert (status, message in answer["message"]) == (409, True)


@pytest.mark.parametrize(
    ("name", "spec", "status", "message"),
    [
        ("a/b/c", {}, 400, "'a/b/c' is not SCOPE/NAME"),
        ("default/_x", {}, 400, "belong to the system"),
        ("x", {"scaling": {"type": "eventsPerSecond"}}, 400, "needs a targetRate"),
        ("x", {"scaling": {"type": "fixed", "window": "1ms"}}, 400, "window"),
        ("x", {"scaling": {"targetRate": 5}}, 400, "follow no rate"),
        ("x", {"scaling": {"minSegments": 32_769}}, 400, "minSegments"),
        ("x", {"minInSyncReplicas": 2}, 400, "more than the 1 replicas of a segment"),
    ],
)
async def test_given_a_stream_that_cannot_be_then_refused(
    sc: RunningSc, name: str, spec: dict[str, object], status: int, message: str
) -> None:
    found, answer = await call(sc, "POST", "/v1/streams", manifest("Stream", name, spec))
    assert (found, message in answer["message"]) == (status, True), answer


async def test_given_another_replication_factor_then_segments_are_to_move(sc: RunningSc) -> None:
    async with stream(sc):
        status, _ = await call(sc, "PATCH", PATH, {"spec": {"replicationFactor": 3}})
        assert status == 200

        async def told() -> bool:
            _, found = await call(sc, "GET", PATH)
            return "needs 3 SPUs" in found["status"].get("moves", "")

        await eventually(told)
        await call(sc, "PATCH", PATH, {"spec": {"replicationFactor": 2}})

        async def moving() -> bool:
            _, found = await call(sc, "GET", "/v1/partitions")
            return [one["spec"]["replicas"] for one in found["items"]] in ([[1, 2]], [[2, 1]])

        await eventually(moving)


@pytest.mark.parametrize(
    "path",
    ["epochs/current", "epochs/9", "epochs/x", "segments/3.4", "requests/nope", "segments/7.0"],
)
async def test_given_what_is_not_there_then_said(sc: RunningSc, path: str) -> None:
    status, _ = await call(sc, "GET", f"/v1/streams/default/nope/{path}")
    assert status == 404
    if path != "epochs/current":
        async with stream(sc):
            status, answer = await call(sc, "GET", f"{PATH}/{path}")
            assert status == 404, answer


async def test_given_a_restart_then_a_scale_that_was_begun_ends(sc: RunningSc, kv: KV) -> None:
    async with stream(sc) as before:
        uid = before["metadata"]["uid"]
    # No SPU is there: the request is accepted, and its partitions cannot be placed.
    request = await asked(sc, "scale", {"seal": ["0.0"], "into": HALVES})
    _, found = await call(sc, "GET", f"{PATH}/requests/{request['id']}")
    assert found["state"] in ("waiting", "running")
    assert (await kv.get(sc.controller.keys.record(f"streams/{uid}/accepted"))) is not None


async def test_questions_cost_what_they_promise(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of the KV: the state and one range for an epoch, two ranges with its neighbours."""
    async with stream(sc):
        await outcome(sc, await asked(sc, "scale", {"seal": ["0.0"], "into": HALVES}))
        await until(sc, "active")
        records = sc.controller.records
        counted: list[str] = []
        monkeypatch.setattr(records, "_kv", _Counting(sc.controller.kv, counted))
        for path, cold, cached in (
            ("epochs/current", ["revision", "get", "range"], ["revision", "get"]),
            ("epochs/0", ["revision", "get", "range"], ["revision", "get"]),
            ("head", ["revision", "get", "get", "range"], ["revision", "get", "get"]),
            ("segments/0.0", [*NEIGHBOURS, "range", "range"], ["revision", "get"]),
            # Whether an open segment was sealed since is asked each time.
            ("segments/1.2", [*NEIGHBOURS, "range", "range"], NEIGHBOURS),
        ):
            records.clear()
            for wanted in (cold, cached):
                counted.clear()
                assert (await call(sc, "GET", f"{PATH}/{path}"))[0] == 200
                assert counted == wanted, path


class _Counting:
    """Names the reads of a KV."""

    def __init__(self, kv: KV, counted: list[str]) -> None:
        self._kv = kv
        self._counted = counted

    def __getattr__(self, name: str) -> object:
        self._counted.append(name)
        return getattr(self._kv, name)
