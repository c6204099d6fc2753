"""A writer and a watch that go on while something happens to etcd.

The writer creates one key after another and the watch, on a client of its own, follows. In the
end the watch must have told exactly what a listing finds, each write once and in order, and what
was acknowledged must be there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise

from sc.kv.interface import KV, Put, PutEvent, VersionIs, range_all
from schemas.errors import RetryableError
from tests.polling import eventually

from .etcd_server import require_client

require_client()

from sc.kv.etcd import EtcdKV, EtcdOptions  # noqa: E402 - after the check that it can be imported

CALM_WRITES = 150
"""How many writes are acknowledged before the trouble, and after it."""
DEADLINE_S = 90


@dataclass
class Traffic:
    """What a writer was told and what a watch saw."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    """Revisions by key."""
    unknown: int = 0
    told: list[tuple[str, int]] = field(default_factory=list)
    write_times: list[float] = field(default_factory=list)
    event_times: list[float] = field(default_factory=list)
    ending: bool = False

    async def write(self, kv: KV) -> None:
        """Create keys until it is to end; what is under way then is waited for."""
        n = 0
        while not self.ending:
            n += 1
            key = f"p/{n:06d}"
            try:
                result = await kv.txn([VersionIs(key, 0)], [Put(key, b"x" * 256)])
            except RetryableError:
                self.unknown += 1
            else:
                assert result.succeeded
                self.acknowledged[key] = result.revision
                self.write_times.append(time.monotonic())
            await asyncio.sleep(0.002)

    async def follow(self, kv: KV, from_revision: int) -> None:
        """Note every event until cancelled; after an error, from where it was."""
        position = from_revision
        while True:
            try:
                async with kv.watch("p/", position) as watch:
                    async for batch in watch:
                        self.event_times.append(time.monotonic())
                        for event in batch.events:
                            assert isinstance(event, PutEvent)
                            self.told.append((event.kv.key, batch.revision))
                        position = batch.revision + 1
            except RetryableError:
                await asyncio.sleep(0.1)

    def __str__(self) -> str:
        return (
            f"{len(self.acknowledged)} writes, {self.unknown} unknown or refused; longest gap "
            f"{_longest(self.write_times):.1f} s between writes, "
            f"{_longest(self.event_times):.1f} s between events"
        )


def _longest(times: list[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0)


@asynccontextmanager
async def traffic(options: EtcdOptions) -> AsyncIterator[Traffic]:
    """Write and watch during the body; check afterwards, when etcd must be well again."""
    seen = Traffic()
    async with AsyncExitStack() as stack:
        writer = await EtcdKV.open(options)
        stack.push_async_callback(writer.close)
        follower = await EtcdKV.open(options)
        stack.push_async_callback(follower.close)
        start = await writer.revision() + 1
        writing = asyncio.create_task(seen.write(writer))
        stack.push_async_callback(_stop, writing)
        following = asyncio.create_task(seen.follow(follower, start))
        stack.push_async_callback(_stop, following)

        async def until(condition: Callable[[], bool]) -> None:
            await eventually(
                lambda: condition() or writing.done() or following.done(), timeout_s=DEADLINE_S
            )

        await until(lambda: len(seen.acknowledged) >= CALM_WRITES)
        yield seen
        before = len(seen.acknowledged)
        await until(lambda: len(seen.acknowledged) >= before + CALM_WRITES)
        seen.ending = True
        await writing
        present: list[tuple[str, int]] = []

        async def all_is_told() -> bool:
            # Listed again each time: a write of unknown outcome may still come.
            present[:] = await _listed(writer)
            return seen.told == present or following.done()

        with suppress(TimeoutError):
            await eventually(all_is_told, timeout_s=DEADLINE_S)
        await _stop(following)
        assert seen.told == present
        assert seen.acknowledged.items() <= dict(present).items()


async def _listed(kv: KV) -> list[tuple[str, int]]:
    """Keys and their revisions, in the order of writing."""
    pages = range_all(kv, "p/")
    found = [(item.key, item.mod_revision) async for page in pages for item in page.items]
    return sorted(found, key=lambda item: item[1])


async def _stop(task: asyncio.Task[None]) -> None:
    """Cancel; raises what the task ended with before."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
