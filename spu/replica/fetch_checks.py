"""Checks that a fetch names an offset of the log, and that the log agrees with the reader. Pure.

A fetch carries the offset to read from and the term of the batch that the reader read before it. If
the log does not hold that batch, it was lost, and the reader is told from which offset on its
records may differ. A reader without such a batch may say that what lies below the offset was
committed.
"""

from __future__ import annotations

from schemas.errors import (
    DivergedError,
    InvalidRequestError,
    OffsetOutOfRangeError,
)
from schemas.ids import format_term
from schemas.wire.record_requests import FetchFlags, FetchRequest
from spu.replication.history import common_end, diverged_at
from spu.replication.state import ReplicaState


def require_agreement(name: str, state: ReplicaState, request: FetchRequest) -> None:
    """Raise DivergedError if partition ``name`` does not hold what the reader has read,
    OffsetOutOfRangeError if it ends before what the reader knows to be committed, and
    InvalidRequestError for a negative offset."""
    if request.offset < 0:
        raise InvalidRequestError(f"offset {request.offset} is negative; offsets begin at 0")
    log = state.log
    if request.term and request.offset > log.start:
        require_held(name, state, request.offset, request.term)
        return
    known_below = FetchFlags.COMMITTED_BELOW in request.flags
    # Only a leader that serves holds everything that is committed.
    if known_below and state.is_serving and request.offset > log.leo:
        raise above_end(name, request.offset, log.leo)


def require_held(name: str, state: ReplicaState, offset: int, term: int) -> None:
    """Raise DivergedError if partition ``name`` does not hold what was read below ``offset``, of
    which the last batch was of ``term``. What lies below the log's start is not compared."""
    log, leads = state.log, state.leading is not None
    known_end = log.leo if leads else state.lac + 1
    if offset <= log.start:
        return
    if offset <= known_end:
        place = diverged_at(log.history, offset, term, known_end)
    elif leads and state.is_serving:
        # A reader reads only committed records, and a leader that serves holds all of these.
        place = min(common_end(log.history, term, log.leo), log.leo)
    else:
        return
    if place is not None:
        raise DivergedError(
            f"{name} no longer holds what was read before offset {offset} in term"
            f" {format_term(term)}: it differs from offset {place} on; read again from there",
            diverged_at=place,
        )


def above_end(name: str, offset: int, leo: int) -> OffsetOutOfRangeError:
    """The error for an ``offset`` above the end of the log of partition ``name``."""
    return OffsetOutOfRangeError(f"offset {offset} of {name} is above the end of its log, {leo}")


def truncated(name: str, offset: int, log_start: int) -> OffsetOutOfRangeError:
    """The error for an ``offset`` below the start of the log of partition ``name``."""
    return OffsetOutOfRangeError(
        f"offset {offset} of {name} was truncated; the first available offset is {log_start}",
        firstAvailable=log_start,
    )
