"""A reader group as its users see it: its readers, checkpoints, resets, and what it is doing."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from runnel.consume.settings import ConsumerSettings, checked_settings
from runnel.groups import decisions
from runnel.groups.cut import GroupCut
from runnel.groups.member import Member, close_all
from runnel.groups.places import SourceSegment
from runnel.groups.reader import GroupReader
from runnel.groups.retention import end_unless_there, subscriptions_of
from runnel.groups.sources import (
    EXTENTS_S,
    GroupStart,
    Source,
    check_start,
    joined,
    places_within,
)
from runnel.groups.state import (
    RETENTIONS,
    Completed,
    GroupConfig,
    GroupRetention,
    Groups,
    GroupState,
    Update,
)
from runnel.groups.store import GIVE_UP_S, GroupStore, check_group_name, this_process
from runnel.groups.unread import Extent, unread_bytes
from runnel.net.routing import SegmentGoneError
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import time_of
from runnel.state_log.log import StateLog, now_us
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    RunnelError,
)
from schemas.objects.quantities import is_number
from schemas.streams.cuts import StreamCut

DEFAULT_LEASE_S: Final = 15.0
DEFAULT_CHECKPOINT_S: Final = 30.0
_LEASES_S: Final = (1.0, 3_600.0)
_MOST_CHECKPOINT_S: Final = 86_400.0
#: How often a call that waits for a checkpoint looks.
_LOOK_S: Final = 0.1

FindSource = Callable[[str], Awaitable[Source]]
"""Gives a stream or topic by its name."""


@dataclass(frozen=True, slots=True)
class NewGroup:
    """What a group is to be made with, as users say it: times are in seconds."""

    streams: Sequence[str] = ()
    topics: Sequence[str] = ()
    start: GroupStart = "earliest"
    lease: float = DEFAULT_LEASE_S
    checkpoint_every: float | None = DEFAULT_CHECKPOINT_S
    retention: GroupRetention = "none"
    end: GroupCut | None = None


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """A reader of a group. ``by``: its process, and ``since`` when it joined."""

    name: str
    by: str
    since: datetime
    segments: int


@dataclass(frozen=True, slots=True)
class SegmentProgress:
    """An open segment: ``position`` is the next record's offset, as was committed last, and ``end``
    the offset after the last record, or where the group ends, if that is less. ``unread_bytes``:
    about how many bytes of the log lie between them. Both are None if nobody answers. ``reader`` is
    None while it is free."""

    source: str
    segment: str
    reader: str | None
    position: int
    end: int | None
    unread_bytes: int | None

    @property
    def lag(self) -> int | None:
        """How many records it is behind at most; None if that is not known."""
        return None if self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group and what it is doing. ``waiting``: segments whose predecessors are not read.
    ``checkpoints``: the readers that each checkpoint under way waits for. ``published``: the place
    up to which each stream's retention knows the group to be, None for nothing yet, and without
    those whose SC does not answer. ``end``: where it ends, None if it goes on for ever. ``gone``:
    sources that were deleted since the group was made, even if they were created again: nobody
    reads these in it."""

    name: str
    sources: tuple[str, ...]
    lease_s: float
    checkpoint_every_s: float
    generation: int
    readers: tuple[ReaderInfo, ...]
    segments: tuple[SegmentProgress, ...]
    waiting: tuple[str, ...]
    checkpoints: tuple[tuple[str, ...], ...]
    last_checkpoint: datetime | None
    retention: GroupRetention = "none"
    published: Mapping[str, StreamCut | None] = field(default_factory=dict)
    end: GroupCut | None = None
    gone: tuple[str, ...] = ()

    @property
    def lag(self) -> int | None:
        """The sum over the segments; None if none is known."""
        return _sum_of(one.lag for one in self.segments)

    @property
    def unread_bytes(self) -> int | None:
        """About how many bytes of logs its segments have not read; None if none is known."""
        return _sum_of(one.unread_bytes for one in self.segments)


def _sum_of(numbers: Iterable[int | None]) -> int | None:
    """Of those that are known; None if there are numbers, and none is known."""
    found = list(numbers)
    known = [one for one in found if one is not None]
    return sum(known) if known or not found else None


