"""What the API says of the replicas of a partition: the reports of their SPUs."""

from __future__ import annotations

from tests.integration.sc.calls import call
from tests.integration.sc.conftest import RunningSc
from tests.integration.sc.test_elect import Bench, bench

__all__ = ["bench"]

REPLICAS = "/v1/partitions/t-0/replicas"


async def test_given_replicas_then_who_leads_is_live_and_away(bench: Bench) -> None:
    status, body = await call(bench.sc, "GET", REPLICAS)
    assert status == 200
    one, two = body["items"]
    assert (one["spu"], one["role"], one["live"], one["fit"]) == (1, "leader", True, True)
    assert (two["spu"], two["role"], two["live"]) == (2, "idle", False)
    assert two["nextOffset"] == 0
    await bench.lose_the_leader()
    _, body = await call(bench.sc, "GET", REPLICAS)
    one, _ = body["items"]
    assert (one["role"], one["live"], one["nextOffset"]) == (None, True, None)
    code, out, _ = await bench.command("describe", "partition", "t-0")
    assert code == 0
    rows = [line.split() for line in out[out.index("\nReplicas:") :].splitlines()[2:5]]
    assert [row[:2] for row in rows] == [["SPU", "STATE"], ["1", "away"], ["2", "catching"]]


async def test_given_too_few_live_replicas_then_describe_does_not_ask_for_offsets(
    bench: Bench,
) -> None:
    """Simulated SPUs answer no clients, and never join: asking would wait for ever."""
    rows = [{"id": 0, "replicas": [1, 2]}]
    await bench.sc.create("Topic", "short", {"assignment": rows, "minInSyncReplicas": 2})
    await bench.sc.until("partitions", "short-0", "online")
    for what in (("topic", "short"), ("partition", "short-0")):
        code, out, _ = await bench.command("describe", *what)
        assert code == 0
        assert "1 of 2 replicas are live" in out


async def test_given_no_such_partition_then_not_found(sc: RunningSc) -> None:
    status, body = await call(sc, "GET", "/v1/partitions/none-0/replicas")
    assert (status, body["code"]) == (404, "NOT_FOUND")
