"""The committed offsets of named consumers: the state in ``_positions``, and its updates. Pure.

A *reading* is one consumer name at one topic. It belongs to the *session* that opened it last: only
that one may commit. Session ids are random, so that a reading that was forgotten and created again
is not taken for the former one. A reading belongs to one uid of a topic: once the topic was deleted
and created again, the former reading is over.

Functions from the state to updates decide here what may happen, and raise an error for what may
not; `runnel.state_log.log` appends the updates if the state is still the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, assert_never

from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import MAX_TIME_US, time_of
from runnel.state_log.fold import read_number, read_text
from schemas.errors import FencedError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read of a partition, when it was committed, in microseconds, and the term
    of the last batch below it, 0 if it is not known."""

    offset: int
    at_us: int
    term: int = 0

    @property
    def place(self) -> OffsetAndTerm:
        """Up to where was read."""
        return OffsetAndTerm(self.offset, self.term)


@dataclass(frozen=True, slots=True)
class Reading:
    """One consumer name at one topic.

    ``partition_count``: of the topic when it was opened. ``session`` is None if it was closed.
    ``by``: the client that opened, closed or reset it last, and ``since_us`` when.
    """

    topic_uid: str
    partition_count: int
    session: str | None
    by: str
    since_us: int
    positions: Mapping[int, Position] = field(default_factory=dict)

    @property
    def committed_us(self) -> int | None:
        """The last commit; None before the first one."""
        return max((position.at_us for position in self.positions.values()), default=None)


#: Readings by the name of the consumer and of the topic.
Positions = dict[str, dict[str, Reading]]


@dataclass(frozen=True, slots=True)
class Opened:
    """A session takes a reading over, or begins it; ``starts`` holds the offsets to begin at for
    partitions where nothing is committed, ``terms`` those of the batches below, where known."""

    name: str
    topic: str
    topic_uid: str
    partition_count: int
    session: str
    by: str
    at_us: int
    starts: Mapping[int, int]
    terms: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """The session has read up to these offsets; ``terms`` as in `Opened`."""

    name: str
    topic: str
    at_us: int
    offsets: Mapping[int, int]
    terms: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Closed:
    """The session is over."""

    name: str
    topic: str


@dataclass(frozen=True, slots=True)
class Reset:
    """A client has set where to continue; the session that was reading is fenced. ``terms`` as in
    `Opened`."""

    name: str
    topic: str
    topic_uid: str
    partition_count: int
    by: str
    at_us: int
    offsets: Mapping[int, int]
    terms: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A reading was deleted."""

    name: str
    topic: str


Update = Opened | Committed | Closed | Reset | Forgotten

_KINDS: Final[dict[str, type[Update]]] = {
    "opened": Opened,
    "committed": Committed,
    "closed": Closed,
    "reset": Reset,
    "forgotten": Forgotten,
}
_NAMES: Final = {cls: name for name, cls in _KINDS.items()}


class PositionsState:
    """`Positions` as a `runnel.state_log.fold.StateType`."""

    def empty(self) -> Positions:
        return {}

    def apply(self, state: Positions, update: Update) -> Positions:
        """The state after an update; ``state`` itself is changed."""
        old = find(state, update.name, update.topic)
        match update:
            case Opened():
                known = _positions_of(old, update.topic_uid)
                starts = _at(update.starts, update.terms, update.at_us)
                reading = Reading(
                    update.topic_uid,
                    update.partition_count,
                    update.session,
                    update.by,
                    update.at_us,
                    {**starts, **known},
                )
                state.setdefault(update.name, {})[update.topic] = reading
            case Reset():
                known = _positions_of(old, update.topic_uid)
                reading = Reading(
                    update.topic_uid,
                    update.partition_count,
                    None,
                    update.by,
                    update.at_us,
                    {**known, **_at(update.offsets, update.terms, update.at_us)},
                )
                state.setdefault(update.name, {})[update.topic] = reading
            case Committed() if old is not None:
                moved = {**old.positions, **_at(update.offsets, update.terms, update.at_us)}
                state[update.name][update.topic] = replace(old, positions=moved)
            case Closed() if old is not None:
                state[update.name][update.topic] = replace(old, session=None)
            case Forgotten() if old is not None:
                del state[update.name][update.topic]
                if not state[update.name]:
                    del state[update.name]
            case Committed() | Closed() | Forgotten():
                # Writers make sure that there is one; nothing could be done here if not.
                pass
            case _:
                assert_never(update)
        return state

    def pack_state(self, state: Positions) -> Any:
        return [
            {
                "name": name,
                "topic": topic,
                "uid": reading.topic_uid,
                "count": reading.partition_count,
                "session": reading.session,
                "by": reading.by,
                "since": reading.since_us,
                "positions": [[p, at.offset, at.at_us] for p, at in reading.positions.items()],
                # Apart, because clients of earlier versions know only three numbers.
                "terms": [[p, at.term] for p, at in reading.positions.items() if at.term],
            }
            for name, topic, reading in readings(state)
        ]

    def read_state(self, data: Any) -> Positions:
        """Raises ValueError, TypeError, KeyError for what `pack_state` does not write."""
        state: Positions = {}
        for item in data:
            terms = _numbers(item.get("terms", ()))
            state.setdefault(read_text(item["name"]), {})[read_text(item["topic"])] = Reading(
                read_text(item["uid"]),
                read_number(item["count"]),
                None if item["session"] is None else read_text(item["session"]),
                read_text(item["by"]),
                _time_us(item["since"]),
                {
                    read_number(p): Position(read_number(offset), _time_us(at), terms.get(p, 0))
                    for p, offset, at in item["positions"]
                },
            )
        return state

    def pack_update(self, update: Update) -> Any:
        data: dict[str, Any] = {"kind": _NAMES[type(update)]}
        for column in fields(update):
            value = getattr(update, column.name)
            data[column.name] = list(value.items()) if isinstance(value, Mapping) else value
        return data

    def read_update(self, data: Any) -> Update:
        """Raises UnsupportedError for a kind of update that this version does not know, ValueError,
        TypeError, KeyError for what `pack_update` does not write."""
        cls = _KINDS.get(data["kind"])
        if cls is None:
            raise UnsupportedError(
                f"updates {data['kind']!r} of consumers' positions are not known to this client;"
                " upgrade it"
            )
        # Clients of earlier versions write no terms.
        given = {"terms": (), **data}
        return cls(
            **{column.name: _read_field(column.name, given[column.name]) for column in fields(cls)}
        )


def _time_us(value: Any) -> int:
    return read_number(value, MAX_TIME_US)


def _numbers(rows: Any) -> dict[int, int]:
    """By partition."""
    return {read_number(partition): read_number(number) for partition, number in rows}


def _read_field(name: str, value: Any) -> Any:
    """The field of an update."""
    match name:
        case "partition_count":
            return read_number(value)
        case "at_us":
            return _time_us(value)
        case "starts" | "offsets" | "terms":
            return _numbers(value)
        case _:
            return read_text(value)


def find(state: Positions, name: str, topic: str) -> Reading | None:
    """The reading of a consumer name at a topic."""
    return state.get(name, {}).get(topic)


def readings(state: Positions) -> Iterator[tuple[str, str, Reading]]:
    """All readings with the names of their consumers and topics, in order."""
    for name in sorted(state):
        for topic in sorted(state[name]):
            yield name, topic, state[name][topic]


def uncommitted(
    reading: Reading | None, topic_uid: str, partitions: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The partitions without a position: those that existed when it was opened last, and those
    added since.

    All are of the first kind if the topic was not read yet.
    """
    known = _positions_of(reading, topic_uid)
    missing = [p for p in partitions if p not in known]
    count = reading.partition_count if reading is not None and known else None
    there = [p for p in missing if count is None or p < count]
    return there, [p for p in missing if p not in there]


