"""The state of reader groups, and its updates. Pure.

One log holds the groups whose names hash to it (`runnel.state_log.topic_logs`); each update names
its group. `runnel.groups.decisions` makes the updates from the state that they change, so what
arrives here was allowed. Neighbours: `runnel.groups.stored_state` is how both are stored.

Every open segment of a group is owned by one reader, or free. A reader is one *session* of a
process under a name; ids of sessions are random. Its ``counter`` rises with each update of its own:
that is its sign of life (`runnel.groups.lease`).

A *checkpoint* is a place of the whole group: each reader, when its user asks for the next record,
says how far it is, and reads on. Until then, what the reader does counts for the checkpoint, and
not after it. So the checkpoint has the places of the group as they would be if all had said so at
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never, get_args

from runnel.groups.places import Places, SourceSegment, Successor
from runnel.records.offset_and_term import OffsetAndTerm

MAX_OUTSTANDING: Final = 3
"""Checkpoints of a group that are not complete."""
KEPT: Final = 4
"""Complete checkpoints of a group that are kept: who asked for one must find it."""


GroupRetention = Literal["none", "manual", "automatic"]
"""Who tells the streams of a group how far it is: nobody, its users, or its readers whenever a
checkpoint that nobody asked for is complete."""


RETENTIONS: Final[tuple[GroupRetention, ...]] = get_args(GroupRetention)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What a group was made with. ``sources``: the uid by the name of the stream or topic. A reader
    that shows no life for ``lease_ms`` loses its segments; ``checkpoint_every_ms``: how often a
    checkpoint is begun by itself, 0 for never. ``retention``: who tells streams how far the group
    is, so that their retention keeps the rest. ``end``: the offsets at which the group ends, by the
    segments that a cut names, `NOT_BEGUN` for one that waits there; empty if it goes on for
    ever."""

    sources: Mapping[str, str]
    lease_ms: int
    checkpoint_every_ms: int
    retention: GroupRetention = "none"
    end: Mapping[SourceSegment, int] = field(default_factory=dict)

    def stop_of(self, segment: SourceSegment) -> int | None:
        """The first offset of a segment that is not read; None if all of it is."""
        offset = self.end.get(segment)
        return None if offset is None else max(0, offset)

    def behind_end(self, segments: Iterable[SourceSegment]) -> list[SourceSegment]:
        """Those of these segments that are partitions of which the end knows nothing: they were
        added to a topic behind it."""
        if not self.end:
            return []
        return [one for one in segments if not one.is_of_stream and one not in self.end]

    @property
    def streams(self) -> tuple[str, ...]:
        """Its sources that are streams."""
        return tuple(name for name in self.sources if "/" in name)


@dataclass(slots=True)
class Reader:
    """``by``: the process, and ``since_us`` when it joined."""

    session: str
    counter: int
    by: str
    since_us: int


@dataclass(slots=True)
class Checkpoint:
    """One that is not complete: the readers it waits for, and the places so far. ``silent``: nobody
    asked for it."""

    id: str
    silent: bool
    at_us: int
    waiting: set[str]
    places: Places


@dataclass(slots=True)
class Completed:
    """A complete checkpoint. ``may_publish``: whether the group is still behind it, and nobody
    asked for it, as who did may want to say himself when it is published."""

    id: str
    at_us: int
    places: Places
    may_publish: bool = False


@dataclass(slots=True)
class GroupState:
    """``generation`` counts resets: all readers join anew after one. ``owners``: the reader of each
    open segment that is not free."""

    config: GroupConfig
    generation: int
    by: str
    at_us: int
    places: Places
    readers: dict[str, Reader] = field(default_factory=dict)
    owners: dict[SourceSegment, str] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    completed: list[Completed] = field(default_factory=list)

    def owned(self, reader: str) -> list[SourceSegment]:
        """The segments of a reader."""
        return [one for one, owner in self.owners.items() if owner == reader]

    def free(self) -> list[SourceSegment]:
        """Open segments that nobody reads."""
        return [one for one in self.places.open if one not in self.owners]

    def pending(self, reader: str) -> list[Checkpoint]:
        """The checkpoints that wait for a reader."""
        return [one for one in self.checkpoints if reader in one.waiting]


Groups = dict[str, GroupState]
"""By the name of the group."""


# -- updates ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    group: str
    config: GroupConfig
    places: Places
    by: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Deleted:
    group: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A session begins under the name of a reader; it owns nothing yet."""

    group: str
    reader: str
    session: str
    by: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Left:
    """A reader is gone: by itself, with its last places, or because others have not heard of it.
    Its segments are free at these places, or at the last ones known."""

    group: str
    reader: str
    places: Mapping[SourceSegment, OffsetAndTerm]


@dataclass(frozen=True, slots=True)
class Moved:
    """A reader has processed what is below these places; a sign of life without any."""

    group: str
    reader: str
    places: Mapping[SourceSegment, OffsetAndTerm]


@dataclass(frozen=True, slots=True)
class Acquired:
    """A reader takes free segments."""

    group: str
    reader: str
    segments: tuple[SourceSegment, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """A reader gives segments back, and has processed what is below these places."""

    group: str
    reader: str
    places: Mapping[SourceSegment, OffsetAndTerm]


@dataclass(frozen=True, slots=True)
class Ended:
    """A reader has processed all of a segment, or all up to where the group ends in it; nothing
    follows it then."""

    group: str
    reader: str
    segment: SourceSegment
    at: OffsetAndTerm
    successors: tuple[Successor, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Partitions were added to a topic."""

    group: str
    reader: str
    segments: tuple[SourceSegment, ...]


