"""The buckets that this SC holds: it takes what it should have, and gives back what it should not.

A bucket is a key in the KV with the holder's instance, attached to the holder's lease: it is free
again when that SC has ended. An SC takes only what is free, and gives a bucket back only to another
SC that runs. What it holds is what its mirror shows, so each write for a stream compares the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from sc.dispatch.fences import NOT_HELD
from sc.kv.interface import Compare, CreateRevisionIs, Delete, KeyValue, ModRevisionIs, Op, Put
from sc.mirror import Mirror
from sc.sharing.wanted import buckets_of
from sc.store.buckets import DEFAULT_BUCKETS, Buckets
from schemas.control.controllers import ControllerEntry
from schemas.daemon.logs import get_logger
from schemas.errors import ConflictError, RunnelError
from schemas.objects.stream import Stream

#: Keys that one transaction takes or gives back; it may compare 128.
AT_ONCE: Final = 60
#: How long it waits at most before it looks again.
LOOK_S: Final = 1.0

log = get_logger(__name__)

Gained = Callable[[frozenset[int]], None]


class BucketClaims:
    """The buckets of the SC ``me``. ``lease`` gives its lease; 0 while it may not rely on one.
    ``predecessor``: the instance of an earlier process of this SC that has ended."""

    def __init__(
        self,
        mirror: Mirror,
        me: ControllerEntry,
        lease: Callable[[], int],
        predecessor: str | None = None,
    ) -> None:
        self._mirror = mirror
        self._me = me
        self._lease = lease
        self._predecessor = predecessor
        self._news = asyncio.Event()
        self._listeners: list[Gained] = []
        #: The revision at which each bucket that it holds became its own, by number.
        self.held: dict[int, int] = {}
        mirror.notice_office(self._noticed)

    @property
    def buckets(self) -> Buckets:
        """Those that it holds, now and whenever it is asked again."""
        return Buckets(self._count, self.held.keys())

    def guard(self, stream: Stream) -> Compare:
        """What a write for a stream compares. Raises ConflictError if its bucket is not held."""
        number = self.buckets.bucket_of(stream.uid)
        revision = self.held.get(number)
        if revision is None:
            raise ConflictError(NOT_HELD)
        return CreateRevisionIs(self._mirror.keys.bucket(number), revision)

    def listen(self, gained: Gained) -> Callable[[], None]:
        """Call ``gained`` with the numbers of buckets that it holds from now on; gives the function
        that ends it."""
        self._listeners.append(gained)
        return lambda: self._listeners.remove(gained)

    async def run(self) -> None:
        """Take and give back for ever."""
        while True:
            try:
                await self._settle()
            except RunnelError as error:
                log.warning("buckets cannot be shared, trying again", why=error.message)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            self._news.clear()

    @property
    def _count(self) -> int:
        identity = self._mirror.identity
        return DEFAULT_BUCKETS if identity is None else identity.buckets

    def _noticed(self, key: str, found: KeyValue | None) -> None:
        keys = self._mirror.keys
        if (number := keys.parse_bucket(key)) is None:
            if key == keys.identity or key.startswith(keys.scs):
                self._news.set()
            return
        self._news.set()
        before = self.held.pop(number, None)
        if found is None or found.value.decode(errors="replace") != self._me.instance:
            return
        self.held[number] = found.create_revision
        if before != found.create_revision:
            for gained in tuple(self._listeners):
                gained(frozenset((number,)))

    async def _settle(self) -> None:
        """Take and give back what should be elsewhere now. Raises RunnelError."""
        mirror, me = self._mirror, self._me
        shown = mirror.controllers.get(me.name)
        lease = self._lease()
        if not lease or mirror.identity is None or shown is None or shown.instance != me.instance:
            return
        names = frozenset(one.name for one in mirror.controllers.values() if one.shares)
        if not names:
            # Nobody can do better than what is.
            return
        mine = buckets_of(me.name, names, self._count) if me.name in names else frozenset[int]()
        left = [
            number
            for number, owner in mirror.bucket_owners.items()
            if owner.value.decode(errors="replace") == self._predecessor
        ]
        # Of an earlier process of this SC, whose lease has not ended yet.
        await self._delete(left)
        await self._delete(self.held.keys() - mine)
        free = mine - mirror.bucket_owners.keys()
        if free and await self._take(free, lease):
            log.info("works for streams", buckets=len(self.held), of=self._count, scs=len(names))

    async def _take(self, numbers: Iterable[int], lease: int) -> bool:
        """Take buckets that are free; whether it got some."""
        keys, value, got = self._mirror.keys, self._me.instance.encode(), False
        here: list[Compare] = [ModRevisionIs(keys.moved, 0), ModRevisionIs(keys.arriving, 0)]
        for some in _chunks(numbers):
            free = [ModRevisionIs(keys.bucket(number), 0) for number in some]
            puts: list[Op] = [Put(keys.bucket(number), value, lease) for number in some]
            result = await self._mirror.kv.txn([*here, *free], puts)
            # Where another SC was faster, the mirror shows it in a moment.
            await self._mirror.feed.applied(result.revision if result.succeeded else 0)
            got = got or result.succeeded
        return got

    async def _delete(self, numbers: Iterable[int]) -> None:
        """Give buckets back, unless they are somebody else's by now."""
        owners = self._mirror.bucket_owners
        for some in _chunks(numbers):
            there = [owners[number] for number in some if number in owners]
            same = [CreateRevisionIs(one.key, one.create_revision) for one in there]
            result = await self._mirror.kv.txn(same, [Delete(one.key) for one in there])
            await self._mirror.feed.applied(result.revision if result.succeeded else 0)


def _chunks(numbers: Iterable[int]) -> Iterator[list[int]]:
    ordered = sorted(numbers)
    for start in range(0, len(ordered), AT_ONCE):
        yield ordered[start : start + AT_ONCE]
