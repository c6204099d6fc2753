"""Moving a cluster between stores: everything arrives, or the source stays the cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from sc.api.listing import check_ours, check_readable
from sc.kv import open_kv
from sc.kv.interface import KV, Compare, Delete, DeletePrefix, Op, Put, TxnResult, range_all
from sc.leadership import acquire
from sc.transfer.contents import KeyCount, Store, count_keys, erase
from sc.transfer.copying import BYTES
from sc.transfer.migration import Migration, migrate
from schemas.errors import (
    CompactedError,
    ConflictError,
    NotFoundError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.keys import ClusterKeys

KEYS = ClusterKeys("c")
OTHER = ClusterKeys("other")


class Cut:
    """A store whose connection breaks at the n-th write: before it, or after it was applied."""

    def __init__(self, kv: KV, writes: int, *, applied: bool) -> None:
        self.kv = kv
        self.left = writes
        self.applied = applied

    def __getattr__(self, name: str) -> object:
        return getattr(self.kv, name)

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        if self.left == 0 and not self.applied:
            raise UnreachableError("cut")
        self.left -= 1
        result = await self.kv.txn(compares, success, failure)
        if self.left < 0:
            raise UnreachableError("cut")
        return result


@dataclass
class Pair:
    source: Store
    target: Store
    stages: list[str]

    async def move(self, source: KV | None = None, target: KV | None = None) -> Migration:
        def progress(stage: str, done: int, total: int) -> None:
            assert 0 <= done <= total
            self.stages.append(stage)

        return await migrate(
            Store(source or self.source.kv, self.source.url),
            Store(target or self.target.kv, self.target.url),
            KEYS,
            progress,
        )


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    stores = [await open_kv("memory:") for _ in range(2)]
    yield Pair(Store(stores[0], "sqlite:old"), Store(stores[1], "etcd://new"), [])
    for kv in stores:
        await kv.close()


async def fill(kv: KV, objects: int = 250) -> None:
    """A cluster that was governed, changed and partly deleted."""
    await acquire(kv, KEYS)
    for i in range(objects):
        await kv.txn((), [Put(KEYS.object("topics", f"t{i:04}"), b"x" * (i % 50))])
        await kv.txn((), [Put(KEYS.record(f"streams/{i:04}/state"), b"r" * (i % 30))])
    await kv.txn((), [Delete(KEYS.object("topics", "t0000"))])
    await kv.txn((), [Put(OTHER.object("topics", "t"), b"not ours")])


async def contents(kv: KV, keys: ClusterKeys = KEYS) -> dict[str, bytes]:
    own = (keys.moved, keys.arriving, keys.current_office)
    return {
        item.key: item.value
        for root in keys.roots
        async for page in range_all(kv, root)
        for item in page.items
        if item.key not in own
    }


async def test_given_a_cluster_then_every_key_arrives_and_revisions_go_on(pair: Pair) -> None:
    await fill(pair.source.kv)
    before, revision = await contents(pair.source.kv), await pair.source.kv.revision()
    moved = await pair.move()
    assert await contents(pair.target.kv) == before == await contents(pair.source.kv)
    assert moved.keys == len(before)
    assert moved.bytes == sum(len(key) + len(value) for key, value in before.items())
    assert await pair.target.kv.revision() > revision
    assert await contents(pair.target.kv, OTHER) == {}
    assert list(dict.fromkeys(pair.stages)) == ["raising the revision", "copying", "verifying"]
    leadership = await acquire(pair.target.kv, KEYS)
    assert leadership.cluster_uid == moved.uid
    with pytest.raises(ConflictError, match="moved to etcd://new: start the SC with"):
        await acquire(pair.source.kv, KEYS)


async def test_given_values_of_every_size_then_no_transaction_is_too_big(pair: Pair) -> None:
    await acquire(pair.source.kv, KEYS)
    for i, size in enumerate((BYTES, 0, BYTES - 1, BYTES // 2, BYTES // 2, 1)):
        await pair.source.kv.txn((), [Put(KEYS.object("topics", f"t{i}"), b"v" * size)])
    await pair.move()
    assert await contents(pair.target.kv) == await contents(pair.source.kv)


async def test_given_a_key_under_a_lease_then_it_stays_behind(pair: Pair) -> None:
    await fill(pair.source.kv, 3)
    lease = await pair.source.kv.lease_grant(60_000)
    await pair.source.kv.txn((), [Put(f"{KEYS.root}leased", b"mine", lease)])
    assert (await pair.move()).left == 1
    assert await pair.target.kv.get(f"{KEYS.root}leased") is None


async def test_given_a_running_sc_then_it_is_deposed(pair: Pair) -> None:
    await fill(pair.source.kv, 3)
    leadership = await acquire(pair.source.kv, KEYS)
    await pair.move()
    assert not (await pair.source.kv.txn([leadership.guard], [])).succeeded


async def test_given_a_writer_meanwhile_then_the_source_stays_the_cluster(pair: Pair) -> None:
    await fill(pair.source.kv)

    class Writer(Cut):
        async def txn(
            self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
        ) -> TxnResult:
            result = await self.kv.txn(compares, success, failure)
            if any(isinstance(op, Put) and op.key == KEYS.moved for op in success):
                await self.kv.txn((), [Put(KEYS.object("topics", "late"), b"late")])
            return result

    writer = Writer(pair.source.kv, 0, applied=False)
    with pytest.raises(ConflictError, match="topics/late differs between"):
        await pair.move(source=writer)  # type: ignore[arg-type]
    await acquire(pair.source.kv, KEYS)
    with pytest.raises(ConflictError, match="repeat `runnel cluster migrate`"):
        await acquire(pair.target.kv, KEYS)
    await pair.move()
    assert KEYS.object("topics", "late") in await contents(pair.target.kv)


@pytest.mark.parametrize("applied", [False, True], ids=["lost", "answer-lost"])
@pytest.mark.parametrize("side", ["source", "target"])
async def test_given_a_cut_at_any_write_then_one_store_governs_and_repeating_ends_it(
    pair: Pair, side: str, applied: bool
) -> None:
    await fill(pair.source.kv, 120)
    before = await contents(pair.source.kv)
    for writes in range(1_000):
        stores = {"source": pair.source.kv, "target": pair.target.kv}
        cut = Cut(stores[side], writes, applied=applied)
        stores[side] = cut  # type: ignore[assignment]
        try:
            await pair.move(**stores)
        except UnreachableError:
            pass
        else:
            # No cut any more: an earlier attempt had done all, or this one did.
            break
        here, there = await count_keys(pair.source.kv, KEYS), await count_keys(pair.target.kv, KEYS)
        governs = [c for c in (here, there) if c.uid and not c.moved_to and not c.arriving_from]
        assert len(governs) <= 1
        if here.moved_to and not there.arriving_from:
            break
    else:
        raise AssertionError("the move never ended")
    assert writes > 1 or side == "source"
    assert await contents(pair.target.kv) == before
    await acquire(pair.target.kv, KEYS)


async def test_given_a_move_back_then_the_stale_copy_is_replaced(pair: Pair) -> None:
    await fill(pair.source.kv, 5)
    await pair.move()
    await acquire(pair.target.kv, KEYS)
    await pair.target.kv.txn((), [Put(KEYS.object("topics", "new"), b"new")])
    back = Pair(pair.target, pair.source, [])
    await back.move()
    assert KEYS.object("topics", "new") in await contents(pair.source.kv)
    await acquire(pair.source.kv, KEYS)


async def nothing(pair: Pair) -> None:
    await pair.target.kv.txn((), [Put("unrelated", b"")])


async def another_in_target(pair: Pair) -> None:
    await fill(pair.source.kv, 1)
    await fill(pair.target.kv, 1)


async def moved_before(pair: Pair) -> None:
    await fill(pair.source.kv, 1)
    await pair.move()


async def half_a_source(pair: Pair) -> None:
    await fill(pair.source.kv, 1)
    mark = json.dumps({"from": "sqlite:elsewhere"}).encode()
    await pair.source.kv.txn((), [Put(KEYS.arriving, mark)])


@pytest.mark.parametrize(
    ("prepare", "error", "said"),
    [
        (nothing, NotFoundError, "sqlite:old holds no cluster 'c'"),
        (another_in_target, ConflictError, "etcd://new holds a cluster 'c' already"),
        (moved_before, ConflictError, "moved to etcd://new already; start its SC there"),
        (half_a_source, ConflictError, "its move from sqlite:elsewhere is not finished"),
    ],
)
async def test_given_a_move_that_cannot_be_then_it_says_why_and_changes_nothing(
    pair: Pair, prepare: object, error: type[RunnelError], said: str
) -> None:
    await prepare(pair)  # type: ignore[operator]
    before = [await contents(store.kv) for store in (pair.source, pair.target)]
    with pytest.raises(error, match=said):
        await pair.move()
    assert [await contents(store.kv) for store in (pair.source, pair.target)] == before


async def test_given_erase_then_only_that_cluster_is_gone(pair: Pair) -> None:
    kv = pair.source.kv
    await fill(kv, 3)
    count = (await count_keys(kv, KEYS)).keys
    assert await erase(kv, KEYS) == count > 0
    assert await count_keys(kv, KEYS) == KeyCount(None, 0, None, None)
    assert await contents(kv, OTHER)


async def test_given_a_move_that_ended_since_it_was_counted_then_it_is_not_wiped(
    pair: Pair,
) -> None:
    await fill(pair.source.kv, 5)
    target = pair.target.kv

    class Late(Cut):
        """Between the count and the clearing of the target, somebody else's move ends."""

        async def txn(
            self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
        ) -> TxnResult:
            if any(isinstance(op, DeletePrefix) for op in success):
                await target.txn((), [Delete(KEYS.arriving)])
            return await self.kv.txn(compares, success, failure)

    await target.txn((), [Put(KEYS.arriving, b'{"from": "sqlite:old"}')])
    await target.txn((), [Put(KEYS.object("topics", "alive"), b"x")])
    with pytest.raises(ConflictError, match="somebody else is moving"):
        await pair.move(target=Late(target, 0, applied=False))  # type: ignore[arg-type]
    assert KEYS.object("topics", "alive") in await contents(target)


