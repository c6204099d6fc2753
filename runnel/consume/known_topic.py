"""What one client knows of a topic, for consumers of other clients that need not ask the SC.

A planner asks once, and sends this to many readers. What is not true any more is found out as ever:
a leader that leads no longer says so, and then the SC is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from runnel.admin.answers import ClusterInfo
from runnel.archive.source import ArchivedTopic
from runnel.net.metadata import partition_of
from runnel.net.routing import TopicRoute
from schemas.columns.topic_schema import TopicSchema
from schemas.control.assignments import TopicAssignment


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """``rows``: the schema of a typed topic. ``archive``: what is in its archive, if it has one."""

    cluster: ClusterInfo
    topic: TopicAssignment
    rows: TopicSchema | None
    archive: ArchivedTopic | None = None

    def only(self, partition: int) -> KnownTopic:
        """The same about one partition, which is less to send."""
        led = partition_of(self.topic, partition)
        found = () if led is None else (led,)
        archive = None if self.archive is None else self.archive.only(partition)
        topic = self.topic.model_copy(update={"partitions": found})
        return replace(self, topic=topic, archive=archive)

    def then(
        self, ask: Callable[[TopicRoute], Awaitable[TopicSchema | None]]
    ) -> Callable[[TopicRoute], Awaitable[TopicSchema | None]]:
        """As ``ask``, which tells the schema of a topic, but the first answer is what is known."""
        told = False

        async def first(route: TopicRoute) -> TopicSchema | None:
            nonlocal told
            if told:
                return await ask(route)
            told = True
            return self.rows

        return first
