"""The state of reader groups and its updates as a state log stores them: JSON. Pure.

Neighbours: `runnel.groups.state` is what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from runnel.groups.places import Places, SourceSegment, Successor
from runnel.groups.state import (
    RETENTIONS,
    Acquired,
    Checkpoint,
    CheckpointBegun,
    CheckpointPassed,
    Completed,
    Created,
    Deleted,
    Ended,
    Found,
    GroupConfig,
    GroupRetention,
    Groups,
    GroupState,
    Joined,
    Left,
    Moved,
    Reader,
    Released,
    Reset,
    Update,
    apply,
)
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import MAX_TIME_US
from runnel.state_log.fold import read_number, read_text
from schemas.errors import UnsupportedError
from schemas.streams.cuts import NOT_BEGUN
from schemas.streams.key_space import KeyRange

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
        return apply(state, update)

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


def _pack(value: Any) -> Any:
    match value:
        case GroupConfig():
            return {
                "sources": dict(value.sources),
                "leaseMs": value.lease_ms,
                "checkpointEveryMs": value.checkpoint_every_ms,
                "retention": value.retention,
                "end": [[*one, offset] for one, offset in value.end.items()],
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
        "mayPublish": [one.id for one in group.completed if one.may_publish],
    }


def _read_group(data: Any) -> GroupState:
    may_publish = set(map(read_text, data.get("mayPublish", ())))
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
            Completed(read_text(id_), _time_us(at), _read_places(places), id_ in may_publish)
            for id_, at, places in data["completed"]
        ],
    )


def _read_config(data: Any) -> GroupConfig:
    return GroupConfig(
        {read_text(name): read_text(uid) for name, uid in data["sources"].items()},
        read_number(data["leaseMs"]),
        read_number(data["checkpointEveryMs"]),
        _read_retention(data.get("retention", "none")),
        {_segment((source, n)): _read_end(offset) for source, n, offset in data.get("end", ())},
    )


def _read_end(value: Any) -> int:
    return NOT_BEGUN if value == NOT_BEGUN else read_number(value)


def _read_retention(value: Any) -> GroupRetention:
    for one in RETENTIONS:
        if value == one:
            return one
    raise ValueError(f"{value!r} is none of {', '.join(RETENTIONS)}")


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
