"""What every KV backend must do. A backend's tests inherit `KVContract` and give it stores."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

import pytest

from sc.kv.interface import (
    KV,
    MAX_PAGE,
    MAX_TXN_BYTES,
    MAX_TXN_OPS,
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    DeletePrefix,
    DeleteResponse,
    Get,
    GetResponse,
    KeyValue,
    LeaseIs,
    ModRevisionIs,
    Op,
    Put,
    PutEvent,
    PutResponse,
    ValueIs,
    VersionIs,
    Watch,
    WatchBatch,
    range_all,
)
from schemas.errors import (
    CompactedError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    UnreachableError,
)
from tests.polling import eventually

DEADLINE_S = 20
KEEP_REVISIONS = 400
"""Stores under test keep about this many revisions."""


async def put(kv: KV, key: str, value: bytes = b"v", lease: int = 0) -> int:
    """Put one key; its revision."""
    return (await kv.txn((), [Put(key, value, lease)])).revision


async def delete(kv: KV, key: str) -> int:
    return (await kv.txn((), [Delete(key)])).revision


async def keys(kv: KV, prefix: str = "", revision: int = 0) -> list[str]:
    return [kv.key for kv in (await kv.range(prefix, revision=revision)).items]


async def take(watch: Watch, count: int) -> list[WatchBatch]:
    async with asyncio.timeout(DEADLINE_S):
        return [await anext(watch) for _ in range(count)]


async def assert_silent(watch: Watch) -> None:
    """The watch has nothing to tell now."""
    pending = asyncio.ensure_future(anext(watch))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not pending.done()
    pending.cancel()
    await asyncio.wait([pending])


class KVContract(ABC):
    """Inherit, and define the ``kv`` fixture (an empty store) and `advance`."""

    keeps_compacted_deletions = True
    """Whether a deletion at the compacted revision itself can be watched. A fault of etcd before
    3.5.16, where only what is newer is certain."""

    @pytest.fixture
    @abstractmethod
    def kv(self) -> AsyncIterator[KV]:
        """An empty store that keeps about `KEEP_REVISIONS` revisions, closed afterwards."""

    @abstractmethod
    async def advance(self, kv: KV, seconds: float) -> None:
        """Let time pass for the store's leases; return when those that are due have expired."""

    # Revisions and transactions

    async def test_given_empty_store_then_revision_is_positive_and_it_can_be_read(
        self, kv: KV
    ) -> None:
        revision = await kv.revision()
        assert revision >= 1
        assert await kv.get("a") is None
        page = await kv.range("")
        assert (page.items, page.revision, page.more) == ((), revision, False)

    async def test_given_puts_then_versions_count_and_creation_stays(self, kv: KV) -> None:
        first = await put(kv, "a", b"1")
        second = await put(kv, "a", b"2")
        assert second == first + 1 == await kv.revision()
        assert await kv.get("a") == KeyValue("a", b"2", first, second, 2, 0)

    async def test_given_same_value_put_again_then_revision_still_advances(self, kv: KV) -> None:
        first = await put(kv, "a", b"1")
        assert await put(kv, "a", b"1") == first + 1

    async def test_given_delete_and_put_then_key_is_created_anew(self, kv: KV) -> None:
        await put(kv, "a", b"1")
        deleted = await delete(kv, "a")
        assert await kv.get("a") is None
        again = await put(kv, "a", b"2")
        assert again == deleted + 1
        assert await kv.get("a") == KeyValue("a", b"2", again, again, 1, 0)

    async def test_given_txn_without_effect_then_revision_stays(self, kv: KV) -> None:
        before = await put(kv, "a")
        result = await kv.txn((), [Delete("absent"), DeletePrefix("no/"), Get("a")])
        assert result.revision == before == await kv.revision()
        assert result.responses[:2] == (DeleteResponse(0), DeleteResponse(0))
        failed = await kv.txn([VersionIs("a", 9)], [Put("a", b"x")])
        assert (failed.succeeded, failed.revision, failed.responses) == (False, before, ())

    async def test_given_txn_then_all_ops_share_a_revision_and_see_each_other(self, kv: KV) -> None:
        before = await put(kv, "p/1")
        result = await kv.txn(
            (),
            [
                Get("a"),
                Put("a", b"1"),
                Get("a"),
                DeletePrefix("p/"),
                Get("p/1"),
                Delete("p/1"),
            ],
        )
        created = KeyValue("a", b"1", before + 1, before + 1, 1, 0)
        assert result.succeeded
        assert result.revision == before + 1
        assert result.responses == (
            GetResponse(None),
            PutResponse(),
            GetResponse(created),
            DeleteResponse(1),
            GetResponse(None),
            DeleteResponse(0),
        )

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            pytest.param(lambda kv: ModRevisionIs("a", kv.mod_revision), True, id="mod-then-holds"),
            pytest.param(
                lambda kv: ModRevisionIs("a", kv.create_revision), False, id="old-mod-then-fails"
            ),
            pytest.param(lambda _: ModRevisionIs("a", 0), False, id="mod-0-present-then-fails"),
            pytest.param(lambda _: ModRevisionIs("no", 0), True, id="mod-0-absent-then-holds"),
            pytest.param(lambda _: ModRevisionIs("no", 7), False, id="mod-absent-then-fails"),
            pytest.param(
                lambda kv: CreateRevisionIs("a", kv.create_revision), True, id="create-then-holds"
            ),
            pytest.param(
                lambda kv: CreateRevisionIs("a", kv.mod_revision), False, id="not-create-then-fails"
            ),
            pytest.param(lambda _: CreateRevisionIs("no", 0), True, id="create-0-then-holds"),
            pytest.param(lambda _: VersionIs("a", 2), True, id="version-then-holds"),
            pytest.param(lambda _: VersionIs("a", 1), False, id="old-version-then-fails"),
            pytest.param(lambda _: VersionIs("no", 0), True, id="version-0-absent-then-holds"),
            pytest.param(lambda kv: LeaseIs("a", kv.lease), True, id="lease-then-holds"),
            pytest.param(lambda kv: LeaseIs("a", kv.lease + 1), False, id="no-lease-then-fails"),
            pytest.param(lambda _: LeaseIs("a", 0), False, id="lease-0-leased-then-fails"),
            pytest.param(lambda _: LeaseIs("no", 0), True, id="lease-0-absent-then-holds"),
            pytest.param(lambda _: ValueIs("a", b"2"), True, id="value-then-holds"),
            pytest.param(lambda _: ValueIs("a", b"1"), False, id="old-value-then-fails"),
            pytest.param(lambda _: ValueIs("no", b""), False, id="value-absent-then-fails"),
        ],
    )
    async def test_given_compare(self, kv: KV, make: object, expected: bool) -> None:
        lease = await kv.lease_grant(60_000)
        await put(kv, "a", b"1")
        await put(kv, "a", b"2", lease)
        current = await kv.get("a")
        assert current is not None
        assert callable(make)
        compare: Compare = make(current)
        result = await kv.txn([compare], [Put("yes", b"")], [Put("else", b"")])
        assert result.succeeded is expected
        assert (await kv.get("yes") is not None) is expected
        assert (await kv.get("else") is None) is expected

    async def test_given_one_compare_of_many_fails_then_failure_branch(self, kv: KV) -> None:
        await put(kv, "a", b"1")
        result = await kv.txn(
            [ValueIs("a", b"1"), VersionIs("a", 2)], [Delete("a")], [Put("b", b"")]
        )
        assert not result.succeeded
        assert await keys(kv) == ["a", "b"]

    async def test_given_racing_compare_and_swaps_then_exactly_one_wins(self, kv: KV) -> None:
        seen = await put(kv, "a", b"0")
        results = await asyncio.gather(
            *[
                kv.txn([ModRevisionIs("a", seen)], [Put("a", str(n).encode())], [Get("a")])
                for n in range(20)
            ]
        )
        (winner,) = [n for n, result in enumerate(results) if result.succeeded]
        now = await kv.get("a")
        assert now is not None
        assert now.value == str(winner).encode()
        # The losers read the winner's write, never something between.
        assert [r.responses for r in results if not r.succeeded] == [(GetResponse(now),)] * 19

    async def test_given_concurrent_puts_then_revisions_are_all_different(self, kv: KV) -> None:
        before = await kv.revision()
        revisions = await asyncio.gather(*[put(kv, f"k{n}") for n in range(100)])
        assert sorted(revisions) == list(range(before + 1, before + 101))

    @pytest.mark.parametrize(
        "ops",
        [
            pytest.param([Put("", b"")], id="empty-key"),
            pytest.param([Get("")], id="empty-key-read"),
            pytest.param([Put("\ud800", b"")], id="key-not-utf8"),
            pytest.param([Put("a", b"1"), Put("a", b"2")], id="key-put-twice"),
            pytest.param([Put("a", b"1"), Delete("a")], id="key-put-and-deleted"),
            pytest.param([DeletePrefix("a"), Put("ab", b"1")], id="key-put-under-deleted-prefix"),
            pytest.param([DeletePrefix("")], id="delete-everything"),
            pytest.param([Put("a", b"", -1)], id="negative-lease"),
            pytest.param([Get("a")] * (MAX_TXN_OPS + 1), id="too-many-ops"),
            pytest.param([Put("a", b"x" * MAX_TXN_BYTES)], id="too-many-bytes"),
        ],
    )
    async def test_given_invalid_txn_then_refused_in_either_branch(
        self, kv: KV, ops: list[Op]
    ) -> None:
        before = await put(kv, "here")
        with pytest.raises(InvalidRequestError):
            await kv.txn((), ops)
        with pytest.raises(InvalidRequestError):
            await kv.txn((), [Put("other", b"")], ops)
        assert await kv.revision() == before

    async def test_given_too_many_compares_then_refused(self, kv: KV) -> None:
        with pytest.raises(InvalidRequestError):
            await kv.txn([VersionIs("a", 0)] * (MAX_TXN_OPS + 1), [])

    async def test_given_txn_at_the_limits_then_applied(self, kv: KV) -> None:
        many = [Put(f"k{n:03d}", b"") for n in range(MAX_TXN_OPS)]
        assert (await kv.txn([VersionIs("a", 0)] * MAX_TXN_OPS, many)).succeeded
        assert len(await keys(kv)) == MAX_TXN_OPS
        big = b"x" * (MAX_TXN_BYTES - 3)
        await put(kv, "big", big)
        found = await kv.get("big")
        assert found is not None
        assert found.value == big
        assert (await kv.txn((), [Delete("a"), Delete("a"), DeletePrefix("k")])).responses == (
            DeleteResponse(0),
            DeleteResponse(0),
            DeleteResponse(MAX_TXN_OPS),
        )

    @pytest.mark.parametrize("key", ["a\0b", "ü/ß", "\U0001f600", " ", "a'b\"c%", "\uffff"])
    async def test_given_unusual_key_then_it_is_a_key(self, kv: KV, key: str) -> None:
        await put(kv, key, b"")
        found = await kv.get(key)
        assert found is not None
        assert (found.key, found.value) == (key, b"")
        assert await keys(kv, key) == [key]

    # Reading ranges and the past

    async def test_given_range_then_order_is_that_of_utf8(self, kv: KV) -> None:
        names = ["a", "a/", "a/b", "a0", "b", "a\0", "é", "\uffff", "\U00010000"]
        for name in names:
            await put(kv, name)
        assert await keys(kv) == sorted(names, key=str.encode)
        assert await keys(kv, "a/") == ["a/", "a/b"]
        assert await keys(kv, "\uffff") == ["\uffff"]

    async def test_given_pages_then_they_are_of_one_revision(self, kv: KV) -> None:
        names = [f"p/{n:02d}" for n in range(10)]
        for name in [*names, "q", "o"]:
            await put(kv, name)
        pages = []
        async for page in range_all(kv, "p/", page_size=4):
            pages.append(page)
            await delete(kv, f"p/{8 - len(pages):02d}")
            await put(kv, f"p/{len(pages)}x")
        assert [[item.key for item in page.items] for page in pages] == [
            names[0:4],
            names[4:8],
            names[8:],
        ]
        assert [page.more for page in pages] == [True, True, False]
        assert len({page.revision for page in pages}) == 1

    async def test_given_page_that_ends_with_the_prefix_then_there_is_no_more(self, kv: KV) -> None:
        for name in ["o", "p/1", "p/2", "p/3", "q"]:
            await put(kv, name)
        await delete(kv, "p/3")
        assert not (await kv.range("p/", limit=2)).more
        page = await kv.range("p/", start_after="p/1", limit=1)
        assert ([item.key for item in page.items], page.more) == (["p/2"], False)
        assert (await kv.range("p/", start_after="q")).items == ()
        assert len((await kv.range("p/", start_after="a")).items) == 2

    async def test_given_empty_prefix_listing_then_one_page_names_the_revision(
        self, kv: KV
    ) -> None:
        revision = await put(kv, "a")
        assert [(p.items, p.revision) async for p in range_all(kv, "none/")] == [((), revision)]

    async def test_given_past_revision_then_the_past_is_read(self, kv: KV) -> None:
        empty = await kv.revision()
        first = await put(kv, "a", b"1")
        second = await put(kv, "a", b"2")
        gone = await delete(kv, "a")
        await put(kv, "a", b"3")
        assert await kv.get("a", revision=empty) is None
        found = await kv.get("a", revision=first)
        assert found is not None
        assert found.value == b"1"
        assert await keys(kv, revision=second) == ["a"]
        assert await keys(kv, revision=gone) == []
        assert await kv.get("a", revision=gone) is None

    async def test_given_bad_read_then_refused(self, kv: KV) -> None:
        revision = await put(kv, "a")
        with pytest.raises(InvalidRequestError):
            await kv.get("")
        for bad in (revision + 1, -1):
            with pytest.raises(InvalidRequestError):
                await kv.get("a", revision=bad)
            with pytest.raises(InvalidRequestError):
                await kv.range("a", revision=bad)
        for limit in (0, -1, MAX_PAGE + 1):
            with pytest.raises(InvalidRequestError):
                await kv.range("a", limit=limit)

    # Watching

    async def test_given_events_before_and_after_then_each_revision_once_in_order(
        self, kv: KV
    ) -> None:
        first = await put(kv, "p/a", b"1")
        async with kv.watch("p/", first) as watch:
            await put(kv, "other")
            second = await put(kv, "p/a", b"2")
            third = await delete(kv, "p/a")
            one = KeyValue("p/a", b"1", first, first, 1, 0)
            two = KeyValue("p/a", b"2", first, second, 2, 0)
            assert await take(watch, 3) == [
                WatchBatch(first, (PutEvent(one, None),)),
                WatchBatch(second, (PutEvent(two, one),)),
                WatchBatch(third, (DeleteEvent("p/a", third, two),)),
            ]
            await assert_silent(watch)

    async def test_given_waiting_watch_then_put_wakes_it(self, kv: KV) -> None:
        async with kv.watch("p/", await kv.revision() + 1) as watch:
            waiting = asyncio.ensure_future(take(watch, 1))
            await put(kv, "other")
            revision = await put(kv, "p/a")
            (batch,) = await waiting
            assert batch.revision == revision

    async def test_given_txn_of_many_events_then_one_batch_in_order(self, kv: KV) -> None:
        await kv.txn((), [Put("p/2", b""), Put("p/1", b""), Put("x", b"")])
        async with kv.watch("p", await kv.revision()) as watch:
            revision = (
                await kv.txn((), [Put("pz", b""), DeletePrefix("p/"), Delete("x"), Put("pa", b"")])
            ).revision
            created, changed = await take(watch, 2)
        assert [event.kv.key for event in created.events if isinstance(event, PutEvent)] == [
            "p/2",
            "p/1",
        ]
        assert changed.revision == revision
        assert [
            event.kv.key if isinstance(event, PutEvent) else f"-{event.key}"
            for event in changed.events
        ] == ["pz", "-p/1", "-p/2", "pa"]

    async def test_given_resume_after_each_batch_then_nothing_lost_or_repeated(
        self, kv: KV
    ) -> None:
        start = await kv.revision()
        revisions = [await put(kv, f"p/{n % 3}") for n in range(10)]
        seen: list[int] = []
        position = start + 1
        while len(seen) < len(revisions):
            async with kv.watch("p/", position) as watch:
                (batch,) = await take(watch, 1)
            seen.append(batch.revision)
            position = batch.revision + 1
        assert seen == revisions

    async def test_given_future_revision_then_earlier_events_are_not_told(self, kv: KV) -> None:
        revision = await kv.revision()
        async with kv.watch("", revision + 3) as watch:
            waiting = asyncio.ensure_future(take(watch, 1))
            for n in range(4):
                await put(kv, f"k{n}")
            (batch,) = await waiting
        assert batch.revision == revision + 3

    async def test_given_cancelled_wait_then_the_next_one_gets_the_batch(self, kv: KV) -> None:
        async with kv.watch("", await kv.revision() + 1) as watch:
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            revision = await put(kv, "a")
            assert [batch.revision for batch in await take(watch, 1)] == [revision]

    async def test_given_closed_watch_then_it_ends(self, kv: KV) -> None:
        watch = kv.watch("", 1)
        await put(kv, "a")
        await watch.aclose()
        await watch.aclose()
        assert [batch async for batch in watch] == []

    async def test_given_concurrent_writers_then_all_watches_tell_the_same(self, kv: KV) -> None:
        start = await kv.revision()
        async with kv.watch("", start + 1) as one, kv.watch("", start + 1) as two:
            reading = asyncio.gather(take(one, 60), take(two, 60))
            await asyncio.gather(*[put(kv, f"k{n % 7}", str(n).encode()) for n in range(60)])
            seen, same = await reading
        assert seen == same
        assert [batch.revision for batch in seen] == list(range(start + 1, start + 61))

    async def test_given_bad_watch_then_refused(self, kv: KV) -> None:
        for bad in (0, -1):
            with pytest.raises(InvalidRequestError):
                kv.watch("", bad)

    # Compaction

    async def test_given_compaction_then_older_is_gone_and_the_rest_stays(self, kv: KV) -> None:
        first = await put(kv, "a", b"1")
        await put(kv, "b", b"1")
        await delete(kv, "b")
        at = await put(kv, "a", b"2")
        await put(kv, "a", b"3")
        await kv.compact(at)
        with pytest.raises(CompactedError) as caught:
            await kv.get("a", revision=first)
        assert await keys(kv, revision=caught.value.first_available) == ["a"]
        with pytest.raises(CompactedError):
            await kv.range("", revision=at - 1)
        found = await kv.get("a", revision=at)
        assert found is not None
        assert found.value == b"2"
        assert await keys(kv, revision=at) == ["a"]
        with pytest.raises(CompactedError):
            await kv.compact(at)
        with pytest.raises(InvalidRequestError):
            await kv.compact(await kv.revision() + 1)
        with pytest.raises(InvalidRequestError):
            await kv.compact(0)

    async def test_given_compacted_start_then_watch_says_where_to_go_on(self, kv: KV) -> None:
        for n in range(5):
            await put(kv, "a", str(n).encode())
        at = await delete(kv, "a")
        last = await put(kv, "a", b"again")
        await kv.compact(at)
        async with kv.watch("a", at - 1) as watch:
            with pytest.raises(CompactedError) as caught:
                await take(watch, 1)
        assert caught.value.first_available == at
        async with kv.watch("a", at) as watch:
            if self.keeps_compacted_deletions:
                (deleted,) = await take(watch, 1)
                (event,) = deleted.events
                assert isinstance(event, DeleteEvent)
                assert (event.key, event.mod_revision) == ("a", at)
            (created,) = await take(watch, 1)
        again = KeyValue("a", b"again", last, last, 1, 0)
        assert created == WatchBatch(last, (PutEvent(again, None),))

    async def test_given_compaction_of_deleted_keys_then_later_creation_is_new(
        self, kv: KV
    ) -> None:
        await put(kv, "a")
        await delete(kv, "a")
        await kv.compact(await put(kv, "b"))
        await kv.compact(await put(kv, "b"))
        revision = await put(kv, "a", b"new")
        assert await kv.get("a") == KeyValue("a", b"new", revision, revision, 1, 0)
        assert await keys(kv) == ["a", "b"]

    async def test_given_compaction_overtakes_a_slow_watch_then_it_is_told(self, kv: KV) -> None:
        await put(kv, "a")
        async with kv.watch("a", await kv.revision()) as watch:
            await take(watch, 1)
            for n in range(3):
                await put(kv, "a", str(n).encode())
            await kv.compact(await kv.revision())
            with pytest.raises(CompactedError):
                await take(watch, 1)

    async def test_given_waiting_watch_then_compaction_does_not_disturb_it(self, kv: KV) -> None:
        async with kv.watch("quiet/", await put(kv, "quiet/first")) as watch:
            # A watch that has told something is under way; one just made may still be on its way.
            await take(watch, 1)
            waiting = asyncio.ensure_future(take(watch, 1))
            for n in range(5):
                await put(kv, "a", str(n).encode())
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            await kv.compact(await kv.revision())
            revision = await put(kv, "quiet/a")
            (batch,) = await waiting
        assert batch.revision == revision

    async def test_given_many_revisions_then_history_is_bounded(self, kv: KV) -> None:
        await put(kv, "stays", b"!")
        first = await put(kv, "a")
        for _ in range(3):
            await asyncio.gather(*[put(kv, "a") for _ in range(KEEP_REVISIONS // 2)])

        async def forgotten() -> bool:
            try:
                await kv.get("a", revision=first)
            except CompactedError:
                return True
            return False

        # A store may compact itself in the background.
        await eventually(forgotten)
        assert await keys(kv, revision=await kv.revision() - KEEP_REVISIONS // 2) == ["a", "stays"]
        assert await keys(kv) == ["a", "stays"]

    # Leases

    async def test_given_lease_then_its_keys_go_in_one_revision_when_it_expires(
        self, kv: KV
    ) -> None:
        lease = await kv.lease_grant(3_000)
        other = await kv.lease_grant(60_000)
        await put(kv, "b", b"1", lease)
        await put(kv, "a", b"1", lease)
        await put(kv, "c", b"1", other)
        before = await put(kv, "d")
        await self.advance(kv, 2)
        assert await keys(kv) == ["a", "b", "c", "d"]
        async with kv.watch("", before + 1) as watch:
            await self.advance(kv, 2)
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
        for _ in range(3):
            await self.advance(kv, 2)
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

    # Closing

    async def test_given_closed_store_then_every_call_says_so(self, kv: KV) -> None:
        revision = await put(kv, "a")
        lease = await kv.lease_grant(60_000)
        watch = kv.watch("", revision + 1)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await kv.close()
        await kv.close()
        calls = [
            waiting,
            anext(watch),
            kv.get("a"),
            kv.range("a"),
            kv.txn((), [Put("a", b"")]),
            kv.lease_grant(1_000),
            kv.lease_keep_alive(lease),
            kv.lease_revoke(lease),
            kv.compact(revision),
            kv.revision(),
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [UnreachableError] * len(calls)
        with pytest.raises(RunnelError):
            kv.watch("", 1)
