"""A partition that has a leader and commits nothing: what the API, the metrics and commands say."""

from __future__ import annotations

import json

import pytest

from runnel.admin.calls import BY_HEADER, UNKNOWN_FIELDS
from schemas.control.messages import Obstacles, Report, UnreachablePeer
from schemas.objects.topic import Topic
from tests.integration.sc.test_elect import Bench, bench
from tests.polling import eventually

__all__ = ["bench"]

ROWS = [{"id": 0, "replicas": [1, 2]}]


@pytest.mark.parametrize(
    ("headers", "told"),
    [({}, False), ({BY_HEADER: "a", **UNKNOWN_FIELDS}, False), ({BY_HEADER: "a"}, None)],
    ids=["another program", "this client", "an older client"],
)
async def test_given_too_few_live_replicas_then_it_is_online_and_not_writable(
    bench: Bench, headers: dict[str, str], told: bool | None
) -> None:
    """Simulated followers never join."""
    sc = bench.sc
    await sc.create("Topic", "short", {"assignment": ROWS, "minInSyncReplicas": 2})
    await sc.until("partitions", "short-0", "online")

    async def status(path: str) -> dict[str, object]:
        async with sc.http.get(f"{sc.public}{path}", headers=headers) as response:
            body = await response.json()
        found: dict[str, object] = (body["items"][0] if "items" in body else body)["status"]
        return found

    def noticed() -> bool:
        topic = sc.controller.view.store.get(Topic, "short")
        return topic is not None and topic.status.writable is False

    await eventually(noticed)
    for path in ("/v1/partitions/short-0", "/v1/partitions", "/v1/topics/short"):
        assert (await status(path)).get("writable") == told, path
    url = f"{sc.public}/v1/partitions?watch=true&fieldSelector=metadata.name%3Dshort-0"
    async with sc.http.get(url, headers=headers) as feed:
        async for line in feed.content:
            if line.startswith(b"data: "):
                assert json.loads(line[6:])["status"].get("writable") == told
                break
    async with sc.http.get(f"{sc.public}/metrics") as response:
        metrics = await response.text()
    assert "runnel_sc_unwritable_partitions 1.0" in metrics
    # Both partitions: neither has a follower that is live.
    assert "runnel_sc_under_replicated_partitions 2.0" in metrics
    assert 'runnel_sc_partitions{resolution="online"} 2.0' in metrics
    code, out, _ = await bench.command("get", "partitions")
    rows = [line.split()[:6] for line in out.splitlines()]
    assert ["short-0", "1", "1,2", "1", "online", "no"] in rows
    assert code == 0
    waiting = ("wait", "topic", "short", "--for", "writable", "--timeout", "0s")
    code, _, err = await bench.command(*waiting)
    assert code == 5
    assert "partition 'short-0' is online, but not writable: 1 of 2 replicas are live" in err


async def test_given_a_report_of_obstacles_then_reasons_name_them_and_nothing_more_is_written(
    bench: Bench,
) -> None:
    sc, two = bench.sc, bench.two
    assert two.session is not None
    peer = UnreachablePeer(spu_id=1, host="edge-1", port=9006, reason="connection refused")
    cut_off = "SPU 2 cannot reach SPU 1 at edge-1:9006: connection refused"

    async def reason(path: str) -> str:
        status = (await sc.call("GET", path))[1]["status"]
        assert isinstance(status, dict)
        return str(status.get("reason"))

    await two.session.request(Report(obstacles=Obstacles(unreachable=(peer,))))

    async def named() -> bool:
        found = [await reason(f"/v1/{path}") for path in ("spus/spu-2", "partitions/t-0")]
        return all(cut_off in text for text in found)

    await eventually(named)
    revision = await sc.controller.kv.revision()
    for _ in range(5):
        await two.session.request(Report(obstacles=Obstacles(unreachable=(peer,))))
    assert await sc.controller.kv.revision() == revision, "a report is not a write"
    await two.session.request(Report(obstacles=Obstacles()))

    async def forgotten() -> bool:
        return cut_off not in await reason("/v1/partitions/t-0")

    await eventually(forgotten)
