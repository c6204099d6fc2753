"""Day-two calls: dry runs, patches, pages, histories, who wrote, and waiting by generation."""

from __future__ import annotations

import asyncio

import pytest

import runnel
from runnel import aio
from runnel.admin import reads
from runnel.admin.calls import parse_answer
from runnel.admin.states import DELETED, is_current, state_of, states_of
from schemas.errors import (
    CompactedError,
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
)
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic, TopicResolution
from tests.polling import eventually
from tests.unit.runnel.conftest import World


async def test_dry_runs_change_nothing_and_say_so(world: World) -> None:
    cluster = world.cluster
    created = await cluster.apply(runnel.Topic("orders"), dry_run=True)
    assert str(created) == "topic/orders created (dry run)"
    assert await cluster.list("topics") == []
    await cluster.apply(runnel.Topic("orders"))
    changed = await cluster.apply(runnel.Topic("orders", labels={"a": "b"}), dry_run=True)
    assert (str(changed), changed.object.metadata.labels) == (
        "topic/orders configured (dry run)", {"a": "b"},
    )  # fmt: skip
    same = await cluster.apply(runnel.Topic("orders"), dry_run=True)
    assert str(same) == "topic/orders unchanged (dry run)"
    await cluster.create(runnel.Topic("views"), dry_run=True)
    patched = await cluster.patch("t", "orders", {"metadata": {"labels": {"c": "d"}}}, dry_run=True)
    assert patched.metadata.labels == {"c": "d"}
    await cluster.delete("topic", "orders", dry_run=True)
    (left,) = await cluster.list("topics")
    assert (left.name, left.metadata.labels) == ("orders", {})


async def test_patch_is_a_merge_patch(world: World) -> None:
    await world.cluster.apply(runnel.Topic("orders", labels={"a": "b", "c": "d"}))
    patch = {"metadata": {"labels": {"a": None}}, "spec": {"partitions": 3}}
    patched = await world.cluster.patch("topics", "orders", patch)
    assert isinstance(patched, Topic)
    assert (patched.metadata.labels, patched.spec.partitions) == ({"c": "d"}, 3)
    assert world.sc.seen.content_types[-1] == "application/merge-patch+json"
    with pytest.raises(ConflictError) as lost:
        await world.cluster.patch("topics", "orders", {"metadata": {"resourceVersion": "1"}})
    assert lost.value.details["by"] == "ann@desk"
    with pytest.raises(NotFoundError):
        await world.cluster.patch("topics", "views", {})


@pytest.mark.parametrize(
    ("kind", "name", "what"), [("spu", "", "spu"), ("stream", "web/", "stream")]
)
async def test_given_an_empty_name_then_no_other_path_is_asked_for(
    world: World, kind: str, name: str, what: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"^name of a {what}: '{name}' is empty"):
        await world.cluster.patch(kind, name, {})
    assert world.sc.seen.queries == []


async def test_who_writes_is_said(world: World) -> None:
    await world.cluster.apply(runnel.Topic("orders"))
    async with aio.connect(world.sc.address, by="ann@büro\n") as cluster:
        await cluster.delete("topic", "orders", force=True)
    assert world.sc.seen.by == ["runnel-python", "ann@b?ro?"]
    assert world.sc.seen.queries[-1] == {"force": "true"}


async def test_lists_are_read_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PAGE_OBJECTS", 2)
    names = [f"t{number}" for number in range(5)]
    for name in names:
        world.sc.add_topic(name)
    assert [obj.name for obj in await world.cluster.list("topics")] == names
    assert [query.get("continue") for query in world.sc.seen.queries] == [None, "2", "4"]
    world.sc.pages_compacted = 2
    assert [obj.name for obj in await world.cluster.list("topics")] == names
    world.sc.pages_compacted = 9
    with pytest.raises(CompactedError):
        await world.cluster.list("topics")


async def test_selectors_go_to_the_sc_as_they_are(world: World) -> None:
    await world.cluster.list("topics", {"a": "b", "c": "d"})
    await world.cluster.list("topics", "a=b")
    await world.cluster.list("topics", "")
    assert [query.get("labelSelector") for query in world.sc.seen.queries] == [
        "a=b,c=d", "a=b", None,
    ]  # fmt: skip


async def test_history(world: World) -> None:
    world.sc.add_topic("orders")
    item = {
        "revision": 9, "at": "2026-01-01T00:00:00.000Z", "by": "ann@desk", "cause": "api-1",
        "generation": 2, "resolution": "pending", "reason": None, "changed": ["spec.partitions"],
    }  # fmt: skip
    world.sc.history["topics", "orders"] = [item, {**item, "revision": 8, "changed": []}]
    both = await world.cluster.history("topic", "orders")
    assert [(entry.revision, entry.changed) for entry in both.entries] == [
        (9, ("spec.partitions",)), (8, ()),
    ]  # fmt: skip
    assert (both.complete, both.entries[0].by, both.entries[0].cause) == (True, "ann@desk", "api-1")
    one = await world.cluster.history("topic", "orders", limit=1)
    assert (len(one.entries), one.complete) == (1, False)
    with pytest.raises(NotFoundError):
        await world.cluster.history("topic", "views")


