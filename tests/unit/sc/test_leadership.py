"""Taking office: one uid per cluster, one SC in office, a bounded list; and recoveries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from sc.kv import open_kv
from sc.kv.interface import KV, Delete, KeyValue, ModRevisionIs, Put
from sc.leadership import (
    Claim,
    Identity,
    Recovery,
    acquire,
    begin_recovery,
    end_recovery,
    read_back,
    stand,
)
from schemas.control.messages import Stamp
from schemas.errors import ConflictError, FencedError, NotFoundError
from schemas.objects.keys import ClusterKeys

BEGUN = Recovery("sc", "2026-01-01T00:00:00.000Z", "SPU 1 has seen more", "cause")
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
    leadership = await acquire(kv, KEYS)
    stored = await kv.get(KEYS.identity)
    assert stored is not None
    assert json.loads(stored.value) == {"uid": leadership.cluster_uid}


async def test_given_cluster_then_its_uid_stays(kv: KV) -> None:
    first, second = await acquire(kv, KEYS), await acquire(kv, KEYS)
    assert first.cluster_uid == second.cluster_uid
    assert first.stamp.office != second.stamp.office


async def test_given_buckets_then_they_are_those_of_the_first_sc(kv: KV) -> None:
    assert (await acquire(kv, KEYS, 16)).identity.buckets == 16
    assert (await acquire(kv, KEYS)).identity.buckets == 16
    leads = await acquire(kv, KEYS, 16)
    with pytest.raises(ConflictError, match="made with 16, and the configuration says 64"):
        await acquire(kv, KEYS, 64)
    # The SC that leads was not replaced by the one that was refused.
    current = await kv.get(KEYS.current_office)
    assert current is not None
    assert current.mod_revision == leads.guard.revision
    recovering = await begin_recovery(kv, KEYS, leads, 1, BEGUN)
    assert recovering.identity.buckets == 16
    assert (await acquire(kv, KEYS, 16)).identity.buckets == 16


async def test_given_no_buckets_then_there_are_64(kv: KV) -> None:
    assert (await acquire(kv, KEYS)).identity.buckets == 64
    with pytest.raises(ConflictError, match="write 64, or leave it out"):
        await acquire(kv, KEYS, 65)


async def test_given_many_at_once_then_one_uid_and_one_in_office(kv: KV) -> None:
    taken = await asyncio.gather(*(acquire(kv, KEYS) for _ in range(8)))
    assert len({leadership.cluster_uid for leadership in taken}) == 1
    current = await kv.get(KEYS.current_office)
    assert current is not None
    holding = [o for o in taken if o.guard.revision == current.mod_revision]
    assert [o.stamp.office for o in holding] == [current.value.decode()]


async def test_given_successors_then_the_list_keeps_them_all(kv: KV) -> None:
    taken = [await acquire(kv, KEYS) for _ in range(3)]
    assert sorted(await offices(kv)) == sorted(o.stamp.office for o in taken)


async def test_given_office_then_stamp_and_guard_name_the_same_revision(kv: KV) -> None:
    leadership = await acquire(kv, KEYS)
    listed = await kv.get(KEYS.office(leadership.stamp.office))
    assert listed is not None
    assert leadership.guard == ModRevisionIs(KEYS.current_office, leadership.stamp.revision)
    assert listed.mod_revision == leadership.stamp.revision


async def test_given_successor_then_the_guard_of_the_first_no_longer_holds(kv: KV) -> None:
    first = await acquire(kv, KEYS)
    assert (await kv.txn([first.guard], [])).succeeded
    second = await acquire(kv, KEYS)
    assert not (await kv.txn([first.guard], [])).succeeded
    assert (await kv.txn([second.guard], [])).succeeded


async def test_given_other_cluster_in_the_same_store_then_apart(kv: KV) -> None:
    ours, theirs = await acquire(kv, KEYS), await acquire(kv, ClusterKeys("other"))
    assert ours.cluster_uid != theirs.cluster_uid
    assert (await kv.txn([ours.guard], [])).succeeded


async def test_given_more_offices_than_are_kept_then_the_oldest_go(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.leadership.MAX_TENURES", 3)
    taken = [await acquire(kv, KEYS) for _ in range(5)]
    kept = [leadership.stamp for leadership in taken[2:]]
    assert sorted(await offices(kv)) == sorted(stamp.office for stamp in kept)
    assert taken[-1].tenures == {stamp.office: stamp.revision for stamp in kept}
    forgotten, stranger = taken[1].stamp, Stamp(revision=kept[0].revision + 1, office="x")
    assert taken[-1].remembers(forgotten, forgotten.revision), "too old to be judged"
    assert not taken[-1].remembers(stranger, stranger.revision)


async def test_given_few_offices_then_a_stranger_is_none_that_was_forgotten(kv: KV) -> None:
    leadership = await acquire(kv, KEYS)
    assert not leadership.remembers(Stamp(revision=0, office="x"), 0)


async def test_given_recovery_then_a_new_reign_of_the_same_sc_until_it_ends(kv: KV) -> None:
    first = await acquire(kv, KEYS)
    leadership = await begin_recovery(kv, KEYS, first, 3, BEGUN)
    assert not (await kv.txn([first.guard], [])).succeeded, "what was decided before never lands"
    assert (await kv.txn([leadership.guard], [])).succeeded
    assert (leadership.stamp.incarnation, leadership.holder) == (3, first.holder)
    assert leadership.stamp.revision == leadership.guard.revision > first.stamp.revision
    assert leadership.tenures == {
        first.stamp.office: first.stamp.revision,
        leadership.stamp.office: leadership.stamp.revision,
    }
    later = await acquire(kv, KEYS)
    assert (later.stamp.incarnation, later.identity.recovering) == (3, True)
    assert later.tenures.items() > leadership.tenures.items()
    ended = await end_recovery(kv, KEYS, later)
    assert ended.identity == Identity(first.cluster_uid, 3, False, BEGUN)
    assert (await acquire(kv, KEYS)).identity == ended.identity


async def test_given_answer_lost_then_the_recovery_that_began_is_taken_up(kv: KV) -> None:
    first = await acquire(kv, KEYS)
    begun = await begin_recovery(kv, KEYS, first, 3, BEGUN)
    assert await begin_recovery(kv, KEYS, first, 5, BEGUN) == begun


async def test_given_another_sc_in_office_then_no_recovery_begins_or_ends(kv: KV) -> None:
    first = await acquire(kv, KEYS)
    await acquire(kv, KEYS)
    with pytest.raises(FencedError):
        await begin_recovery(kv, KEYS, first, 3, BEGUN)
    with pytest.raises(FencedError):
        await end_recovery(kv, KEYS, first)
    assert (await acquire(kv, KEYS)).identity == Identity(first.cluster_uid)


async def test_what_ends_a_leadership(kv: KV) -> None:
    async def current() -> KeyValue:
        found = await kv.get(KEYS.current_office)
        assert found is not None
        return found

    first = await acquire(kv, KEYS)
    assert not first.ended_by(KEYS.current_office, await current())
    await begin_recovery(kv, KEYS, first, 1, BEGUN)
    assert not first.ended_by(KEYS.current_office, await current()), (
        "its own recovery, whose answer is on its way"
    )
    second = await acquire(kv, KEYS)
    assert first.ended_by(KEYS.current_office, await current())
    before = await current()
    await acquire(kv, KEYS)
    assert second.ended_by(KEYS.current_office, await current())
    assert not second.ended_by(KEYS.current_office, before)


@pytest.mark.parametrize("stored", [b"{", b"[]", b"{}", b"null", None])
async def test_given_an_identity_that_does_not_parse_then_says_what_to_do(
    kv: KV, stored: bytes | None
) -> None:
    leadership = await acquire(kv, KEYS)
    await kv.txn([], [Delete(KEYS.identity) if stored is None else Put(KEYS.identity, stored)])
    await kv.txn([], [Put(KEYS.current_office, leadership.holder.encode())])
    with pytest.raises(ConflictError, match="restore the KV from a backup, or put the key back"):
        await read_back(kv, KEYS, leadership)
    if stored is not None:
        with pytest.raises(ConflictError, match=r"identity\.json"):
            await acquire(kv, KEYS)


async def test_given_the_key_of_the_leader_is_gone_then_the_error_says_what_to_do(kv: KV) -> None:
    leadership = await acquire(kv, KEYS)
    await kv.txn([], [Delete(KEYS.current_office)])
    with pytest.raises(FencedError, match="was deleted from the KV; this SC stops: start it again"):
        await read_back(kv, KEYS, leadership)


async def test_given_nothing_was_lost_then_read_back_gives_the_same(kv: KV) -> None:
    leadership = await acquire(kv, KEYS)
    assert await read_back(kv, KEYS, leadership) is leadership


async def claim_of(kv: KV, name: str = "one") -> Claim:
    return Claim(await kv.lease_grant(60_000), name.encode())


async def test_given_nobody_leads_then_one_transaction_gives_the_office(kv: KV) -> None:
    claim = await claim_of(kv)
    found = await stand(kv, KEYS, claim)
    assert found is not None
    held, office = await kv.get(KEYS.leader), await kv.get(KEYS.current_office)
    assert held is not None
    assert office is not None
    assert (held.lease, held.value, office.value) == (claim.lease, b"one", found.holder.encode())
    assert held.create_revision == office.mod_revision == found.stamp.revision
    assert (await kv.txn(found.guards, [])).succeeded
    assert len(found.guards) == 3


async def test_given_somebody_leads_then_nothing_is_changed(kv: KV) -> None:
    first = await stand(kv, KEYS, await claim_of(kv))
    assert first is not None
    before = await kv.revision()
    assert await stand(kv, KEYS, await claim_of(kv, "two")) is None
    assert await kv.revision() == before
    assert (await kv.txn(first.guards, [])).succeeded


async def test_given_a_lease_that_has_ended_then_nobody_stands(kv: KV) -> None:
    claim = await claim_of(kv)
    await kv.lease_revoke(claim.lease)
    with pytest.raises(NotFoundError):
        await stand(kv, KEYS, claim)
    assert await kv.get(KEYS.current_office) is None


async def test_what_ends_a_leadership_with_a_lease(kv: KV) -> None:
    claim = await claim_of(kv)
    first = await stand(kv, KEYS, claim)
    assert first is not None
    assert not first.ended_by(KEYS.leader, await kv.get(KEYS.leader))
    begun = await begin_recovery(kv, KEYS, first, 1, BEGUN)
    assert begun.held == first.held
    assert (await kv.txn(begun.guards, [])).succeeded
    assert not begun.ended_by(KEYS.leader, await kv.get(KEYS.leader))
    await kv.lease_revoke(claim.lease)
    assert begun.ended_by(KEYS.leader, await kv.get(KEYS.leader))
    assert not (await kv.txn(begun.guards, [])).succeeded
    with pytest.raises(FencedError):
        await end_recovery(kv, KEYS, begun)
    with pytest.raises(FencedError, match="lease of this SC has ended"):
        await read_back(kv, KEYS, begun)
    second = await stand(kv, KEYS, await claim_of(kv, "two"))
    assert second is not None
    assert begun.ended_by(KEYS.leader, await kv.get(KEYS.leader))
