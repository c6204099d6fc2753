"""What every KV backend must do. A backend's tests inherit `KVContract` and give it stores."""

from __future__ import annotations

import asyncio

import pytest

from sc.kv.interface import KV, Put
from schemas.errors import RunnelError, UnreachableError

from .leases import Leases
from .reads_and_writes import ReadsAndWrites
from .store import put
from .watches import Watches


class KVContract(ReadsAndWrites, Watches, Leases):
    """All of it, and what is left of a store that is closed."""

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
