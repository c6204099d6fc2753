"""The key-value store under the SC: one interface, backends named by a URL.

::

    interface.py    what the SC may rely on: types, `KV`, `range_all`
    requests.py     what every backend refuses, and how compares are decided
    mvcc.py         pure core of the backends below: versions, revisions, leases, compaction
    local.py        that core behind asyncio: watches, lease expiry, automatic compaction
    memory.py       nothing on disk: tests, simulations
    sqlite.py       one file, one process: group commit over database.py
    measured.py     measures the requests to another backend
    etcd/           etcd: several SCs; needs the extra ``etcd``
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from sc.kv.database import Database
from sc.kv.interface import KV
from sc.kv.memory import MemoryKV
from sc.kv.sqlite import SqliteKV
from schemas.daemon.kv_url import without_password
from schemas.errors import InvalidRequestError, UnsupportedError


async def open_kv(url: str) -> KV:
    """Open the store that a URL names: ``memory:``, ``sqlite:/path/file.db`` or
    ``etcd://host:port,host:port`` (see `sc.kv.etcd.options` for users, TLS and time-outs). Leases
    expire by themselves; the caller closes the store.

    Raises UnsupportedError for another scheme or a missing extra, InvalidRequestError for a URL
    that names no store, and what `SqliteKV.open` and `EtcdKV.open` raise.
    """
    scheme, _, rest = url.partition(":")
    match scheme:
        case "memory":
            if rest:
                raise InvalidRequestError(f"KV URL {url!r}: memory: takes no path")
            memory = MemoryKV()
            memory.start_lease_timer()
            return memory
        case "sqlite":
            sqlite = await SqliteKV.open(_file_of(url))
            sqlite.start_lease_timer()
            return sqlite
        case "etcd":
            try:
                # Only here: gRPC is an extra, and slow to import.
                from sc.kv.etcd import EtcdKV, parse_etcd_url
            except ModuleNotFoundError as error:
                raise UnsupportedError(
                    f"etcd:// needs the package {error.name!r}; install it with: "
                    "pip install 'runnel[etcd]'"
                ) from error
            return await EtcdKV.open(parse_etcd_url(url))
        case _:
            raise UnsupportedError(
                f"KV URL {without_password(url)!r}: this version knows memory:, "
                "sqlite:/path/file.db and etcd://host:port"
            )


async def open_copy(url: str) -> KV:
    """Open a store to read it while others use it: of a file what it holds now, in memory.

    Raises NotFoundError where there is no such file, and what `open_kv` raises.
    """
    if not url.startswith("sqlite:"):
        return await open_kv(url)
    return MemoryKV(await asyncio.to_thread(Database(_file_of(url)).read_copy))


def _file_of(url: str) -> Path:
    """The file that a URL of SQLite names. Raises InvalidRequestError."""
    path = url.removeprefix("sqlite:")
    if not path or path.endswith("/") or re.match(r"//[^/]", path):
        raise InvalidRequestError(f"KV URL {url!r} names no file; write sqlite:/path/file.db")
    return Path(re.sub(r"^/+", "/", path))


__all__ = ["KV", "MemoryKV", "SqliteKV", "open_copy", "open_kv", "without_password"]
