"""The contract on the SQLite backend, and what only a store on disk promises."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from sc.kv import sqlite as sqlite_module
from sc.kv.database import Database, DiskFullError
from sc.kv.interface import KV, Delete, Get, Put
from sc.kv.mvcc import Delta, Mvcc
from sc.kv.sqlite import SqliteKV
from schemas.errors import (
    CompactedError,
    ConflictError,
    DeadlineExceededError,
    NotFoundError,
    OverloadedError,
    StorageFailedError,
    UnreachableError,
    UnsupportedError,
)
from tests.polling import eventually

from .store import DEADLINE_S, KEEP_REVISIONS, delete, keys, put, take
from .suite import KVContract
from .test_memory import Clock


class TestSqlite(KVContract):
    @pytest.fixture
    async def kv(self, tmp_path: Path) -> AsyncIterator[KV]:
        self.clock_in_use = Clock()
        store = await SqliteKV.open(
            tmp_path / "kv.db", clock=self.clock_in_use, keep_revisions=KEEP_REVISIONS
        )
        yield store
        await store.close()

    async def advance(self, kv: KV, seconds: float) -> None:
        assert isinstance(kv, SqliteKV)
        self.clock_in_use.now += seconds
        await kv.expire_leases()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "kv.db"


async def test_given_reopen_then_data_revision_and_history_are_there(path: Path) -> None:
    kv = await SqliteKV.open(path)
    start = await kv.revision()
    for n in range(5):
        await put(kv, "a", str(n).encode())
    await put(kv, "b", b"")
    await kv.txn((), [Delete("a"), Put("c\0ü", b"1"), Delete("b")])
    last = await put(kv, "a", b"new")
    async with kv.watch("", start + 1) as watch:
        batches = await take(watch, 8)
    page = await kv.range("")
    await kv.close()

    kv = await SqliteKV.open(path)
    assert await kv.revision() == last
    assert await kv.range("") == page
    assert await keys(kv, revision=last - 1) == ["c\0ü"]
    async with kv.watch("", start + 1) as watch:
        assert await take(watch, 8) == batches
    assert await put(kv, "a", b"more") == last + 1
    found = await kv.get("a")
    assert found is not None
    assert (found.version, found.create_revision) == (2, last)
    await kv.close()


async def test_given_reopen_after_compaction_then_the_same_history_is_left(path: Path) -> None:
    kv = await SqliteKV.open(path)
    for n in range(4):
        await put(kv, "a", str(n).encode())
    await put(kv, "b")
    await delete(kv, "b")
    at = await delete(kv, "a")
    await put(kv, "c")
    await put(kv, "a")
    await kv.compact(at)
    await kv.close()
    rows = sqlite3.connect(path)
    assert rows.execute("SELECT count(*) FROM history").fetchone() == (3,)
    rows.close()

    kv = await SqliteKV.open(path)
    async with kv.watch("", at) as watch:
        assert [batch.revision for batch in await take(watch, 3)] == [at, at + 1, at + 2]
    assert await keys(kv, revision=at) == []
    await kv.compact(at + 1)
    assert await keys(kv) == ["a", "c"]
    await kv.close()


async def test_given_compaction_that_forgot_nothing_then_it_still_holds_after_reopen(
    path: Path,
) -> None:
    kv = await SqliteKV.open(path)
    at = [await put(kv, name) for name in "abc"][-1]
    await kv.compact(at)
    await kv.close()
    kv = await SqliteKV.open(path)
    with pytest.raises(CompactedError):
        await kv.get("a", revision=at - 1)
    assert await keys(kv, revision=at) == ["a", "b", "c"]
    await kv.close()


async def test_given_reopen_then_leases_have_their_whole_time_again(path: Path) -> None:
    clock = Clock()
    kv = await SqliteKV.open(path, clock=clock)
    lease = await kv.lease_grant(10_000)
    revoked = await kv.lease_grant(10_000)
    await put(kv, "a", b"", lease)
    await put(kv, "b", b"", lease)
    await put(kv, "b", b"")
    await kv.lease_revoke(revoked)
    clock.now += 9
    await kv.close()
    clock.now += 100

    kv = await SqliteKV.open(path, clock=clock)
    clock.now += 9
    assert await kv.expire_leases() == 0
    with pytest.raises(NotFoundError):
        await kv.lease_keep_alive(revoked)
    assert await kv.lease_keep_alive(lease) == 10_000
    clock.now += 11
    assert await kv.expire_leases() == 1
    assert await keys(kv) == ["b"]
    await kv.close()


async def test_given_open_file_then_second_open_names_the_process(path: Path) -> None:
    kv = await SqliteKV.open(path)
    with pytest.raises(ConflictError, match=rf"in use by another process \(pid {os.getpid()}\)"):
        await SqliteKV.open(path)
    await put(kv, "a")
    await kv.close()
    again = await SqliteKV.open(path)
    assert await keys(again) == ["a"]
    await again.close()


CHILD = """
import asyncio, sys
from pathlib import Path
from sc.kv.interface import Put
from sc.kv.sqlite import SqliteKV

