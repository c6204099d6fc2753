"""A reader of a group: it shares the segments of the group's sources with the other readers.

A task looks at the group's state once a second: it takes and gives back segments, says that the
reader is alive, and calls others dead that do not (`runnel.groups.balance`,
`runnel.groups.lease`).
Each segment that the reader owns has a consumer; their chunks come together in one queue.

A record counts as processed once the user asks for the next one. At that moment, and only then, the
reader passes checkpoints and gives back a segment whose records are in the user's hands. It hands
out nothing while its lease may be over. A reader that others called dead joins again by itself, and
what it had not committed is read again, by whoever has the segment then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from runnel.consume.consumer import Consumer, check_max_records, check_timeout
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.consume.settings import ConsumerSettings
from runnel.groups import decisions
from runnel.groups.cut import GroupCut
from runnel.groups.lease import HANDS_OUT, Judge, Lease
from runnel.groups.places import Places, SourceSegment
from runnel.groups.sources import Source, single
from runnel.groups.state import Groups, GroupState, Update
from runnel.groups.store import GroupStore
from runnel.net.routing import SegmentGoneError
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import Record
from runnel.state_log.log import StateLog, now_us
from schemas.backoff import backoff_s
from schemas.errors import (
    FencedError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
    RetryableError,
    RunnelError,
)

#: Chunks that wait for the user, of all segments together.
_CHUNKS: Final = 4
#: How often a reader looks at the state of its group, at most.
_LOOK_S: Final = 1.0
#: How often one reader asks whether topics have more partitions.
_GROWTH_S: Final = 5.0
#: How long closing waits for the state log.
_LEAVE_S: Final = 5.0
_BACKOFF_MS: Final = (50.0, 1_000.0)

_log = logging.getLogger("runnel")

Decide = Callable[[Groups], tuple[Update, ...]]


@dataclass(slots=True, eq=False)
class _Open:
    """A segment that this reader reads. ``state`` is of what was handed out of it."""

    segment: SourceSegment
    number: int
    at: OffsetAndTerm
    consumer: Consumer
    state: ReadState
    #: Up to where the user committed.
    committed: OffsetAndTerm
    task: asyncio.Task[None] | None = None
    #: Whether this reader still has it: if not, nothing more of it is handed out.
    live: bool = True

    def processed(self) -> OffsetAndTerm:
        """What lies below this was handed out, and the user asked for more."""
        offset = self.state.processed().get(self.number)
        if offset is None or offset <= self.at.offset:
            return self.at
        return self.state.with_terms({self.number: offset})[self.number]


@dataclass(frozen=True, slots=True)
class _Item:
    """A chunk of a segment, why it cannot be read, or None: its end."""

    opened: _Open
    found: FetchedChunk | BaseException | None


class GroupReader:
    """An asynchronous iterator of records; see the module's text. Use it with ``async with``, whose
    end gives its segments to others at once."""

    def __init__(
        self,
        store: GroupStore,
        group: str,
        name: str,
        find_source: Callable[[str], Awaitable[Source]],
        settings: ConsumerSettings,
        by: str,
        random: Callable[[], float],
        timeout: float | None = None,
    ) -> None:
        self.group = group
        self.name = name
        self.timeout = check_timeout(timeout)
        self._store = store
        self._find_source = find_source
        self._settings = settings
        self._by = by
        self._random = random
        self._give_up_s = settings.give_up_ms / 1000
        self._session = ""
        self._sources: dict[str, Source] = {}
        self._lease = Lease(0.0)
        self._judge = Judge(0.0)
        self._queue: asyncio.Queue[_Item | None] = asyncio.Queue(_CHUNKS)
        self._open: dict[SourceSegment, _Open] = {}
        #: Up to where segments were read that are to be given back.
        self._reached: dict[SourceSegment, OffsetAndTerm] = {}
        self._attending: asyncio.Task[None] | None = None
        #: A chunk that was taken from the queue and is not handed out yet.
        self._held: _Item | None = None
        #: Segments whose end is processed, and not committed.
        self._uncommitted_ends: list[_Open] = []
        self._growing: asyncio.Task[None] | None = None
        #: What to give back once the user asks for more.
        self._wanted_back: set[SourceSegment] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._log: StateLog[Groups, Update] | None = None
        self._closed = False
        self._asking = False
        self._exhausted = False
        self._failure: BaseException | None = None
        self._committed_s = 0.0
        self._grown_s = 0.0
        self._checkpoint: tuple[str, float] = ("", 0.0)
        #: The segment whose records are being handed out.
        self.current: _Open | None = None
        #: Whether something is to be done before the next record is handed out.
        self.attention = False
        #: Until when, on the monotonic clock, records may be handed out.
        self.valid_until_s = 0.0

    def __repr__(self) -> str:
        state = ", closed" if self._closed else f" with {len(self._open)} segments"
        return f"<runnel.GroupReader {self.name!r} of group {self.group!r}{state}>"

    def segments(self) -> tuple[str, ...]:
        """The segments that it reads now."""
        return tuple(str(one) for one in sorted(self._open))

    def position(self) -> GroupCut:
        """Up to where it has handed out records of the segments that it reads now, for display: a
        place of the whole group is a checkpoint."""
        places = Places(open={one: opened.processed() for one, opened in self._open.items()})
        uids = {name: self._sources[name].uid for name in {one.source for one in self._open}}
        return GroupCut.of(places, uids)

    async def start(self) -> None:
        """Join the group. Raises NotFoundError, DeadlineExceededError."""
        if self._closed:
            raise InvalidRequestError(f"reader {self.name!r} is closed; open another")
        if self._looking is not None:
            return
        async with self._turn:
            if self._looking is None:
                self._log = await self._store.log_of(self.group)
                await self._join()
                self._looking = asyncio.create_task(self._look_on(), name=f"reader {self.name}")

    async def commit(self) -> None:
        """Commit everything that was handed out, the record or batch in hand too. Durable when this
        returns. Raises FencedError if the reader was called dead meanwhile or another process reads
        under its name, DeadlineExceededError."""
        await self.start()
        async with self._turn:
            opened = list(self._open.values())
            places = {one.segment: self._handed_out(one) for one in opened}
            await self._update(lambda state: decisions.move(*self._me(state), places))
            for one in opened:
                one.committed = places[one.segment]
        ended, self._uncommitted_ends = self._uncommitted_ends, []
        for one in ended:
            self._end_later(one, committed=True)

    async def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None when none came within ``timeout`` seconds, and at the end."""
        check_timeout(timeout)
        while True:
            if (current := self.current) is not None:
                records = current.state.records()
                if self.is_due:
                    current.state.has_processed()
                    try:
                        async with asyncio.timeout(timeout):
                            await self.attend()
                    except TimeoutError:
                        return None
                if current.live and (record := next(records, None)) is not None:
                    return record
            if not await self.open_next(timeout):
                return None

    async def batches(self, *, max_records: int | None = None) -> AsyncIterator[pa.RecordBatch]:
        """The records as Arrow record batches, as `Consumer.batches`; each is of one segment."""
        check_max_records(max_records)
        while True:
            while (current := self.current) is not None:
                current.state.has_processed()
                if self.is_due:
                    await self.attend()
                if not current.live or (rest := current.state.rest(max_records)) is None:
                    break
                yield rest
            if not await self.open_next(self.timeout):
                return

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            if (current := self.current) is not None:
                records = current.state.records()
                while True:
                    # Before the record is taken: whoever is cancelled here loses none.
                    if self.is_due:
                        current.state.has_processed()
                        await self.attend()
                    if not current.live or (record := next(records, None)) is None:
                        break
                    yield record
            if not await self.open_next(self.timeout):
                return

    @property
    def is_due(self) -> bool:
        """Whether `attend` must be called before the next record. For any thread."""
        return self.attention or monotonic() >= self.valid_until_s

    async def attend(self) -> None:
        """Do what must be done before the next record is handed out: pass checkpoints, give back
        segments, renew the lease. What was handed out before is processed. It goes on if the caller
        is cancelled."""
        if self._attending is None or self._attending.done():
            self._attending = asyncio.create_task(
                self._attend(), name=f"reader {self.name} attends"
            )
            # Nobody may be left to hear of its failure, which the next call meets anew.
            self._attending.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._attending)

    async def _attend(self) -> None:
        while self.is_due:
            if self._failure is not None:
                raise self._failure
            async with self._turn:
                try:
                    await self._pass_and_give_back()
                    if not self._lease.may_hand_out(monotonic()):
                        await self._update(
                            lambda state: decisions.move(
                                *self._me(state), self._places(), alive=True
                            )
                        )
                    continue
                except FencedError:
                    # The task that looks on joins again, or fails.
                    pass
                except RetryableError as error:
                    _log.warning("reader %s of group %s: %s", self.name, self.group, error.message)
            await asyncio.sleep(_BACKOFF_MS[0] / 1000)

    async def open_next(self, timeout: float | None) -> bool:
        """Take the next chunk; False at the end of all, or when none came in time. Raises
        FencedError if another process reads under the name."""
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        if self.current is not None:
            self.current.state.has_processed()
            self.current = None
        self._asking = True
        try:
            async with asyncio.timeout_at(deadline):
                await self.start()
                while True:
                    if self._failure is not None:
                        raise self._failure
                    if self._closed:
                        return False
                    if self.is_due:
                        await self.attend()
                    if self._exhausted:
                        return False
                    # A timeout that comes from here on must not lose it.
                    item = self._held = self._held or await self._queue.get()
                    if item is None or not (opened := item.opened).live:
                        self._held = None
                        continue
                    if isinstance(item.found, BaseException):
                        self._failure = item.found
                        raise item.found
                    if item.found is None:
                        self._held = None
                        self._end_later(opened)
                        continue
                    if self.is_due:
                        await self.attend()
                    self._held = None
                    if self._open.get(opened.segment) is not opened:
                        continue
                    opened.state.rows = opened.consumer.state.rows
                    opened.state.open(item.found)
                    self.current = opened
                    return True
        except TimeoutError:
            return False
        finally:
            self._asking = False

    async def close(self, *, commit: bool = True) -> None:
        """Leave the group: others take its segments, where everything handed out counts as
        processed. Without ``commit``, what was in hand does not. May be called again."""
        if self._closed:
            return
        self._closed = True
        places = self._places()
        if commit and self._commits_by_itself:
            places = {one: self._handed_out(opened) for one, opened in self._open.items()}
        running = (self._looking, self._growing, self._attending, *self._ending)
        tasks = [task for task in running if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._drop()
        self._wake()
        if (log := self._log) is not None:
            with suppress(RunnelError):
                await log.update(lambda state: decisions.leave(*self._me(state), places), _LEAVE_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(commit=error is None)

    # -- the group's state --------------------------------------------------------------------

    def _me(self, state: Groups) -> tuple[Groups, str, str, str]:
        return state, self.group, self.name, self._session

    async def _update(self, decide: Decide) -> GroupState:
        """Append what is decided; an update that stands shows that this reader is alive."""
        made = False

        def noted(state: Groups) -> tuple[Update, ...]:
            nonlocal made
            updates = decide(state)
            made = bool(updates)
            return updates

        sent_s = monotonic()
        state = await self._state_log().update(noted, self._give_up_s)
        if made:
            if not self._lease.may_hand_out(monotonic()):
                # Others may not have been able to write, either.
                self._judge.spare()
            self._lease.confirmed(sent_s)
            self.valid_until_s = self._lease.sent_s + self._lease.lease_s * HANDS_OUT
        return decisions.find(state, self.group)

    async def _join(self) -> None:
        config = decisions.find(await self._state_log().read(self._give_up_s), self.group).config
        for name, uid in config.sources.items():
            known = self._sources.get(name)
            if known is not None and known.uid == uid:
                continue
            self._sources[name] = source = await self._find_source(name)
            if source.uid != uid:
                raise NotFoundError(
                    f"{name} was deleted and created again since group {self.group} was made;"
                    f" delete the group, and make it again: runnel group delete {self.group}"
                )
        self._lease = Lease(config.lease_ms / 1000)
        self._judge = Judge(config.lease_ms / 1000)
        self._session = self._store.new_id()
        self._exhausted = False
        await self._update(lambda state: decisions.join(*self._me(state), self._by, now_us()))

    async def _look_on(self) -> None:
        """Look at the state now and then. Ends with a failure that the user is told."""
        attempt = 0
        while True:
            try:
                async with self._turn:
                    await self._look()
                attempt = 0
                await asyncio.sleep(min(_LOOK_S, self._lease.lease_s / 6))
            except FencedError as error:
                if error.details.get("taken"):
                    await self._fail(error)
                    return
                _log.warning("%s; it joins again", error.message)
                await self._drop()
                with suppress(RetryableError):
                    await self._join()
            except RetryableError as error:
                # What is read already is handed out while the lease lasts.
                _log.warning("reader %s of group %s: %s", self.name, self.group, error.message)
                await asyncio.sleep(backoff_s(attempt, *_BACKOFF_MS, self._random()))
                attempt += 1
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                await self._fail(error)
                return

    async def _fail(self, error: BaseException) -> None:
        await self._drop()
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        """Have a call that waits for records look again."""
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def _look(self) -> None:
        state = await self._state_log().read(self._give_up_s)
        group = decisions.find(state, self.group)
        # Raises FencedError once the session is over.
        decisions.move(*self._me(state), {})
        now_s = monotonic()
        self._judge.observe(group.readers, now_s)
        for dead in self._judge.dead():
            if dead[0] != self.name and self._lease.may_hand_out(now_s):
                _log.warning(
                    "reader %s of group %s has shown no life for %g s: its segments go to others",
                    dead[0],
                    self.group,
                    self._judge.lease_s,
                )
                group = await self._update_other(
                    lambda state, dead=dead: decisions.expire(  # type: ignore[misc]
                        state, self.group, *dead
                    )
                )
        group = await self._update(lambda state: decisions.acquire(*self._me(state)))
        self._follow(group)
        if not group.places.open and not group.places.waiting:
            self._exhausted = True
            self._wake()
        await self._give_back(set(decisions.releases(*self._me({self.group: group}))))
        if min(group.readers, default="") == self.name:
            await self._look_for_all(group, now_s)
        self.attention = bool(group.pending(self.name)) or bool(self._wanted_back)
        if self.attention and self._asking:
            await self._pass_and_give_back()
        every_s = (self._settings.auto_commit_ms or 0) / 1000
        due = bool(every_s) and now_s - self._committed_s >= every_s
        if due or self._lease.is_due(now_s):
            self._committed_s = now_s
            alive = self._lease.is_due(now_s)
            places = self._places() if every_s else {}
            await self._update(lambda state: decisions.move(*self._me(state), places, alive=alive))

    async def _update_other(self, decide: Decide) -> GroupState:
        """Append what says nothing of this reader."""
        state = await self._state_log().update(decide, self._give_up_s)
        return decisions.find(state, self.group)

    def _state_log(self) -> StateLog[Groups, Update]:
        if self._log is None:
            raise InvalidRequestError(f"reader {self.name!r} has not joined its group yet")
        return self._log

    async def _look_for_all(self, group: GroupState, now_s: float) -> None:
        """What one reader does for all: begin checkpoints, and find added partitions."""
        every_s = group.config.checkpoint_every_ms / 1000
        known = (*(one.id for one in group.completed), *(one.id for one in group.checkpoints))
        newest = known[-1] if known else ""
        if newest != self._checkpoint[0] or not self._checkpoint[1]:
            self._checkpoint = (newest, now_s)
        elif every_s and now_s - self._checkpoint[1] >= every_s:
            id_, at_us = self._store.new_id(), now_us()
            await self._update_other(
                lambda state: decisions.begin_checkpoint(state, self.group, id_, at_us, silent=True)
            )
            self._checkpoint = (id_, now_s)
        waits = self._growing is not None and not self._growing.done()
        if now_s - self._grown_s >= _GROWTH_S and not waits:
            self._grown_s = now_s
            # The SC may not answer: the lease is renewed meanwhile.
            self._growing = asyncio.create_task(self._find_added(), name="added partitions")

    async def _find_added(self) -> None:
        with suppress(RetryableError, FencedError, NotFoundError):
            for source in self._sources.values():
                if there := await source.added():
                    async with self._turn:
                        await self._update(
                            lambda state, there=there: decisions.found(  # type: ignore[misc]
                                *self._me(state), there
                            )
                        )

    # -- segments -----------------------------------------------------------------------------

    def _follow(self, group: GroupState) -> None:
        """Read what is owned and not read yet."""
        owned = group.owned(self.name)
        for one in owned:
            if one not in self._open:
                at = self._reached.pop(one, group.places.open[one])
                self._begin(one, at, len(owned))

    def _begin(self, segment: SourceSegment, at: OffsetAndTerm, count: int) -> None:
        source = self._sources[segment.source]
        number = segment.number
        consumer = source.open(segment, at, single(self._settings, count))
        state = ReadState(source.name, with_ids=self._settings.transaction_ids)
        state.begin(number, at.offset, at.term, searching=False)
        opened = _Open(segment, number, at, consumer, state, at)
        self._open[segment] = opened
        opened.task = asyncio.create_task(self._read(opened), name=f"read {segment}")

    async def _read(self, opened: _Open) -> None:
        try:
            while (chunk := await opened.consumer.next_chunk()) is not None:
                await self._queue.put(_Item(opened, chunk))
            await self._queue.put(_Item(opened, None))
        except asyncio.CancelledError:
            raise
        except SegmentGoneError as error:
            try:
                await self._check_gone(opened, error)
            except RunnelError as lost:
                await self._queue.put(_Item(opened, lost))
            else:
                await self._queue.put(_Item(opened, None))
        except BaseException as error:
            await self._queue.put(_Item(opened, error))

    async def _check_gone(self, opened: _Open, error: SegmentGoneError) -> None:
        """A segment was truncated away: nothing is lost to who has read all of it. Raises
        OffsetOutOfRangeError unless the user goes on all the same."""
        end = await self._sources[opened.segment.source].end(opened.segment)
        at = opened.consumer.position().get(opened.number, opened.at.offset)
        if (end is not None and at >= end) or self._settings.on_truncated == "earliest":
            return
        raise OffsetOutOfRangeError(
            f"group {self.group}: {error.message}; the records from {at} on are lost to it. Go on"
            " with what is there: on_truncated 'earliest', in the command --on-truncated earliest"
        ) from error

    async def _drop(self) -> None:
        """Read nothing more."""
        self._wanted_back.clear()
        self._reached.clear()
        self._uncommitted_ends.clear()
        self.current = None
        opened, self._open = list(self._open.values()), {}
        await _stopped(opened)

    def _places(self) -> dict[SourceSegment, OffsetAndTerm]:
        return {one: self._reached_in(opened) for one, opened in self._open.items()}

    @property
    def _commits_by_itself(self) -> bool:
        return self._settings.auto_commit_ms is not None

    def _reached_in(self, opened: _Open) -> OffsetAndTerm:
        """Up to where others need not read a segment again."""
        return opened.processed() if self._commits_by_itself else opened.committed

    def _handed_out(self, opened: _Open) -> OffsetAndTerm:
        offset = opened.state.handed_out().get(opened.number, opened.at.offset)
        if offset <= opened.at.offset:
            return opened.at
        return opened.state.with_terms({opened.number: offset})[opened.number]

    async def _give_back(self, wanted: set[SourceSegment]) -> None:
        """Give back these segments, or once the user asks for more, if it is among them that it
        has records of."""
        in_hand = None if self.current is None else self.current.segment
        self._wanted_back = wanted & {in_hand}
        await self._release(wanted - self._wanted_back)

    async def _release(self, segments: set[SourceSegment]) -> None:
        closing = [self._open.pop(one) for one in segments if one in self._open]
        if not closing:
            return
        await _stopped(closing)
        places = {opened.segment: self._reached_in(opened) for opened in closing}
        # If it stays the reader's own, it is read on from there.
        self._reached.update(places)
        await self._update(lambda state: decisions.release(*self._me(state), places))
        for one in places:
            self._reached.pop(one, None)

    async def _pass_and_give_back(self) -> None:
        if not self.attention:
            return
        places, at_us = self._places(), now_us()
        await self._update(
            lambda state: decisions.pass_checkpoints(*self._me(state), places, at_us)
        )
        back, self._wanted_back = self._wanted_back, set()
        await self._release(back)
        self.attention = False

    def _end_later(self, opened: _Open, *, committed: bool = False) -> None:
        """All of a segment is processed: say so, while other segments are read on."""
        if not committed and not self._commits_by_itself:
            self._uncommitted_ends.append(opened)
            return
        task = asyncio.create_task(self._end(opened), name=f"end of {opened.segment}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, opened: _Open) -> None:
        attempt = 0
        segment = opened.segment
        while self._open.get(segment) is opened:
            try:
                await self._end_once(opened)
                return
            except (FencedError, NotFoundError):
                # The task that looks on meets it, too.
                return
            except RetryableError:
                await asyncio.sleep(backoff_s(attempt, *_BACKOFF_MS, self._random()))
                attempt += 1

    async def _end_once(self, opened: _Open) -> None:
        segment, at = opened.segment, self._reached_in(opened)
        following = await self._sources[segment.source].after(segment)
        async with self._turn:
            await self._update(
                lambda state: decisions.end(*self._me(state), segment, at, following)
            )
            if opened.live:
                del self._open[segment]
                await _stopped([opened])
            group = await self._update(lambda state: decisions.acquire(*self._me(state)))
            self._follow(group)


async def _stopped(opened: list[_Open]) -> None:
    """Stop reading segments."""
    for one in opened:
        one.live = False
    tasks = [one.task for one in opened if one.task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for one in opened:
        await one.consumer.close()
