"""Where partitions are led: a cache of the SC's assignments.

An entry is used until a caller fails with it: the caller then asks for one *newer than* the moment
of the failure, and all callers that failed together share one request. While no SC answers, the old
entry is used: SPUs serve without the SC, and a leader that only restarted has not moved.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Protocol
from urllib.parse import quote

from schemas.control.assignments import Assignments, TopicAssignment
from schemas.errors import NotFoundError, RunnelError, UnreachableError
from schemas.objects.spelling import nearest


class AssignmentSource(Protocol):
    """The part of `runnel.admin.http.ScClient` that is needed here."""

    async def assignments(self, topic: str) -> Assignments: ...

    async def call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: object = None
    ) -> dict[str, object]: ...


#: An SC that is behind is believed after so long: it may be that all the others, and the disks of
#: all SPUs, were put back to what they were.
BEHIND_S: Final = 60.0
#: How long an answer is waited for where an earlier one is known: an SC that stands still gives
#: none, and one of a topic with thousands of partitions may take seconds.
ASK_AGAIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Entry:
    topic: TopicAssignment
    asked_at: float
    #: When an SC was asked that gave an answer which is not behind.
    answered_at: float = -math.inf
    #: The revision of the KV that the SC had seen.
    revision: int = 0
    #: Since when SCs have only said what is older than this.
    behind_since: float | None = None
    #: When an SC last answered with what is older than this.
    behind_at: float = -math.inf
    #: Whether `behind_since` begins after a time in which nobody asked.
    began_anew: bool = False

    def followed_by(
        self, found: TopicAssignment | None, revision: int, asked_at: float
    ) -> _Entry | None:
        """The entry after a later answer, None if the topic is gone. An SC that is cut off from the
        KV may go on to name leaders from before, and not know of the topic, of the one that has
        this name now, or of the newest partitions: a partition keeps the leader of the higher term,
        and what was there at a later revision is there."""
        after = None if found is None else _Entry(found, asked_at, asked_at, revision)
        topic = self.topic
        if found is None or found.uid != topic.uid:
            is_behind = revision < self.revision
        else:
            base, other = (topic, found) if revision < self.revision else (found, topic)
            others = {one.index: one for one in other.partitions}
            newest = tuple(
                max(one, others.get(one.index, one), key=attrgetter("term"))
                for one in base.partitions
            )
            is_behind = newest != found.partitions
            topic = base.model_copy(update={"partitions": newest})
        since, began_anew = self.behind_since, self.began_anew
        if since is None:
            since = asked_at
        elif asked_at - self.behind_at > 2 * BEHIND_S and not began_anew:
            # Nobody asked for long: that it was behind then says nothing of the time between. But
            # who always asks that rarely must believe it some time.
            since, began_anew = asked_at, True
        if not is_behind or asked_at - since >= BEHIND_S:
            return after
        return _Entry(
            topic,
            asked_at,
            self.answered_at,
            max(revision, self.revision),
            since,
            asked_at,
            began_anew,
        )


class LeaderCache:
    """``now`` is a monotonic clock in seconds."""

    def __init__(self, source: AssignmentSource, now: Callable[[], float]) -> None:
        self._source = source
        self._now = now
        self._entries: dict[str, _Entry] = {}
        self._locks: dict[str, asyncio.Lock] = {}

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
            asked_at = self._now()
            try:
                async with asyncio.timeout(None if entry is None else ASK_AGAIN_S):
                    answer = await self._source.assignments(name)
            except (UnreachableError, TimeoutError):
                if entry is None:
                    raise
                # Callers that failed before this request share its outcome: they must not wait for
                # a silent SC one after another.
                self._entries[name] = replace(entry, asked_at=asked_at)
                return entry.topic
            found = next((topic for topic in answer.topics if topic.name == name), None)
            if entry is not None:
                now = entry.followed_by(found, answer.revision, asked_at)
            else:
                now = None if found is None else _Entry(found, asked_at, asked_at, answer.revision)
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
            self._entries[topic.name] = _Entry(topic, self._now())
            return
        found = {one.index: one for one in entry.topic.partitions}
        newer = [
            one
            for one in topic.partitions
            if one.index not in found or one.term > found[one.index].term
        ]
        if newer:
            found.update((one.index, one) for one in newer)
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
        try:
            await self._source.call("GET", f"/v1/streams/default/{quote(name, safe='')}")
        except RunnelError:
            return False
        return True
