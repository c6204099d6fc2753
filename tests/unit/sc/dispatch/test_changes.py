"""The feed of changes: who is told, in which order, and who waits for a revision."""

from __future__ import annotations

import asyncio

from sc.dispatch.changes import ChangeFeed
from sc.store.local_store import Change, LocalStore, ObjectChanged
from tests.unit.sc.builders import topic_of


def test_given_changes_then_followers_have_their_cause_and_listeners_come_after_them() -> None:
    feed = ChangeFeed(LocalStore())
    one, two = topic_of("one", revision=1), topic_of("two", revision=2)
    changes = [(ObjectChanged(None, one), "c1"), (ObjectChanged(None, two), "c2")]
    seen: list[Change] = []
    told: list[tuple[Change, str]] = []
    end = feed.listen(seen.append)
    end_following = feed.follow(lambda change, cause: told.append((change, cause)))
    feed.apply(changes, 2)
    assert told == changes
    assert seen == [change for change, _ in changes]
    end()
    end()
    end_following()
    feed.apply(changes, 3)
    assert len(seen) == len(told) == 2


async def test_given_waiters_then_each_goes_on_at_its_own_revision() -> None:
    feed = ChangeFeed(LocalStore())
    feed.apply([], 5)
    await feed.applied(5)
    waiters = {n: asyncio.create_task(feed.applied(n)) for n in (6, 7, 9)}
    await asyncio.sleep(0)
    feed.apply([], 7)
    await asyncio.gather(waiters[6], waiters[7])
    assert not waiters[9].done()
    feed.apply([], 8)
    await asyncio.sleep(0)
    assert not waiters[9].done()
    feed.apply([], 12)
    await waiters[9]


async def test_given_older_revision_then_the_mirror_does_not_go_back() -> None:
    store = LocalStore()
    feed = ChangeFeed(store)
    feed.apply([], 5)
    feed.apply([], 3)
    assert store.revision == 5


async def test_given_cancelled_waiter_then_the_others_go_on() -> None:
    feed = ChangeFeed(LocalStore())
    gone, stays = (asyncio.create_task(feed.applied(2)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    feed.apply([], 2)
    await stays
