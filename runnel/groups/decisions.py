"""What may happen to a reader group: functions from its state to updates. Pure.

They raise FencedError for a reader whose session is over, NotFoundError for a group that is not
there, and give no updates where there is nothing to do. `runnel.state_log.log` appends the updates
if the state is still the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runnel.groups.balance import to_acquire, to_release
from runnel.groups.places import Places, SourceSegment, Successor
from runnel.groups.state import (
    MAX_OUTSTANDING,
    Acquired,
    CheckpointBegun,
    CheckpointPassed,
    Created,
    Deleted,
    Ended,
    Found,
    GroupConfig,
    Groups,
    GroupState,
    Joined,
    Left,
    Moved,
    Released,
    Reset,
    Update,
)
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import time_of
from schemas.errors import ConflictError, FencedError, NotFoundError, OverloadedError

PlacesOf = Mapping[SourceSegment, OffsetAndTerm]


def find(state: Groups, group: str) -> GroupState:
    """Raises NotFoundError."""
    if (found := state.get(group)) is None:
        raise NotFoundError(
            f"there is no reader group {group!r}; `runnel group list` names those that are there"
        )
    return found


def create(
    state: Groups,
    group: str,
    config: GroupConfig,
    places: Places,
    by: str,
    at_us: int,
) -> tuple[Update, ...]:
    """Make a group; nothing if it is there with the same sources and settings. Raises ConflictError
    if it is there with others."""
    if (there := state.get(group)) is None:
        return (Created(group, config, places, by, at_us),)
    if (why := difference(there.config, config)) is not None:
        raise ConflictError(
            f"reader group {group!r} is there, and {why}; leave that out to use it as it is, or"
            f" delete it: runnel group delete {group}"
        )
    return ()


def difference(there: GroupConfig, wanted: GroupConfig) -> str | None:
    """What two configurations differ in, in words."""
    if dict(there.sources) != dict(wanted.sources):
        names = ", ".join(sorted(there.sources)) or "nothing"
        if there.sources.keys() == wanted.sources.keys():
            return f"one of its sources was deleted and created again since: {names}"
        return f"reads {names}"
    if there.lease_ms != wanted.lease_ms:
        return f"its lease is {there.lease_ms / 1000:g} s"
    if there.checkpoint_every_ms != wanted.checkpoint_every_ms:
        return f"it makes a checkpoint every {there.checkpoint_every_ms / 1000:g} s"
    if there.retention != wanted.retention:
        return f"its retention is {there.retention}"
    if dict(there.end) != dict(wanted.end):
        return "it ends at a place, which is another one" if there.end else "it has no end"
    return None


def delete(state: Groups, group: str) -> tuple[Update, ...]:
    find(state, group)
    return (Deleted(group),)


def reset(state: Groups, group: str, places: Places, by: str, at_us: int) -> tuple[Update, ...]:
    find(state, group)
    return (Reset(group, places, by, at_us),)


def join(
    state: Groups, group: str, reader: str, session: str, by: str, at_us: int
) -> tuple[Update, ...]:
    """Begin a session under a name; an earlier one of that name is over, as that of a named
    consumer is."""
    there = find(state, group)
    known = there.readers.get(reader)
    if known is not None and known.session == session:
        return ()
    over = () if known is None else (Left(group, reader, {}),)
    return (*over, Joined(group, reader, session, by, at_us))


def leave(
    state: Groups, group: str, reader: str, session: str, places: PlacesOf
) -> tuple[Update, ...]:
    """End a session; nothing if it is over."""
    there = state.get(group)
    if there is None or not _has_session(there, reader, session):
        return ()
    return (Left(group, reader, _own(there, reader, places)),)


def offline(state: Groups, group: str, reader: str) -> tuple[Update, ...]:
    """A user says that a reader is gone. Raises NotFoundError if it is not there."""
    there = find(state, group)
    if reader not in there.readers:
        names = ", ".join(sorted(there.readers)) or "none"
        raise NotFoundError(
            f"reader group {group!r} has no reader {reader!r}; its readers: {names}"
        )
    return (Left(group, reader, {}),)


def expire(
    state: Groups, group: str, reader: str, session: str, counter: int
) -> tuple[Update, ...]:
    """A reader is dead, if it has shown no life since its counter was this."""
    there = state.get(group)
    known = None if there is None else there.readers.get(reader)
    if known is None or (known.session, known.counter) != (session, counter):
        return ()
    return (Left(group, reader, {}),)


def move(
    state: Groups,
    group: str,
    reader: str,
    session: str,
    places: PlacesOf,
    *,
    alive: bool = False,
) -> tuple[Update, ...]:
    """A reader has processed what is below these places. ``alive``: it says so even if that is
    known, to show that it is alive."""
    there = _session_of(state, group, reader, session)
    own = _own(there, reader, places)
    news = {one: at for one, at in own.items() if at.offset != there.places.open[one].offset}
    return (Moved(group, reader, news),) if news or alive else ()


def acquire(state: Groups, group: str, reader: str, session: str) -> tuple[Update, ...]:
    there = _session_of(state, group, reader, session)
    wanted = to_acquire(there, reader)
    return (Acquired(group, reader, wanted),) if wanted else ()


def release(
    state: Groups, group: str, reader: str, session: str, places: PlacesOf
) -> tuple[Update, ...]:
    """Give back segments, with the places up to which they are processed."""
    there = _session_of(state, group, reader, session)
    own = _own(there, reader, places)
    return (Released(group, reader, own),) if own else ()


def releases(state: Groups, group: str, reader: str, session: str) -> tuple[SourceSegment, ...]:
    """The segments that a reader should give back."""
    return to_release(_session_of(state, group, reader, session), reader)


def end(
    state: Groups,
    group: str,
    reader: str,
    session: str,
    segment: SourceSegment,
    at: OffsetAndTerm,
    successors: Sequence[Successor],
) -> tuple[Update, ...]:
    """A reader has processed all of a segment, up to where the group ends in it, if it does;
    nothing if it is not its own any more."""
    there = _session_of(state, group, reader, session)
    if there.owners.get(segment) != reader:
        return ()
    return (Ended(group, reader, segment, at, tuple(successors)),)


def found(
    state: Groups, group: str, reader: str, session: str, segments: Sequence[SourceSegment]
) -> tuple[Update, ...]:
    """Partitions of a topic, of which some may be new; of a group that ends, these are behind its
    end."""
    there = _session_of(state, group, reader, session)
    behind = there.config.behind_end(segments)
    news = tuple(one for one in segments if one not in there.places.keys and one not in behind)
    return (Found(group, reader, news),) if news else ()


def begin_checkpoint(
    state: Groups, group: str, checkpoint: str, at_us: int, *, silent: bool
) -> tuple[Update, ...]:
    """Ask all readers to say how far they are. Raises OverloadedError if too many checkpoints are
    under way, unless this one is silent."""
    there = find(state, group)
    if len(there.checkpoints) >= MAX_OUTSTANDING:
        if silent:
            return ()
        slow = sorted({reader for one in there.checkpoints for reader in one.waiting})
        raise OverloadedError(
            f"reader group {group!r} has {MAX_OUTSTANDING} checkpoints that wait for its readers"
            f" {', '.join(slow)}: each passes them when it asks for its next record; try again"
        )
    return (CheckpointBegun(group, checkpoint, silent, at_us),)


def pass_checkpoints(
    state: Groups, group: str, reader: str, session: str, places: PlacesOf, at_us: int
) -> tuple[Update, ...]:
    """Say how far a reader is to all checkpoints that wait for it."""
    there = _session_of(state, group, reader, session)
    own = _own(there, reader, places)
    return tuple(
        CheckpointPassed(group, reader, one.id, own, at_us) for one in there.pending(reader)
    )


def _session_of(state: Groups, group: str, reader: str, session: str) -> GroupState:
    """The group, if the reader's session goes on. Raises FencedError, NotFoundError."""
    there = find(state, group)
    if _has_session(there, reader, session):
        return there
    known = there.readers.get(reader)
    head = f"reader {reader!r} of group {group!r}"
    tail = "what it read since its last commit is read again"
    if known is not None:
        since = time_of(known.since_us).isoformat(timespec="seconds")
        raise FencedError(
            f"{head} was opened again by {known.by} at {since}: one process reads under a name at"
            f" a time; {tail}",
            taken=True,
        )
    raise FencedError(
        f"{head} is no longer in its group: it showed no life for its lease of"
        f" {there.config.lease_ms / 1000:g} s, or the group was reset; {tail}",
        taken=False,
    )


def _has_session(group: GroupState, reader: str, session: str) -> bool:
    known = group.readers.get(reader)
    return known is not None and known.session == session


def _own(group: GroupState, reader: str, places: PlacesOf) -> dict[SourceSegment, OffsetAndTerm]:
    """Those places that are of segments of the reader."""
    return {one: at for one, at in places.items() if group.owners.get(one) == reader}
