"""Taking office: one uid per cluster, one SC in office, a list that is never shortened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from sc.kv import open_kv
from sc.kv.interface import KV, ModRevisionIs
from sc.office import take_office
from schemas.keys import ClusterKeys

KEYS = ClusterKeys("test")


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    yield store
    await store.close()


async def offices(kv: KV) -> list[str]:
    page = await kv.range(KEYS.office(""))
    return [item.key.removeprefix(KEYS.office("")) for item in page.items]


async def test_given_new_cluster_then_it_gets_a_uid(kv: KV) -> None:
    office = await take_office(kv, KEYS)
    stored = await kv.get(KEYS.identity)
    assert stored is not None
    assert json.loads(stored.value) == {"uid": office.cluster_uid}


async def test_given_cluster_then_its_uid_stays(kv: KV) -> None:
    first, second = await take_office(kv, KEYS), await take_office(kv, KEYS)
    assert first.cluster_uid == second.cluster_uid
    assert first.stamp.office != second.stamp.office


async def test_given_many_at_once_then_one_uid_and_one_in_office(kv: KV) -> None:
    taken = await asyncio.gather(*(take_office(kv, KEYS) for _ in range(8)))
    assert len({office.cluster_uid for office in taken}) == 1
    current = await kv.get(KEYS.current_office)
    assert current is not None
    holding = [o for o in taken if o.guard.revision == current.mod_revision]
    assert [o.stamp.office for o in holding] == [current.value.decode()]


async def test_given_successors_then_the_list_keeps_them_all(kv: KV) -> None:
    taken = [await take_office(kv, KEYS) for _ in range(3)]
    assert sorted(await offices(kv)) == sorted(o.stamp.office for o in taken)


async def test_given_office_then_stamp_and_guard_name_the_same_revision(kv: KV) -> None:
    office = await take_office(kv, KEYS)
    listed = await kv.get(KEYS.office(office.stamp.office))
    assert listed is not None
    assert office.guard == ModRevisionIs(KEYS.current_office, office.stamp.revision)
    assert listed.mod_revision == office.stamp.revision


async def test_given_successor_then_the_guard_of_the_first_no_longer_holds(kv: KV) -> None:
    first = await take_office(kv, KEYS)
    assert (await kv.txn([first.guard], [])).succeeded
    second = await take_office(kv, KEYS)
    assert not (await kv.txn([first.guard], [])).succeeded
    assert (await kv.txn([second.guard], [])).succeeded


async def test_given_other_cluster_in_the_same_store_then_apart(kv: KV) -> None:
    ours, theirs = await take_office(kv, KEYS), await take_office(kv, ClusterKeys("other"))
    assert ours.cluster_uid != theirs.cluster_uid
    assert (await kv.txn([ours.guard], [])).succeeded
