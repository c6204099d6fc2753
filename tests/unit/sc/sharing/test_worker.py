"""What an SC that stands by looks at: streams of its buckets, and nothing while it leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from sc.controllers.actions import Key
from sc.kv import open_kv
from sc.kv.interface import KV, Delete, Put
from sc.leadership import Identity
from sc.mirror import Mirror
from sc.sharing.claims import BucketClaims
from sc.sharing.telling import Teller
from sc.sharing.worker import StreamWorker
from sc.store.buckets import Buckets
from sc.store.codec import encode_object
from sc.store.view import Settled
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Object
from tests.polling import eventually
from tests.unit.sc.builders import SC, report_of, session_of, topic_of, view_of
from tests.unit.sc.sharing.segments import segment_of, stream_of

KEYS = ClusterKeys("test")
STREAMS = tuple(stream_of(f"s/{number}") for number in range(8))
SEGMENT = segment_of(STREAMS[0], 0, 1)
BUCKET = Buckets().bucket_of(STREAMS[0].uid)
MINE = {Key("Stream", one.name) for one in STREAMS if Buckets().bucket_of(one.uid) == BUCKET}


def put(obj: Object) -> Put:
    value = encode_object(obj, "cause", by="ann", at="2026-01-01T00:00:00.000Z")
    return Put(KEYS.object(obj.PLURAL, obj.name), value)


@dataclass
class Sc:
    """One SC whose worker only gathers what it would look at."""

    kv: KV
    mirror: Mirror
    worker: StreamWorker

    @property
    def waiting(self) -> set[Key]:
        return set(self.worker._queue._state.waiting)

    def forget(self) -> None:
        while self.worker._queue._state.take():
            pass
        self.worker._queue._state.active.clear()

    async def write(self, *operations: Put | Delete) -> None:
        revision = (await self.kv.txn([], operations)).revision
        await self.mirror.feed.applied(revision)


@pytest.fixture
async def sc() -> AsyncIterator[Sc]:
    kv = await open_kv("memory:")
    identity = Put(KEYS.identity, Identity("u").encode())
    await kv.txn([], [identity, *map(put, STREAMS), put(SEGMENT), put(topic_of("t"))])
    mirror = Mirror(kv, "test")
    await mirror.load()
    claims = BucketClaims(mirror, SC, lambda: 0)
    found = Sc(kv, mirror, StreamWorker(mirror, claims, lambda: None))
    following = asyncio.create_task(mirror.run())
    yield found
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await kv.close()


async def test_given_a_bucket_that_it_gets_then_it_looks_at_its_streams(sc: Sc) -> None:
    await sc.write(Put(KEYS.bucket(BUCKET), b"another"))
    assert sc.waiting == set()
    await sc.write(Put(KEYS.bucket(BUCKET), SC.instance.encode()))
    assert sc.waiting == MINE
    assert len(MINE) < len(STREAMS)


async def test_given_changes_then_it_looks_at_streams_alone_and_at_none_while_it_leads(
    sc: Sc,
) -> None:
    await sc.write(put(STREAMS[1]), put(topic_of("t", partitions=5)), put(SEGMENT))
    assert sc.waiting == {Key("Stream", "s/1"), Key("Stream", "s/0")} & sc.waiting
    assert Key("Stream", "s/1") in sc.waiting
    sc.forget()
    sc.worker.rest(True)
    assert not sc.worker.view.buckets.holds(STREAMS[0].uid)
    await sc.write(put(STREAMS[1]), Put(KEYS.bucket(BUCKET), SC.instance.encode()))
    assert sc.waiting == set()
    sc.worker.rest(False)
    assert sc.waiting == {Key("Stream", one.name) for one in STREAMS}
    assert sc.worker.view.buckets.holds(STREAMS[0].uid)


async def test_given_a_recovery_then_all_is_looked_at_by_what_the_kv_says_of_it(sc: Sc) -> None:
    await sc.write(Put(KEYS.identity, Identity("u", 1, True).encode()))
    assert (sc.worker.view.incarnation, sc.worker.view.recovering) == (1, True)
    assert len(sc.waiting) == len(STREAMS)


async def test_given_a_listing_that_says_nothing_new_of_the_cluster_then_nothing_is_read_again(
    sc: Sc,
) -> None:
    await sc.write(Put(KEYS.identity, Identity("u").encode()))
    known = {"uid": Settled((1, 2, 3, ()))}
    sc.worker.view.settled.update(known)
    await sc.mirror.reader.repair()
    await sc.write(Put(KEYS.identity, Identity("u").encode()))
    assert (sc.waiting, sc.worker.view.settled) == (set(), known)


async def test_given_a_segment_that_is_removed_then_nothing_is_kept_of_it(sc: Sc) -> None:
    leading = view_of(STREAMS[0], SEGMENT, sessions=[session_of(1, report_of(SEGMENT))])
    for told in Teller(leading).news(0):
        sc.worker._heard.hear(told, 0)
    assert sc.worker.view.report(1, SEGMENT.uid) is not None
    await sc.write(Delete(KEYS.object(SEGMENT.PLURAL, SEGMENT.name)))
    await eventually(lambda: sc.worker.view.report(1, SEGMENT.uid) is None)