def behind(topic: Topic, resolution: TopicResolution, observed: int, reason: str) -> Topic:
    status = topic.status.model_copy(
        update={"resolution": resolution, "observed_generation": observed, "reason": reason}
    )
    return topic.with_status(status)


async def test_a_resolution_of_an_earlier_generation_does_not_count(world: World) -> None:
    first = world.sc.add_topic("orders")
    second = await world.cluster.patch("topic", "orders", {"spec": {"partitions": 2}})
    assert isinstance(second, Topic)
    assert (second.generation, second.status.resolution) == (2, first.status.resolution)
    with pytest.raises(DeadlineExceededError, match=r"as of generation 1; the spec is at 2"):
        await world.cluster.wait("topic", "orders", "provisioned", timeout=0)
    waiting = asyncio.create_task(world.cluster.wait("topic", "orders", "provisioned", 20))
    await eventually(lambda: world.sc.watches == 1)
    pending = world.sc.change(behind(second, TopicResolution.PENDING, 2, "placing"))
    assert isinstance(pending, Topic)
    world.sc.change(behind(pending, TopicResolution.PROVISIONED, 2, ""))
    found = await waiting
    assert found is not None
    assert found.status.observed_generation == 2
    assert world.sc.watches == 1


async def test_given_a_deletion_while_waiting_then_deleted_is_reached_and_others_fail(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    gone = asyncio.create_task(world.cluster.wait("topic", "orders", DELETED, 20))
    never = asyncio.create_task(world.cluster.wait("topic", "orders", "pending", 20))
    await eventually(lambda: world.sc.watches == 2)
    world.sc.remove_topic("orders")
    # One of the same name is another one.
    world.sc.add_topic("orders")
    assert await gone is None
    with pytest.raises(NotFoundError, match="was deleted while waiting for it"):
        await never


async def test_given_the_sc_goes_away_while_waiting_then_the_last_state_is_said(
    world: World,
) -> None:
    topic = world.sc.add_topic("orders")
    world.sc.change(behind(topic, TopicResolution.PENDING, 1, "two SPUs are missing"))
    waiting = asyncio.create_task(world.cluster.wait("topic", "orders", "provisioned", 1.0))
    await eventually(lambda: world.sc.watches == 1)
    await world.sc.stop()
    with pytest.raises(DeadlineExceededError) as late:
        await waiting
    assert "it is pending: two SPUs are missing, and since then: no SC answers" in str(late.value)


async def test_given_a_watch_that_is_turned_away_then_it_is_tried_again(world: World) -> None:
    topic = world.sc.add_topic("orders")
    world.sc.change(behind(topic, TopicResolution.PENDING, 1, ""))
    world.sc.watches_refused = 2
    waiting = asyncio.create_task(world.cluster.wait("topic", "orders", "provisioned", 20))
    await eventually(lambda: world.sc.watches == 1)
    world.sc.change(behind(topic, TopicResolution.PROVISIONED, 1, ""))
    assert await waiting is not None


def test_states_of_every_kind() -> None:
    assert states_of(Topic)[0] == "init"
    assert states_of(Stream)[0] == "creating"
    spu = runnel.Spu("a", 1).with_metadata(generation=2)
    assert isinstance(spu, Spu)
    assert (state_of(spu), is_current(spu)) == ("init", False)


@pytest.mark.parametrize(("kind", "name"), [("partition", "orders-0"), ("topic", "orders")])
async def test_given_a_partition_that_commits_nothing_then_writable_waits_until_it_does(
    world: World, kind: str, name: str
) -> None:
    world.sc.add_topic("orders")
    stuck = world.sc.add_partition("orders", writable=False, reason="SPU 1 cannot reach SPU 0")
    await world.cluster.wait("partition", "orders-0", "online", timeout=0)
    with pytest.raises(DeadlineExceededError) as late:
        await world.cluster.wait(kind, name, "writable", timeout=0.2)
    assert " is online, but not writable: SPU 1 cannot reach SPU 0" in late.value.message
    waiting = asyncio.create_task(world.cluster.wait(kind, name, "writable", 20))
    before = world.sc.watches
    await eventually(lambda: world.sc.watches > before)
    world.sc.change(stuck.with_status(stuck.status.model_copy(update={"writable": None})))
    found = await waiting
    assert found is not None
    assert found.name == name


async def test_given_a_status_of_a_later_version_then_what_is_known_is_read(world: World) -> None:
    """Fields that were added to it are left out; elsewhere they are refused, so that they are not
    lost when the object is sent back."""
    world.sc.add_topic("orders")
    known = world.sc.add_partition("orders")
    sent = known.to_json()
    assert parse_answer(Partition, {**sent, "status": {**sent["status"], "new": 1}}) == known
    with pytest.raises(RunnelError, match="does not understand"):
        parse_answer(Partition, {**sent, "spec": {**sent["spec"], "new": 1}})
