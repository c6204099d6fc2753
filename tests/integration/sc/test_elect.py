"""Unclean elections by the API and the command: refused while a live replica may lead, done where
none will, by the term that was seen, and recorded for good."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sc.controllers.unclean import with_wish
from sc.kv.interface import Put
from sc.store.codec import encode_object
from sc.store.suspicions import Suspicions
from schemas.ids import Term, next_election
from schemas.objects.partition import Partition, UncleanElection
from tests.e2e.forked import fork_server
from tests.integration.sc.calls import call
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu

ELECT = "/v1/partitions/t-0/elect"
DEADLINE_S = 60.0


@dataclass
class Bench:
    """SPU 1 leads ``t-0`` alone; SPU 2 holds a replica that is not live."""

    sc: RunningSc
    one: SimulatedSpu
    two: SimulatedSpu
    first: AsyncExitStack

    @property
    def partition(self) -> Partition:
        found = self.sc.controller.view.store.get(Partition, "t-0")
        assert found is not None
        return found

    async def lose_the_leader(self) -> None:
        await self.first.aclose()
        await self.sc.until("partitions", "t-0", "offline")

    @asynccontextmanager
    async def back(self) -> AsyncIterator[None]:
        """SPU 1 with its data again."""
        again = SimulatedSpu(1, self.sc.private)
        again.cluster_uid, again.replicas = self.one.cluster_uid, self.one.replicas
        async with again:
            yield

    async def elect(self, **body: Any) -> tuple[int, dict[str, Any]]:
        return await call(self.sc, "POST", ELECT, body)

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and error of ``runnel``."""
        sc = self.sc.public.removeprefix("http://")
        done = await asyncio.to_thread(
            fork_server().run, (*arguments, "--sc", sc), b"", dict(os.environ), None, DEADLINE_S
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
async def bench(sc: RunningSc) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as first, SimulatedSpu(2, sc.private) as two:
        one = SimulatedSpu(1, sc.private)
        for spu_id in (1, 2):
            await sc.create("Spu", f"spu-{spu_id}", {"spuId": spu_id})
        await first.enter_async_context(one)
        for spu_id in (1, 2):
            await sc.until("spus", f"spu-{spu_id}", "online")
        rows = [{"id": 0, "replicas": [1, 2]}]
        await sc.create("Topic", "t", {"assignment": rows, "minInSyncReplicas": 1})
        await sc.until("partitions", "t-0", "online")
        made = Bench(sc, one, two, first)
        await eventually(lambda: sc.controller.view.report(2, made.partition.uid) is not None)
        yield made


async def test_given_live_replica_then_refused(bench: Bench) -> None:
    status, body = await bench.elect(term=bench.partition.status.term)
    assert (status, body["code"]) == (409, "CONFLICT")
    assert "SPU 1 is a live replica, online and fit: no record has to be lost" in body["message"]
    assert bench.partition.metadata.annotations == {}


async def test_given_no_live_replica_then_elected_and_told_to_lead(bench: Bench) -> None:
    before = bench.partition.status
    await bench.lose_the_leader()
    status, body = await bench.elect(term=before.term)
    assert (status, body["metadata"]["name"]) == (202, "t-0")
    await bench.sc.until("partitions", "t-0", "online")
    after = bench.partition.status
    assert (after.leader, after.term) == (2, next_election(before.term))
    assert after.unclean_term == after.term
    assert [m.spu_id for m in after.lrs] == [2]
    assert bench.partition.metadata.annotations == {}
    assert bench.two.leads == [(bench.partition.uid, after.term)]
    async with bench.back():
        await bench.sc.until("spus", "spu-1", "online")
        assert (await bench.elect(term=after.term))[0] == 409
    assert bench.partition.status.leader == 2


async def test_given_dry_run_then_checked_and_nothing_done(bench: Bench) -> None:
    await bench.lose_the_leader()
    before = bench.partition
    status, _ = await call(bench.sc, "POST", f"{ELECT}?dryRun=true", {"term": before.status.term})
    assert status == 202
    assert bench.partition == before


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        pytest.param(ELECT, {}, 400, "term: is required", id="given-no-term"),
        pytest.param(ELECT, {"term": "x"}, 400, "term: ", id="given-a-term-that-is-none"),
        pytest.param(ELECT, {"term": 1, "leadr": 2}, 400, "leadr: ", id="given-a-misspelt-field"),
        pytest.param(ELECT, [], 400, "must be a mapping", id="given-no-mapping"),
        pytest.param(ELECT, {"term": 1 << 17}, 409, "the term is 1 now", id="given-another-term"),
        pytest.param(
            "/v1/partitions/t-9/elect", {"term": 0}, 404, "does not exist", id="given-no-partition"
        ),
    ],
)
async def test_refused(bench: Bench, path: str, body: Any, status: int, says: str) -> None:
    found, answer = await call(bench.sc, "POST", path, body)
    assert found == status, answer
    assert says in answer["message"]


