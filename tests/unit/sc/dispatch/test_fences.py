"""The right to write: of the SC that leads, and of one that works for streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from sc.controllers.actions import Step, TellMoves, WriteStatus
from sc.dispatch.fences import NOT_HELD, LeaderFence, SharerFence, stream_of
from sc.dispatch.kv_updater import KvUpdater
from sc.kv import open_kv
from sc.kv.interface import KV, Compare, CreateRevisionIs, Delete, Put
from sc.leadership import Leadership, Recovery, acquire, begin_recovery
from schemas.errors import ConflictError, FencedError
from schemas.objects.keys import ClusterKeys
from schemas.objects.stream import Stream
from tests.unit.sc.builders import topic_of
from tests.unit.sc.sharing.segments import stream_of as new_stream

KEYS = ClusterKeys("test")
STREAM = new_stream("s/one")
STATE = "streams/u/state"


@dataclass
class Bucket:
    """A bucket of the KV; what holds it changes."""

    kv: KV
    guarded: CreateRevisionIs = field(init=False)

    async def take(self) -> None:
        key = KEYS.bucket(7)
        await self.kv.txn([], [Delete(key)])
        self.guarded = CreateRevisionIs(key, (await self.kv.txn([], [Put(key, b"me")])).revision)

    def guard(self, stream: Stream) -> Compare:
        if stream.uid != STREAM.uid:
            raise ConflictError(NOT_HELD)
        return self.guarded


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    yield store
    await store.close()


@pytest.fixture
async def leadership(kv: KV) -> Leadership:
    return await acquire(kv, KEYS)


@pytest.fixture
async def bucket(kv: KV) -> Bucket:
    found = Bucket(kv)
    await found.take()
    return found


async def step(kv: KV, stream: Stream = STREAM) -> Step:
    """A step that nothing but the right to write keeps back."""
    found = await kv.get(KEYS.record(STATE))
    revision = 0 if found is None else found.mod_revision
    return Step(stream, ((STATE, revision),), ((STATE, b"next"),))


def test_only_what_works_for_a_stream_needs_its_bucket() -> None:
    topic = topic_of("t")
    assert stream_of(Step(STREAM, ())) is STREAM
    assert stream_of(WriteStatus(STREAM, STREAM.status)) is STREAM
    assert stream_of(WriteStatus(topic, topic.status)) is None
    # Replicas move by the SC that leads, whoever works for the stream.
    assert stream_of(TellMoves(STREAM, "they move")) is None


async def test_given_a_leader_then_it_needs_its_leadership_and_the_bucket(
    kv: KV, leadership: Leadership, bucket: Bucket
) -> None:
    updater = KvUpdater(kv, KEYS, LeaderFence(KEYS, lambda: leadership, bucket.guard))
    assert await updater.carry_out(await step(kv)) > 0
    with pytest.raises(ConflictError, match=NOT_HELD):
        await updater.carry_out(await step(kv, new_stream("s/other")))
    before = bucket.guarded
    await bucket.take()
    after, bucket.guarded = bucket.guarded, before
    with pytest.raises(ConflictError, match="changed meanwhile"):
        await updater.carry_out(await step(kv))
    bucket.guarded = after
    assert await updater.carry_out(await step(kv)) > 0
    await acquire(kv, KEYS)
    with pytest.raises(FencedError):
        await updater.carry_out(await step(kv))


async def test_given_one_that_stands_by_then_it_writes_for_its_streams_alone(
    kv: KV, leadership: Leadership, bucket: Bucket
) -> None:
    office = [await kv.get(KEYS.current_office)]
    updater = KvUpdater(kv, KEYS, SharerFence(KEYS, lambda: office[-1], bucket.guard))
    assert await updater.carry_out(await step(kv)) > 0
    topic = topic_of("t")
    with pytest.raises(ConflictError, match="works for streams alone"):
        await updater.carry_out(WriteStatus(topic, topic.status))
    # Another bucket, another leader, a recovery and a move end what was decided before.
    before = bucket.guarded
    await bucket.take()
    after, bucket.guarded = bucket.guarded, before
    with pytest.raises(ConflictError):
        await updater.carry_out(await step(kv))
    bucket.guarded = after
    other = await acquire(kv, KEYS)
    with pytest.raises(ConflictError):
        await updater.carry_out(await step(kv))
    office.append(await kv.get(KEYS.current_office))
    assert await updater.carry_out(await step(kv)) > 0
    await begin_recovery(kv, KEYS, other, 1, Recovery("sc", "at", "why", "cause"))
    with pytest.raises(ConflictError):
        await updater.carry_out(await step(kv))
    office.append(await kv.get(KEYS.current_office))
    assert await updater.carry_out(await step(kv)) > 0
    await kv.txn([], [Put(KEYS.moved, b"{}")])
    with pytest.raises(ConflictError):
        await updater.carry_out(await step(kv))
    await kv.txn([], [Delete(KEYS.moved)])
    assert await updater.carry_out(await step(kv)) > 0
    office.append(None)
    with pytest.raises(ConflictError):
        await updater.carry_out(await step(kv))
