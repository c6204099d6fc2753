"""What a client counted, as its properties and as Prometheus' series."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import runnel
from runnel.metrics.collector import ClientCollector
from runnel.metrics.definitions import CONSUMER_METRICS, PRODUCER_METRICS
from schemas.errors import NotLeaderError, OverloadedError
from tests.unit.runnel.conftest import World

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"


def series(world: World) -> dict[str, float]:
    """Series of topic ``orders`` by what follows ``runnel_``, and by code or partition."""
    registry = CollectorRegistry()
    registry.register(ClientCollector(world.cluster))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            assert sample.labels.get("topic") == "orders", sample
            rest = [value for name, value in sample.labels.items() if name not in ("topic", "le")]
            if not sample.name.endswith("_bucket"):
                found[" ".join((sample.name.removeprefix("runnel_"), *rest))] = sample.value
    return found


async def test_given_a_producer_then_all_it_did_is_counted_and_stays_when_it_is_closed(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.spu.produce_script.extend([OverloadedError("busy"), NotLeaderError("moved")])
    async with world.cluster.producer("orders") as producer:
        for _ in range(3):
            await producer.send(b"value")
        metrics = producer.metrics
    assert (metrics.records_sent, metrics.batches_sent, metrics.retries) == (3, 3, 2)
    assert metrics.errors == {"OVERLOADED": 1, "NOT_LEADER": 1}
    assert metrics.mean_batch_bytes == metrics.bytes_sent / 3 > 5
    acknowledged = metrics.acknowledgement
    assert acknowledged.count == 3
    assert acknowledged.mean_s == acknowledged.sum_s / 3
    assert 0 < (acknowledged.quantile_s(0.5) or 0) <= (acknowledged.quantile_s(0.99) or 0)
    async with world.cluster.producer("orders") as another:
        await another.send(b"value")
        assert another.metrics.records_sent == 1
    found = series(world)
    assert found["producer_records_total"] == found["producer_batches_total"] == 4
    assert found["producer_acknowledgement_seconds_count"] == 4
    assert found["producer_bytes_total"] > metrics.bytes_sent
    assert found["producer_retries_total"] == 2
    assert found["producer_errors_total OVERLOADED"] == 1
    assert found["producer_failed_records_total"] == found["producer_buffered_bytes"] == 0


async def test_given_a_failure_for_good_then_its_records_are_counted(world: World) -> None:
    world.sc.add_topic("orders")
    world.spu.produce_script.append(runnel.RecordTooLargeError("too large"))
    with pytest.raises(runnel.RecordTooLargeError):
        async with world.cluster.producer("orders") as producer:
            producer.send(b"value")
    assert producer.metrics.records_failed == 1
    assert series(world)["producer_failed_records_total"] == 1


async def test_given_a_consumer_then_records_bytes_and_its_lag_are_counted(world: World) -> None:
    world.sc.add_topic("orders", 1)
    async with world.cluster.producer("orders") as producer:
        for number in range(5):
            await producer.send(b"%d" % number)
    sent = producer.metrics
    async with world.cluster.consumer("orders", start="earliest") as consumer:
        assert consumer.metrics.records_consumed in (0, 5)
        first = await anext(consumer)
        assert first.offset == 0
        metrics = consumer.metrics
        assert (metrics.records_consumed, metrics.bytes_consumed) == (5, sent.bytes_sent)
        assert metrics.answers >= 1
        assert metrics.lag_records == {0: 4}
        assert series(world)["consumer_lag_records 0"] == 4
        for _ in range(4):
            last = await anext(consumer)
        assert (last.offset, consumer.metrics.lag_records) == (4, {0: 0})
    found = series(world)
    assert found["consumer_records_total"] == 5
    assert found["consumer_bytes_total"] == sent.bytes_sent
    assert "consumer_lag_records 0" not in found, "a closed consumer is not behind"


async def test_given_an_spu_that_refuses_then_errors_of_reading_are_counted(world: World) -> None:
    world.sc.add_topic("orders", 1)
    async with world.cluster.consumer("orders", start=7) as consumer:
        with pytest.raises(runnel.OffsetOutOfRangeError):
            await consumer.poll(5)
    assert consumer.metrics.errors == {"OFFSET_OUT_OF_RANGE": 1}
    assert series(world)["consumer_errors_total OFFSET_OUT_OF_RANGE"] == 1


async def test_the_page_lists_what_a_client_shows(world: World) -> None:
    families = {
        family.name + ("_total" if family.type == "counter" else ""): family.documentation
        for family in ClientCollector(world.cluster).collect()
    }
    assert families == {one.name: one.help for one in (*PRODUCER_METRICS, *CONSUMER_METRICS)}


def test_importing_the_client_leaves_the_registry_of_its_user_as_it_is() -> None:
    """In a process of its own: another test may have switched it off."""
    check = (
        "import prometheus_client.metrics as m, runnel; runnel.ClientCollector;"
        " assert m._use_created"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


async def test_the_example_of_the_page_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import prometheus_client

    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    registry, ports = CollectorRegistry(), list[int]()
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    monkeypatch.setattr(prometheus_client, "start_http_server", ports.append)
    monkeypatch.setattr(runnel, "connect", lambda: world.cluster)
    exec(example, {})  # noqa: S102 - the page is ours
    assert ports == [9100]
    assert b"runnel_producer_records_total" in generate_latest(registry)
