"""The KV reader over a memory KV: listing, following, compaction, what does not parse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sc.dispatch.changes import ChangeFeed
from sc.dispatch.metadata import MetadataDispatcher
from sc.dispatch.reader import KvReader
from sc.kv import open_kv
from sc.kv.interface import (
    KV,
    Delete,
    DeleteEvent,
    KeyValue,
    Op,
    Put,
    PutEvent,
    RangePage,
    WatchBatch,
)
from sc.store.codec import decode_object, encode_object, encode_tombstone
from sc.store.local_store import Change, ObjectChanged, TombstoneChanged
from sc.store.view import View
from schemas.errors import UnreachableError
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Object
from schemas.objects.topic import Topic
from tests.polling import eventually
from tests.unit.sc.builders import partition_of, tombstone_of, topic_of

KEYS = ClusterKeys("test")


def key_of(obj: Object) -> str:
    return KEYS.object(obj.PLURAL, obj.name)


def put(obj: Object, cause: str = "test") -> Op:
    return Put(key_of(obj), encode_object(obj, cause))


class Bench:
    """A reader, its mirror, and the changes it passed on."""

    def __init__(self, kv: KV) -> None:
        self.kv = kv
        self.view = View(sessions={})
        self.woken: list[tuple[str, str]] = []
        dispatcher = MetadataDispatcher(
            self.view, {}, lambda key, cause: self.woken.append((key.name, cause))
        )
        self.feed = ChangeFeed(self.view.store)
        self.feed.follow(dispatcher.changed)
        #: Who led, by key, and how many changes had been told of by then.
        self.offices: list[tuple[str, bytes | None, int]] = []
        self.reader = KvReader(kv, KEYS, self.view.store, self.feed, self._noticed)
        self.changes: list[Change] = []
        self.feed.listen(self.changes.append)

    def _noticed(self, key: str, found: KeyValue | None) -> None:
        value = None if found is None else found.value
        self.offices.append((key.removeprefix(KEYS.root), value, len(self.changes)))

    def seen(self) -> list[tuple[str, str]]:
        """(what happened, to what) since the last call."""
        found = []
        for change in self.changes:
            match change:
                case ObjectChanged(None, new) if new is not None:
                    found.append(("added", new.name))
                case ObjectChanged(old, None) if old is not None:
                    found.append(("removed", old.name))
                case ObjectChanged():
                    found.append(("changed", change.object.name))
                case TombstoneChanged(tombstone, present):
                    found.append(("buried" if present else "forgotten", str(tombstone.spu_id)))
        self.changes.clear()
        return found

    def revision_of(self, name: str) -> int:
        found = self.view.store.get(Topic, name)
        return 0 if found is None else found.revision

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reader.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def bench(kv: KV) -> Bench:
    return Bench(kv)


async def test_given_objects_then_load_mirrors_all_at_the_revision_of_the_listing(
    bench: Bench,
) -> None:
    grave = tombstone_of(partition_of("gone"), 3)
    await bench.kv.txn([], [put(topic_of("a"), "api-1"), put(partition_of("a"))])
    await bench.kv.txn([], [Put(KEYS.tombstone(3, grave.uid), encode_tombstone(grave))])
    await bench.reader.load()
    store = bench.view.store
    assert store.revision == await bench.kv.revision()
    assert store.object_keys() == {("Topic", "a"), ("Partition", "a-0")}
    assert store.tombstones_of(3) == [grave]
    assert bench.revision_of("a") == store.revision - 1


async def test_given_other_clusters_and_keys_then_left_alone(bench: Bench) -> None:
    other = ClusterKeys("other")
    await bench.kv.txn(
        [],
        [
            Put(other.object("topics", "b"), encode_object(topic_of("b"), "x")),
            Put(KEYS.identity, b"{}"),
            Put(KEYS.spu_id(1), b"spu-1"),
        ],
    )
    await bench.reader.load()
    assert (bench.seen(), bench.reader.unreadable) == ([], {})


async def test_given_more_than_a_page_then_all_are_listed(bench: Bench) -> None:
    for start in range(0, 1_100, 100):
        names = [f"t{n}" for n in range(start, start + 100)]
        await bench.kv.txn([], [put(topic_of(name)) for name in names])
    await bench.reader.load()
    assert len(bench.view.store.object_keys()) == 1_100


async def test_given_writes_then_followed_with_the_cause_of_each(bench: Bench) -> None:
    await bench.reader.load()
    async with bench.running():
        await bench.kv.txn([], [put(topic_of("a"), "api-1")])
        await bench.kv.txn([], [put(topic_of("a", partitions=2), "api-2")])
        await bench.kv.txn([], [Delete(key_of(topic_of("a")))])
        last = await bench.kv.revision()
        await bench.feed.applied(last)
    assert bench.seen() == [("added", "a"), ("changed", "a"), ("removed", "a")]
    causes = [cause for _, cause in bench.woken]
    assert causes[:2] == ["api-1", "api-2"]
    assert causes[2].startswith("delete-")


async def test_given_tombstones_then_followed(bench: Bench) -> None:
    grave = tombstone_of(partition_of("gone"), 3)
    key = KEYS.tombstone(3, grave.uid)
    await bench.reader.load()
    async with bench.running():
        await bench.kv.txn([], [Put(key, encode_tombstone(grave))])
        await bench.kv.txn([], [Delete(key)])
        await bench.feed.applied(await bench.kv.revision())
    assert bench.seen() == [("buried", "3"), ("forgotten", "3")]


async def test_given_compacted_watch_then_only_the_difference_is_passed_on(bench: Bench) -> None:
    await bench.kv.txn([], [put(topic_of(n)) for n in ("kept", "changed", "removed")])
    await bench.reader.load()
    bench.seen()
    await bench.kv.txn([], [put(topic_of("changed", partitions=2)), put(topic_of("added"))])
    await bench.kv.txn([], [Delete(key_of(topic_of("removed")))])
    await bench.kv.txn([], [Put(KEYS.spu_id(1), b"x")])
    await bench.kv.compact(await bench.kv.revision())
    async with bench.running():
        await bench.feed.applied(await bench.kv.revision())
        assert sorted(bench.seen()) == [
            ("added", "added"),
            ("changed", "changed"),
            ("removed", "removed"),
        ]
        await bench.kv.txn([], [put(topic_of("after"))])
        await bench.feed.applied(await bench.kv.revision())
    assert bench.seen() == [("added", "after")]


async def test_given_broken_watch_then_resumed_without_a_gap(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.dispatch.reader.RETRY_S", 0.001)
    whole = bench.kv.watch
    broken: list[int] = []

    def watch(prefix: str, from_revision: int) -> object:
        if len(broken) < 3:
            broken.append(from_revision)
            raise UnreachableError("no connection")
        return whole(prefix, from_revision)

    monkeypatch.setattr(bench.kv, "watch", watch)
    await bench.reader.load()
    await bench.kv.txn([], [put(topic_of("a"))])
    async with bench.running():
        await bench.feed.applied(await bench.kv.revision())
    assert len(broken) == 3
    assert bench.seen() == [("added", "a")]


async def test_given_store_that_cannot_be_listed_then_listing_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.dispatch.reader.RETRY_S", 0.001)
    await bench.reader.load()
    await bench.kv.txn([], [put(topic_of("a"))])
    await bench.kv.txn([], [put(topic_of("b"))])
    await bench.kv.compact(await bench.kv.revision())
    whole = bench.kv.range
    failures: list[str | None] = []

    async def fails_twice(*args: object, **kwargs: object) -> object:
        if len(failures) < 2:
            failures.append(bench.reader.broken)
            raise UnreachableError("no connection")
        return await whole(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.kv, "range", fails_twice)
    async with bench.running():
        await bench.feed.applied(await bench.kv.revision())
    assert sorted(bench.seen()) == [("added", "a"), ("added", "b")]
    # Nothing was followed meanwhile.
    assert None not in failures
    assert bench.reader.broken is None


async def test_given_repair_without_difference_then_nothing_is_passed_on(bench: Bench) -> None:
    await bench.kv.txn([], [put(topic_of("a"))])
    await bench.reader.load()
    bench.seen()
    await bench.reader.repair()
    assert bench.seen() == []


async def test_given_repair_without_difference_then_nothing_is_parsed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.kv.txn([], [put(topic_of("a")), put(partition_of("a"))])
    await bench.reader.load()
    parsed: list[str] = []

    def decode(plural: str, value: bytes, revision: int) -> tuple[Object, str]:
        parsed.append(plural)
        return decode_object(plural, value, revision)

    monkeypatch.setattr("sc.dispatch.reader.decode_object", decode)
    await bench.reader.repair()
    assert parsed == []
    await bench.kv.txn([], [put(topic_of("a"), "again")])
    await bench.reader.repair()
    assert parsed == ["topics"]


async def test_given_mirror_that_missed_something_then_repair_finds_it(bench: Bench) -> None:
    grave, old_grave = (tombstone_of(partition_of("gone", n), 3) for n in (0, 1))
    await bench.kv.txn([], [put(topic_of("old"))])
    await bench.kv.txn([], [Put(KEYS.tombstone(3, old_grave.uid), encode_tombstone(old_grave))])
    await bench.reader.load()
    bench.seen()
    await bench.kv.txn([], [Delete(key_of(topic_of("old"))), put(topic_of("new"))])
    await bench.kv.txn(
        [],
        [
            Put(KEYS.tombstone(3, grave.uid), encode_tombstone(grave)),
            Delete(KEYS.tombstone(3, old_grave.uid)),
        ],
    )
    await bench.reader.repair()
    assert sorted(bench.seen()) == [
        ("added", "new"),
        ("buried", "3"),
        ("forgotten", "3"),
        ("removed", "old"),
    ]


async def test_given_writes_while_the_repair_lists_then_it_repairs_the_rest_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    graves = [tombstone_of(partition_of("gone", n), 3) for n in (0, 1)]
    grave_keys = [KEYS.tombstone(3, grave.uid) for grave in graves]
    await bench.kv.txn([], [put(topic_of(name)) for name in ("missed", "changed", "deleted")])
    await bench.kv.txn([], [Put(grave_keys[0], encode_tombstone(graves[0]))])
    await bench.reader.load()
    store = bench.view.store
    ask = bench.kv.range

    async def range_while_others_write(*args: Any, **kwargs: Any) -> RangePage:
        page = await ask(*args, **kwargs)
        await bench.kv.txn([], [put(topic_of("changed")), put(topic_of("new"))])
        await bench.kv.txn([], [Delete(key_of(topic_of("deleted"))), Delete(grave_keys[0])])
        await bench.kv.txn([], [Put(grave_keys[1], encode_tombstone(graves[1]))])
        await bench.feed.applied(await bench.kv.revision())
        return page

    async with bench.running():
        await bench.kv.txn([], [put(topic_of("last"))])
        await bench.feed.applied(await bench.kv.revision())
        # What the watch has missed.
        store.remove("Topic", "missed")
        store.put(topic_of("stray"))
        monkeypatch.setattr(bench.kv, "range", range_while_others_write)
        await bench.reader.repair()
    assert store.object_keys() == {("Topic", name) for name in ("missed", "changed", "new", "last")}
    assert bench.reader.other_past is None
    changed = await bench.kv.get(key_of(topic_of("changed")))
    assert changed is not None
    assert bench.revision_of("changed") == changed.mod_revision
    assert store.tombstones_of(3) == [graves[1]]


@pytest.mark.parametrize("key", [key_of(topic_of("a")), KEYS.bell("u")])
async def test_given_a_kv_that_was_restored_and_has_gone_on_then_its_other_past_is_noted(
    bench: Bench, key: str
) -> None:
    """The revision of the KV is no lower than before: it was raised, or others wrote."""
    write = Put(key, encode_object(topic_of("a"), "x"))
    restored = await open_kv("memory:")
    for kv in (bench.kv, restored):
        await kv.txn([], [write])
    await bench.reader.load()
    await bench.kv.txn([], [write])
    await bench.reader.repair()
    assert not bench.reader.other_past
    bench.reader._kv = restored
    for _ in range(2):
        await restored.txn([], [Put("/another/cluster", b"")])
    await bench.reader.repair()
    assert bench.reader.other_past == (
        f"the KV at revision {await restored.revision()} has {key} of revision 2, and this SC has"
        " seen it at 3"
    )
    await restored.close()


async def test_given_batches_the_mirror_is_past_then_nothing_comes_back(bench: Bench) -> None:
    """A repair may overtake the watch; what the watch then still tells is history."""
    await bench.kv.txn([], [put(topic_of("gone")), put(topic_of("again"))])
    old = await bench.kv.get(key_of(topic_of("gone")))
    await bench.kv.txn([], [Delete(key_of(topic_of("gone"))), Delete(key_of(topic_of("again")))])
    between = await bench.kv.revision()
    await bench.kv.txn([], [put(topic_of("again"))])
    await bench.reader.load()
    bench.seen()
    assert old is not None
    for batch in (
        WatchBatch(old.mod_revision, (PutEvent(old, None),)),
        WatchBatch(between, (DeleteEvent(key_of(topic_of("again")), between, None),)),
    ):
        bench.reader._apply(batch)
    assert bench.seen() == []
    assert bench.view.store.object_keys() == {("Topic", "again")}


Damage = Callable[[], tuple[str, bytes]]
UNREADABLE = [
    pytest.param((key_of(topic_of("bad")), b"{"), id="given-half-json-then-left-out"),
    pytest.param((key_of(topic_of("bad")), b"[]"), id="given-a-list-then-left-out"),
    pytest.param(
        (key_of(topic_of("bad")), encode_object(topic_of("bad").with_metadata(uid=None), "x")),
        id="given-no-uid-then-left-out",
    ),
    pytest.param(
        (key_of(topic_of("bad")), encode_object(topic_of("other"), "x")),
        id="given-another-name-than-its-key-then-left-out",
    ),
    pytest.param(
        (
            KEYS.object("partitions", "bad-0"),
            encode_object(partition_of("bad").with_metadata(uid=None), "x"),
        ),
        id="given-partition-without-uid-then-left-out",
    ),
    pytest.param((f"{KEYS.objects}things/bad", b"{}"), id="given-unknown-kind-then-left-out"),
    pytest.param((KEYS.tombstone(3, "u"), b"{}"), id="given-bad-tombstone-then-left-out"),
]


@pytest.mark.parametrize("damage", UNREADABLE)
async def test_unreadable(bench: Bench, damage: tuple[str, bytes]) -> None:
    key, value = damage
    await bench.kv.txn([], [put(topic_of("a")), Put(key, value), put(topic_of("z"))])
    await bench.reader.load()
    assert list(bench.reader.unreadable) == [key]
    assert bench.view.store.object_keys() == {("Topic", "a"), ("Topic", "z")}
    assert bench.view.store.tombstone_keys() == set()
    async with bench.running():
        await bench.kv.txn([], [Put(key, value), put(topic_of("later"))])
        await bench.feed.applied(await bench.kv.revision())
        assert ("Topic", "later") in bench.view.store.object_keys()
        assert list(bench.reader.unreadable) == [key]
        await bench.kv.txn([], [Delete(key)])
        await bench.feed.applied(await bench.kv.revision())
    assert bench.reader.unreadable == {}


async def test_given_damage_mended_then_the_object_is_mirrored(bench: Bench) -> None:
    await bench.kv.txn([], [Put(key_of(topic_of("a")), b"{")])
    await bench.reader.load()
    async with bench.running():
        await bench.kv.txn([], [put(topic_of("a"))])
        await eventually(lambda: bench.revision_of("a") > 0)
    assert bench.reader.unreadable == {}


async def test_given_damage_removed_unseen_then_repair_reports_it_no_longer(bench: Bench) -> None:
    await bench.kv.txn([], [Put(key_of(topic_of("a")), b"{")])
    await bench.reader.load()
    assert bench.reader.unreadable
    await bench.kv.txn([], [Delete(key_of(topic_of("a")))])
    await bench.reader.repair()
    assert bench.reader.unreadable == {}


async def test_given_who_leads_then_it_is_told_before_what_comes_with_it(kv: KV) -> None:
    bench = Bench(kv)
    await kv.txn([], [Put(KEYS.current_office, b"one"), put(topic_of("a"))])
    await bench.reader.load()
    assert sorted(bench.offices, key=str) == [
        ("cluster", None, 0),
        ("election/leader", None, 0),
        ("office", b"one", 0),
    ]
    async with bench.running():
        await kv.txn([], [put(topic_of("b"))])
        await eventually(lambda: len(bench.changes) == 2)
        await kv.txn([], [put(topic_of("c")), Put(KEYS.current_office, b"other")])
        await kv.txn([], [Put(KEYS.leader, b"lease")])
        await kv.txn([], [Delete(KEYS.leader), put(topic_of("d"))])
        await eventually(lambda: len(bench.changes) == 4)
    assert bench.offices[3:] == [
        ("office", b"other", 2),
        ("election/leader", b"lease", 3),
        ("election/leader", None, 3),
    ]


async def test_given_a_listing_that_another_one_overtook_then_it_brings_nothing_back(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(kv)
    await kv.txn([], [Put(KEYS.leader, b"one")])
    await bench.reader.load()
    ask = kv.range
    overtaken, pages = asyncio.Event(), 0

    async def listed(*args: Any, **kwargs: Any) -> RangePage:
        nonlocal pages
        page = await ask(*args, **kwargs)
        pages += 1
        if pages == 1:
            await overtaken.wait()
        return page

    monkeypatch.setattr(kv, "range", listed)
    slow = asyncio.create_task(bench.reader.repair())
    await asyncio.sleep(0)
    await kv.txn([], [Delete(KEYS.leader)])
    await kv.txn([], [Put(KEYS.leader, b"two")])
    await bench.reader.repair()
    overtaken.set()
    await slow
    told = [value for key, value, _ in bench.offices if key == "election/leader"]
    assert told[-1] == b"two"


async def test_given_a_watch_that_lags_behind_a_listing_then_the_newest_leader_is_told_last(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(kv)
    await kv.txn([], [Put(KEYS.leader, b"one")])
    await bench.reader.load()
    lost = (await kv.txn([], [Delete(KEYS.leader)])).revision
    await kv.txn([], [Put(KEYS.leader, b"two")])
    ask = kv.range
    late = WatchBatch(lost, (DeleteEvent(KEYS.leader, lost, None),))

    async def listed(*args: Any, **kwargs: Any) -> RangePage:
        page = await ask(*args, **kwargs)
        # Between this page and the next one.
        asyncio.get_running_loop().call_soon(bench.reader._apply, late)
        return page

    monkeypatch.setattr(kv, "range", listed)
    await bench.reader.repair()
    told = [value for key, value, _ in bench.offices if key == "election/leader"]
    assert told[-2:] == [None, b"two"]