async def test_given_an_attempt_that_was_given_up_then_its_late_writes_change_nothing(
    pair: Pair,
) -> None:
    await fill(pair.source.kv, 250)
    late: list[tuple[Sequence[Compare], Sequence[Op]]] = []

    class Stuck(Cut):
        """Its second chunk is still under way when the attempt has failed."""

        async def txn(
            self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
        ) -> TxnResult:
            topics = [op for op in success if isinstance(op, Put) and "/topics/" in op.key]
            if topics:
                late.append((compares, success))
                raise UnreachableError("stuck")
            return await self.kv.txn(compares, success, failure)

    with pytest.raises(UnreachableError, match="stuck"):
        await pair.move(target=Stuck(pair.target.kv, 0, applied=False))  # type: ignore[arg-type]
    await pair.source.kv.txn((), [Put(KEYS.object("topics", "t0001"), b"newer")])
    await pair.move()
    await acquire(pair.target.kv, KEYS)
    before = await contents(pair.target.kv)
    assert late
    for compares, ops in late:
        assert not (await pair.target.kv.txn(compares, ops)).succeeded
    assert await contents(pair.target.kv) == before


async def test_given_a_move_then_revisions_of_the_source_are_to_be_read_again(pair: Pair) -> None:
    await fill(pair.source.kv, 5)
    told = await pair.source.kv.revision()
    await check_readable(pair.source.kv, KEYS, told)
    await pair.move()
    await acquire(pair.target.kv, KEYS)
    for check in (check_ours, check_readable):
        with pytest.raises(
            CompactedError, match="of before the cluster was moved, restored or recovered"
        ):
            await check(pair.target.kv, KEYS, told)
        await check(pair.target.kv, KEYS, await pair.target.kv.revision())