def open_reading(state: Positions, wanted: Opened) -> tuple[Update, ...]:
    """Take a reading over, or begin it. Starts count only for partitions without a commit."""
    old = find(state, wanted.name, wanted.topic)
    if old is not None and old.session == wanted.session:
        return ()
    known = _positions_of(old, wanted.topic_uid)
    starts = {p: offset for p, offset in wanted.starts.items() if p not in known}
    terms = {p: term for p, term in wanted.terms.items() if p in starts}
    return (replace(wanted, starts=starts, terms=terms),)


def commit(
    state: Positions,
    name: str,
    topic: str,
    session: str,
    places: Mapping[int, OffsetAndTerm],
    at_us: int,
    *,
    back: bool = False,
    close: bool = False,
) -> tuple[Update, ...]:
    """The updates that commit the ``places`` above the committed ones (with ``back``, all that
    differ from them) and close the session if asked to.

    Raises FencedError if the session does not own the reading any more.
    """
    reading = find(state, name, topic)
    if reading is None or reading.session != session:
        raise FencedError(_why_fenced(name, topic, reading))
    known = {p: at.offset for p, at in reading.positions.items()}
    news = {
        p: place
        for p, place in places.items()
        if place.offset > known.get(p, -1) or (back and place.offset != known[p])
    }
    committed = (Committed(name, topic, at_us, *apart(news)),) if news else ()
    return (*committed, Closed(name, topic)) if close else committed


def forget(state: Positions, name: str, topic: str | None) -> tuple[Forgotten, ...]:
    """The updates that end the readings of a consumer name: of one topic, or of all."""
    return tuple(
        Forgotten(name, known) for known in sorted(state.get(name, {})) if topic in (None, known)
    )


def _why_fenced(name: str, topic: str, reading: Reading | None) -> str:
    head = f"consumer {name!r} of topic {topic!r}"
    tail = "what was read since the last commit is read again by whoever opens it next"
    if reading is None:
        return f"{head} was deleted; {tail}"
    when = time_of(reading.since_us).isoformat(timespec="seconds")
    # A closed reading shows the client that had it open last, or that reset it since.
    done = "was opened again" if reading.session is not None else "was opened again or reset"
    return f"{head} {done} by {reading.by} at {when}: one reads under a name at a time; {tail}"


def _positions_of(reading: Reading | None, topic_uid: str) -> Mapping[int, Position]:
    return reading.positions if reading is not None and reading.topic_uid == topic_uid else {}


def apart(places: Mapping[int, OffsetAndTerm]) -> tuple[dict[int, int], dict[int, int]]:
    """The offsets, and the terms where they are known, as updates have them."""
    offsets = {p: place.offset for p, place in places.items()}
    return offsets, {p: place.term for p, place in places.items() if place.term}


def _at(offsets: Mapping[int, int], terms: Mapping[int, int], at_us: int) -> dict[int, Position]:
    return {p: Position(offset, at_us, terms.get(p, 0)) for p, offset in offsets.items()}