async def test_given_spu_that_has_not_reported_then_not_ready(bench: Bench) -> None:
    await bench.lose_the_leader()
    # As an SC that has just begun, and has not seen that SPU yet.
    bench.sc.controller.view.suspicions = Suspicions()
    bench.sc.controller.view.grace_until_ms = bench.sc.controller.now_ms() + 60_000
    status, body = await bench.elect(term=bench.partition.status.term)
    assert (status, body["code"]) == (503, "NOT_READY")


# -- the command --------------------------------------------------------------------------------


async def test_given_yes_then_the_command_elects_and_says_so(bench: Bench) -> None:
    await bench.lose_the_leader()
    code, out, err = await bench.command("partition", "elect", "t-0", "--unclean", "--yes")
    assert (code, err) == (0, "")
    assert out == "partition/t-0 led by SPU 2 at term 2; what it lacks is lost\n"
    _, wide, _ = await bench.command("get", "partitions", "-o", "wide")
    heading, row = wide.splitlines()
    assert row[heading.index("UNCLEAN") :].split()[0] == "2"
    _, described, _ = await bench.command("describe", "partition", "t-0")
    assert "elected uncleanly at term 2:" in described


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param(
            ["t-0", "--unclean", "--yes"], 4, "no record has to be lost", id="given-a-live-replica"
        ),
        pytest.param(["t-9", "--unclean", "--yes"], 3, "does not exist", id="given-no-partition"),
        pytest.param(["t-0", "--yes"], 2, "--unclean", id="given-no-unclean"),
        pytest.param(["t-0", "--unclean"], 2, "add --yes", id="given-nobody-to-ask"),
    ],
)
async def test_given_no_reason_to_then_the_command_does_nothing(
    bench: Bench, arguments: list[str], code: int, says: str
) -> None:
    before = bench.partition
    found, _, err = await bench.command("partition", "elect", *arguments)
    assert found == code
    assert says in err
    assert bench.partition == before


async def test_given_leader_that_is_not_there_then_a_conflict_and_the_reason(bench: Bench) -> None:
    await bench.lose_the_leader()
    asked = ("partition", "elect", "t-0", "--unclean", "--leader", "1", "--yes")
    code, _, err = await bench.command(*asked)
    assert (code, "SPU 1 is offline, and has reported no replica" in err) == (4, True)


async def test_given_wish_of_another_term_in_the_kv_then_dropped_with_the_reason(
    bench: Bench,
) -> None:
    """As where the partition changes between the request and the controller's turn."""
    sc, key = bench.sc, bench.sc.controller.keys.object("partitions", "t-0")
    late = with_wish(bench.partition, UncleanElection(term=Term(0), leader=2))
    await sc.controller.kv.txn([], [Put(key, encode_object(late, "test"))])
    await eventually(lambda: "turned down: unclean election" in str(bench.partition.status.reason))
    assert bench.partition.metadata.annotations == {}
    assert bench.partition.status.leader == 1
