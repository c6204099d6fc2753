"""What every KV backend must do with keys that are bound to a lease."""

from __future__ import annotations

import pytest

from sc.kv.interface import (
    KV,
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    LeaseIs,
    Put,
    VersionIs,
)
from schemas.errors import InvalidRequestError, NotFoundError

from .store import StoreTests, delete, keys, put, take


class Leases(StoreTests):
    """Leases end by themselves, or are revoked."""

    async def test_given_lease_then_its_keys_go_in_one_revision_when_it_expires(
        self, kv: KV
    ) -> None:
        lease = await kv.lease_grant(3_000)
        other = await kv.lease_grant(60_000)
        await put(kv, "b", b"1", lease)
        await put(kv, "a", b"1", lease)
        await put(kv, "c", b"1", other)
        before = await put(kv, "d")
        await self.advance(kv, 1)
        assert await keys(kv) == ["a", "b", "c", "d"]
        async with kv.watch("", before + 1) as watch:
            await self.advance(kv, 3)
            (batch,) = await take(watch, 1)
        assert batch.revision == before + 1 == await kv.revision()
        assert [event.key for event in batch.events if isinstance(event, DeleteEvent)] == ["a", "b"]
        assert await keys(kv) == ["c", "d"]
        for gone in (kv.lease_keep_alive(lease), kv.lease_revoke(lease), put(kv, "e", b"", lease)):
            with pytest.raises(NotFoundError):
                await gone
        assert await kv.revision() == before + 1

    async def test_given_keep_alive_then_lease_lives_on(self, kv: KV) -> None:
        lease = await kv.lease_grant(3_000)
        await put(kv, "a", b"", lease)
        for _ in range(4):
            await self.advance(kv, 1)
            assert await kv.lease_keep_alive(lease) >= 3_000
        assert await keys(kv) == ["a"]
        await self.advance(kv, 4)
        assert await keys(kv) == []

    async def test_given_revoke_then_keys_are_deleted_at_once(self, kv: KV) -> None:
        lease = await kv.lease_grant(60_000)
        await kv.txn((), [Put("a", b"", lease), Put("b", b"", lease)])
        before = await kv.revision()
        await kv.lease_revoke(lease)
        assert await keys(kv) == []
        assert await kv.revision() == before + 1
        with pytest.raises(NotFoundError):
            await kv.lease_revoke(lease)

    async def test_given_lease_without_keys_then_its_end_is_no_revision(self, kv: KV) -> None:
        before = await kv.revision()
        lease = await kv.lease_grant(2_000)
        revoked = await kv.lease_grant(2_000)
        assert lease != revoked
        await kv.lease_revoke(revoked)
        await self.advance(kv, 4)
        with pytest.raises(NotFoundError):
            await kv.lease_keep_alive(lease)
        assert await kv.revision() == before

    async def test_given_key_moved_off_its_lease_then_it_survives(self, kv: KV) -> None:
        one, two = await kv.lease_grant(60_000), await kv.lease_grant(60_000)
        for name in ("none", "two", "again"):
            await put(kv, name, b"", one)
        await put(kv, "none", b"")
        await put(kv, "two", b"", two)
        await delete(kv, "again")
        await put(kv, "again", b"")
        await kv.lease_revoke(one)
        assert await keys(kv) == ["again", "none", "two"]
        await kv.lease_revoke(two)
        assert await keys(kv) == ["again", "none"]

    async def test_given_unknown_lease_then_nothing_of_the_txn_is_applied(self, kv: KV) -> None:
        before = await put(kv, "a")
        with pytest.raises(NotFoundError):
            await kv.txn((), [Delete("a"), Put("b", b""), Put("c", b"", 12345)])
        assert await keys(kv) == ["a"]
        assert await kv.revision() == before
        # Only the branch taken needs its leases.
        assert (await kv.txn((), [Put("b", b"")], [Put("c", b"", 12345)])).succeeded

    async def test_given_bad_ttl_then_refused(self, kv: KV) -> None:
        with pytest.raises(InvalidRequestError):
            await kv.lease_grant(0)

    async def test_given_fencing_by_lease_then_the_deposed_cannot_write(self, kv: KV) -> None:
        old = await kv.lease_grant(3_000)
        won = await put(kv, "leader", b"old", old)
        await self.advance(kv, 4)
        new = await kv.lease_grant(60_000)
        assert (await kv.txn([VersionIs("leader", 0)], [Put("leader", b"new", new)])).succeeded
        deposed: list[Compare] = [CreateRevisionIs("leader", won), LeaseIs("leader", old)]
        for compare in deposed:
            assert not (await kv.txn([compare], [Put("status", b"stale")])).succeeded
        assert (await kv.txn([LeaseIs("leader", new)], [Put("status", b"good")])).succeeded
