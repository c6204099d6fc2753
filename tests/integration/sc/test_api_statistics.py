"""What SPUs count, over a real session and the API, and one stream for everything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schemas.control.messages import Obstacles, Report, UnreachablePeer
from schemas.control.statistics import ReplicaNumbers, SpuNumbers, Statistics
from schemas.errors import UnreachableError
from schemas.ids import PartitionUid
from tests.integration.sc.calls import call, created, feed
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu


async def connected(sc: RunningSc, spu: SimulatedSpu) -> None:
    await created(sc, "Spu", f"spu-{spu.spu_id}", {"spuId": spu.spu_id})
    await sc.until("spus", f"spu-{spu.spu_id}", "online")


async def tell(spu: SimulatedSpu, requests: int, *ends: tuple[str, int]) -> None:
    """Say that so many requests were counted, and where partitions end, by uid."""
    assert spu.session is not None
    replicas = tuple(ReplicaNumbers(PartitionUid(uid), 0, end, end, end * 10) for uid, end in ends)
    await spu.session.notify(Statistics(spu=SpuNumbers(requests=requests), replicas=replicas))


async def stats(sc: RunningSc, query: str = "") -> dict[str, Any]:
    status, found = await call(sc, "GET", f"/v1/stats{query}")
    assert status == 200, found
    return found


async def led_partition(sc: RunningSc, topic: str) -> str:
    """The uid of the one partition of a new topic that SPU 1 leads."""
    await created(sc, "Topic", topic, {"partitions": 1, "replicationFactor": 1})
    await sc.until("partitions", f"{topic}-0", "online")
    _, found = await call(sc, "GET", f"/v1/partitions/{topic}-0")
    uid: str = found["metadata"]["uid"]
    return uid


async def test_numbers_of_spus_topics_and_partitions(sc: RunningSc) -> None:
    async with SimulatedSpu(1, sc.private) as spu:
        await connected(sc, spu)
        uid = await led_partition(sc, "orders")
        await created(sc, "Topic", "unused", {"partitions": 1})
        await tell(spu, 5, (uid, 100))
        await eventually(lambda: sc.controller.statistics.spu(1) is not None)
        await sc.controller.seconds.end()
        await tell(spu, 9, (uid, 130))
        await sc.controller.seconds.end()
        found = await stats(sc, "?topic=orders&seconds=3")
    (one,) = found["spus"]
    assert (one["name"], one["connected"], one["requests"]) == ("spu-1", True, 9)
    assert one["requestsPerSecond"] == pytest.approx(4, rel=0.6)
    rates = {series["name"]: series["values"] for series in one["series"]}
    assert len(rates["requestsPerSecond"]) == 3
    assert rates["requestsPerSecond"][-1] == one["requestsPerSecond"]
    (topic,) = found["topics"]
    assert (topic["name"], topic["offsets"], topic["logBytes"]) == ("orders", 130, 1_300)
    (partition,) = found["partitions"]
    assert (partition["name"], partition["committedEnd"]) == ("orders-0", 130)
    assert partition["replicas"] == [{"spu": 1, "logEnd": 130, "logBytes": 1_300}]


async def test_what_retention_and_moves_go_by(sc: RunningSc) -> None:
    async with SimulatedSpu(1, sc.private) as spu, SimulatedSpu(2, sc.private) as other:
        await connected(sc, spu)
        uid = await led_partition(sc, "orders")
        await connected(sc, other)
        view = sc.controller.view
        partition = view.store.partition_by_uid(uid)
        assert partition is not None
        await tell(other, 1, (uid, 90))
        await eventually(lambda: view.size(partition) is not None)
        assert view.numbers(partition) is None
        await tell(spu, 1, (uid, 70))
        await eventually(lambda: view.numbers(partition) is not None)
        assert spu.session is not None
        spu.session.close("once more")
        await eventually(lambda: view.numbers(partition) is None)
        assert (size := view.size(partition)) is not None
        assert size.log_bytes == 700


async def test_latencies_of_spus_and_the_peers_that_they_cannot_reach(sc: RunningSc) -> None:
    async with SimulatedSpu(1, sc.private) as one, SimulatedSpu(2, sc.private) as two:
        await connected(sc, one)
        await connected(sc, two)
        assert one.session is not None
        assert two.session is not None
        slow = SpuNumbers(append_p99_us=120, fsync_p99_us=9_950)
        await one.session.notify(Statistics(spu=slow))
        await two.session.notify(Statistics(spu=SpuNumbers()))
        async with feed(sc, "/v1/watch?kinds=spus,stats") as watch:
            while len((await watch.next()).data.get("spus", ())) < 2:
                pass
            # The numbers that came before are shown: only the report is news.
            await sc.controller.seconds.end()
            await sc.controller.seconds.end()
            expected = {"spu": 2, "host": "edge-2", "port": 9006, "reason": "no answer"}
            peer = UnreachablePeer(spu_id=2, host="edge-2", port=9006, reason="no answer")
            await one.session.request(Report(obstacles=Obstacles(unreachable=(peer,))))
            shown: list[dict[str, Any]] = []
            while not any(spu["unreachablePeers"] == [expected] for spu in shown):
                shown = (await watch.next()).data.get("spus", [])
            assert [spu["name"] for spu in shown] == ["spu-1"]
        found = await stats(sc, "?seconds=2")
    first, second = found["spus"]
    assert (first["appendP99Us"], first["fsyncP99Us"]) == (120, 9_950)
    assert {series["name"] for series in first["series"]} >= {"appendP99Us", "fsyncP99Us"}
    assert second.get("appendP99Us") is None, "an older SPU does not say"


async def test_topics_page_by_page(sc: RunningSc) -> None:
    for name in ("c", "a", "b"):
        await created(sc, "Topic", name, {})
    first = await stats(sc, "?limit=2")
    assert [topic["name"] for topic in first["topics"]] == ["a", "b"]
    rest = await stats(sc, f"?limit=2&continue={first['next']}")
    assert [topic["name"] for topic in rest["topics"]] == ["c"]
    assert "next" not in rest
    assert rest["partitions"] == []


async def test_an_spu_that_left_is_shown_as_away_and_a_deleted_one_not(sc: RunningSc) -> None:
    async with SimulatedSpu(1, sc.private) as spu:
        await connected(sc, spu)
        await tell(spu, 5)
        await eventually(lambda: sc.controller.statistics.spu(1) is not None)

    async def is_away() -> bool:
        return [one["connected"] for one in (await stats(sc))["spus"]] == [False]

    await eventually(is_away)
    await call(sc, "DELETE", "/v1/spus/spu-1")
    await sc.until_gone("spus", "spu-1")
    assert (await stats(sc))["spus"] == []


async def test_one_stream_has_all_kinds_and_statistics(sc: RunningSc) -> None:
    async with SimulatedSpu(1, sc.private) as spu:
        await connected(sc, spu)
        uid = await led_partition(sc, "orders")
        async with feed(sc, "/v1/watch?kinds=topics,partitions,spus,stats") as watch:
            kinds = []
            while (event := await watch.next()).name != "synced":
                if event.name == "added":
                    kinds.append(event.data["kind"])
            assert sorted(kinds) == ["Partition", "Spu", "Topic"]
            await tell(spu, 1, (uid, 7))
            while not (ends := await watch.next()).data.get("partitions"):
                pass
            assert ends.id is None, "statistics are no place to resume from"
            assert ends.data["partitions"][0]["committedEnd"] == 7
            await call(sc, "DELETE", "/v1/topics/orders")
            (gone,) = await watch.until(("deleted", "orders"))
            assert gone.data["kind"] == "Topic"
            revision = gone.id
        await created(sc, "Topic", "later", {})
        resumed = {"Last-Event-ID": str(revision)}
        async with feed(sc, "/v1/watch?kinds=topics,spus", resumed) as watch:
            event = await watch.next()
            assert (event.name, event.object) == ("added", "later")


async def test_statistics_alone_and_of_one_topic(sc: RunningSc) -> None:
    async with SimulatedSpu(1, sc.private) as spu:
        await connected(sc, spu)
        uids = [await led_partition(sc, topic) for topic in ("orders", "other")]
        await tell(spu, 1, *((uid, 7) for uid in uids))
        await eventually(lambda: sc.controller.statistics.spu(1) is not None)
        await sc.controller.seconds.end()
        async with feed(sc, "/v1/watch?kinds=stats&topic=orders") as watch:
            seen: set[str] = set()
            async with asyncio.timeout(10):
                while "orders-0" not in seen:
                    event = await watch.next()
                    assert event.name == "stats"
                    seen |= {one["name"] for one in event.data["partitions"]}
    assert seen == {"orders-0"}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "say which to watch: spus"),
        ("?kinds=", "say which to watch: spus"),
        ("?kinds=topics,partitoins", "did you mean partitions?"),
        ("?kinds=topics&topic=t", "kinds has no stats"),
        ("?kinds=topics&catchingUp=true", "kinds has no stats"),
        ("?kinds=stats&catchingUp=yes", "catchingUp"),
        ("?kinds=topics&resourceVersion=999999", "list again"),
        ("?kinds=stats&limit=3", "unknown query parameter 'limit'"),
    ],
)
async def test_a_watch_that_cannot_be_is_refused(sc: RunningSc, query: str, words: str) -> None:
    status, found = await call(sc, "GET", f"/v1/watch{query}")
    assert status in (400, 410)
    assert words in found["message"]


@pytest.mark.parametrize(
    "query", ["?seconds=901", "?seconds=0", "?topic=a&limit=1", "?topic=a&continue=b"]
)
async def test_statistics_that_cannot_be_are_refused(sc: RunningSc, query: str) -> None:
    assert (await call(sc, "GET", f"/v1/stats{query}"))[0] == 400


async def test_an_ended_session_tells_nothing(sc: RunningSc) -> None:
    async with SimulatedSpu(1, sc.private) as spu:
        await connected(sc, spu)
        assert spu.session is not None
        spu.session.close("the test ends it")
        with pytest.raises(UnreachableError):
            await tell(spu, 1)
