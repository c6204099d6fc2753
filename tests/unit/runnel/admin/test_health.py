"""Counts of what is well: bounded in time, and never an error."""

from __future__ import annotations

from time import monotonic

from runnel.admin.client import Admin
from runnel.admin.health import health_rows
from runnel.admin.http import ScClient
from tests.silent_port import silent_port
from tests.unit.runnel.conftest import World


async def test_what_is_not_well_is_counted_by_state(world: World) -> None:
    for name in ("a", "b", "c"):
        world.sc.add_topic(name)
        state = {"resolution": "offline"} if name == "c" else {}
        world.sc.add_partition(name, writable=name != "b", **state)
    assert await health_rows(world.cluster) == [
        ("SPUs", "none"),
        ("topics", "3 of 3 well"),
        (
            "partitions",
            "1 of 3 well, 1 online and not writable, 1 offline and not writable",
        ),
    ]


async def test_given_an_sc_that_does_not_answer_then_it_waits_no_longer() -> None:
    with silent_port() as port:
        sc = ScClient.parse(f"127.0.0.1:{port}")
        began = monotonic()
        rows = await health_rows(Admin(sc), 0.1)
        assert monotonic() - began < 2
        await sc.close()
    assert rows == [
        (name, "the SC has not answered within 0.1 s") for name in ("SPUs", "topics", "partitions")
    ]