class ReaderGroup:
    """A group that is there. Several processes read it, each with its `reader`."""

    def __init__(
        self,
        store: GroupStore,
        name: str,
        find_source: FindSource,
        by: str,
        random: Callable[[], float],
        opened: Callable[[Member], None],
    ) -> None:
        self.name = check_group_name(name)
        self._store = store
        self._find_source = find_source
        self._by = by
        self._random = random
        self._opened = opened
        self._members: weakref.WeakSet[Member] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<runnel.ReaderGroup {self.name!r}>"

    async def create(self, wanted: NewGroup) -> None:
        """Make the group, or find it as it is wanted. Raises ConflictError if it is there with
        other sources or settings, and RetryableError or ConflictError if it is made, and a stream
        could not be told."""
        check_start("start", wanted.start)
        if wanted.end is not None and not isinstance(wanted.end, GroupCut):
            raise InvalidRequestError(
                f"end is {wanted.end!r:.60}; give a GroupCut, as checkpoint() returns it, or None"
            )
        lease_s, every_s = _checked_times(wanted)
        _check_retention(wanted)
        sources = [await self._find_source(name) for name in (*wanted.streams, *wanted.topics)]
        uids = {source.name: source.uid for source in sources}
        end: dict[SourceSegment, int] = {}
        if wanted.end is not None:
            for source in sources:
                end |= await source.ending(wanted.start, wanted.end)
        config = GroupConfig(
            uids, round(lease_s * 1000), round(every_s * 1000), wanted.retention, end
        )
        places = joined([await places_within(source, wanted.start) for source in sources])
        places = places.without(config.behind_end(places.open))
        log = await self._store.made_log_of(self.name)
        by, at_us = this_process(self._by), now_us()
        made = False

        def decide(state: Groups) -> tuple[Update, ...]:
            nonlocal made
            updates = decisions.create(state, self.name, config, places, by, at_us)
            made = bool(updates)
            return updates

        await log.update(decide, GIVE_UP_S)
        if made and config.retention != "none":
            try:
                await self._publish(sources, GroupCut.of(places, uids))
            except (RetryableError, ConflictError) as error:
                raise type(error)(
                    f"reader group {self.name} is made, and the retention of its streams does not"
                    f" know it yet: {error.message}. Tell it: runnel group checkpoint"
                    f" {self.name}, and then: runnel group publish {self.name}"
                ) from error

    def reader(
        self,
        name: str | None = None,
        *,
        timeout: float | None = None,
        settings: ConsumerSettings | None = None,
    ) -> GroupReader:
        """A reader, by default with a name of its own: ``async with group.reader() as reader``.

        Another process that reads under the name is fenced. ``timeout``: iterating ends when no
        record has come for so many seconds. Of the settings, ``auto_commit_ms`` says how often
        positions are committed; None leaves that to `GroupReader.commit` alone: checkpoints and
        segments that change hands then have what was committed last, and what follows a segment of
        a stream is read once its end is committed.
        """
        found = f"reader-{self._store.new_id()[:8]}" if name is None else name
        member = Member(
            self._store,
            self.name,
            check_group_name(found, "name of a reader"),
            self._find_source,
            checked_settings(settings),
            this_process(self._by),
            self._random,
        )
        made = GroupReader(member, timeout)
        self._members.add(member)
        self._opened(member)
        return made

    async def checkpoint(self, *, timeout: float = 60.0) -> GroupCut:
        """A place of the whole group: everything that its readers handed out before they passed it
        lies before it, and nothing else. Each reader passes it when its user asks for the next
        record.

        Raises NotFoundError, OverloadedError while too many checkpoints are under way,
        DeadlineExceededError after ``timeout`` seconds that names the readers it waits for: it goes
        on by itself.
        """
        log = await self._log_of_group()
        id_, at_us = self._store.new_id(), now_us()
        deadline = asyncio.get_running_loop().time() + timeout
        state = await log.update(
            lambda state: decisions.begin_checkpoint(state, self.name, id_, at_us, silent=False),
            GIVE_UP_S,
        )
        while True:
            group = decisions.find(state, self.name)
            for one in group.completed:
                if one.id == id_:
                    return GroupCut.of(one.places, group.config.sources)
            waiting = [sorted(one.waiting) for one in group.checkpoints if one.id == id_]
            if not waiting:
                raise InvalidRequestError(
                    f"the checkpoint of group {self.name} came to nothing: the group was reset"
                )
            if asyncio.get_running_loop().time() >= deadline:
                raise DeadlineExceededError(
                    f"the checkpoint of group {self.name} waits for {', '.join(waiting[0])} after"
                    f" {timeout:g} s: a reader passes it when it asks for its next record. It goes"
                    " on by itself"
                )
            await asyncio.sleep(_LOOK_S)
            state = await log.read(GIVE_UP_S)

    async def last_checkpoint(self) -> GroupCut:
        """The newest checkpoint that is complete. Raises NotFoundError if there is none."""
        group = await self._state()
        if not group.completed:
            raise NotFoundError(f"group {self.name} has no checkpoint yet; ask for one")
        return GroupCut.of(group.completed[-1].places, group.config.sources)

    async def reset(self, to: GroupStart) -> None:
        """Go on from another place: the beginning or the end of the sources, or a cut. Readers that
        are open join again by themselves, and read on from there. Raises NotFoundError,
        InvalidRequestError for a cut that is no place in the sources, beyond their ends, or
        behind the end of the group."""
        check_start("to", to)
        group = await self._state()
        sources = [await self._find_source(name) for name in group.config.sources]
        for source in sources:
            if source.uid != group.config.sources[source.name]:
                raise InvalidRequestError(
                    f"{source.name} was deleted and created again since group {self.name} was"
                    f" made; delete the group, and make it again: runnel group delete {self.name}"
                )
        if (end := _end_of(group.config)) is not None:
            for source in sources:
                await source.ending(to, end)
        places = joined([await places_within(source, to) for source in sources])
        places = places.without(group.config.behind_end(places.open))
        log = await self._log_of_group()
        by, at_us = this_process(self._by), now_us()
        await log.update(
            lambda state: decisions.reset(state, self.name, places, by, at_us), GIVE_UP_S
        )

    async def publish(self, cut: GroupCut | None = None) -> None:
        """Tell the streams of the group that it has read what lies before a place, by default its
        last checkpoint: their retention keeps the rest. Topics have no such retention, and are told
        nothing. What a stream was told never goes back; an earlier place changes nothing.

        Raises InvalidRequestError if the group has retention "none", or the place is none in its
        streams, or beyond their ends; NotFoundError, also if there is no checkpoint yet.
        """
        group = await self._state()
        if group.config.retention == "none":
            raise InvalidRequestError(
                f"reader group {self.name} has retention none: its streams wait for nobody. Delete"
                f" it, and make it with retention manual or automatic: runnel group delete"
                f" {self.name}"
            )
        if cut is not None and not isinstance(cut, GroupCut):
            raise InvalidRequestError(
                f"cut is {cut!r:.60}; give a GroupCut, as checkpoint() returns it"
            )
        if cut is None and not group.completed:
            raise NotFoundError(
                f"group {self.name} has no checkpoint yet; ask for one, and publish that"
            )
        sources = [await self._find_source(one) for one in group.config.streams]
        if cut is not None:
            for one in subscriptions_of(sources, self.name):
                one.place_in(cut)
            for source in sources:
                await places_within(source, cut)
        await self._publish(
            sources, cut or GroupCut.of(group.completed[-1].places, group.config.sources)
        )

    async def _publish(self, sources: Sequence[Source], place: GroupCut) -> None:
        found = subscriptions_of(sources, self.name)
        for one in found:
            one.place_in(place)
        for one in found:
            await one.publish(place)
        await end_unless_there(found, self._state)

    async def offline(self, reader: str) -> None:
        """Say that a reader is gone: others take its segments at once, from what it committed. If
        it is not gone, it joins again. Raises NotFoundError."""
        log = await self._log_of_group()
        await log.update(lambda state: decisions.offline(state, self.name, reader), GIVE_UP_S)

    async def delete(self) -> None:
        """Delete the group with its positions; the retention of its streams waits for it no more.
        Readers that are open raise NotFoundError. Raises NotFoundError if it is not there."""
        config = (await self._state()).config
        sources = []
        if config.retention != "none":
            for name in config.streams:
                with suppress(NotFoundError):
                    sources.append(await self._find_source(name))
        found = subscriptions_of(
            [one for one in sources if one.uid == config.sources[one.name]], self.name
        )
        # First: who is told that this failed still has a group to delete.
        for one in found:
            await one.end()
        log = await self._log_of_group()
        await log.update(lambda state: decisions.delete(state, self.name), GIVE_UP_S)
        # A reader may have published meanwhile. One that does it later sees that the group is gone.
        for one in found:
            await one.end()

    async def require(self) -> None:
        """Raises NotFoundError if the group is not there."""
        await self._state()

    async def close(self) -> None:
        """Close the readers that were opened here."""
        await close_all(self._members, commit=True)

    def begin_to_close(self, *, commit: bool) -> None:
        """As `close`, without waiting."""
        for one in list(self._members):
            one.begin_to_leave(commit=commit)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await close_all(self._members, commit=error is None)

    async def describe(self) -> GroupInfo:
        """What the group is doing now. Raises NotFoundError."""
        group = await self._state()
        (extents, gone), published = await asyncio.gather(
            self._extents(group), self._published(group)
        )
        return replace(info_of(self.name, group, extents), published=published, gone=gone)

    async def _extents(
        self, group: GroupState
    ) -> tuple[Mapping[SourceSegment, Extent], tuple[str, ...]]:
        """What leaders hold of open segments, without those of a source that does not answer; and
        the sources that are gone."""
        found: dict[SourceSegment, Extent] = {}
        gone: list[str] = []

        async def ask(name: str, uid: str) -> None:
            try:
                async with asyncio.timeout(EXTENTS_S):
                    source = await self._find_source(name)
                    if source.uid != uid:
                        gone.append(name)
                        return
                    there = [one for one in group.places.open if one.source == name]
                    found.update(await source.extents(there))
            except SegmentGoneError:
                # A truncation took one that nobody has read: the source is there.
                return
            except NotFoundError:
                gone.append(name)
            except (RunnelError, TimeoutError):
                return

        await asyncio.gather(*(ask(*one) for one in group.config.sources.items()))
        return found, tuple(sorted(gone))

    async def _published(self, group: GroupState) -> Mapping[str, StreamCut | None]:
        """What the retention of streams knows; without those whose SC does not answer."""
        found: dict[str, StreamCut | None] = {}
        if group.config.retention == "none":
            return found

        async def ask(name: str) -> None:
            with suppress(RunnelError, TimeoutError):
                async with asyncio.timeout(EXTENTS_S):
                    source = await self._find_source(name)
                    if (one := source.subscription(self.name)) is not None:
                        found[name] = await one.published()

        await asyncio.gather(*map(ask, group.config.streams))
        return found

    async def _state(self) -> GroupState:
        log = await self._log_of_group()
        return decisions.find(await log.read(GIVE_UP_S), self.name)

    async def _log_of_group(self) -> StateLog[Groups, Update]:
        try:
            return await self._store.log_of(self.name)
        except NotFoundError:
            # Nobody has made a group yet: say that it is this one that is missing.
            decisions.find({}, self.name)
            raise