@dataclass(frozen=True, slots=True)
class CheckpointBegun:
    group: str
    checkpoint: str
    silent: bool
    at_us: int


@dataclass(frozen=True, slots=True)
class CheckpointPassed:
    """A reader has processed what is below these places, and reads on only after this."""

    group: str
    reader: str
    checkpoint: str
    places: Mapping[SourceSegment, OffsetAndTerm]
    at_us: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The group goes on from other places; all readers have to join anew."""

    group: str
    places: Places
    by: str
    at_us: int


Update = (
    Created
    | Deleted
    | Joined
    | Left
    | Moved
    | Acquired
    | Released
    | Ended
    | Found
    | CheckpointBegun
    | CheckpointPassed
    | Reset
)


def apply(state: Groups, update: Update) -> Groups:
    """The state after an update; ``state`` itself is changed."""
    if isinstance(update, Created):
        state[update.group] = GroupState(
            update.config, 1, update.by, update.at_us, update.places.copy()
        )
    elif isinstance(update, Deleted):
        state.pop(update.group, None)
    elif (group := state.get(update.group)) is not None:
        _apply(group, update)
    return state


def _apply(group: GroupState, update: Update) -> None:
    match update:
        case Joined(_, reader, session, by, at_us):
            group.readers[reader] = Reader(session, 0, by, at_us)
        case Left(_, reader, places):
            _counted(group, reader, places)
            _forget(group, reader, group.at_us)
        case Moved(_, reader, places):
            _counted(group, reader, places)
        case Acquired(_, reader, segments):
            _counted(group, reader, {})
            group.owners.update(dict.fromkeys(segments, reader))
        case Released(_, reader, places):
            _counted(group, reader, places)
            for one in places:
                group.owners.pop(one, None)
        case Ended(_, reader, segment, at, successors):
            _counted(group, reader, {segment: at})
            group.owners.pop(segment, None)
            stops = group.config.stop_of(segment) is not None
            for here in _counting(group, reader):
                if stops:
                    here.stop(segment, at)
                else:
                    here.end(segment, at, successors)
        case Found(_, reader, segments):
            _counted(group, reader, {})
            for one in segments:
                # A checkpoint under way does not have them: it lies before their beginning.
                for here in (group.places, *(each.places for each in group.checkpoints)):
                    here.add(one)
        case CheckpointBegun(_, checkpoint, silent, at_us):
            begun = Checkpoint(checkpoint, silent, at_us, set(group.readers), group.places.copy())
            group.checkpoints.append(begun)
            _complete(group, at_us)
        case CheckpointPassed(_, reader, checkpoint, places, at_us):
            _counted(group, reader, places)
            for outstanding in group.checkpoints:
                if outstanding.id == checkpoint:
                    outstanding.waiting.discard(reader)
            _complete(group, at_us)
        case Reset(_, places, by, at_us):
            group.generation += 1
            group.by, group.at_us = by, at_us
            group.places = places.copy()
            group.readers.clear()
            group.owners.clear()
            group.checkpoints.clear()
            for done in group.completed:
                done.may_publish = False
        case Created() | Deleted():
            pass
        case _:
            assert_never(update)


def _counting(group: GroupState, reader: str) -> Iterable[Places]:
    """The places for which counts what a reader does: those of the group, and of the checkpoints
    that wait for it."""
    return (group.places, *(one.places for one in group.pending(reader)))


def _counted(group: GroupState, reader: str, places: Mapping[SourceSegment, OffsetAndTerm]) -> None:
    """A reader is alive, and has processed what is below these places."""
    if (known := group.readers.get(reader)) is not None:
        known.counter += 1
    for here in _counting(group, reader):
        here.move(places)


def _forget(group: GroupState, reader: str, at_us: int) -> None:
    group.readers.pop(reader, None)
    for one in group.owned(reader):
        del group.owners[one]
    for checkpoint in group.checkpoints:
        checkpoint.waiting.discard(reader)
    _complete(group, at_us)


def _complete(group: GroupState, at_us: int) -> None:
    """Checkpoints that wait for nobody are complete; the newest of them are kept."""
    for one in list(group.checkpoints):
        if not one.waiting:
            group.checkpoints.remove(one)
            at_us = max(at_us, one.at_us)
            group.completed.append(Completed(one.id, at_us, one.places, one.silent))
    del group.completed[:-KEPT]
