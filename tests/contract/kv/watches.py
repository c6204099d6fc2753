"""What every KV backend must tell those who watch, and what it may forget."""

from __future__ import annotations

import asyncio

import pytest

from sc.kv.interface import (
    KV,
    Delete,
    DeleteEvent,
    DeletePrefix,
    KeyValue,
    Put,
    PutEvent,
    WatchBatch,
)
from schemas.errors import CompactedError, InvalidRequestError
from tests.polling import eventually

from .store import KEEP_REVISIONS, StoreTests, assert_silent, delete, keys, put, take


class Watches(StoreTests):
    """Watches, and compaction."""

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