def _checked_times(wanted: NewGroup) -> tuple[float, float]:
    """The lease, and how often checkpoints are made, 0 for never. Raises InvalidRequestError."""
    least, most = _LEASES_S
    if not is_number(wanted.lease) or not least <= wanted.lease <= most:
        raise InvalidRequestError(f"lease is {wanted.lease!r}; give {least:g} to {most:g} seconds")
    every = 0.0 if wanted.checkpoint_every is None else wanted.checkpoint_every
    if not is_number(every) or not 0 <= every <= _MOST_CHECKPOINT_S:
        raise InvalidRequestError(
            f"checkpoint_every is {wanted.checkpoint_every!r}; give up to {_MOST_CHECKPOINT_S:g}"
            " seconds, or None for no checkpoints but those asked for"
        )
    return wanted.lease, every


def _check_retention(wanted: NewGroup) -> None:
    retention = wanted.retention
    if retention not in RETENTIONS:
        raise InvalidRequestError(
            f"retention is {retention!r}; give one of {', '.join(RETENTIONS)}"
        )
    if retention != "none" and not wanted.streams:
        raise InvalidRequestError(
            f"retention is {retention}, and the group has no stream: the retention of topics waits"
            " for no group; leave it out, or add a stream"
        )
    if retention == "automatic" and not wanted.checkpoint_every:
        raise InvalidRequestError(
            "retention is automatic, and the group makes no checkpoints by itself; give"
            " checkpoint_every, or retention manual"
        )