async def write(kv, name):
    n = 0
    while True:
        result = await kv.txn((), [Put(f"{name}", b"%d" % n), Put(f"{name}/{n}", b"x" * 100)])
        print(name, n, result.revision, flush=True)
        n += 1

async def main():
    kv = await SqliteKV.open(Path(sys.argv[1]))
    await asyncio.gather(*[write(kv, f"w{k}") for k in range(8)])

asyncio.run(main())
"""


@pytest.mark.parametrize("answers", [3, 400])
async def test_given_kill_in_the_middle_of_writes_then_no_answered_txn_is_lost(
    path: Path, answers: int
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHILD,
        str(path),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        try:
            lines = [await child.stdout.readline() for _ in range(answers)]
            with pytest.raises(ConflictError, match=f"pid {child.pid}"):
                await SqliteKV.open(path)
        finally:
            child.kill()
        lines += [line async for line in child.stdout]
        await child.wait()
    # The last line may be cut short by the kill; it still was an answer, but cannot be read.
    lines = [line for line in lines if line.endswith(b"\n")]
    assert len(lines) >= answers

    kv = await SqliteKV.open(path)
    for line in lines:
        name, n, revision = line.decode().split()
        found = await kv.get(f"{name}/{n}")
        assert found is not None, line
        assert found.mod_revision == int(revision)
        counter = await kv.get(name)
        assert counter is not None
        # Both puts of a transaction are there, or neither.
        assert await kv.get(f"{name}/{counter.value.decode()}") is not None
        assert await kv.get(f"{name}/{int(counter.value) + 1}") is None
    await put(kv, "after")
    await kv.close()


async def test_given_write_fails_then_callers_and_watches_are_told_and_nothing_shows(
    path: Path,
) -> None:
    kv = await SqliteKV.open(path)
    revision = await put(kv, "a", b"1")
    waiting = asyncio.ensure_future(take(kv.watch("", revision + 1), 1))
    await asyncio.sleep(0)
    await _on_thread(kv, "PRAGMA query_only = 1")
    results = await asyncio.gather(
        put(kv, "a", b"2"), put(kv, "b"), kv.txn((), [Get("a")]), waiting, return_exceptions=True
    )
    assert [type(result) for result in results] == [StorageFailedError] * 4
    assert "readonly" in str(results[0])
    assert str(path) in str(results[0])
    for call in (kv.get("a"), put(kv, "c"), kv.lease_grant(1_000)):
        with pytest.raises(StorageFailedError):
            await call
    await kv.close()

    kv = await SqliteKV.open(path)
    assert await kv.revision() == revision
    assert await keys(kv) == ["a"]
    await kv.close()


async def _on_thread(kv: SqliteKV, statement: str) -> sqlite3.Cursor:
    connection = kv._database._connection
    assert connection is not None
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(kv._thread, connection.execute, statement)


async def _on_thread_one(kv: SqliteKV, statement: str) -> object:
    cursor = await _on_thread(kv, statement)
    return await asyncio.get_running_loop().run_in_executor(kv._thread, cursor.fetchone)


async def test_given_slow_disk_then_waiting_writes_share_a_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = await SqliteKV.open(path)
    sizes: list[int] = []
    write = kv._database.write

    def counting(deltas: Sequence[Delta]) -> None:
        sizes.append(len(deltas))
        write(deltas)

    monkeypatch.setattr(kv._database, "write", counting)
    await asyncio.gather(*[put(kv, f"k{n}") for n in range(50)])
    assert sum(sizes) == 50
    assert len(sizes) <= 2
    await kv.close()


async def test_given_undecided_write_then_nobody_sees_it_and_reads_of_it_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So little history is kept that compaction would forget the durable revision if it could.
    kv = await SqliteKV.open(path, keep_revisions=1)
    loop = asyncio.get_running_loop()
    reached, release = asyncio.Event(), asyncio.Event()
    write = kv._database.write

    def held(deltas: Sequence[Delta]) -> None:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(DEADLINE_S)
        write(deltas)

    monkeypatch.setattr(kv._database, "write", held)
    before = await kv.revision()
    writing = asyncio.ensure_future(put(kv, "a"))
    async with asyncio.timeout(DEADLINE_S):
        await reached.wait()
    reading = asyncio.ensure_future(kv.txn((), [Get("a")]))
    watching = asyncio.ensure_future(take(kv.watch("", before + 1), 1))
    abandoned = asyncio.ensure_future(put(kv, "abandoned"))
    behind = [asyncio.ensure_future(put(kv, "behind")) for _ in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    abandoned.cancel()
    assert await kv.get("a") is None
    assert await kv.revision() == before
    for early in (writing, reading, watching):
        assert not early.done()
    release.set()
    assert await writing == before + 1
    assert (await reading).responses
    assert [batch.revision for batch in await watching] == [before + 1]
    assert len(set(await asyncio.gather(*behind))) == 5
    await put(kv, "later")
    await kv.close()
    assert abandoned.cancelled()

    kv = await SqliteKV.open(path)
    assert await keys(kv) == ["a", "abandoned", "behind", "later"]
    await kv.close()


async def test_given_too_much_waiting_then_overloaded_and_not_applied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "MAX_WAITING", 5)
    kv = await SqliteKV.open(path)
    results = await asyncio.gather(*[put(kv, f"k{n}") for n in range(10)], return_exceptions=True)
    refused = [n for n, result in enumerate(results) if isinstance(result, OverloadedError)]
    assert refused == [5, 6, 7, 8, 9]
    assert await keys(kv) == [f"k{n}" for n in range(5)]
    await put(kv, "later")
    await kv.close()


async def test_given_close_during_writes_then_they_are_finished(path: Path) -> None:
    kv = await SqliteKV.open(path)
    writing = [asyncio.ensure_future(put(kv, f"k{n}")) for n in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(kv.close(), kv.close())
    assert len(set(await asyncio.gather(*writing))) == 20
    kv = await SqliteKV.open(path)
    assert len(await keys(kv)) == 20
    await kv.close()


async def test_given_closed_store_then_expiry_says_so(path: Path) -> None:
    clock = Clock()
    kv = await SqliteKV.open(path, clock=clock)
    await kv.lease_grant(1_000)
    await kv.close()
    clock.now += 2
    with pytest.raises(UnreachableError):
        await kv.expire_leases()


async def test_given_cancelled_open_then_the_file_is_free_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release, finished = threading.Event(), threading.Event(), threading.Event()
    open_database = Database.open

    def held(database: Database) -> Mvcc:
        started.set()
        release.wait(DEADLINE_S)
        try:
            return open_database(database)
        finally:
            finished.set()

    with monkeypatch.context() as patch:
        patch.setattr(Database, "open", held)
        opening = asyncio.ensure_future(SqliteKV.open(path))
        assert await asyncio.to_thread(started.wait, DEADLINE_S)
        opening.cancel()
        await asyncio.wait([opening])
    release.set()
    assert await asyncio.to_thread(finished.wait, DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                kv = await SqliteKV.open(path)
            except ConflictError:
                await asyncio.sleep(0.01)
            else:
                break
    await kv.close()


async def test_given_file_of_another_kind_then_refused_and_untouched(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database " * 100)
    with pytest.raises(StorageFailedError, match=r"text\.db"):
        await SqliteKV.open(text)
    assert text.read_text() == "no database " * 100

    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(UnsupportedError, match="another program"):
        await SqliteKV.open(foreign)

    below_file = text / "kv.db"
    with pytest.raises(StorageFailedError, match="cannot open"):
        await SqliteKV.open(below_file)


async def test_given_later_format_or_a_gap_then_refused(path: Path) -> None:
    kv = await SqliteKV.open(path)
    for n in range(3):
        await put(kv, f"k{n}")
    await kv.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DELETE FROM history WHERE key = 'k1'")
    with pytest.raises(StorageFailedError, match="revision 3 is missing"):
        await SqliteKV.open(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UnsupportedError, match="format 99"):
        await SqliteKV.open(path)


async def test_given_open_file_then_every_commit_is_synced(path: Path) -> None:
    kv = await SqliteKV.open(path)
    answers = [
        await _on_thread_one(kv, f"PRAGMA {name}") for name in ("synchronous", "journal_mode")
    ]
    assert answers == [(2,), ("wal",)]
    await kv.close()


async def test_given_a_full_disk_then_reads_go_on_and_writes_wait_for_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "FULL_RETRY_S", 0.01)
    kv = await SqliteKV.open(path)
    before = await put(kv, "a", b"1")

    # SQLite says of a file that may not grow what it says of a full disk.
    await _on_thread(kv, "PRAGMA max_page_count = 40")
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(put(kv, "b", bytes(1 << 20)))
        await eventually(lambda: kv._full)
        with pytest.raises(OverloadedError, match=r"kv\.db is full: nothing can be changed"):
            await put(kv, "c")
        found = await kv.get("a")
        assert found is not None
        assert found.value == b"1"
        assert await kv.get("b") is None
        assert await kv.revision() == before
        assert not waiting.done()
        await _on_thread(kv, "PRAGMA max_page_count = 100000")
        assert await waiting == before + 1
        assert await put(kv, "c") == before + 2
    await kv.close()
    kv = await SqliteKV.open(path)
    assert await keys(kv) == ["a", "b", "c"]
    await kv.close()


async def test_given_a_full_disk_that_stays_full_then_the_write_that_found_it_is_answered_in_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "FULL_RETRY_S", 0.01)
    monkeypatch.setattr(sqlite_module, "ANSWER_S", 0.1)
    kv = await SqliteKV.open(path)
    kv.start_lease_timer()
    await kv.lease_grant(250)
    before = await put(kv, "a")
    await _on_thread(kv, "PRAGMA max_page_count = 40")
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(DeadlineExceededError, match="is full; it may still be"):
            await put(kv, "b", bytes(1 << 20))
        with pytest.raises(OverloadedError, match="is full: nothing can be changed"):
            await put(kv, "c")
        with pytest.raises(OverloadedError, match="is full: nothing can be changed"):
            await kv.check_writable()
        # A lease that ends meanwhile does not end the timer of all others.
        await eventually(lambda: kv.next_expiry() is None)
        await asyncio.sleep(0.2)
        await _on_thread(kv, "PRAGMA max_page_count = 100000")
        await eventually(lambda: not kv._full)
        assert await kv.revision() == before + 1
        await kv.check_writable()
        await kv.lease_grant(10)
        await eventually(lambda: kv.next_expiry() is None)
    await kv.close()


async def test_given_a_disk_without_a_free_byte_then_that_is_found_without_a_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = await SqliteKV.open(path)
    await put(kv, "a")
    found = os.statvfs(path.parent)
    nothing = os.statvfs_result((*found[:4], 0, *found[5:10]))
    monkeypatch.setattr(os, "statvfs", lambda _path: nothing)
    # There may be room in the file when there is none beside it.
    await kv.check_writable()
    check_room = Database.check_room

    def full(_database: Database) -> None:
        raise DiskFullError("database or disk is full")

    monkeypatch.setattr(Database, "check_room", full)
    for _ in range(2):
        with pytest.raises(OverloadedError, match="is full: nothing can be changed"):
            await kv.check_writable()
    # The first write is refused, too.
    with pytest.raises(OverloadedError, match="is full: nothing can be changed"):
        await put(kv, "b")
    monkeypatch.setattr(Database, "check_room", check_room)
    await kv.check_writable()
    await put(kv, "b")
    await kv.close()


async def test_given_a_full_disk_that_stays_full_then_closing_answers_who_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "FULL_RETRY_S", 60.0)
    kv = await SqliteKV.open(path)

    def full(_database: Database, _deltas: Sequence[Delta]) -> None:
        raise DiskFullError("no room")

    monkeypatch.setattr(Database, "write", full)
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(put(kv, "b"))
        await eventually(lambda: kv._full)
        await kv.close()
        with pytest.raises(StorageFailedError, match="no room"):
            await waiting
