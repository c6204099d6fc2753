"""One run of archiving: what is due of a topic goes into files, is listed, and told to the SC.

The order is what keeps records safe: a file is durable before it is listed, it is listed before the
SC is told, and replicas remove only what the SC was told. A run that ends anywhere is continued by
the next one, which begins at the watermark of the list and repeats what the SC was not told.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from runnel.archive.manifest import (
    Added,
    ArchivedFile,
    PartitionArchive,
    TopicArchive,
    add,
    cut,
    remove,
)
from runnel.archiving.access import ArchiveAccess
from runnel.archiving.ranges import due_ranges
from runnel.archiving.relist import relist
from runnel.archiving.upkeep import remove_expired, sweep
from runnel.archiving.writing import ArchiveTask, write_file
from runnel.net.offsets import BEHIND_PAUSE_S
from runnel.partition.segments import list_segments
from schemas.errors import (
    ConflictError,
    DivergedError,
    NotReadyError,
    RunnelError,
    StorageFailedError,
)
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition
from schemas.objects.topic import partition_name
from schemas.wire.protocol import Api
from schemas.wire.record_requests import FetchRequest

_GIVE_UP_S: Final = 30.0

#: Writes the files of tasks, and gives what became of each, in any order.
Execute = Callable[
    [Sequence[ArchiveTask]], AsyncIterator[tuple[ArchiveTask, ArchivedFile | RunnelError]]
]
#: Told of each file once it is listed: its task, the file, and how many are still to come.
OnFile = Callable[[ArchiveTask, ArchivedFile, int], None]


@dataclass(slots=True)
class ArchiveRun:
    """What a run did. ``before`` is the watermark by partition; ``diverged`` where the log was
    found to hold other records than the archive; ``removed`` counts files that were deleted;
    ``relisted`` files that nobody listed. ``failures`` says by partition why it could not be
    archived."""

    topic: str
    files: list[tuple[int, ArchivedFile]] = field(default_factory=list)
    before: dict[int, int | None] = field(default_factory=dict)
    diverged: dict[int, int] = field(default_factory=dict)
    removed: int = 0
    relisted: int = 0
    failures: dict[int, RunnelError] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Records that were archived."""
        return sum(file.rows for _, file in self.files)

    @property
    def size(self) -> int:
        """Bytes of the files that were written."""
        return sum(file.size for _, file in self.files)


