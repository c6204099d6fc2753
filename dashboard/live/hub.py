"""Follows the cluster while somebody looks at it, and keeps the tables of all browsers.

The tables are the same for all browsers, so a change costs its work once. They are brought up to
date at most every `LEAST_GAP_S`, and so seldom that this takes at most a tenth of the time. While
no browser is there, nothing is read from the SC.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from dashboard.live.rows import (
    PartitionRows,
    health_rows,
    pipeline_rows,
    problem_rows,
    spu_rows,
    stream_rows,
    topic_partition_rows,
    topic_rows,
)
from dashboard.live.tables import Changes, Row, Table
from runnel.admin.http import ScClient
from runnel.status.feed import follow, follow_partitions
from runnel.status.state import ClusterState
from runnel.status.summary import Summaries, Summary
from schemas.daemon.logs import get_logger
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.quantities import check_name, check_scoped_name

LEAST_GAP_S: Final = 0.1
#: Of the time, bringing tables up to date takes at most this share.
BUSY_SHARE: Final = 0.1
#: For so long the hub follows on without a browser: one that loads a page anew finds all there.
LINGER_S: Final = 30.0
RETRY_S: Final = 1.0
#: How often the SC is asked how it is, and how long it has for its answer.
ASK_EVERY_S: Final = 2.0
ANSWER_S: Final = 4.0
#: Of so many topics at once the numbers of partitions are followed; if more are shown, of all.
MOST_TOPICS: Final = 24
#: Before the name of a topic or a stream: the table of its partitions.
TOPIC: Final = "topic:"
TABLES: Final = ("health", "problems", "spus", "topics", "partitions", "pipelines", "streams")

log = get_logger(__name__)


def check_table(name: str) -> str:
    """The name of a table. Raises InvalidRequestError for one that there cannot be."""
    if name in TABLES:
        return name
    if name.startswith(TOPIC):
        with contextlib.suppress(ValueError):
            topic = name.removeprefix(TOPIC)
            check_scoped_name(topic) if "/" in topic else check_name(topic)
            return name
    raise InvalidRequestError(
        f"{name!r} is no table; there are {', '.join(TABLES)}, and {TOPIC}NAME"
    )


class Hub:
    """The tables of one cluster."""

    def __init__(self, sc: ScClient) -> None:
        self._sc = sc
        self._state = ClusterState()
        self._summaries = Summaries(self._state)
        self._tables: dict[str, Table] = {}
        self._readers: Counter[str] = Counter()
        self._browsers = 0
        self._partition_rows = PartitionRows(self._state)
        #: Something came that the tables do not show.
        self._news = asyncio.Event()
        #: Tables that a reader waits for, as they were never made.
        self._new: set[str] = set()
        self._asked = asyncio.Event()
        #: Browsers show partitions of other topics than before.
        self._other_topics = asyncio.Event()
        self._changed = asyncio.Event()
        #: A browser is there; and none is.
        self._wanted, self._left = asyncio.Event(), asyncio.Event()
        self._broken: str | None = "connecting to the SC"
        self._silent: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why the tables are old, or may be; None while they are not."""
        return self._broken or self._silent

    @property
    def state(self) -> ClusterState:
        """What is known of the cluster; as old as the last browser, if none looks at it now."""
        return self._state

    @property
    def browsers(self) -> int:
        """How many look at it."""
        return self._browsers

    async def run(self) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_when_wanted(), name="follow the cluster")
            group.create_task(self._follow_shown_topics(), name="follow partitions")
            group.create_task(self._refresh_for_ever(), name="refresh tables")
            group.create_task(self._ask_for_ever(), name="ask the SC")

    # -- readers ------------------------------------------------------------------------------

    @contextmanager
    def browser(self) -> Iterator[None]:
        """While it is open, the cluster is followed."""
        self._browsers += 1
        self._wanted.set()
        self._left.clear()
        try:
            yield
        finally:
            self._browsers -= 1
            if not self._browsers:
                self._wanted.clear()
                self._left.set()

    @contextmanager
    def reading(self, names: Iterable[str]) -> Iterator[None]:
        """While it is open, these tables are kept up to date."""
        chosen = frozenset(names)
        topics = self._shown_topics()
        self._readers.update(chosen)
        self._note_topics(topics)
        for name in chosen - self._tables.keys():
            self._tables[name] = Table()
            self._new.add(name)
        self._asked.set()
        self._news.set()
        try:
            yield
        finally:
            topics = self._shown_topics()
            self._readers.subtract(chosen)
            for name in [name for name in chosen if not self._readers[name]]:
                del self._readers[name]
                # What nobody reads is not kept: the next reader has it made.
                self._tables.pop(name, None)
                self._new.discard(name)
            self._note_topics(topics)

    def _shown_topics(self) -> list[str]:
        return sorted(n.removeprefix(TOPIC) for n in self._readers if n.startswith(TOPIC))

    def _note_topics(self, before: list[str]) -> None:
        if self._shown_topics() != before:
            self._other_topics.set()

    def changes(self, seen: Mapping[str, int]) -> dict[str, Changes]:
        """What is new in the tables, by what a reader has seen of each."""
        found = {}
        for name, version in seen.items():
            table = self._tables.get(name)
            changes = None if table is None or not self.complete else table.since(version)
            if changes is not None:
                found[name] = changes
        return found

    @property
    def complete(self) -> bool:
        """Whether the tables show a whole cluster, be it an old one."""
        return self._state.revision is not None

    async def wait(self) -> None:
        """Until something changed."""
        await self._changed.wait()

    # -- work -----------------------------------------------------------------------------------

    async def _follow_when_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            following = asyncio.create_task(self._follow(), name="follow")
            try:
                await self._until_left()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _until_left(self) -> None:
        """Until no browser has been there for `LINGER_S`."""
        while True:
            await self._left.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._wanted.wait()
            if not self._wanted.is_set():
                return

    async def _follow(self) -> None:
        while True:
            try:
                await follow(self._sc, self._state, self._came, self._lost)
            except NotFoundError:
                self._say("the SC is of an earlier version, which has no statistics; upgrade it")
            except RunnelError as error:
                self._say(error.message)
            except Exception as error:
                # A fault of ours: say so where people look, and begin anew.
                log.error("following the cluster failed", exc_info=error)
                self._say(f"internal error, see the dashboard's log: {error!r}")
                self._state.forget_revision()
            await asyncio.sleep(RETRY_S)

    async def _follow_shown_topics(self) -> None:
        """The numbers of partitions are many: follow those that browsers show."""
        while True:
            self._other_topics.clear()
            topics = self._shown_topics()
            following = asyncio.create_task(self._follow_topics(topics), name="follow topics")
            try:
                await self._other_topics.wait()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            # However fast browsers go from topic to topic.
            await asyncio.sleep(LEAST_GAP_S)

    async def _follow_topics(self, topics: list[str]) -> None:
        while topics:
            try:
                wanted = topics if len(topics) <= MOST_TOPICS else ()
                await follow_partitions(self._sc, self._state, wanted, self._news.set)
            except RunnelError:
                # The other stream to the SC fails, too, and says why.
                pass
            except Exception as error:
                log.error("following partitions failed", exc_info=error)
                self._say(f"internal error, see the dashboard's log: {error!r}")
            await asyncio.sleep(RETRY_S)

    async def _ask_for_ever(self) -> None:
        """Ask the SC how it is: one that stands still sends nothing, as one does of a cluster in
        which nothing happens."""
        while True:
            await self._wanted.wait()
            silent = None
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._sc.call("GET", "/health")
            except TimeoutError:
                silent = f"the SC at {self._sc.address} has not answered for {ANSWER_S:g} s"
            except RunnelError as error:
                silent = error.message
            if silent != self._silent:
                self._silent = silent
                self._tell()
            await asyncio.sleep(ASK_EVERY_S)

    def _came(self) -> None:
        if self._broken is not None:
            self._say(None)
        self._news.set()

    def _lost(self, error: RunnelError | None) -> None:
        self._say(None if error is None else error.message)

    def _say(self, trouble: str | None) -> None:
        if trouble != self._broken:
            self._broken = trouble
            self._tell()

    def _tell(self) -> None:
        # Everybody who waits now goes on; those who come later wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _refresh_for_ever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            took_s = 0.0
            if self._readers and self._state.complete:
                began = time.monotonic()
                self._refresh(self._readers)
                took_s = time.monotonic() - began
            await self._rest(max(LEAST_GAP_S, took_s * (1 / BUSY_SHARE - 1)))

    async def _rest(self, seconds: float) -> None:
        """Let time pass, and make only what a browser waits for that has nothing to show."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        while loop.time() < ends_at:
            self._asked.clear()
            new = self._new & self._readers.keys()
            if new and self._state.complete:
                self._refresh(new)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(ends_at):
                    await asyncio.sleep(LEAST_GAP_S)
                    await self._asked.wait()

    def _refresh(self, names: Iterable[str]) -> None:
        """Bring these tables up to date, and tell browsers if one has changed. A fault of ours ends
        nothing, and keeps no other table back: it is told where people look."""
        summary = self._summaries.latest()
        changed, fault = False, None
        for name in names:
            try:
                changed |= self._tables[name].replace(self._rows(name, summary))
            except Exception as error:
                log.error("a table could not be made", table=name, exc_info=error)
                fault = error
            else:
                self._new.discard(name)
        if changed:
            self._tell()
        if fault is not None:
            self._say(f"internal error, see the dashboard's log: {fault!r}")

    def _rows(self, name: str, summary: Summary) -> Mapping[str, Row]:
        state = self._state
        match name:
            case "health":
                return health_rows(summary, state, str(self._sc.address))
            case "problems":
                return problem_rows(summary)
            case "spus":
                return spu_rows(summary, state)
            case "topics":
                return topic_rows(summary, state)
            case "partitions":
                return self._partition_rows.rows()
            case "pipelines":
                return pipeline_rows(state)
            case "streams":
                return stream_rows(state)
            case _:
                return topic_partition_rows(state, name.removeprefix(TOPIC))


@contextlib.asynccontextmanager
async def running(hub: Hub) -> AsyncIterator[asyncio.Task[None]]:
    """The hub works while this is open, in the task that it gives."""
    task = asyncio.create_task(hub.run(), name="hub")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
