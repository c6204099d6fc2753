"""Changes that race with the controllers: what decides about an object is as new as the object.

The mirror of these controllers lags as long as a test wants it to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sc.controllers.actions import CreatePartitions
from sc.dispatch.changes import ChangeFeed
from sc.dispatch.fences import LeaderFence
from sc.dispatch.kv_updater import KvUpdater
from sc.kv.interface import KV, Put, WatchBatch
from sc.store.codec import encode_object
from schemas.errors import ConflictError
from schemas.objects.topic import Topic, TopicResolution
from tests.integration.sc.calls import JSON, call, created, online, register
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.unit.sc.builders import partition_of


@contextmanager
def lagging(sc: RunningSc) -> Iterator[None]:
    """The mirror shows nothing that is written in the block before the block ends."""
    reader: Any = sc.controller.reader
    apply, held = reader._apply, list[WatchBatch]()
    reader._apply = held.append
    try:
        yield
    finally:
        reader._apply = apply
        for batch in held:
            apply(batch)


async def place(sc: RunningSc, name: str, *spu_ids: int) -> None:
    """What the topic controller writes for the first partition of a topic."""
    store = sc.controller.view.store
    topic = store.get(Topic, name)
    assert topic is not None
    spus = tuple(spu for i in spu_ids if (spu := store.spu(i)) is not None)
    partition = partition_of(topic, 0, spu_ids).with_metadata(resource_version=None)
    status = topic.status.model_copy(update={"resolution": TopicResolution.PENDING})
    leadership = sc.controller.leadership
    updater = KvUpdater(
        sc.controller.kv, sc.controller.keys, LeaderFence(sc.controller.keys, lambda: leadership)
    )
    await updater.carry_out(CreatePartitions(topic, (partition,), spus, status))


async def test_given_partitions_that_the_mirror_lacks_then_a_change_waits_for_it(
    sc: RunningSc,
) -> None:
    await register(sc, 1)
    await created(sc, "Topic", "t", {"partitions": 2})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    with lagging(sc):
        await place(sc, "t", 1)
        change = asyncio.create_task(call(sc, "PATCH", "/v1/topics/t", {"spec": {"partitions": 1}}))
        await asyncio.sleep(0.05)
        assert not change.done(), "decided by a mirror that is older than the topic"
    status, error = await change
    assert status == 400
    assert "cannot shrink from 2 to 1" in str(error["message"])


@pytest.mark.parametrize("delay_ms", range(0, 12, 2))
async def test_given_changes_right_after_creation_then_spec_and_placement_agree(
    sc: RunningSc, delay_ms: int
) -> None:
    """Whichever comes first, a topic never says another factor than its partitions have."""

    async def race(name: str, spec: JSON) -> None:
        await created(sc, "Topic", name, {"partitions": 3})
        await asyncio.sleep(delay_ms / 1000)
        status, _ = await call(sc, "PATCH", f"/v1/topics/{name}", {"spec": spec})
        assert status in (200, 400, 409)

    async with online(sc, 1, 2, 3):
        names = [f"t{n}" for n in range(10)]
        specs: list[JSON] = [{"replicationFactor": 3}, {"partitions": 1}]
        await asyncio.gather(*(race(name, specs[n % 2]) for n, name in enumerate(names)))
        for name in names:
            topic = await sc.until("topics", name, "provisioned")
            assert isinstance(topic, Topic)
            await eventually(lambda name=name: as_specified(sc, name))
            # An SPU that reports late is not live at first, and these SPUs do not ask to join.
            late = topic.status.writable is False
            said = topic.status.reason
            assert said is None or (late and "commit" in said) or "being moved" in said


async def test_given_a_contradiction_of_an_older_version_then_it_can_be_set_back(
    kv: KV, sc: RunningSc
) -> None:
    async with online(sc, 1, 2, 3):
        await created(sc, "Topic", "t", {"partitions": 2})
        topic = await sc.until("topics", "t", "provisioned")
        assert isinstance(topic, Topic)
        await contradict(kv, sc, topic)
        await eventually(lambda: "set it back" in reason_of(sc, "t"))
        # Anything else can still be changed.
        status, _ = await call(sc, "PATCH", "/v1/topics/t", {"metadata": {"labels": {"a": "b"}}})
        assert status == 200
        status, _ = await call(sc, "PATCH", "/v1/topics/t", {"spec": {"partitions": 2}})
        assert status == 200
        await eventually(lambda: reason_of(sc, "t") == "")


async def contradict(kv: KV, sc: RunningSc, topic: Topic) -> None:
    """Write what the API of an earlier version let through."""
    spec = topic.spec.model_copy(update={"partitions": 1})
    bad = topic.model_copy(update={"spec": spec}).with_metadata(generation=2)
    key = sc.controller.keys.object("topics", topic.name)
    await kv.txn([], [Put(key, encode_object(bad, "-"))])


def as_specified(sc: RunningSc, name: str) -> bool:
    """Whether a topic has the partitions that its spec asks for, with as many replicas."""
    topic = sc.controller.view.store.get(Topic, name)
    assert topic is not None
    rows = topic.status.replica_map
    same = {len(row) for row in rows} == {topic.spec.replica_count}
    return same and len(rows) == topic.spec.partition_count


def reason_of(sc: RunningSc, name: str) -> str:
    topic = sc.controller.view.store.get(Topic, name)
    return (topic.status.reason or "") if topic is not None else "gone"


async def test_given_a_placement_that_the_mirror_lacks_then_its_spu_is_not_deleted(
    sc: RunningSc,
) -> None:
    """A placement without an answer: nobody waits for the mirror to show it."""
    await register(sc, 1)
    await created(sc, "Topic", "t", {"partitions": 1})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    with lagging(sc):
        await place(sc, "t", 1)
        deletion = asyncio.create_task(call(sc, "DELETE", "/v1/spus/spu-1"))
        await asyncio.sleep(0.05)
        assert not deletion.done(), "decided by a mirror that is older than the placement"
    status, error = await deletion
    assert (status, error["code"]) == (409, "CONFLICT")
    assert "holds replicas of t-0" in error["message"]


async def test_given_a_placement_that_comes_after_the_look_then_it_fails(sc: RunningSc) -> None:
    """The placement was decided before the deletion, and arrives when that has begun."""
    await register(sc, 1)
    await created(sc, "Topic", "t", {"partitions": 1})
    await sc.until("topics", "t", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    with lagging(sc):
        deletion = asyncio.create_task(call(sc, "DELETE", "/v1/spus/spu-1"))
        await asyncio.sleep(0.05)
        assert not deletion.done()
        with pytest.raises(ConflictError):
            await place(sc, "t", 1)
    assert (await deletion)[0] == 202


async def test_given_a_mirror_that_does_not_move_then_a_change_ends_in_time(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.dispatch.changes.APPLIED_S", 0.05)
    await created(sc, "Topic", "t", {"partitions": 1})
    await sc.until("topics", "t", "insufficientResources")
    with lagging(sc):
        status, error = await call(sc, "PATCH", "/v1/topics/t", {"spec": {"partitions": 2}})
    assert (status, error["code"]) == (504, "DEADLINE_EXCEEDED")
    assert not [waiter for waiter in _waiters(sc.controller.feed) if not waiter.done()]


def _waiters(feed: ChangeFeed) -> list[asyncio.Future[None]]:
    return [future for _, future in feed._waiters]
