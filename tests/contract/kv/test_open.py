"""Opening a store by its URL, and leases that expire by themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sc.kv import MemoryKV, SqliteKV, open_kv
from schemas.errors import InvalidRequestError, NotFoundError, UnsupportedError

from .store import keys, put, take


async def test_given_memory_url_then_an_empty_store() -> None:
    kv = await open_kv("memory:")
    assert isinstance(kv, MemoryKV)
    assert await keys(kv) == []
    await kv.close()


@pytest.mark.parametrize("slashes", ["", "//"])
async def test_given_sqlite_url_then_the_file_is_used(tmp_path: Path, slashes: str) -> None:
    kv = await open_kv(f"sqlite:{slashes}{tmp_path}/kv.db")
    assert isinstance(kv, SqliteKV)
    await put(kv, "a")
    await kv.close()
    assert (tmp_path / "kv.db").is_file()


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        pytest.param("consul://me:pw@h", UnsupportedError, r"me:\*\*\*@h.*memory:", id="unknown"),
        pytest.param("", UnsupportedError, "memory:, sqlite:", id="empty"),
        pytest.param("sqlite:", InvalidRequestError, "names no file", id="sqlite-without-file"),
        pytest.param("sqlite:/tmp/", InvalidRequestError, "names no file", id="sqlite-directory"),
        pytest.param("sqlite://kv.db", InvalidRequestError, "names no file", id="sqlite-host"),
        pytest.param("memory:/x", InvalidRequestError, "takes no path", id="memory-with-path"),
    ],
)
async def test_given_url_that_names_no_store_then_refused(
    url: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await open_kv(url)


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_given_opened_store_then_leases_expire_without_being_asked(
    scheme: str, tmp_path: Path
) -> None:
    kv = await open_kv("memory:" if scheme == "memory" else f"sqlite:{tmp_path}/kv.db")
    long = await kv.lease_grant(60_000)
    short = await kv.lease_grant(20)
    revision = await put(kv, "a", b"", short)
    await put(kv, "b", b"", long)
    async with kv.watch("", revision + 2) as watch:
        await take(watch, 1)
    assert await keys(kv) == ["b"]
    with pytest.raises(NotFoundError):
        await kv.lease_keep_alive(short)
    # The timer waits for the long lease now, and must notice a shorter one.
    last = await put(kv, "c", b"", await kv.lease_grant(20))
    async with kv.watch("", last + 1) as watch:
        await take(watch, 1)
    assert await keys(kv) == ["b"]
    await kv.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("kv-")]
