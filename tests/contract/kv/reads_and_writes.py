"""What every KV backend must do when it is written and read."""

from __future__ import annotations

import asyncio

import pytest

from sc.kv.interface import (
    KV,
    MAX_PAGE,
    MAX_TXN_BYTES,
    MAX_TXN_OPS,
    Compare,
    CreateRevisionIs,
    Delete,
    DeletePrefix,
    DeleteResponse,
    Get,
    GetResponse,
    KeyValue,
    LeaseIs,
    ModRevisionIs,
    Op,
    Put,
    PutResponse,
    ValueIs,
    VersionIs,
    range_all,
)
from schemas.errors import InvalidRequestError

from .store import StoreTests, delete, keys, put


class ReadsAndWrites(StoreTests):
    """Revisions, transactions, ranges, the past."""

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
