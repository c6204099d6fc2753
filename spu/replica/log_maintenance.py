"""What happens to a replica's log as time passes: rolls, retention, truncation, checkpoints.

No client waits for any of it. None of it is done while the log is cut or replaced, or by a replica
that is halted, unfit or not assigned. Disk work runs in threads.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from schemas.control.messages import Assignment
from schemas.daemon.logs import get_logger
from schemas.errors import NotReadyError, OffsetOutOfRangeError, RunnelError
from spu.replica.context import ReplicaContext
from spu.replica.group_commit import GroupCommit
from spu.replication.state import ReplicaState
from spu.storage.data_dir import PartitionMeta
from spu.storage.disk_space import Room
from spu.storage.durable import is_no_room
from spu.storage.log import PartitionLog
from spu.storage.segment import Damage
from spu.storage.truncated_segments import RetiredFiles

_log = get_logger(__name__)

#: An idle log gets at most one checkpoint in this time.
_CHECKPOINT_IDLE_US: Final = 60_000_000


class Kept(Protocol):
    """The replica whose log is maintained."""

    @property
    def meta(self) -> PartitionMeta: ...

    @property
    def log(self) -> PartitionLog: ...

    @property
    def state(self) -> ReplicaState: ...

    @property
    def commit(self) -> GroupCommit: ...

    @property
    def assignment(self) -> Assignment | None: ...

    @property
    def idle(self) -> bool: ...

    @property
    def may_write(self) -> bool:
        """Whether it takes part, and its log is not being cut or replaced."""

    def fail(self, reason: str, cause: BaseException | None = None) -> None: ...

    def halt(self, error: str | RunnelError, cause: BaseException | None = None) -> None: ...


class LogMaintenance:
    """See the module's docstring."""

    def __init__(self, replica: Kept, context: ReplicaContext) -> None:
        self._replica = replica
        self._context = context
        # When the log got its last checkpoint for being idle.
        self._checkpointed_us = -_CHECKPOINT_IDLE_US
        self._looking_up: set[asyncio.Task[None]] = set()
        # The truncation that was looked up last.
        self._truncating = -1

    def tick(self, now_us: int) -> None:
        """Do what is due for a log that may be written: ``segment.time``, retention, truncation,
        background fsyncs, a checkpoint if it is idle, deletion of truncated segments."""
        log = self._replica.log
        if log.roll_is_due(now_us):
            try:
                log.begin_next(now_us)
            except OSError as error:
                # A full disk: retention may make room.
                if not is_no_room(error):
                    self._replica.halt(f"a new segment cannot be created: {error}", error)
                    return
        if self._replica.state.may_append:
            log.apply_retention(now_us, self._removable_before)
        self.truncate()
        self._replica.commit.sync_now()
        if self._replica.idle and not log.is_checkpointed:
            self._want_checkpoint(now_us)
        self._delete(log.truncated.take_expired(log.settings.retention.grace, now_us))

    def _want_checkpoint(self, now_us: int) -> None:
        """Queue a checkpoint of an idle log, unless it had one recently: a log with a record now
        and then must not get a checkpoint for each. Without room on the disk there is none."""
        due = now_us - self._checkpointed_us >= _CHECKPOINT_IDLE_US
        if due and self._context.space.room is not Room.NONE:
            self._checkpointed_us = now_us
            self._context.checkpoints.want(self._checkpoint)

    async def _checkpoint(self) -> None:
        if self._replica.idle and self._replica.may_write:
            await self._replica.commit.checkpoint()

    def free_space(self) -> None:
        """Delete truncated segments now, whatever their grace."""
        log = self._replica.log
        grace_ms, now_us = log.settings.retention.grace, self._context.clock_us()
        self._delete(log.truncated.take_expired(grace_ms, now_us, all_of_them=True))

    @property
    def visible_start(self) -> int:
        """The first offset that readers see: that of the SC's truncation, once all records before
        it are committed. The log itself begins with the batch that holds this offset, or before."""
        return max(self._replica.log.log_start, self.truncated)

    @property
    def _removable_before(self) -> int:
        """Retention removes only records below: those that are committed and, where the topic has
        an archive, in it."""
        committed = self._replica.state.lac + 1
        assignment = self._replica.assignment
        archived = None if assignment is None else assignment.archived_before
        return committed if archived is None else min(committed, archived)

    @property
    def truncated(self) -> int:
        """How far the SC's truncation has taken effect: never above what is committed, nor above
        the seal of a sealed log."""
        assignment = self._replica.assignment
        wanted = 0 if assignment is None else assignment.truncate_before
        state = self._replica.state
        return min(wanted, state.lac + 1 if state.sealed_end is None else state.sealed_end)

    def truncate(self) -> None:
        """Move the log's start up to `visible_start`. Each replica does so by itself when it hears
        of a truncation, however long it was away."""
        start = self.visible_start
        due = start > self._replica.log.log_start and start != self._truncating
        if due and self._replica.may_write:
            self._truncating = start
            self._looking_up.add(task := asyncio.create_task(self._truncate_to(start)))
            task.add_done_callback(self._looking_up.discard)

    async def _truncate_to(self, start: int) -> None:
        loop, log = asyncio.get_running_loop(), self._replica.log
        try:
            start = await loop.run_in_executor(self._context.reads, log.batch_start, start)
        except (OffsetOutOfRangeError, NotReadyError, FileNotFoundError):
            # The log was replaced meanwhile: the next tick looks again.
            self._truncating = -1
        except (Damage, OSError) as error:
            self._replica.fail(str(error), error)
        else:
            if not self._replica.may_write:
                # The log is being cut or replaced: a later tick looks again.
                self._truncating = -1
                return
            log.truncate_prefix(start)
            self._replica.commit.wake()

    def _delete(self, files: RetiredFiles) -> None:
        if files:
            loop, log = asyncio.get_running_loop(), self._replica.log
            deletion = loop.run_in_executor(
                self._context.storage, log.truncated.delete_files, files
            )
            deletion.add_done_callback(self._deleted)

    def _deleted(self, deletion: asyncio.Future[None]) -> None:
        if (error := deletion.exception()) is not None:
            # They are not part of the log; the next start finds them again.
            name = self._replica.meta.name
            _log.warning("could not delete truncated segments", partition=name, error=str(error))
