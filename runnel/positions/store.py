"""The topic ``_positions``, which keeps committed offsets: state logs, by the name of a consumer.

`runnel.positions.state` decides what may happen to a reading, `runnel.state_log.log` makes it
happen exactly once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from runnel.net.routing import TopicRoute
from runnel.positions.state import (
    Opened,
    Positions,
    PositionsState,
    Update,
    apart,
    commit,
    find,
    open_reading,
    uncommitted,
)
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.state_log.log import StateLog, now_us
from runnel.state_log.topic_logs import TopicLogs
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import check_name
from schemas.objects.system_topics import is_system_name

#: How long listing and resetting wait for a partition that does not answer.
GIVE_UP_S: Final = 30.0

#: Where to begin: in partitions that existed before, and in those added since.
Starts = Callable[[Sequence[int], Sequence[int]], Awaitable[Mapping[int, OffsetAndTerm]]]


def check_consumer_name(name: str) -> str:
    """The name, if a consumer can be called that. Raises InvalidRequestError."""
    try:
        check_name(name)
    except ValueError as error:
        raise InvalidRequestError(f"name of a consumer: {error}") from error
    if is_system_name(name):
        raise InvalidRequestError(
            f"name of a consumer: {name!r}: names that begin with _ are the system's"
        )
    return name


class PositionStore(TopicLogs[Positions, Update]):
    """The committed positions of all consumers, by their names, as one client reads and writes
    them."""

    def __init__(
        self,
        find_route: Callable[[], Awaitable[TopicRoute]],
        make: Callable[[], Awaitable[object]],
        truncate: Callable[[str, int], Awaitable[object]],
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(PositionsState(), find_route, make, truncate, new_id)

    async def everything(self) -> Positions:
        """All readings of all names; none if no name was ever used."""
        found: Positions = {}
        async for state in self.states(GIVE_UP_S):
            found |= state
        return found


class Session:
    """One consumer under a name, from `open` to `close`: what it commits, while it is not fenced.

    ``by`` identifies it to other clients. ``give_up_s`` bounds each call.
    """

    def __init__(
        self, store: PositionStore, name: str, topic: str, by: str, give_up_s: float
    ) -> None:
        self.name = name
        self._store = store
        self._topic = topic
        self._by = f"{by} (pid {os.getpid()} on {socket.gethostname()})"
        self._id = store.new_id()
        self._give_up_s = give_up_s
        self._log: StateLog[Positions, Update] | None = None
        self._committed: dict[int, int] = {}

    async def open(
        self, topic_uid: str, partition_count: int, partitions: Sequence[int], starts: Starts
    ) -> dict[int, OffsetAndTerm]:
        """Take the reading over from its former session, and return the places to read from.

        ``starts`` is asked about partitions without a commit; its offsets are committed at once, so
        that a consumer that dies before its first commit begins there again. Partitions that it
        leaves out are left out of the result.
        """
        log = await self._store.made_log_of(self.name)
        reading = find(await log.read(self._give_up_s), self.name, self._topic)
        there, since = uncommitted(reading, topic_uid, partitions)
        offsets, terms = apart(await starts(there, since) if there or since else {})
        opened = Opened(
            name=self.name,
            topic=self._topic,
            topic_uid=topic_uid,
            partition_count=partition_count,
            session=self._id,
            by=self._by,
            at_us=now_us(),
            starts=offsets,
            terms=terms,
        )
        state = await log.update(lambda state: open_reading(state, opened), self._give_up_s)
        self._log = log
        reading = find(state, self.name, self._topic)
        positions = reading.positions if reading is not None else {}
        found = {p: positions[p].place for p in partitions if p in positions}
        self._committed = {p: place.offset for p, place in found.items()}
        return found

    async def commit(self, places: Mapping[int, OffsetAndTerm]) -> None:
        """Commit up to where was read, forwards or back.

        Raises FencedError once another session owns the reading, DeadlineExceededError.
        """
        if self._log is None:
            return
        news = {p: at for p, at in places.items() if self._committed.get(p) != at.offset}
        if news:
            await self._append(self._log, news, self._give_up_s, back=True)
        else:
            state = await self._log.read(self._give_up_s)
            commit(state, self.name, self._topic, self._id, {}, 0)

    async def advance(self, places: Mapping[int, OffsetAndTerm]) -> None:
        """Commit those places that are above the committed ones. Raises what `commit` raises, if
        there are any."""
        if self._log is not None and self._any_above(places):
            await self._append(self._log, places, self._give_up_s)

    async def close(self, places: Mapping[int, OffsetAndTerm], give_up_s: float) -> None:
        """`advance`, and end the session. Raises FencedError, DeadlineExceededError; the session is
        over all the same."""
        log, self._log = self._log, None
        if log is not None:
            await self._append(log, places, give_up_s, close=True)

    def _any_above(self, places: Mapping[int, OffsetAndTerm]) -> bool:
        return any(at.offset > self._committed.get(p, -1) for p, at in places.items())

    async def _append(
        self,
        log: StateLog[Positions, Update],
        places: Mapping[int, OffsetAndTerm],
        give_up_s: float,
        *,
        back: bool = False,
        close: bool = False,
    ) -> None:
        at_us = now_us()
        state = await log.update(
            lambda state: commit(
                state, self.name, self._topic, self._id, places, at_us, back=back, close=close
            ),
            give_up_s,
        )
        reading = find(state, self.name, self._topic)
        if reading is not None:
            self._committed = {p: at.offset for p, at in reading.positions.items()}
