"""A KV as one SC of several reaches it: the way there may be cut, and messages may be lost."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from sc.kv.interface import KV, Compare, Op, TxnResult, Watch, WatchBatch
from schemas.errors import DeadlineExceededError

Choice = Callable[[Sequence[Op]], bool]


class Cable:
    """While it is `cut`, no call is answered and nothing is watched. ``loses_request`` and
    ``loses_answer`` say of which transactions, by what they write, one of them is lost."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self._carries = asyncio.Event()
        self._carries.set()
        self.loses_request: Choice = lambda _: False
        self.loses_answer: Choice = lambda _: False
        self.lost = 0

    def cut(self) -> None:
        self._carries.clear()

    def mend(self) -> None:
        self._carries.set()

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        await self._carries.wait()
        if self.loses_request(success):
            self._lose()
        result = await self._kv.txn(compares, success, failure)
        if result.succeeded and self.loses_answer(success):
            self._lose()
        return result

    def watch(self, prefix: str, from_revision: int) -> Watch:
        return _CabledWatch(self._kv.watch(prefix, from_revision), self._carries)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kv, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def through(*args: Any, **options: Any) -> Any:
            await self._carries.wait()
            return await found(*args, **options)

        return through

    def _lose(self) -> None:
        self.lost += 1
        raise DeadlineExceededError("no answer")


class _CabledWatch(Watch):
    def __init__(self, watch: Watch, carries: asyncio.Event) -> None:
        self._watch = watch
        self._carries = carries
        self._kept: WatchBatch | None = None

    async def __anext__(self) -> WatchBatch:
        if self._kept is None:
            self._kept = await anext(self._watch)
        await self._carries.wait()
        batch, self._kept = self._kept, None
        return batch

    async def aclose(self) -> None:
        await self._watch.aclose()
