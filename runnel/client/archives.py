"""Archives: taking what is due of topics there, what is there, and whether it is whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from runnel.archive.manifest import ArchivedFile
from runnel.archive.places import ArchivePlace
from runnel.archive.source import ArchivedTopic
from runnel.archiving.access import ArchiveAccess
from runnel.archiving.run import ArchiveRun, Execute, OnFile, in_this_process, run_archive
from runnel.archiving.verify import FileProblem, verify_files
from runnel.archiving.writing import ArchiveTask
from runnel.client.records import Records
from runnel.consume.consumer import Consumer
from runnel.consume.known_topic import KnownTopic
from runnel.net.routing import TopicRoute
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.objects.archive import ArchiveSettings
from schemas.objects.partition import Partition

#: Files that are written at once, unless the caller says otherwise.
ARCHIVE_WORKERS: Final = 2


class Archives(Records):
    """Taking records into archives, and what is in them."""

    async def archive(
        self,
        topic: str,
        *,
        everything: bool = False,
        workers: int = ARCHIVE_WORKERS,
        on_file: OnFile | None = None,
        execute: Execute | None = None,
    ) -> ArchiveRun:
        """Take what is due of a topic into its archive: segments that were completed
        ``spec.archive.after`` ago, or ``everything`` that is committed now.

        ``workers``: files that are written at once. ``on_file`` is told of each once it is listed.
        ``execute`` writes the files elsewhere. What fails in one partition is in the result. Raises
        NotFoundError, InvalidRequestError if the topic has no archive, StorageFailedError if its
        directory cannot be read, RetryableErrors.
        """
        if workers < 1:
            raise InvalidRequestError(f"workers is {workers}; give at least 1")
        route = await self._route(topic)
        access = self._access(route, await self._archive_settings(route))
        return await run_archive(
            access,
            execute or (lambda tasks: in_this_process(access, tasks, workers)),
            everything=everything,
            on_file=on_file,
        )

    async def archived(self, topic: str) -> ArchivedTopic:
        """The files in the archive of a topic, as listed now. Raises as `archive`."""
        route = await self._route(topic)
        settings = await self._archive_settings(route)
        uid = route.topic.uid
        place = ArchivePlace(settings.path, topic, uid)
        return ArchivedTopic(place, await self._archives.archive(uid))

    async def verify_archive(
        self,
        topic: str,
        on_file: Callable[[int, ArchivedFile], None] | None = None,
    ) -> tuple[FileProblem, ...]:
        """Read every file in the archive of a topic, and give what is wrong. ``on_file`` is told of
        each that was checked. Raises as `archive`."""
        found = await self.archived(topic)
        return await verify_files(found.place, found.listed, on_file)

    async def _archive_settings(self, route: TopicRoute) -> ArchiveSettings:
        spec = await self._spec(route)
        if spec.archive is None:
            raise InvalidRequestError(
                f"topic {route.name!r} has no archive; apply it with spec.archive.path, a directory"
                " that all hosts mount"
            )
        return spec.archive

    def _access(self, route: TopicRoute, settings: ArchiveSettings) -> ArchiveAccess:
        return ArchiveAccess(
            route,
            settings,
            self._archives,
            partial(self._schema, route),
            partial(self._open_for, route),
            self._partition,
            self.note_archived,
        )

    def _open_for(self, route: TopicRoute, task: ArchiveTask) -> Consumer:
        """A consumer of the offsets of a task."""
        known = KnownTopic(self.info, route.topic, task.rows)
        return open_for(self, task, known)

    async def _partition(self, name: str) -> Partition:
        found = await self.get("partition", name)
        if not isinstance(found, Partition):
            raise NotFoundError(f"partition {name} does not exist")
        return found


def open_for(cluster: Records, task: ArchiveTask, known: KnownTopic) -> Consumer:
    """A consumer of the offsets of a task, of any client of the cluster."""
    return cluster.consumer(
        task.place.topic,
        start={task.partition: task.base},
        stop={task.partition: task.end},
        partitions=[task.partition],
        known=known,
    )
