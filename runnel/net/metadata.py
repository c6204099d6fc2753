"""Where partitions are led: a cache of the SC's assignments.

An entry is used until a caller fails with it: the caller then asks for one *newer than* the moment
of the failure, and all callers that failed together share one request. While no SC answers, the old
entry is used: SPUs serve without the SC, and a leader that only restarted has not moved.

Neighbours: `runnel.net.known_assignment` says which answers are believed.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, Protocol
from urllib.parse import quote

from runnel.net.known_assignment import KnownAssignment
from runnel.utf8 import as_utf8
from schemas.control.assignments import Assignments, PartitionLeader, TopicAssignment
from schemas.errors import NotFoundError, RunnelError, UnreachableError
from schemas.objects.spelling import nearest


class AssignmentSource(Protocol):
    """The part of `runnel.admin.http.ScClient` that is needed here."""

    async def assignments(self, topic: str) -> Assignments: ...

    async def call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: object = None
    ) -> dict[str, object]: ...


#: How long an answer is waited for at most where an earlier one is known: an SC that stands still
#: gives none.
ASK_AGAIN_S: Final = 10.0
#: For so long at first: until then, a leader that only restarted is not tried. An SC that is slow
#: must be heard in the end, so the wait doubles with each answer that did not come.
_ASK_FIRST_S: Final = 2.0
#: Somebody who asks after longer than this is not the one that waited: it begins anew.
_ASKED_ON_S: Final = 5.0
#: So much longer for each partition: an answer for thousands of them may take seconds.
_ASK_PARTITION_S: Final = 0.001


def partition_of(topic: TopicAssignment, index: int) -> PartitionLeader | None:
    """A partition by its number, without a look at all of them; None if it is not placed."""
    at = bisect_left(topic.partitions, index, key=attrgetter("index"))
    there = at < len(topic.partitions) and topic.partitions[at].index == index
    return topic.partitions[at] if there else None


def patience_s(partitions: int, silences: int) -> float:
    """How long the SC is waited for that has not answered the last ``silences`` times, in seconds,
    where the leaders of a topic of so many partitions are known from earlier."""
    first_s = _ASK_FIRST_S + partitions * _ASK_PARTITION_S
    return min(ASK_AGAIN_S, first_s * (1 << min(silences, 8)))


class LeaderCache:
    """``now`` is a monotonic clock in seconds that tells two moments apart: what is "newer than" a
    failure was asked for after it. The clock of uvloop's loop does not: it has whole milliseconds.
    """

    def __init__(self, source: AssignmentSource, now: Callable[[], float]) -> None:
        self._source = source
        #: Callers take their moments from it.
        self.now = now
        self._entries: dict[str, KnownAssignment] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        #: How many answers did not come in a row, and when the last wait for one ended.
        self._silences: dict[str, tuple[int, float]] = {}

    async def topic(self, name: str, newer_than: float = -math.inf) -> TopicAssignment:
        """The assignment of a topic, asked for after ``newer_than``.

        Raises NotFoundError that says how to create it, UnreachableError when no SC answers and
        nothing is cached.
        """
        entry = self._entries.get(name)
        if entry is not None and entry.asked_at > newer_than:
            return entry.topic
        async with self._locks.setdefault(name, asyncio.Lock()):
            entry = self._entries.get(name)
            if entry is not None and entry.asked_at > newer_than:
                return entry.topic
            asked_at = self.now()
            silences, silent_at = self._silences.pop(name, (0, 0.0))
            if asked_at - silent_at > _ASKED_ON_S:
                silences = 0
            wait_s = None if entry is None else patience_s(entry.topic.partition_count, silences)
            try:
                async with asyncio.timeout(wait_s):
                    answer = await self._source.assignments(name)
            except (UnreachableError, TimeoutError) as error:
                if entry is None:
                    raise
                if isinstance(error, TimeoutError):
                    self._silences[name] = silences + 1, self.now()
                # Callers that failed before this request share its outcome: they must not wait for
                # a silent SC one after another.
                self._entries[name] = replace(entry, asked_at=asked_at)
                return entry.topic
            found = next((topic for topic in answer.topics if topic.name == name), None)
            if entry is not None:
                now = entry.followed_by(found, answer.revision, asked_at)
            else:
                now = (
                    None
                    if found is None
                    else KnownAssignment(found, asked_at, asked_at, answer.revision)
                )
            if now is None:
                self._entries.pop(name, None)
                raise await self._unknown(name)
            self._entries[name] = now
            return now.topic

    def answered_at(self, name: str) -> float:
        """When the SC was asked that told what `last` gives; ``-inf`` if another client knew it."""
        entry = self._entries.get(name)
        return -math.inf if entry is None else entry.answered_at

    def last(self, name: str) -> TopicAssignment | None:
        """The last assignment of a topic that the SC told, however old."""
        entry = self._entries.get(name)
        return None if entry is None else entry.topic

    def learn(self, topic: TopicAssignment) -> None:
        """Another client knew this of a topic; it is used as if this one had asked.

        Leaders of lower terms are not taken over. If this client knows another topic of the name,
        the SC must say which one is there.
        """
        entry = self._entries.get(topic.name)
        if entry is not None and entry.topic.uid != topic.uid:
            self.forget(topic.name)
            return
        if entry is None:
            self._entries[topic.name] = KnownAssignment(topic, self.now())
            return
        newer = []
        for one in topic.partitions:
            mine = partition_of(entry.topic, one.index)
            if mine is None or one.term > mine.term:
                newer.append(one)
        if newer:
            found = {one.index: one for one in (*entry.topic.partitions, *newer)}
            partitions = tuple(found[index] for index in sorted(found))
            known = entry.topic.model_copy(update={"partitions": partitions})
            self._entries[topic.name] = replace(entry, topic=known)

    def forget(self, name: str) -> None:
        """Ask again next time: this client created or deleted the topic."""
        self._entries.pop(name, None)

    async def _unknown(self, name: str) -> NotFoundError:
        if "/" in name:
            return NotFoundError(
                f"stream {name!r} does not exist; create it with: runnel create stream {name}"
            )
        try:
            answer = await self._source.call("GET", "/v1/topics")
        except RunnelError:
            found = []
        else:
            items: Any = answer.get("items") or []
            found = [item["metadata"] for item in items if item]
        if any(one["name"] == name and one.get("deletionTimestamp") for one in found):
            return NotFoundError(
                f"topic {name!r} is being deleted; wait before you create it again:"
                f" runnel wait topic {name} --for deleted"
            )
        if await self._is_stream(name):
            return NotFoundError(
                f"topic {name!r} does not exist, but a stream does: name it default/{name}, or add"
                " --stream to a command"
            )
        # A topic of this very name is too new for the answer that lacks it.
        meant = nearest(name, [str(one["name"]) for one in found if one["name"] != name])
        hint = f" (did you mean {meant!r}?)" if meant else ""
        return NotFoundError(
            f"topic {name!r} does not exist; create it with:"
            f" runnel create topic {name} --partitions N{hint}"
        )

    async def _is_stream(self, name: str) -> bool:
        """Whether a stream of the scope default is meant."""
        named = quote(as_utf8("name of the topic", name), safe="")
        try:
            await self._source.call("GET", f"/v1/streams/default/{named}")
        except RunnelError:
            return False
        return True
