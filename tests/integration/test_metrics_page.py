"""The page of metrics lists what the daemons serve: no more, no less, and in the same words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dashboard.config import DashboardConfig
from dashboard.metrics import DASHBOARD_METRICS
from dashboard.server import DashboardServer
from runnel.metrics.definitions import (
    CONSUMER_METRICS,
    NAMED_CONSUMER_METRICS,
    PRODUCER_METRICS,
)
from sc.metrics.definitions import SC_METRICS
from schemas.daemon.daemon import Listen
from schemas.daemon.metrics import BUILD_INFO, PROCESS_METRICS, MetricDefinition
from spu.config import MetricsConfig
from spu.control import SpuControl
from spu.http import start_http_server
from spu.metrics.definitions import PARTITION_METRICS, SPU_METRICS
from tests.integration.sc.conftest import RunningSc
from tests.integration.sc.conftest import kv as kv
from tests.integration.sc.conftest import sc as sc
from tests.integration.spu.conftest import served as served
from tests.integration.spu.served import Served

BOTH = (BUILD_INFO, *PROCESS_METRICS)


async def shown(url: str) -> dict[str, MetricDefinition]:
    """The metrics at an address, without those of no series; labels are those of the series."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        text = await response.text()
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for one in family.samples for label in one.labels} - {"le"}
        kind = cast(Literal["counter", "gauge", "histogram"], family.type)
        found[name] = MetricDefinition(kind, name, family.documentation, tuple(sorted(labels)))
    return found


def compare(found: dict[str, MetricDefinition], documented: tuple[MetricDefinition, ...]) -> None:
    assert len({one.name for one in documented}) == len(documented)
    for one in documented:
        served = found.pop(one.name)
        if not served.labels:
            # Nothing has happened that it counts.
            served = replace(served, labels=tuple(sorted(one.labels)))
        assert served == replace(one, labels=tuple(sorted(one.labels)))
    assert not found


async def test_given_an_sc_then_the_page_lists_what_it_serves(sc: RunningSc) -> None:
    compare(await shown(f"{sc.public}/metrics"), (*SC_METRICS, *BOTH))


@pytest.mark.parametrize("per_partition", [False, True])
async def test_given_an_spu_then_the_page_lists_what_it_serves(
    served: Served, tmp_path: Path, per_partition: bool
) -> None:
    control = SpuControl(1, "0.1.0", tmp_path / "secret")
    runner, port = await start_http_server(
        *(served.spu.host, served.listener, control, "127.0.0.1", 0),
        shown=MetricsConfig(per_partition=per_partition),
    )
    try:
        found = await shown(f"http://127.0.0.1:{port}/metrics")
    finally:
        await runner.cleanup()
    compare(found, (*SPU_METRICS, *(PARTITION_METRICS if per_partition else ()), *BOTH))


@pytest.mark.parametrize(
    "one",
    [
        *(*SC_METRICS, *SPU_METRICS, *PARTITION_METRICS),
        *(*PRODUCER_METRICS, *CONSUMER_METRICS, *NAMED_CONSUMER_METRICS),
    ],
    ids=lambda one: str(one.name),
)
def test_given_a_metric_then_its_name_follows_the_conventions(one: MetricDefinition) -> None:
    """Counters end in ``_total``, nothing else does; times are seconds, sizes bytes; the help is
    one or more sentences."""
    processes = ("runnel_sc_", "runnel_spu_", "runnel_producer_", "runnel_consumer_")
    assert one.name.startswith((*processes, "runnel_named_consumer_"))
    assert one.name.endswith("_total") == (one.kind == "counter")
    assert one.name.endswith("_seconds") or one.kind != "histogram"
    assert not one.name.endswith(("_ms", "_us", "_mib", "_percent"))
    assert one.help.endswith(".")


async def test_given_a_dashboard_then_the_page_lists_what_it_serves(sc: RunningSc) -> None:
    config = DashboardConfig(sc=sc.public.removeprefix("http://"), http=Listen(port=0))
    server = DashboardServer(config)
    runner, port = await server.start()
    try:
        found = await shown(f"http://127.0.0.1:{port}/metrics")
    finally:
        await runner.cleanup()
        await server.close()
    compare(found, (*DASHBOARD_METRICS, *NAMED_CONSUMER_METRICS, *BOTH))
