"""What has changed in the mirror, told to whoever follows it, in one order.

The reader of the KV is the only one that tells. A follower gets each change with its cause before
any listener does: the controllers of an SC that leads follow, and the feeds of the API listen.
`applied` lets a writer wait until the mirror shows its write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from sc.store.local_store import Change, LocalStore
from schemas.errors import DeadlineExceededError

#: How long a writer waits for the mirror to show its write.
APPLIED_S: Final = 10.0

Listener = Callable[[Change], None]
Follower = Callable[[Change, str], None]


class ChangeFeed:
    """The changes of one store."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._followers: list[Follower] = []
        self._listeners: set[Listener] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def apply(self, changes: Iterable[tuple[Change, str]], revision: int) -> None:
        """Tell of changes that are in the store, each with its cause, up to ``revision``."""
        store = self._store
        for change, cause in changes:
            for follower in tuple(self._followers):
                follower(change, cause)
            for listener in tuple(self._listeners):
                listener(change)
        if revision > store.revision:
            store.revision = revision
            for wanted, future in self._waiters:
                if wanted <= revision and not future.done():
                    future.set_result(None)
            self._waiters = [(w, f) for w, f in self._waiters if not f.done()]

    async def applied(self, revision: int) -> None:
        """Wait until the mirror is at ``revision`` or above.

        Raises DeadlineExceededError after `APPLIED_S`: the KV does not tell what it holds.
        """
        if self._store.revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (revision, future)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(APPLIED_S):
                await future
        except TimeoutError:
            raise DeadlineExceededError(
                f"revision {revision} of the KV was not seen within {APPLIED_S:g} s: the SC is at"
                f" {self._store.revision}; read the object again, then decide"
            ) from None
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Call ``follower`` with every change and its cause from now on; gives the function that
        ends it."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every change from now on; gives the function that ends it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)