async def run_archive(
    access: ArchiveAccess,
    execute: Execute,
    *,
    everything: bool = False,
    on_file: OnFile | None = None,
) -> ArchiveRun:
    """Archive what is due; ``everything``: all that is committed now.

    What fails in one partition ends it for that partition alone; see `ArchiveRun.failures`. Raises
    RetryableErrors where the list of files or the SC cannot be reached, StorageFailedError where
    the files that are listed are not there.
    """
    run = ArchiveRun(access.route.name)
    listed = await _listed(access, run)
    partitions = range(access.route.partition_count)
    run.failures |= await asyncio.to_thread(_missing, access, listed)
    for index in partitions:
        run.before[index] = listed.partition(index).before
    tasks = await _tasks(access, run, everything=everything)
    await _carry_out(access, run, execute, tasks, on_file)
    for index in partitions:
        try:
            await _tell(access, index)
            before = await remove_expired(access, index, time.time_ns() // 1000)
            run.before[index] = before.before
        except RunnelError as error:
            run.failures.setdefault(index, error)
    run.removed = await sweep(access)
    return run


def _missing(access: ArchiveAccess, listed: TopicArchive) -> dict[int, RunnelError]:
    """By partition: its newest file is not there. Then the directory may be another one than it
    was, and what is written into it would not be where readers look. Blocks.

    Raises StorageFailedError if that is so for all partitions with files.
    """
    newest = {index: one.files[-1] for index, one in listed.partitions.items() if one.files}
    found: dict[int, RunnelError] = {}
    for index, file in newest.items():
        path = access.place.file(index, file.name)
        if not path.exists():
            found[index] = StorageFailedError(
                f"{path} of the archive is not there. Is its directory mounted on this host? If the"
                " file is lost, put it back from a backup, or give up all records below offset"
                f" {file.end}: runnel topic truncate {access.route.name} -p {index} --before"
                f" {file.end}"
            )
    if newest and len(found) == len(newest):
        raise next(iter(found.values()))
    return found


async def _listed(access: ArchiveAccess, run: ArchiveRun) -> TopicArchive:
    """What is listed; where a partition has files and no list, they are listed first."""
    listed = await access.listed()
    for index in range(access.route.partition_count):
        if listed.partition(index).before is not None:
            continue
        try:
            found = await relist(access, index)
            if found:
                run.relisted += found
                await _truncate(access, index)
        except RunnelError as error:
            run.failures[index] = error
    return await access.listed() if run.relisted else listed


async def _truncate(access: ArchiveAccess, index: int) -> None:
    """Have readers find nothing that was truncated, as the SC remembers it."""
    before = (await access.partition(partition_name(access.route.name, index))).spec.truncate_before
    if before:
        await access.store.update(
            access.uid, lambda state: remove(state, access.uid, index, before)
        )


async def _tasks(access: ArchiveAccess, run: ArchiveRun, *, everything: bool) -> list[ArchiveTask]:
    """The tasks of all partitions, in the order in which their files are to be listed."""
    now_us = time.time_ns() // 1000
    older_than_us = None if everything else now_us - access.settings.after * 1000
    ranges = {}
    for index in run.before:
        if index in run.failures:
            continue
        try:
            known = await _agreed(access, run, index)
            due_us = None if await _is_unproven(access, index, known) else older_than_us
            found = await list_segments(access.route, index)
        except RunnelError as error:
            run.failures[index] = error
        else:
            ranges[index] = (
                known.before,
                due_ranges(found.items, found.log_start, found.lac, known.before, due_us),
            )
    # Asked after the ends of the logs: it knows all columns of what is below them.
    rows = await access.ask_rows()
    tasks: list[ArchiveTask] = []
    for index, (before, due) in ranges.items():
        after = before
        for one in due:
            settings, place = access.settings, access.place
            tasks.append(
                ArchiveTask(place, settings, rows, index, after, one.base, one.end, one.size_bytes)
            )
            after = one.end
    return tasks


async def _agreed(access: ArchiveAccess, run: ArchiveRun, index: int) -> PartitionArchive:
    """The archive of a partition, cut where the log holds other records.

    An unclean election may have lost records that were archived, and others may have come in their
    place. These are archived as well; the former ones stay in their files, for nobody to read.
    """
    known = await access.listed_of(index)
    last = _last(known)
    if last is None or known.before is None:
        return known
    try:
        await _compare(access, index, last)
    except DivergedError as error:
        at = min(error.diverged_at, known.before)
        run.diverged[index] = at
        archive = await access.store.update(
            access.uid, lambda state: cut(state, access.uid, index, at)
        )
        return archive.partition(index)
    return known


def _last(known: PartitionArchive) -> ArchivedFile | None:
    """The file that ends at the watermark, if the term is known in which its last batch was
    written: the leader can say whether its log goes on from there."""
    there = (one for one in known.files if one.until == one.end == known.before)
    return next((one for one in there if one.term), None)


async def _is_unproven(access: ArchiveAccess, index: int, known: PartitionArchive) -> bool:
    """Whether nothing can say that the log still goes on from the archive, and an election may have
    changed that. Then all that is committed is archived, however young: its file can say so."""
    if not known.before or _last(known) is not None:
        return False
    partition = await access.partition(partition_name(access.route.name, index))
    # An election sets to 0 what the SC was told after the last comparison.
    return _is_unclean(partition) and partition.spec.archived_before != known.before


def _is_unclean(partition: Partition) -> bool:
    return partition.status.unclean_term is not None


async def _compare(access: ArchiveAccess, index: int, last: ArchivedFile) -> None:
    """Raise DivergedError if the log does not go on from a file; NotReadyError where only an SC
    answers that does not know of the leader which wrote it."""
    route, loop = access.route, asyncio.get_running_loop()
    deadline = loop.time() + _GIVE_UP_S

    def request(uid: PartitionUid) -> bytes:
        return FetchRequest(uid, last.end, 1, 0, 0, last.term).pack()

    while True:
        try:
            await route.retrying(index, Api.FETCH, request, give_up_s=_GIVE_UP_S)
            return
        except DivergedError as error:
            # It may be the word of a deposed leader. What is cut by it is lost to readers: the log
            # of the one that leads may begin behind that already.
            if await route.another_leads(index):
                continue
            if not await route.leads_below(index, last.term):
                raise
            if loop.time() >= deadline:
                raise NotReadyError(
                    f"{route.name}/{index}: the SC that answers is behind, and names a leader from"
                    " before the archive's last file was written; the next run asks again"
                ) from error
            await asyncio.sleep(BEHIND_PAUSE_S)


async def _carry_out(
    access: ArchiveAccess,
    run: ArchiveRun,
    execute: Execute,
    tasks: Sequence[ArchiveTask],
    on_file: OnFile | None,
) -> None:
    """Write the files, and list those of a partition in the order of their offsets."""
    waiting: dict[int, deque[ArchiveTask]] = {}
    for task in tasks:
        waiting.setdefault(task.partition, deque()).append(task)
    written: dict[ArchiveTask, ArchivedFile] = {}
    left = len(tasks)
    async for task, outcome in execute(tasks):
        if isinstance(outcome, RunnelError):
            run.failures.setdefault(task.partition, outcome)
            continue
        written[task] = outcome
        queue = waiting[task.partition]
        while queue and queue[0] in written:
            first = queue.popleft()
            file = written.pop(first)
            try:
                await _list(access, first, file)
            except ConflictError as error:
                run.failures.setdefault(first.partition, error)
                queue.clear()
                break
            left -= 1
            run.files.append((first.partition, file))
            if on_file is not None:
                on_file(first, file, left)


async def _list(access: ArchiveAccess, task: ArchiveTask, file: ArchivedFile) -> None:
    added = Added(access.uid, access.route.name, task.partition, task.after, file)
    await access.store.update(access.uid, lambda state: add(state, added))


async def _tell(access: ArchiveAccess, index: int) -> None:
    """Tell the SC the watermark of a partition, if it does not know it.

    Raises ConflictError if the log holds other records than the archive by now.
    """
    # First: whatever changes after this is noticed.
    partition = await access.partition(partition_name(access.route.name, index))
    known = await access.listed_of(index)
    was, before = partition.spec.archived_before, known.before or 0
    if was is None or was == before:
        return
    last = _last(known)
    if before and last is None and _is_unclean(partition):
        # The next file can say whether the log goes on from the archive.
        return
    if last is not None:
        try:
            await _compare(access, index, last)
        except DivergedError as error:
            raise ConflictError(
                f"an unclean election of {partition.name} came while it was archived: the log holds"
                f" other records from offset {error.diverged_at} on; the next run archives them"
            ) from error
    await access.note(partition, before)


async def in_this_process(
    access: ArchiveAccess, tasks: Iterable[ArchiveTask], workers: int
) -> AsyncIterator[tuple[ArchiveTask, ArchivedFile | RunnelError]]:
    """Write files with this client, so many at a time: an `Execute` once ``access`` and ``workers``
    are given."""
    waiting = deque(tasks)
    running: dict[asyncio.Task[ArchivedFile], ArchiveTask] = {}
    failed: set[int] = set()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                task = waiting.popleft()
                if task.partition in failed:
                    # Its file could not be listed behind the one that is missing.
                    continue
                work = write_file(task, lambda task=task: access.open_consumer(task))  # type: ignore[misc]
                running[asyncio.create_task(work, name=f"archive {task.base}")] = task
            if not running:
                break
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for finished in done:
                task = running.pop(finished)
                try:
                    yield task, finished.result()
                except RunnelError as error:
                    failed.add(task.partition)
                    yield task, error
    finally:
        for unfinished in running:
            unfinished.cancel()
        await asyncio.gather(*running, return_exceptions=True)
