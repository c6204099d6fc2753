"""Buckets in the KV: what an SC takes, gives back, and relies on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from sc.kv import open_kv
from sc.kv.interface import KV, CreateRevisionIs, Delete, Put
from sc.leadership import Identity
from sc.mirror import Mirror
from sc.sharing.claims import BucketClaims
from sc.sharing.wanted import owner_of
from schemas.control.controllers import ControllerEntry
from schemas.errors import ConflictError
from schemas.objects.keys import ClusterKeys
from tests.polling import eventually
from tests.unit.sc.builders import SC
from tests.unit.sc.sharing.segments import stream_of

KEYS = ClusterKeys("test")
BUCKETS = 150
LEASE_MS = 60_000


def entry(name: str, instance: str | None = None, *, shares: bool = True) -> ControllerEntry:
    news = {"name": name, "instance": instance or f"of {name}", "shares": shares}
    return SC.model_copy(update=news)


@dataclass
class Sc:
    """One SC that runs, without the rest of it."""

    mirror: Mirror
    claims: BucketClaims
    lease: int
    gained: list[int] = field(default_factory=list)


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    await store.txn([], [Put(KEYS.identity, Identity("u", buckets=BUCKETS).encode())])
    yield store
    await store.close()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


async def run(
    stack: AsyncExitStack, kv: KV, me: ControllerEntry, *, predecessor: str | None = None
) -> Sc:
    lease = await kv.lease_grant(LEASE_MS)
    mirror = Mirror(kv, "test")
    await mirror.load()
    sc = Sc(mirror, BucketClaims(mirror, me, lambda: lease, predecessor), lease)
    sc.claims.listen(sc.gained.extend)
    tasks = [asyncio.create_task(mirror.run()), asyncio.create_task(sc.claims.run())]

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stack.push_async_callback(stop)
    await shown(kv, me, lease)
    return sc


async def shown(kv: KV, me: ControllerEntry, lease: int) -> None:
    value = me.model_dump_json(by_alias=True).encode()
    await kv.txn([], [Put(KEYS.sc(me.name), value, lease)])


async def test_given_one_then_it_takes_all_and_relies_on_the_keys(
    stack: AsyncExitStack, kv: KV
) -> None:
    sc = await run(stack, kv, entry("a"))
    await eventually(lambda: len(sc.claims.held) == BUCKETS)
    assert sorted(sc.gained) == list(range(BUCKETS))
    stream = stream_of("s/one")
    guard = sc.claims.guard(stream)
    assert isinstance(guard, CreateRevisionIs)
    assert sc.claims.buckets.holds(stream.uid)
    assert (await kv.txn([guard], [])).succeeded
    await kv.lease_revoke(sc.lease)
    assert not (await kv.txn([guard], [])).succeeded


async def test_given_another_then_it_gets_its_part_and_the_rest_stays(
    stack: AsyncExitStack, kv: KV
) -> None:
    first = await run(stack, kv, entry("a"))
    await eventually(lambda: len(first.claims.held) == BUCKETS)
    before = dict(first.claims.held)
    second = await run(stack, kv, entry("b"))
    mine = {number for number in range(BUCKETS) if owner_of(number, ("a", "b")) == "b"}
    await eventually(lambda: set(second.claims.held) == mine)
    assert first.claims.held == {n: at for n, at in before.items() if n not in mine}
    stream = stream_of("s/one")
    holder, other = (first, second) if first.claims.buckets.holds(stream.uid) else (second, first)
    holder.claims.guard(stream)
    with pytest.raises(ConflictError, match="another SC works for this stream"):
        other.claims.guard(stream)
    await kv.lease_revoke(second.lease)
    await eventually(lambda: len(first.claims.held) == BUCKETS)


async def test_given_one_that_shares_no_more_then_it_gives_back_what_another_can_take(
    stack: AsyncExitStack, kv: KV
) -> None:
    first = await run(stack, kv, entry("a"))
    await eventually(lambda: len(first.claims.held) == BUCKETS)
    await shown(kv, entry("a", shares=False), first.lease)
    await eventually(lambda: not first.mirror.controllers["a"].shares)
    await asyncio.sleep(0.05)
    assert len(first.claims.held) == BUCKETS, "there is nobody else"
    second = await run(stack, kv, entry("b"))
    await eventually(lambda: len(second.claims.held) == BUCKETS)
    assert not first.claims.held
    await shown(kv, entry("a"), first.lease)
    await eventually(lambda: len(first.claims.held) > 0)


async def test_given_an_sc_that_does_not_share_then_nothing_is_left_to_it(
    stack: AsyncExitStack, kv: KV
) -> None:
    await shown(kv, entry("older", shares=False), await kv.lease_grant(LEASE_MS))
    sc = await run(stack, kv, entry("a"))
    await eventually(lambda: len(sc.claims.held) == BUCKETS)


async def test_given_an_earlier_process_of_it_that_has_ended_then_it_does_not_wait_for_its_lease(
    stack: AsyncExitStack, kv: KV
) -> None:
    old = await kv.lease_grant(LEASE_MS)
    await kv.txn([], [Put(KEYS.bucket(number), b"of the old one", old) for number in range(9)])
    stranger = await kv.lease_grant(LEASE_MS)
    await kv.txn([], [Put(KEYS.bucket(9), b"another", stranger)])
    sc = await run(stack, kv, entry("a"), predecessor="of the old one")
    await eventually(lambda: len(sc.claims.held) == BUCKETS - 1)
    assert 9 not in sc.claims.held
    await kv.lease_revoke(stranger)
    await eventually(lambda: len(sc.claims.held) == BUCKETS)


@pytest.mark.parametrize("mark", ["moved", "arriving"])
async def test_given_a_cluster_that_is_not_here_then_nothing_is_taken(
    stack: AsyncExitStack, kv: KV, mark: str
) -> None:
    key = getattr(KEYS, mark)
    await kv.txn([], [Put(key, b"{}")])
    sc = await run(stack, kv, entry("a"))
    await eventually(lambda: "a" in sc.mirror.controllers)
    await asyncio.sleep(0.05)
    assert not sc.claims.held
    await kv.txn([], [Delete(key)])
    await eventually(lambda: len(sc.claims.held) == BUCKETS)
