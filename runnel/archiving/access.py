"""What archiving needs of a client: the topic, its leaders, the list of files, and the SC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from runnel.archive.manifest import PartitionArchive, TopicArchive
from runnel.archive.places import ArchivePlace
from runnel.archive.store import ArchiveStore
from runnel.archiving.writing import ArchiveTask
from runnel.consume.consumer import Consumer
from runnel.net.routing import TopicRoute
from schemas.columns.topic_schema import TopicSchema
from schemas.objects.archive import ArchiveSettings
from schemas.objects.partition import Partition


@dataclass(frozen=True, slots=True)
class ArchiveAccess:
    """``ask_rows`` gives the schema of the topic as it is now; ``partition`` and ``note`` read a
    partition object, and note in it, if it is still as it was read, the archive's watermark."""

    route: TopicRoute
    settings: ArchiveSettings
    store: ArchiveStore
    ask_rows: Callable[[], Awaitable[TopicSchema | None]]
    open_consumer: Callable[[ArchiveTask], Consumer]
    partition: Callable[[str], Awaitable[Partition]]
    note: Callable[[Partition, int], Awaitable[object]]

    @property
    def uid(self) -> str:
        return self.route.topic.uid

    @property
    def place(self) -> ArchivePlace:
        return ArchivePlace(self.settings.path, self.route.name, self.uid)

    async def listed(self) -> TopicArchive:
        """What is in the archive, as committed now. Raises RetryableErrors."""
        return await self.store.archive(self.uid)

    async def listed_of(self, index: int) -> PartitionArchive:
        """The same of one partition."""
        return (await self.listed()).partition(index)
