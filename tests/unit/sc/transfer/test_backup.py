"""A cluster into a file and back: everything arrives, or no SC leads over what did not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sc.kv import open_copy, open_kv
from sc.kv.interface import KV, Delete, Put
from sc.leadership import Claim, Identity, acquire, check_place, stand
from sc.transfer.backup import back_up
from sc.transfer.backup_file import BackupWriter, read_backup
from sc.transfer.contents import Store
from sc.transfer.restore import Restored, restore
from schemas.errors import ConflictError, InvalidRequestError, NotFoundError, RunnelError
from tests.unit.sc.transfer.test_migration import KEYS, OTHER, Cut, contents, fill


def silent(_stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


@dataclass
class Scene:
    """A cluster in a store, its backup, and another store."""

    source: Store
    target: Store
    path: Path

    async def back_up(self) -> None:
        await back_up(self.source, KEYS, self.path, silent)

    async def restore(
        self, kv: KV | None = None, *, may_replace: bool = False, dry_run: bool = False
    ) -> Restored:
        return await restore(
            self.path,
            Store(kv or self.target.kv, self.target.url),
            may_replace=may_replace,
            by="me",
            dry_run=dry_run,
            progress=silent,
        )


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    stores = [await open_kv("memory:") for _ in range(2)]
    found = Scene(
        Store(stores[0], "sqlite:old"), Store(stores[1], "etcd://new"), tmp_path / "backup"
    )
    await fill(stores[0], 120)
    yield found
    for kv in stores:
        await kv.close()


async def identity_in(kv: KV) -> Identity:
    item = await kv.get(KEYS.identity)
    assert item is not None
    return Identity.decode(item.value)


async def test_given_a_backup_then_every_key_arrives_and_the_cluster_recovers(scene: Scene) -> None:
    before, revision = await contents(scene.source.kv), await scene.source.kv.revision()
    await scene.back_up()
    await scene.source.kv.txn((), [Put(KEYS.object("topics", "later"), b"x")])
    done = await scene.restore()
    identity = await identity_in(scene.target.kv)
    assert await contents(scene.target.kv) == {**before, KEYS.identity: identity.encode()}
    assert (identity.incarnation, identity.recovering) == (1, True)
    assert identity.recovery is not None
    assert identity.recovery.by == "me"
    assert identity.recovery.why == (f"a backup of {done.at} was restored, of revision {revision}")
    assert (done.keys, done.revision, done.replaced) == (len(before), revision, 0)
    assert done.kinds == {"topics": 119}
    assert await contents(scene.target.kv, OTHER) == {}
    leadership = await acquire(scene.target.kv, KEYS)
    assert leadership.stamp.incarnation == 1
    # Who names an earlier revision had it from another store.
    written = await scene.target.kv.get(KEYS.identity)
    others = [await scene.target.kv.get(key) for key in before if key != KEYS.identity]
    assert written is not None
    assert all(one is not None and one.mod_revision < written.mod_revision for one in others)


@pytest.mark.parametrize("applied", [False, True])
async def test_given_a_restore_that_breaks_anywhere_then_no_sc_leads_until_it_is_repeated(
    scene: Scene, applied: bool
) -> None:
    await scene.back_up()
    writes = 0
    while True:
        broken = Cut(scene.target.kv, writes, applied=applied)
        try:
            await scene.restore(broken, may_replace=True)  # type: ignore[arg-type]
        except RunnelError:
            there = await contents(scene.target.kv)
            mark = await scene.target.kv.get(KEYS.arriving)
            if there and mark is not None:
                with pytest.raises(ConflictError, match="repeat `runnel cluster restore`"):
                    await acquire(scene.target.kv, KEYS)
            elif there:
                # Its last write was applied.
                await check_place(scene.target.kv, KEYS, None)
            writes += 1
        else:
            break
    assert writes > 5
    assert len(await contents(scene.target.kv)) == len(await contents(scene.source.kv))
    await acquire(scene.target.kv, KEYS)


async def test_given_the_cluster_is_there_then_it_is_replaced_only_if_wanted(scene: Scene) -> None:
    await scene.back_up()
    await scene.restore()
    await acquire(scene.target.kv, KEYS)
    await scene.target.kv.txn((), [Put(KEYS.object("topics", "later"), b"x")])
    await scene.target.kv.txn((), [Put(OTHER.object("topics", "t"), b"not ours")])
    there = await contents(scene.target.kv)
    with pytest.raises(ConflictError, match=r"etcd://new holds cluster 'c' already .*add --yes"):
        await scene.restore()
    tried = await scene.restore(dry_run=True)
    assert await contents(scene.target.kv) == there
    assert tried.replaced > len(there)
    done = await scene.restore(may_replace=True)
    assert (await identity_in(scene.target.kv)).incarnation == done.incarnation == 2
    assert KEYS.object("topics", "later") not in await contents(scene.target.kv)
    assert await contents(scene.target.kv, OTHER) == {OTHER.object("topics", "t"): b"not ours"}


async def test_given_another_cluster_of_the_name_then_it_is_never_replaced(scene: Scene) -> None:
    await scene.back_up()
    await acquire(scene.target.kv, KEYS)
    there = await contents(scene.target.kv)
    with pytest.raises(ConflictError, match="holds another cluster 'c'"):
        await scene.restore(may_replace=True)
    assert await contents(scene.target.kv) == there


async def test_given_an_sc_that_runs_then_nothing_is_restored(scene: Scene) -> None:
    await scene.back_up()
    lease = await scene.target.kv.lease_grant(60_000)
    await scene.target.kv.txn((), [Put(KEYS.sc("sc-7"), b"{}", lease)])
    with pytest.raises(ConflictError, match="SC sc-7 runs over etcd://new: stop all SCs"):
        await scene.restore(may_replace=True)
    await scene.restore(may_replace=True, dry_run=True)
    assert await scene.target.kv.get(KEYS.arriving) is None


class Late(Cut):
    """A store in which something happens after it was found to be free."""

    def __init__(self, kv: KV, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(kv, 1_000, applied=True)
        self._happens = happens
        self._looks = 0

    async def get(self, key: str) -> object:
        self._looks += key == KEYS.identity
        if key == KEYS.identity and self._looks == 2:
            await self._happens()
        return await self.kv.get(key)


@pytest.mark.parametrize("what", ["leads", "moves"])
async def test_given_an_sc_that_begins_meanwhile_then_nothing_is_restored(
    scene: Scene, what: str
) -> None:
    await scene.back_up()
    kv = scene.target.kv
    lease = await kv.lease_grant(60_000)

    async def begins() -> None:
        if what == "leads":
            assert await stand(kv, KEYS, Claim(lease, b"{}")) is not None
        else:
            await kv.txn((), [Put(KEYS.moved, b'{"to": "etcd://elsewhere", "uid": "u"}')])

    with pytest.raises(ConflictError, match="somebody else began to use etcd://new"):
        await scene.restore(Late(kv, begins), may_replace=True)  # type: ignore[arg-type]
    assert await kv.get(KEYS.arriving) is None


async def test_given_a_store_that_was_left_then_it_stays_left(scene: Scene) -> None:
    await scene.back_up()
    await scene.target.kv.txn((), [Put(KEYS.moved, b'{"to": "etcd://elsewhere", "uid": "u"}')])
    with pytest.raises(ConflictError, match="was moved from etcd://new to etcd://elsewhere"):
        await scene.restore(may_replace=True)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (KEYS.arriving, b'{"from": "etcd://x", "uid": "u"}', "what comes from etcd://x"),
        (KEYS.moved, b'{"to": "etcd://x", "uid": "u"}', "was moved to etcd://x; back it up"),
    ],
)
async def test_given_half_a_cluster_or_one_that_moved_then_it_is_not_backed_up(
    scene: Scene, key: str, value: bytes, text: str
) -> None:
    await scene.source.kv.txn((), [Put(key, value)])
    with pytest.raises(ConflictError, match=text):
        await scene.back_up()
    assert not scene.path.exists()


async def test_given_no_such_cluster_then_there_is_nothing_to_back_up(scene: Scene) -> None:
    with pytest.raises(NotFoundError, match="holds no cluster 'c'"):
        await back_up(scene.target, KEYS, scene.path, silent)


async def test_given_no_identity_then_it_is_said(scene: Scene) -> None:
    await scene.back_up()
    identity = await scene.source.kv.get(KEYS.identity)
    assert identity is not None
    await scene.source.kv.txn((), [Put(KEYS.identity, b'{"uid": 1, "incarnation": "x"')])
    other = replace(scene, path=scene.path.with_name("other"))
    with pytest.raises(ConflictError, match=f"the key {KEYS.identity} does not parse"):
        await other.back_up()
    with BackupWriter(other.path, read_backup(scene.path).header) as backup:
        backup.add(KEYS.object("topics", "t"), b"x")
    with pytest.raises(InvalidRequestError, match="holds no identity of cluster 'c'"):
        await other.restore()


async def test_given_a_damaged_identity_in_the_store_then_a_restore_mends_it(scene: Scene) -> None:
    await scene.back_up()
    await scene.source.kv.txn((), [Put(KEYS.identity, b"{")])
    with pytest.raises(ConflictError, match="add --yes"):
        await scene.restore(scene.source.kv)
    done = await scene.restore(scene.source.kv, may_replace=True)
    assert (await identity_in(scene.source.kv)).incarnation == done.incarnation == 1
    await acquire(scene.source.kv, KEYS)


async def test_given_a_file_that_is_in_use_then_its_copy_is_of_one_write(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'kv.db'}"
    used = await open_kv(url)
    await fill(used, 5)
    copy = await open_copy(url)
    assert await contents(copy) == await contents(used)
    assert await copy.revision() == await used.revision()
    await used.txn((), [Delete(KEYS.object("topics", "t0001"))])
    await copy.txn((), [Put(KEYS.object("topics", "mine"), b"")])
    assert KEYS.object("topics", "t0001") in await contents(copy)
    assert KEYS.object("topics", "mine") not in await contents(used)
    await copy.close()
    await used.close()
    with pytest.raises(NotFoundError, match="there is no KV file"):
        await open_copy(f"sqlite:{tmp_path / 'none.db'}")
    (tmp_path / "empty.db").touch()
    with pytest.raises(NotFoundError, match="is an empty file"):
        await open_copy(f"sqlite:{tmp_path / 'empty.db'}")
