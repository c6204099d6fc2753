"""What a client knows of a topic's leaders, and whether it believes what an SC now says of them.

Pure. SCs answer from what they have seen of the KV, and one may be behind: it names leaders from
before, and lacks what is new.

Neighbours: `runnel.net.metadata` asks the SCs, and keeps one of these for each topic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from schemas.control.assignments import TopicAssignment

#: An SC that is behind is believed after so long: it may be that all the others, and the disks of
#: all SPUs, were put back to what they were.
BEHIND_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class KnownAssignment:
    """The last assignment of a topic that is believed. Times are seconds of a monotonic clock."""

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
    ) -> KnownAssignment | None:
        """The entry after a later answer, None if the topic is gone. An SC that is cut off from the
        KV may go on to name leaders from before, and not know of the topic, of the one that has
        this name now, or of the newest partitions: a partition keeps the leader of the higher term,
        and what was there at a later revision is there."""
        after = None if found is None else KnownAssignment(found, asked_at, asked_at, revision)
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
        return KnownAssignment(
            topic,
            asked_at,
            self.answered_at,
            max(revision, self.revision),
            since,
            asked_at,
            began_anew,
        )
