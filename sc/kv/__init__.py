"""The key-value store under the SC: one interface, backends named by a URL.

::

    interface.py    what the SC may rely on: types, `KV`, `range_all`
    requests.py     what every backend refuses, and how compares are decided
    mvcc.py         pure core of the backends below: versions, revisions, leases, compaction
    local.py        that core behind asyncio: watches, lease expiry, automatic compaction
    memory.py       nothing on disk: tests, simulations
    sqlite.py       one file, one process: group commit over database.py
"""

from __future__ import annotations

import re
from pathlib import Path

from sc.kv.interface import KV
from sc.kv.memory import MemoryKV
from sc.kv.sqlite import SqliteKV
from schemas.errors import InvalidRequestError, UnsupportedError


async def open_kv(url: str) -> KV:
    """Open the store that a URL names: ``memory:`` or ``sqlite:/path/file.db``. Leases expire by
    themselves; the caller closes the store.

    Raises UnsupportedError for another scheme, InvalidRequestError for a URL that names no file,
    and what `SqliteKV.open` raises.
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
            if not rest or rest.endswith("/") or re.match(r"//[^/]", rest):
                raise InvalidRequestError(
                    f"KV URL {url!r} names no file; write sqlite:/path/file.db"
                )
            sqlite = await SqliteKV.open(Path(re.sub(r"^/+", "/", rest)))
            sqlite.start_lease_timer()
            return sqlite
        case _:
            raise UnsupportedError(
                f"KV URL {url!r}: this version knows memory: and sqlite:/path/file.db"
            )


__all__ = ["KV", "MemoryKV", "SqliteKV", "open_kv"]