def info_of(
    name: str, group: GroupState, extents: Mapping[SourceSegment, Extent] | None = None
) -> GroupInfo:
    """What a state says to users, with what leaders hold of its open segments."""
    done: Completed | None = group.completed[-1] if group.completed else None
    return GroupInfo(
        name=name,
        sources=tuple(sorted(group.config.sources)),
        lease_s=group.config.lease_ms / 1000,
        checkpoint_every_s=group.config.checkpoint_every_ms / 1000,
        generation=group.generation,
        readers=tuple(
            ReaderInfo(reader, one.by, time_of(one.since_us), len(group.owned(reader)))
            for reader, one in sorted(group.readers.items())
        ),
        segments=tuple(
            _progress(group, one, at.offset, (extents or {}).get(one))
            for one, at in sorted(group.places.open.items())
        ),
        waiting=tuple(str(one) for one in sorted(group.places.waiting)),
        checkpoints=tuple(tuple(sorted(one.waiting)) for one in group.checkpoints),
        last_checkpoint=None if done is None else time_of(done.at_us),
        retention=group.config.retention,
        end=_end_of(group.config),
    )


def _end_of(config: GroupConfig) -> GroupCut | None:
    if not config.end:
        return None
    offsets = {one: OffsetAndTerm(offset) for one, offset in config.end.items()}
    return GroupCut.at(offsets, config.sources)


def _progress(
    group: GroupState, segment: SourceSegment, position: int, extent: Extent | None
) -> SegmentProgress:
    reader = group.owners.get(segment)
    end = unread = None
    if extent is not None:
        stop = group.config.stop_of(segment)
        end = extent.end if stop is None else min(stop, extent.end)
        unread = unread_bytes(position, extent, end)
    return SegmentProgress(segment.source, segment.text, reader, position, end, unread)