async def test_given_a_second_sc_in_office_then_a_failed_start_erases_nothing(pair: Pair) -> None:
    kv = pair.source.kv
    await acquire(kv, KEYS)
    assert await erase(kv, KEYS, most_offices=1) > 0
    await acquire(kv, KEYS)
    await acquire(kv, KEYS)
    with pytest.raises(ConflictError, match="another SC has led cluster 'c'; nothing is deleted"):
        await erase(kv, KEYS, most_offices=1)
    assert await contents(kv)


async def test_given_a_source_that_is_gone_when_a_move_fails_then_it_says_to_repeat_it(
    pair: Pair,
) -> None:
    await fill(pair.source.kv, 5)

    class Gone(Cut):
        """Read back, the target differs; and then the source does not answer any more."""

        async def txn(
            self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
        ) -> TxnResult:
            if success == [Delete(KEYS.moved)]:
                raise UnreachableError("no answer")
            result = await self.kv.txn(compares, success, failure)
            if any(isinstance(op, Put) and op.key == KEYS.moved for op in success):
                await self.kv.txn((), [Put(KEYS.object("topics", "late"), b"late")])
            return result

    with pytest.raises(UnreachableError, match=r"repeat the move when it answers.*late differs"):
        await pair.move(source=Gone(pair.source.kv, 0, applied=False))  # type: ignore[arg-type]
