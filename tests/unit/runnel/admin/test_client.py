"""Objects through the API: what apply does, what wait waits for, how errors read."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

import runnel
from runnel import aio
from runnel.admin.http import ScClient
from runnel.admin.manifests import parse_object
from runnel.net.address import parse_addresses
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    ManifestError,
    NotFoundError,
    ProtocolError,
    UnreachableError,
)
from schemas.objects.topic import Compression, TopicResolution
from tests.unit.runnel.conftest import World


async def test_apply_says_what_it_did(world: World) -> None:
    cluster = world.cluster
    created = await cluster.apply(runnel.Topic("orders", partitions=3))
    assert (created.change, str(created)) == ("created", "topic/orders created")
    assert (await cluster.apply(runnel.Topic("orders", partitions=3))).change == "unchanged"
    changed = await cluster.apply(runnel.Topic("orders", partitions=3, labels={"team": "a"}))
    assert (changed.change, changed.object.metadata.labels) == ("configured", {"team": "a"})
    manifest = {"kind": "Topic", "metadata": {"name": "orders"}, "spec": {"partitions": 3}}
    with pytest.raises(ManifestError, match="apiVersion is missing"):
        await cluster.apply(manifest)
    assert (await cluster.apply({**manifest, "apiVersion": "runnel/v1"})).change == "configured"


async def test_what_the_sc_warns_of_goes_to_the_log_of_the_library(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = world.cluster
    world.sc.warnings = ['299 - "spec.a: \\"x\\" \\\\ y"', '110 proxy "stale"', "nonsense"]
    await cluster.create(runnel.Topic("orders"))
    await cluster.get("topic", "orders")
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("runnel", "WARNING", 'spec.a: "x" \\ y')
    ]


async def test_objects_of_the_system_are_shown_when_asked_for(world: World) -> None:
    cluster = world.cluster
    for name in ("_positions", "orders"):
        world.sc.add_topic(name)

    async def watched(**options: Any) -> list[str]:
        async with cluster.watch("topics", **options) as watch:
            return [obj.name for obj in await watch.state()]

    assert [obj.name for obj in await cluster.list("topics")] == ["orders"]
    both = ["_positions", "orders"]
    assert [obj.name for obj in await cluster.list("topics", show_system=True)] == both
    assert await watched() == ["orders"]
    assert await watched(show_system=True) == both
    assert await watched(name="_positions") == both[:1]
    async with cluster.watch("topics") as watch:
        await watch.state()
        world.sc.change(await cluster.get("topic", "_positions"))
        world.sc.change(await cluster.get("topic", "orders"))
        assert (await anext(watch)).object.name == "orders"


async def test_given_an_object_read_before_a_change_then_applying_it_back_is_a_conflict(
    world: World,
) -> None:
    read = await world.cluster.create(runnel.Topic("orders"))
    await world.cluster.apply(runnel.Topic("orders", labels={"team": "a"}))
    with pytest.raises(ConflictError, match="changed meanwhile"):
        await world.cluster.apply(read)
    with pytest.raises(ConflictError, match="exists"):
        await world.cluster.create(runnel.Topic("orders"))


async def test_list_get_delete(world: World) -> None:
    cluster = world.cluster
    await cluster.apply(runnel.Topic("orders", labels={"team": "a"}))
    await cluster.apply(runnel.Topic("views"))
    assert [obj.name for obj in await cluster.list("topics")] == ["orders", "views"]
    assert [obj.name for obj in await cluster.list("t", {"team": "a"})] == ["orders"]
    assert (await cluster.get("topic", "orders")).metadata.labels == {"team": "a"}
    with pytest.raises(NotFoundError, match="did you mean 'orders'"):
        await cluster.get("topic", "order")
    assert (await cluster.delete("topic", "orders")).name == "orders"
    assert await cluster.wait("topic", "orders", "deleted", timeout=5) is None
    with pytest.raises(InvalidRequestError, match="unknown kind 'tpic'"):
        await cluster.list("tpic")


async def test_wait(world: World) -> None:
    cluster = world.cluster
    world.sc.add_topic("orders")
    found = await cluster.wait("topic", "orders", "Provisioned", timeout=5)
    assert found is not None
    assert found.status.resolution is TopicResolution.PROVISIONED
    with pytest.raises(DeadlineExceededError, match="not pending after 0 s; it is provisioned"):
        await cluster.wait("topic", "orders", "pending", timeout=0)
    with pytest.raises(InvalidRequestError, match="did you mean provisioned"):
        await cluster.wait("topic", "orders", "provisoned")
    with pytest.raises(NotFoundError):
        await cluster.wait("topic", "views", "provisioned", timeout=5)
    waiting = asyncio.create_task(cluster.wait("topic", "orders", "deleted", timeout=20))
    await asyncio.sleep(0)
    world.sc.remove_topic("orders")
    assert await waiting is None


async def test_offsets_and_topic(world: World) -> None:
    world.sc.add_topic("orders", 2)
    async with world.cluster.producer("orders") as producer:
        await producer.send("v", partition=1)
    bounds = await world.cluster.offsets("orders")
    assert [(b.earliest, b.latest, b.size_bytes > 0) for b in bounds.values()] == [
        (0, 0, False), (0, 1, True),
    ]  # fmt: skip
    assert (await world.cluster.topic("orders")).partition_count == 2


async def test_given_an_sc_of_a_later_version_then_what_is_known_of_its_answer_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.sc.add_topic("orders", 1)
    call, later = ScClient.call, {"colour": "red"}

    async def answered(sc: ScClient, method: str, path: str, **more: Any) -> Any:
        answer = await call(sc, method, path, **more)
        return {**answer, **later} if path == "/v1/assignments" else answer

    monkeypatch.setattr(ScClient, "call", answered)
    assert list(await world.cluster.offsets("orders")) == [0]
    later["topics"] = "many"
    with pytest.raises(ProtocolError, match=r"older than the cluster.*topics"):
        await world.cluster.offsets("others")


async def test_given_no_sc_then_the_error_names_the_address_and_what_to_try() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(
            UnreachableError, match=f"127.0.0.1:{port} .*running. runnel cluster status"
        ):
            await aio.connect(f"127.0.0.1:{port}")


async def test_given_one_of_two_scs_is_away_then_the_other_is_asked(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{taken.getsockname()[1]}"
        async with aio.connect(f"{away},{world.sc.address}") as cluster:
            assert cluster.info.cluster == "test"
            assert await cluster.list("topics") == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"partitons": 3}, "spec.partitons: unknown field; did you mean partitions?",
                     id="given-a-typo-then-the-nearest-field"),
        pytest.param({"retention": {"tme": "7d"}}, "spec.retention.tme: unknown field; did you mean"
                     " time?", id="given-a-typo-inside-then-the-nearest-field"),
        pytest.param({"retention": {"time": "soon"}}, "'soon' is not a duration",
                     id="given-no-duration"),
        pytest.param({"partitions": 0}, "spec.partitions", id="given-no-partitions"),
    ],
)  # fmt: skip
def test_wrong_manifests(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ManifestError) as found:
        runnel.Topic("orders", **spec)  # type: ignore[arg-type]
    assert "Topic orders: " in str(found.value)
    assert message in str(found.value)


def test_constructors() -> None:
    topic = runnel.Topic("orders", 3, compression="zstd", retention={"time": "1h"})
    assert topic.spec.compression is Compression.ZSTD
    assert topic.spec.retention.time == 3_600_000
    spu = runnel.Spu("edge", 4, rack="a", public_endpoint={"port": 9100})
    assert (spu.spec.spu_id, spu.spec.public_endpoint.port) == (4, 9100)
    with pytest.raises(ManifestError, match="kind is missing"):
        parse_object({"metadata": {"name": "x"}})


def test_every_exported_name_is_there() -> None:
    for name in runnel.__all__:
        assert getattr(runnel, name) is not None
    assert runnel.__version__
    with pytest.raises(AttributeError):
        runnel.nothing  # noqa: B018


async def create_by(addresses: str) -> Any:
    """Create a topic through the first of these SCs that takes it; nothing was asked before."""
    client = ScClient(parse_addresses(addresses))
    try:
        return await client.call("POST", "/v1/topics", body=runnel.Topic("orders").to_json())
    finally:
        await client.close()


async def test_given_an_sc_that_nobody_reaches_then_a_creation_goes_to_the_next(
    world: World,
) -> None:
    """Nothing was sent to the first, so nothing can be done twice."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    made = await create_by(f"{nobody},{world.sc.address}")
    assert made["metadata"]["name"] == "orders"


async def test_given_an_sc_that_takes_a_creation_and_breaks_off_then_no_other_is_asked(
    world: World,
) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readline()).startswith(b"GET /health "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    async with server:
        broken = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(UnreachableError):
            await create_by(f"{broken},{world.sc.address}")
    assert await world.cluster.list("topics") == []
