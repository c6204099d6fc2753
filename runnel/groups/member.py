"""A reader's part in its group: it looks at the state, and acts on it.

A task looks once a second: it takes and gives back segments, says that the reader is alive, and
calls others dead that do not (`runnel.groups.balance`, `runnel.groups.lease`). What has to wait
until the user asks for the next record sets `Member.attention`; `Member.attend` does it then. A
reader that others called dead joins again by itself, and what it had not committed is read again,
by whoever has the segment then.

Neighbours: `runnel.groups.reader` hands out the records of the segments that are open here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from runnel.consume.settings import ConsumerSettings
from runnel.fork import OpenedIn
from runnel.groups import decisions
from runnel.groups.lease import HANDS_OUT, Judge, Lease
from runnel.groups.opened import Item, OpenSegment, OpenSegments
from runnel.groups.places import SourceSegment
from runnel.groups.retention import Publisher
from runnel.groups.sources import Source
from runnel.groups.state import GroupConfig, Groups, GroupState, Update
from runnel.groups.store import GroupStore
from runnel.kept_work import KeptWork
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.state_log.log import StateLog, now_us
from schemas.backoff import backoff_s
from schemas.clock import boottime_s
from schemas.errors import (
    FencedError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    RunnelError,
)

#: How often a reader looks at the state of its group, at most.
_LOOK_S: Final = 1.0
#: How often one reader asks whether topics have more partitions.
_GROWTH_S: Final = 5.0
#: How long closing waits for the state log.
_LEAVE_S: Final = 5.0
_BACKOFF_MS: Final = (50.0, 1_000.0)

_log = logging.getLogger("runnel")

Decide = Callable[[Groups], tuple[Update, ...]]


class Member:
    """See the module's text. It lives while its task looks on, even if its user has forgotten the
    reader: whoever closes all readers closes this."""

    def __init__(
        self,
        store: GroupStore,
        group: str,
        name: str,
        find_source: Callable[[str], Awaitable[Source]],
        settings: ConsumerSettings,
        by: str,
        random: Callable[[], float],
    ) -> None:
        self.group = group
        self.name = name
        self.segments = OpenSegments(group, settings)
        self._opened_in = OpenedIn()
        self.sources: dict[str, Source] = {}
        self._store = store
        self._find_source = find_source
        self._settings = settings
        self._by = by
        self._random = random
        self._give_up_s = settings.give_up_ms / 1000
        self._session = ""
        self._lease = Lease(0.0)
        self._judge = Judge(0.0)
        #: Up to where segments were read that are to be given back.
        self._reached: dict[SourceSegment, OffsetAndTerm] = {}
        self._attending: asyncio.Task[None] | None = None
        #: Segments whose end is processed, and not committed.
        self._uncommitted_ends: list[OpenSegment] = []
        #: What ended a session before its records were committed, until `commit` has raised it.
        self._lost: FencedError | None = None
        #: The session whose end `commit` has raised.
        self._told = ""
        self._growing: asyncio.Task[None] | None = None
        #: What to give back once the user asks for more.
        self._wanted_back: set[SourceSegment] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._starting: KeptWork[None] = KeptWork(f"reader {name} joins")
        self._looking: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        #: Whether it is not known if the session has begun.
        self._is_joining = False
        self._turn = asyncio.Lock()
        self._publisher = Publisher(group, self._state)
        self._log: StateLog[Groups, Update] | None = None
        self._committed_s = 0.0
        self._grown_s = 0.0
        self._checkpoint: tuple[str, float] = ("", 0.0)
        #: What the group was made with, once it has joined.
        self._config: GroupConfig | None = None
        #: The segment whose records are being handed out.
        self.current: OpenSegment | None = None
        #: Whether the user waits for records.
        self.asking = False
        #: Whether something is to be done before the next record is handed out.
        self.attention = False
        #: Until when, on the clock of leases, records may be handed out.
        self.valid_until_s = 0.0
        #: Whether all of the sources is read, or all before the group's end.
        self.exhausted = False
        #: Whether its user has closed it.
        self.closed = False
        #: Why it reads no more.
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Join the group, and begin to look; nothing if that is so. It goes on if the caller is
        cancelled. Raises InvalidRequestError if it is closed, and in a fork of the process that
        opened it; NotFoundError, DeadlineExceededError."""
        self._opened_in.require()
        if not self.closed and self._looking is None:
            await self._starting.run(self._start)
        if self.closed:
            raise InvalidRequestError(f"reader {self.name!r} is closed; open another")

    async def _start(self) -> None:
        async with self._turn:
            self._log = await self._store.log_of(self.group)
            await self._join()
            self._looking = asyncio.create_task(self._look_on(), name=f"reader {self.name}")

    async def commit(self) -> None:
        """Commit everything that was handed out. Raises FencedError, once, for a session that ended
        with records that were not committed, also if the reader has joined again since; and
        DeadlineExceededError."""
        async with self._turn:
            if (lost := self._lost) is not None:
                self._lost = None
                raise lost
            # What ends from here on may have records that are not among these places.
            ended, self._uncommitted_ends = self._uncommitted_ends, []
            opened = list(self.segments.by_segment.values())
            places = {one.segment: one.handed_out() for one in opened}
            try:
                await self._update(lambda state: decisions.move(*self._me(state), places))
            except BaseException as error:
                self._uncommitted_ends[:0] = ended
                if isinstance(error, FencedError):
                    self._told = self._session
                raise
            for one in opened:
                one.committed = places[one.segment]
        for one in ended:
            self._end_soon(one)

    @property
    def is_due(self) -> bool:
        """Whether `attend` must be called before the next record. For any thread."""
        return self.attention or boottime_s() >= self.valid_until_s

    async def attend(self) -> None:
        """Do what must be done before the next record is handed out: pass checkpoints, give back
        segments, renew the lease. What was handed out before is processed. It goes on if the caller
        is cancelled."""
        self._opened_in.require()
        if self._attending is None or self._attending.done():
            self._attending = asyncio.create_task(
                self._attend(), name=f"reader {self.name} attends"
            )
            # Nobody may be left to hear of its failure, which the next call meets anew.
            self._attending.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._attending)

    async def _attend(self) -> None:
        while self.is_due:
            if self.failure is not None:
                raise self.failure
            async with self._turn:
                try:
                    await self._pass_and_give_back()
                    if not self._lease.may_hand_out(boottime_s()):
                        await self._update(
                            lambda state: decisions.move(
                                *self._me(state), self.segments.places(), alive=True
                            )
                        )
                    continue
                except FencedError:
                    # The task that looks on joins again, or fails.
                    pass
                except RetryableError as error:
                    _log.warning("reader %s of group %s: %s", self.name, self.group, error.message)
            await asyncio.sleep(_BACKOFF_MS[0] / 1000)

    def end(self, opened: OpenSegment) -> None:
        """All of a segment is processed: say so, while other segments are read on; or once the user
        commits that."""
        if self.segments.commits_by_itself:
            self._end_soon(opened)
        else:
            self._uncommitted_ends.append(opened)

    async def close(self, *, commit: bool = True) -> None:
        """Leave the group: others take its segments, where everything handed out counts as
        processed. Without ``commit``, what was in hand does not. May be called again. It goes on if
        the caller is cancelled."""
        self.begin_to_leave(commit=commit)
        if self._leaving is not None:
            await asyncio.wait([self._leaving])
            if not self._leaving.cancelled():
                self._leaving.result()

    def begin_to_leave(self, *, commit: bool) -> None:
        """As `close`, without waiting."""
        # In a fork, the parent still reads.
        if self.closed or not self._opened_in.is_this:
            return
        self.closed = True
        places = self.segments.places()
        if commit and self.segments.commits_by_itself:
            opened = self.segments.by_segment
            places = {one: each.handed_out() for one, each in opened.items()}
        self._leaving = asyncio.create_task(self._leave(places), name=f"reader {self.name} leaves")
        # Nobody may ask again.
        self._leaving.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _leave(self, places: Mapping[SourceSegment, OffsetAndTerm]) -> None:
        running = (
            self._looking,
            self._growing,
            self._attending,
            self._publisher.task,
            *self._ending,
        )
        tasks = [*self._starting.cancel(), *(task for task in running if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._drop()
        self.segments.wake()
        if (log := self._log) is not None:
            with suppress(RunnelError):
                if self._is_joining:
                    # It was interrupted: it may have joined without having heard of it.
                    await log.read(_LEAVE_S)
                await log.update(lambda state: decisions.leave(*self._me(state), places), _LEAVE_S)

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

        sent_s = boottime_s()
        state = await self._state_log().update(noted, self._give_up_s)
        if made:
            if not self._lease.may_hand_out(boottime_s()):
                # Others may not have been able to write, either.
                self._judge.spare()
            self._lease.confirmed(sent_s)
            self.valid_until_s = self._lease.sent_s + self._lease.lease_s * HANDS_OUT
        return decisions.find(state, self.group)

    async def _update_other(self, decide: Decide) -> GroupState:
        """Append what says nothing of this reader."""
        state = await self._state_log().update(decide, self._give_up_s)
        return decisions.find(state, self.group)

    async def _state(self) -> GroupState:
        """Raises NotFoundError if the group was deleted."""
        return decisions.find(await self._state_log().read(self._give_up_s), self.group)

    def _state_log(self) -> StateLog[Groups, Update]:
        if self._log is None:
            raise InvalidRequestError(f"reader {self.name!r} has not joined its group yet")
        return self._log

    async def _join(self) -> None:
        config = (await self._state()).config
        if self._config not in (None, config):
            raise NotFoundError(
                f"reader group {self.group!r} was deleted and made again, with other sources or"
                " settings; open the reader again"
            )
        self._config = config
        for name, uid in config.sources.items():
            known = self.sources.get(name)
            if known is not None and known.uid == uid:
                continue
            self.sources[name] = source = await self._find_source(name)
            if source.uid != uid:
                raise NotFoundError(
                    f"{name} was deleted and created again since group {self.group} was made;"
                    f" delete the group, and make it again: runnel group delete {self.group}"
                )
        self._lease = Lease(config.lease_ms / 1000)
        self._judge = Judge(config.lease_ms / 1000)
        self._session = self._store.new_id()
        self.exhausted = False
        self._is_joining = True
        await self._update(lambda state: decisions.join(*self._me(state), self._by, now_us()))
        self._is_joining = False

    async def _look_on(self) -> None:
        """Look at the state now and then. Ends with a failure that the user is told."""
        attempt = 0
        try:
            while True:
                try:
                    await self._look_or_join()
                    attempt = 0
                    await asyncio.sleep(min(_LOOK_S, self._lease.lease_s / 6))
                except RetryableError as error:
                    # What is read already is handed out while the lease lasts.
                    _log.warning("reader %s of group %s: %s", self.name, self.group, error.message)
                    await asyncio.sleep(backoff_s(attempt, *_BACKOFF_MS, self._random()))
                    attempt += 1
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self._fail(error)

    async def _look_or_join(self) -> None:
        """Look; if the session is over, join again. Raises FencedError if another process reads
        under the name, NotFoundError if the group or a source is not what it was any more."""
        try:
            async with self._turn:
                await self._look()
        except FencedError as error:
            if error.details.get("taken"):
                raise
            _log.warning("%s; it joins again", error.message)
            if self.segments.any_uncommitted and self._told != self._session:
                self._lost = error
            await self._drop()
            await self._join()

    async def _fail(self, error: BaseException) -> None:
        await self._drop()
        self.failure = error
        self.segments.wake()

    async def _look(self) -> None:
        state = await self._state_log().read(self._give_up_s)
        group = decisions.find(state, self.group)
        # Raises FencedError once the session is over.
        decisions.move(*self._me(state), {})
        now_s = boottime_s()
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
        group = await self._take()
        if not group.places.open:
            self.exhausted = True
            self.segments.wake()
        await self._give_back(set(decisions.releases(*self._me({self.group: group}))))
        first = min(group.readers, default="") == self.name
        patience_s = 0.0 if first else self._lease.lease_s
        self._publisher.look(group, self.sources.values(), now_s, patience_s)
        if first:
            await self._look_for_all(group, now_s)
        self.attention = bool(group.pending(self.name)) or bool(self._wanted_back)
        if self.attention and self.asking:
            await self._pass_and_give_back()
        every_s = (self._settings.auto_commit_ms or 0) / 1000
        due = bool(every_s) and now_s - self._committed_s >= every_s
        if due or self._lease.is_due(now_s):
            self._committed_s = now_s
            alive = self._lease.is_due(now_s)
            places = self.segments.places() if every_s else {}
            await self._update(lambda state: decisions.move(*self._me(state), places, alive=alive))
            self.segments.committed(places)

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
            for source in self.sources.values():
                if there := await source.added():
                    async with self._turn:
                        await self._update(
                            lambda state, there=there: decisions.found(  # type: ignore[misc]
                                *self._me(state), there
                            )
                        )

    # -- segments -----------------------------------------------------------------------------

    async def _take(self) -> GroupState:
        """Take segments that are free, and read what is owned and not read yet."""

        def acquired(state: Groups) -> tuple[Update, ...]:
            updates = decisions.acquire(*self._me(state))
            # What others own, or nobody does, was given back after all: others may have read on.
            owned = decisions.find(state, self.group).owned(self.name)
            for one in self._reached.keys() - set(owned):
                del self._reached[one]
            return updates

        group = await self._update(acquired)
        owned = group.owned(self.name)
        for one in owned:
            if one not in self.segments.by_segment:
                at = self._reached.pop(one, group.places.open[one])
                stop = group.config.stop_of(one)
                self.segments.begin(one, self.sources[one.source], at, stop, len(owned))
        return group

    async def _drop(self) -> None:
        """Read nothing more."""
        self._wanted_back.clear()
        self._reached.clear()
        self._uncommitted_ends.clear()
        self.current = None
        await self.segments.close_all()

    async def _give_back(self, wanted: set[SourceSegment]) -> None:
        """Give back these segments, or once the user asks for more, if it is among them that it
        has records of."""
        in_hand = None if self.current is None else self.current.segment
        self._wanted_back = wanted & {in_hand}
        await self._release(wanted - self._wanted_back)

    async def _release(self, segments: set[SourceSegment]) -> None:
        closed = await self.segments.close(segments)
        if not closed:
            return
        places = {opened.segment: self.segments.reached(opened) for opened in closed}
        # If it stays the reader's own, it is read on from there.
        self._reached.update(places)
        await self._update(lambda state: decisions.release(*self._me(state), places))
        for one in places:
            self._reached.pop(one, None)

    async def _pass_and_give_back(self) -> None:
        if not self.attention:
            return
        places, at_us = self.segments.places(), now_us()
        await self._update(
            lambda state: decisions.pass_checkpoints(*self._me(state), places, at_us)
        )
        back, self._wanted_back = self._wanted_back, set()
        await self._release(back)
        self.attention = False

    def _end_soon(self, opened: OpenSegment) -> None:
        task = asyncio.create_task(self._end(opened), name=f"end of {opened.segment}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, opened: OpenSegment) -> None:
        attempt = 0
        while self.segments.has(opened):
            try:
                await self._end_once(opened)
                return
            except FencedError:
                # The task that looks on meets it, too.
                return
            except RetryableError:
                await asyncio.sleep(backoff_s(attempt, *_BACKOFF_MS, self._random()))
                attempt += 1
            except RunnelError as error:
                # Nobody else may meet it: the records of a deleted stream are read ahead.
                await self.segments.queue.put(Item(opened, error))
                return

    async def _end_once(self, opened: OpenSegment) -> None:
        segment, at = opened.segment, self.segments.reached(opened)
        following = () if opened.stop is not None else await opened.source.after(segment)
        async with self._turn:
            if not self.segments.has(opened):
                # The session may be another one, in which the segment is read from another place.
                return
            await self._update(
                lambda state: decisions.end(*self._me(state), segment, at, following)
            )
            await self.segments.close([segment])
            await self._take()


async def close_all(members: Iterable[Member], *, commit: bool) -> None:
    """Close all of them at the same time. Raises as `Member.close`."""
    leaving = list(members)
    for one in leaving:
        one.begin_to_leave(commit=commit)
    for one in leaving:
        await one.close(commit=commit)
