"""From where a stream is to where its next batch ends, and to the slices of that batch. Pure.

A partition that was added is read from its beginning. A topic that was deleted and created again is
another one. What is gone is an error, or left out, as the options say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from schemas.errors import (
    LOST_RECORDS,
    DivergedError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from spark_io.options.read import ReadOptions, TriggerLimits
from spark_io.options.table import FAIL_ON_DATA_LOSS
from spark_io.plan.slices import LogBounds, LogSlice, Plan, TopicBounds
from spark_io.stream.admission import Backlog, admit, waits
from spark_io.stream.offsets import StreamPlace

#: A topic and a partition.
Key = tuple[str, int]
_AGAIN: Final = "begin the query with a new checkpointLocation"


def ends_of(topics: Sequence[TopicBounds]) -> StreamPlace:
    """The place behind all that is committed."""
    return StreamPlace(
        {topic.name: {index: log.end for index, log in topic.logs} for topic in topics},
        {topic.name: topic.uid for topic in topics},
        {
            topic.name: {index: log.term for index, log in topic.logs if log.term}
            for topic in topics
        },
    )


def next_place(
    start: StreamPlace,
    topics: Sequence[TopicBounds],
    options: ReadOptions,
    limits: TriggerLimits,
    since_ms: float,
    target: StreamPlace | None = None,
) -> tuple[StreamPlace, list[str]]:
    """Where the batch from ``start`` on ends, given the logs as they are; and what users should
    hear of.

    ``since_ms``: how long ago the last batch began. ``target``: never read beyond it. Raises
    NotFoundError, DivergedError.
    """
    warnings: list[str] = []
    backlogs: dict[Key, Backlog] = {}
    for name in sorted(start.offsets.keys() - {topic.name for topic in topics}):
        _lost(options, _gone(f"topic {name!r}", options), warnings)
    for topic in topics:
        same = start.uids.get(topic.name, topic.uid) == topic.uid
        if not same:
            _lost(options, _another(topic.name), warnings)
        known = start.offsets.get(topic.name, {}) if same else {}
        for index in sorted(known.keys() - {index for index, _ in topic.logs}):
            _lost(options, _gone(f"partition {index} of topic {topic.name!r}", options), warnings)
        for index, log in topic.logs:
            begin = known.get(index, log.start)
            if index in known and log.diverged_at is not None:
                begin = _begin_again(options, topic.name, index, begin, log, warnings)
            if begin < log.start:
                _lost(options, _deleted(topic.name, index, begin, log.start), warnings)
                begin = log.start
            if begin > log.end:
                text = (
                    f"partition {index} of topic {topic.name!r} ends at {log.end}, and this stream"
                    f" has read up to {begin}: {LOST_RECORDS}. What took their place below"
                    f" {log.end} is not read by this stream; {_AGAIN}"
                )
                _lost(options, DivergedError(text, diverged_at=log.end), warnings)
                begin = log.end
            end = log.end
            if target is not None:
                end = min(end, target.offsets.get(topic.name, {}).get(index, begin))
            held = max(1, log.end - log.start)
            backlogs[topic.name, index] = Backlog(begin, max(begin, end), log.size_bytes / held)
    if target is None and waits(backlogs, limits, since_ms):
        return start, warnings
    ends = admit(backlogs, limits)
    offsets: dict[str, dict[int, int]] = {}
    for (name, index), end in ends.items():
        offsets.setdefault(name, {})[index] = end
    uids = {topic.name: topic.uid for topic in topics}
    terms: dict[str, dict[int, int]] = {}
    for topic in topics:
        for index, log in topic.logs:
            end = offsets[topic.name][index]
            if term := _known_term(topic, index, log, end, start, target):
                terms.setdefault(topic.name, {})[index] = term
    return StreamPlace(offsets, uids, terms), warnings


def untold(place: StreamPlace, topics: Sequence[TopicBounds]) -> dict[str, dict[int, int]]:
    """By topic the offsets of a place whose terms are not known, and can be asked for."""
    found: dict[str, dict[int, int]] = {}
    for topic in topics:
        for index, log in topic.logs:
            offset = place.offsets.get(topic.name, {}).get(index)
            known = place.terms.get(topic.name, {})
            if offset and log.term and index not in known and log.start < offset <= log.end:
                found.setdefault(topic.name, {})[index] = offset
    return found


def with_terms(place: StreamPlace, told: Mapping[str, Mapping[int, int]]) -> StreamPlace:
    """The place with terms that were asked for."""
    terms = {topic: dict(known) for topic, known in place.terms.items()}
    for topic, partitions in told.items():
        if known := {index: term for index, term in partitions.items() if term}:
            terms.setdefault(topic, {}).update(known)
    return replace(place, terms=terms)


def _known_term(
    topic: TopicBounds,
    index: int,
    log: LogBounds,
    offset: int,
    start: StreamPlace,
    target: StreamPlace | None,
) -> int:
    """The term of the last batch below ``offset``, as far as it was told; 0 if not. Where a stream
    does not move, it is what it was: Spark compares the texts. Where other records are in place of
    those that were read, it moves."""
    for place in (target,) if log.diverged_at is not None else (start, target):
        if place is not None and place.uids.get(topic.name) == topic.uid:
            at = place.offsets.get(topic.name, {}).get(index)
            if at == offset:
                return place.terms.get(topic.name, {}).get(index, 0)
    return log.term if offset == log.end else 0


def _begin_again(
    options: ReadOptions, topic: str, index: int, begin: int, log: LogBounds, warnings: list[str]
) -> int:
    """Where a stream goes on that has read records below ``begin`` which are lost."""
    again = log.diverged_at or 0
    text = (
        f"partition {index} of topic {topic!r} holds other records from offset {again} on than this"
        f" stream has read, up to {begin}: {LOST_RECORDS}; {_AGAIN}"
    )
    _lost(options, DivergedError(text, diverged_at=again), warnings)
    return again


def moves(start: StreamPlace, end: StreamPlace, topic: str) -> bool:
    """Is there anything to read of a topic between two places?"""
    return (
        start.offsets.get(topic) != end.offsets[topic]
        or start.uids.get(topic) != end.uids[topic]
        or start.terms.get(topic, {}) != end.terms.get(topic, {})
    )


def plan_batch(
    start: StreamPlace,
    end: StreamPlace,
    topics: Sequence[TopicBounds],
    options: ReadOptions,
) -> Plan:
    """The slices from one place to another; nothing is asked of a partition that does not move.
    ``topics``: the logs of those that do, as they are now.

    Raises NotFoundError where a topic is gone, OffsetOutOfRangeError where records between were
    deleted meanwhile.
    """
    plan = Plan()
    logs = {(topic.name, index): log for topic in topics for index, log in topic.logs}
    now = {topic.name: topic.uid for topic in topics}
    for name in end.offsets:
        if not moves(start, end, name):
            continue
        uid = end.uids[name]
        if now.get(name) != uid:
            error = _gone(f"topic {name!r}", options) if name not in now else _another(name)
            _lost(options, error, plan.warnings)
            continue
        known = start.offsets.get(name, {}) if start.uids.get(name, uid) == uid else {}
        for index, stop in end.offsets[name].items():
            start_term = start.terms.get(name, {}).get(index, 0) if index in known else 0
            end_term = end.terms.get(name, {}).get(index, 0)
            if known.get(index) == stop and start_term == end_term:
                continue
            log = logs.get((name, index))
            if log is None:
                gone = _gone(f"partition {index} of topic {name!r}", options)
                _lost(options, gone, plan.warnings)
                continue
            begin = known.get(index, log.start)
            if index in known and log.diverged_at is not None:
                begin = _begin_again(options, name, index, begin, log, plan.warnings)
                start_term = 0
            if begin < (first := min(log.start, stop)):
                _lost(options, _deleted(name, index, begin, first), plan.warnings)
                begin, start_term = first, 0
            held = max(1, log.end - log.start)
            piece = LogSlice(
                name,
                uid,
                index,
                min(begin, stop),
                stop,
                start_term=start_term,
                end_term=end_term,
                most_term=end_term or log.term,
            )
            plan.slices.append(piece)
            plan.sizes.append(log.size_bytes * max(0, stop - begin) // held)
    return plan


def _gone(what: str, options: ReadOptions) -> NotFoundError:
    return NotFoundError(
        f"{what} of this stream is not there: it was deleted, or option {options.topics.option}"
        f" chooses it no longer; {_AGAIN}"
    )


def _another(topic: str) -> NotFoundError:
    return NotFoundError(
        f"topic {topic!r} was deleted and created again since this stream read it; {_AGAIN}"
    )


def _deleted(topic: str, index: int, begin: int, first: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"partition {index} of topic {topic!r}: offsets {begin} to {first - 1} were deleted before"
        f" this stream read them; {_AGAIN}",
        firstAvailable=first,
        partition=index,
    )


def _lost(
    options: ReadOptions,
    error: NotFoundError | DivergedError | OffsetOutOfRangeError,
    warnings: list[str],
) -> None:
    if options.fail_on_data_loss:
        error.message += f", or {FAIL_ON_DATA_LOSS}=false to go on without what is lost"
        error.args = (error.message,)
        raise error
    warnings.append(f"{error.message}; the stream goes on without it")
