"""A state that several clients share through one partition of a topic, without any other server.

`StateLog.read` folds what is committed. `StateLog.update` decides on updates from the known
state and appends them conditionally; if another client was first, it reads that entry and decides
anew. So every update is decided on the state that it changes. Leaders may change and answers may
get lost meanwhile: an attempt is repeated, at the same offset and with the same id, until a record
at that offset is committed; then the outcome is known (`runnel.state_log.fold`).

Now and then a writer puts a snapshot into the log and has everything before it truncated. That
happens after the update that found it due; if it fails, a later update does it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, Generic

from runnel.net.offsets import list_offsets
from runnel.net.routing import LEAST_WAIT_S, TopicRoute, may_retry
from runnel.records.cursor import Cursor
from runnel.state_log.conditional_append import append_at, record_batch
from runnel.state_log.fold import AppendOutcome, Entry, S, StateFold, StateType, U
from schemas.errors import (
    ConflictError,
    CorruptBatchError,
    DeadlineExceededError,
    DivergedError,
    NotFoundError,
    OffsetOutOfRangeError,
    RetryableError,
    RunnelError,
)
from schemas.wire.protocol import Api
from schemas.wire.record_requests import LATEST, FetchFlags, FetchRequest, FetchResponse

_FETCH_BYTES: Final = 4 << 20
_ATTEMPT_S: Final = 10.0
#: How long `close` waits for a snapshot in progress.
_TIDY_S: Final = 5.0


def now_us() -> int:
    """The wall clock, in microseconds since the epoch."""
    return time.time_ns() // 1000


class StateLog(Generic[S, U]):
    """One partition of a topic as a state; see the module's text. Call `close` at the end.

    ``truncate`` moves the partition's log start to an offset. ``new_id`` gives random ids. Calls
    from several tasks run one after the other.
    """

    def __init__(
        self,
        route: TopicRoute,
        partition: int,
        kind: StateType[S, U],
        truncate: Callable[[int], Awaitable[object]],
        new_id: Callable[[], str],
    ) -> None:
        self._route = route
        self._partition = partition
        self._truncate = truncate
        self._new_id = new_id
        self._fold = StateFold(kind)
        self._cursor = Cursor(route.name, partition, 0)
        # Whether the fold holds all that was committed at some moment, not just a part of it.
        self._whole = False
        self._lock = asyncio.Lock()
        #: Whether the topic was deleted: nothing will be read or written here any more.
        self.gone = False
        self._tidying: asyncio.Task[None] | None = None

    async def read(self, give_up_s: float) -> S:
        """The state with everything that is committed now. Read it at once and do not change
        it: later calls do.

        Raises DeadlineExceededError after ``give_up_s``, NotFoundError if the topic is gone.
        """
        deadline = _deadline(give_up_s)
        async with self._alone(deadline):
            with self._noting_gone():
                await self._catch_up(deadline)
            return self._fold.state

    async def update(self, decide: Callable[[S], Sequence[U]], give_up_s: float) -> S:
        """Append the updates that ``decide`` makes from the state, and return the state after them.

        ``decide`` may be called several times; it must not change the state, and returns no updates
        if there is nothing to do. Its errors pass through. Raises DeadlineExceededError after
        ``give_up_s``; ``outcomeUnknown`` in its details says whether the updates may still be
        appended. Raises InvalidRequestError for updates that no client could read.
        """
        deadline = _deadline(give_up_s)
        async with self._alone(deadline):
            if not self._whole:
                with self._noting_gone():
                    await self._catch_up(deadline)
            while updates := decide(self._fold.state):
                entry = self._fold.entry(self._new_id(), updates)
                # What ``decide`` does not find is another matter.
                with self._noting_gone():
                    stands = await self._append(entry, deadline)
                if stands:
                    break
                if not _left(deadline):
                    raise DeadlineExceededError(
                        f"{self._place}: others were first each time", outcomeUnknown=False
                    )
            if self._fold.snapshot_due and self._tidying is None:
                self._tidying = asyncio.create_task(self._tidy(), name="snapshot")
                self._tidying.add_done_callback(self._tidied)
            return self._fold.state

    async def close(self) -> None:
        """Wait a short time for a snapshot in progress."""
        if (tidying := self._tidying) is not None:
            await asyncio.wait([tidying], timeout=_TIDY_S)
            tidying.cancel()
            await asyncio.gather(tidying, return_exceptions=True)

    async def _append(self, entry: Entry, deadline: float) -> bool:
        """Append an entry at the next offset; False if it is lost and never will be there."""
        loop = asyncio.get_running_loop()
        expected = self._fold.position
        value = self._fold.written(entry)
        batch = record_batch(value, now_us())
        attempt, uncertain = 0, False
        while True:
            left_s = deadline - loop.time()
            error: RunnelError
            try:
                await append_at(
                    self._route,
                    self._partition,
                    batch,
                    expected,
                    max(LEAST_WAIT_S, min(_ATTEMPT_S, left_s)),
                )
            except ConflictError as conflict:
                error = conflict
                try:
                    await self._catch_up(deadline)
                except RetryableError as failure:
                    raise self._unknown(failure.message) from failure
                if self._fold.position < expected:
                    # An unclean election removed records that the attempt was decided on.
                    return False
                match self._fold.outcome(expected, entry.id):
                    case AppendOutcome.STANDS:
                        return True
                    case AppendOutcome.LOST:
                        return False
                    case AppendOutcome.FORGOTTEN:
                        raise self._unknown("too much was written since") from conflict
                    case AppendOutcome.OPEN:
                        # This SPU does not know yet that it is no longer the leader.
                        pass
            except RunnelError as failure:
                if not may_retry(failure):
                    raise
                error, uncertain = failure, True
            else:
                self._fold.take(expected, entry, len(value))
                self._cursor.position = self._fold.position
                return True
            if loop.time() >= deadline:
                if uncertain:
                    raise self._unknown(error.message) from error
                raise DeadlineExceededError(
                    f"{self._place} could not be written: {error.message}", outcomeUnknown=False
                ) from error
            attempt = await self._route.pause(self._partition, attempt, deadline - loop.time())

    async def _catch_up(self, deadline: float) -> None:
        """Fold at least everything that is committed when this is called."""
        loop = asyncio.get_running_loop()
        bounds = await list_offsets(self._route, self._partition, LATEST, _left(deadline))
        if not self._whole:
            self._restart(bounds.log_start)
        attempt = 0
        while True:
            before = self._cursor.position
            try:
                answer = await self._fetch(deadline)
            except (OffsetOutOfRangeError, DivergedError) as error:
                # A snapshot is further on; or records were lost, and it reads everything again.
                bounds = await list_offsets(self._route, self._partition, LATEST, _left(deadline))
                here = bounds.log_start <= before <= bounds.offset
                if isinstance(error, OffsetOutOfRangeError) and here:
                    raise
                self._restart(bounds.log_start)
                continue
            self._take(answer)
            if self._cursor.position >= bounds.offset:
                self._whole = True
                return
            if before == self._cursor.position:
                # A new leader, which does not show yet all that the former leader showed.
                if loop.time() >= deadline:
                    raise DeadlineExceededError(f"{self._place} could not be read to its end")
                attempt = await self._route.pause(self._partition, attempt, _left(deadline))

    async def _fetch(self, deadline: float) -> tuple[memoryview, int]:
        """Batches from the position on, and the last add confirmed.

        There are few: the leader verifies all of them, and another one answers if they are damaged.
        """
        cursor, flags = self._cursor, FetchFlags.VERIFIED
        response = await self._route.retrying(
            self._partition,
            Api.FETCH,
            lambda uid: FetchRequest(
                uid, cursor.position, _FETCH_BYTES, 0, 0, cursor.term, flags
            ).pack(),
            give_up_s=_left(deadline),
        )
        return response.tail, FetchResponse.unpack(response.fixed).lac

    def _take(self, answer: tuple[memoryview, int]) -> None:
        try:
            for rows in self._cursor.take(*answer):
                offsets = rows.column("offset").to_pylist()
                for offset, value in zip(offsets, rows.column("value").to_pylist(), strict=True):
                    self._take_entry(offset, value)
        except RunnelError:
            # The cursor may have passed records that were not folded: do not continue from here.
            self._whole = False
            raise
        self._fold.advance(self._cursor.position)

    def _take_entry(self, offset: int, value: bytes | None) -> None:
        try:
            self._fold.take(offset, Entry.unpack(value), len(value or b""))
        except CorruptBatchError as error:
            raise CorruptBatchError(
                f"{self._place} at offset {offset}: {error.message}. Nobody goes on from"
                " less than all. To forget everything in it and begin anew: runnel delete"
                f" topic {self._route.name} --force"
            ) from error

    def _restart(self, log_start: int) -> None:
        self._whole = False
        self._fold.restart(log_start)
        self._cursor = Cursor(self._route.name, self._partition, log_start)

    async def _tidy(self) -> None:
        """Append a snapshot, and have everything before it truncated."""
        # A failure here loses nothing: a later update finds the snapshot due again.
        with suppress(RunnelError):
            deadline = _deadline(_ATTEMPT_S)
            async with self._alone(deadline):
                place = self._fold.position
                entry = self._fold.snapshot(self._new_id())
                if not (self._whole and await self._append(entry, deadline)):
                    return
            await self._truncate(place)

    @contextmanager
    def _noting_gone(self) -> Iterator[None]:
        try:
            yield
        except NotFoundError:
            self.gone = True
            raise

    @asynccontextmanager
    async def _alone(self, deadline: float) -> AsyncIterator[None]:
        """One caller at a time. Raises DeadlineExceededError if the turn does not come in time."""
        try:
            async with asyncio.timeout(_left(deadline)):
                await self._lock.acquire()
        except TimeoutError:
            raise DeadlineExceededError(
                f"{self._place} was busy with updates that were not answered", outcomeUnknown=False
            ) from None
        try:
            yield
        finally:
            self._lock.release()

    def _tidied(self, task: asyncio.Task[None]) -> None:
        self._tidying = None
        if not task.cancelled():
            task.result()

    @property
    def _place(self) -> str:
        return f"{self._route.name}/{self._partition}"

    def _unknown(self, why: str) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"it is unknown whether an update of {self._place} stands, or will: {why}",
            outcomeUnknown=True,
        )


def _deadline(give_up_s: float) -> float:
    return asyncio.get_running_loop().time() + give_up_s


def _left(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())
