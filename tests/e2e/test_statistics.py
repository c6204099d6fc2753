"""What a running cluster counts, as a program on another host would ask for it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.e2e.conftest import SQLITE_ALONE, Command
from tests.polling import eventually

pytestmark = SQLITE_ALONE


async def test_records_show_up_in_the_numbers_of_every_replica(cluster: Command) -> None:
    cluster("create", "topic", "counted", "--partitions", "1", "--replication-factor", "2")
    cluster.run("produce", "counted", stdin="".join(f"{n}\n" for n in range(100)))
    found: dict[str, Any] = {}
    latencies: list[tuple[int, int]] = []

    def arrived() -> bool:
        nonlocal found
        address = f"http://{cluster.sc}/v1/stats?topic=counted&seconds=30"
        with urllib.request.urlopen(address, timeout=10) as answer:
            found = json.load(answer)
        # They are those of the last ten seconds; the ends may take as long.
        latencies.extend(
            (spu["appendP99Us"], spu["fsyncP99Us"]) for spu in found["spus"] if "appendP99Us" in spu
        )
        ends = [r["logEnd"] for p in found["partitions"] for r in p["replicas"]]
        ends += [p["committedEnd"] for p in found["partitions"]]
        return bool(latencies) and len(ends) == 3 and min(ends) >= 100

    await eventually(arrived)
    (partition,) = found["partitions"]
    (topic,) = found["topics"]
    assert topic["logBytes"] == partition["logBytes"] > 100
    assert [spu["connected"] for spu in found["spus"]] == [True, True]
    assert sum(spu["receivedBytes"] for spu in found["spus"]) > 100
    assert all(0 < append < 10_000_000 and fsync > 0 for append, fsync in latencies)
    assert [spu["unreachablePeers"] for spu in found["spus"]] == [[], []]
    cluster("delete", "topic", "counted")
