"""The state of reader groups, and its updates. Pure.

One log holds the groups whose names hash to it (`runnel.state_log.topic_logs`); each update names
its group. `runnel.groups.decisions` makes the updates from the state that they change, so what
arrives here was allowed.

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
from dataclasses import dataclass, field, fields
from typing import Any, Final, assert_never

from runnel.groups.places import Places, SourceSegment, Successor
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import MAX_TIME_US
from runnel.state_log.fold import read_number, read_text
from schemas.errors import UnsupportedError
from schemas.streams.key_space import KeyRange

MAX_OUTSTANDING: Final = 3
"""Checkpoints of a group that are not complete."""
KEPT: Final = 4
"""Complete checkpoints of a group that are kept: who asked for one must find it."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What a group was made with. ``sources``: the uid by the name of the stream or topic. A reader
    that shows no life for ``lease_ms`` loses its segments; ``checkpoint_every_ms``: how often a
    checkpoint is begun by itself, 0 for never."""

    sources: Mapping[str, str]
    lease_ms: int
    checkpoint_every_ms: int


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
    """A complete checkpoint."""

    id: str
    at_us: int
    places: Places


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
    """A reader has processed all of a segment."""

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

_KINDS: Final[dict[str, type[Update]]] = {
    "created": Created,
    "deleted": Deleted,
    "joined": Joined,
    "left": Left,
    "moved": Moved,
    "acquired": Acquired,
    "released": Released,
    "ended": Ended,
    "found": Found,
    "checkpointBegun": CheckpointBegun,
    "checkpointPassed": CheckpointPassed,
    "reset": Reset,
}
_NAMES: Final = {cls: name for name, cls in _KINDS.items()}


class GroupsState:
    """`Groups` as a `runnel.state_log.fold.StateType`."""

    def empty(self) -> Groups:
        return {}

    def apply(self, state: Groups, update: Update) -> Groups:
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

    def pack_state(self, state: Groups) -> Any:
        return {name: _pack_group(group) for name, group in state.items()}

    def read_state(self, data: Any) -> Groups:
        """Raises ValueError, TypeError, KeyError for what `pack_state` does not write."""
        return {read_text(name): _read_group(group) for name, group in data.items()}

    def pack_update(self, update: Update) -> Any:
        packed = {one.name: _pack(getattr(update, one.name)) for one in fields(update)}
        return {"kind": _NAMES[type(update)], **packed}

    def read_update(self, data: Any) -> Update:
        """Raises UnsupportedError for a kind of update that this version does not know, ValueError,
        TypeError, KeyError for what `pack_update` does not write."""
        cls = _KINDS.get(data["kind"])
        if cls is None:
            raise UnsupportedError(
                f"updates {data['kind']!r} of reader groups are not known to this client; upgrade"
                " it"
            )
        return cls(**{one.name: _READ[one.name](data[one.name]) for one in fields(cls)})


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
            for here in _counting(group, reader):
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
            group.completed.append(Completed(one.id, max(at_us, one.at_us), one.places))
    del group.completed[:-KEPT]


# -- as JSON ------------------------------------------------------------------------------------


def _pack(value: Any) -> Any:
    match value:
        case GroupConfig():
            return {
                "sources": dict(value.sources),
                "leaseMs": value.lease_ms,
                "checkpointEveryMs": value.checkpoint_every_ms,
            }
        case Places():
            return _pack_places(value)
        case SourceSegment() | OffsetAndTerm():
            return list(value)
        case Successor():
            before = [[*one, keys.low, keys.high] for one, keys in value.predecessors]
            return [*value.segment, value.keys.low, value.keys.high, before]
        case Mapping():
            return [[*segment, *at] for segment, at in value.items()]
        case tuple():
            return [_pack(one) for one in value]
        case _:
            return value


def _pack_places(places: Places) -> Any:
    keys = places.keys
    return {
        "open": [[*one, keys[one].low, keys[one].high, *at] for one, at in places.open.items()],
        "waiting": [
            [*one, keys[one].low, keys[one].high, [list(each) for each in missing]]
            for one, missing in places.waiting.items()
        ],
        "last": [[*one, keys[one].low, keys[one].high, *at] for one, at in places.last.items()],
    }


def _read_places(data: Any) -> Places:
    places = Places()
    for into, rows in ((places.open, data["open"]), (places.last, data["last"])):
        for source, number, low, high, offset, term in rows:
            one = _segment((source, number))
            into[one] = _place((offset, term))
            places.keys[one] = _keys(low, high)
    for source, number, low, high, missing in data["waiting"]:
        one = _segment((source, number))
        places.waiting[one] = frozenset(map(_segment, missing))
        places.keys[one] = _keys(low, high)
    return places


def _pack_group(group: GroupState) -> Any:
    return {
        "config": _pack(group.config),
        "generation": group.generation,
        "by": group.by,
        "at": group.at_us,
        "places": _pack_places(group.places),
        "readers": [
            [name, one.session, one.counter, one.by, one.since_us]
            for name, one in group.readers.items()
        ],
        "owners": [[*one, owner] for one, owner in group.owners.items()],
        "checkpoints": [
            [one.id, one.silent, one.at_us, sorted(one.waiting), _pack_places(one.places)]
            for one in group.checkpoints
        ],
        "completed": [[one.id, one.at_us, _pack_places(one.places)] for one in group.completed],
    }


def _read_group(data: Any) -> GroupState:
    return GroupState(
        _read_config(data["config"]),
        read_number(data["generation"]),
        read_text(data["by"]),
        _time_us(data["at"]),
        _read_places(data["places"]),
        {
            read_text(name): Reader(
                read_text(session), read_number(counter), read_text(by), _time_us(since)
            )
            for name, session, counter, by, since in data["readers"]
        },
        {_segment((source, number)): read_text(owner) for source, number, owner in data["owners"]},
        [
            Checkpoint(
                read_text(id_),
                _flag(silent),
                _time_us(at),
                set(map(read_text, waiting)),
                _read_places(places),
            )
            for id_, silent, at, waiting, places in data["checkpoints"]
        ],
        [
            Completed(read_text(id_), _time_us(at), _read_places(places))
            for id_, at, places in data["completed"]
        ],
    )


def _read_config(data: Any) -> GroupConfig:
    return GroupConfig(
        {read_text(name): read_text(uid) for name, uid in data["sources"].items()},
        read_number(data["leaseMs"]),
        read_number(data["checkpointEveryMs"]),
    )


def _segment(data: Any) -> SourceSegment:
    source, number = data
    return SourceSegment(read_text(source), read_number(number))


def _place(data: Any) -> OffsetAndTerm:
    offset, term = data
    return OffsetAndTerm(read_number(offset), read_number(term))


def _keys(low: Any, high: Any) -> KeyRange:
    return KeyRange(read_number(low), read_number(high))


def _time_us(value: Any) -> int:
    return read_number(value, MAX_TIME_US)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _read_successor(data: Any) -> Successor:
    source, number, low, high, before = data
    return Successor(
        _segment((source, number)),
        _keys(low, high),
        tuple((_segment((name, n)), _keys(from_, to)) for name, n, from_, to in before),
    )


def _read_mapping(data: Any) -> dict[SourceSegment, OffsetAndTerm]:
    return {
        _segment((source, number)): _place((offset, term)) for source, number, offset, term in data
    }


def _read_update_places(data: Any) -> Any:
    """Places of the whole group, or of some segments."""
    return _read_places(data) if isinstance(data, dict) else _read_mapping(data)


_READ: Final = {
    "group": read_text,
    "config": _read_config,
    "places": _read_update_places,
    "by": read_text,
    "at_us": _time_us,
    "reader": read_text,
    "session": read_text,
    "segments": lambda data: tuple(map(_segment, data)),
    "segment": _segment,
    "at": _place,
    "successors": lambda data: tuple(map(_read_successor, data)),
    "checkpoint": read_text,
    "silent": _flag,
}
"""How each field of an update is read."""
