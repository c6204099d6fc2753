"""Whether a fetch names a place that the log has, and whether its reader's past stands in it. Pure.

A fetch carries the offset that it goes on from and the term of the batch before. Where a log does
not hold that record, an unclean election took it away, and the reader is told from where on.
"""

from __future__ import annotations

from schemas.errors import DivergedError, InvalidRequestError, OffsetOutOfRangeError
from schemas.ids import format_term
from schemas.wire.record_requests import FetchRequest
from spu.replication.history import common_end, diverged_at
from spu.replication.state import ReplicaState


def require_agreement(name: str, state: ReplicaState, request: FetchRequest) -> None:
    """Raise DivergedError if partition ``name`` does not hold what the reader has read before,
    InvalidRequestError for an offset that no log has."""
    if request.offset < 0:
        raise InvalidRequestError(f"offset {request.offset} is negative; ask from 0 on")
    log, leads = state.log, state.leading is not None
    known_end = log.leo if leads else state.lac + 1
    if not request.term or request.offset <= log.start:
        return
    if request.offset <= known_end:
        place = diverged_at(log.history, request.offset, request.term, known_end)
    elif leads and state.is_serving:
        # What was read was committed, and a leader that serves has all that is.
        place = min(common_end(log.history, request.term, log.leo), log.leo)
    else:
        return
    if place is not None:
        raise DivergedError(
            f"{name} does not hold any more what was read before offset {request.offset} in term"
            f" {format_term(request.term)}: it differs from offset {place} on, after an unclean"
            " election; read again from there",
            diverged_at=place,
        )


def truncated(name: str, offset: int, log_start: int) -> OffsetOutOfRangeError:
    """``offset`` is below the start of the log of partition ``name``."""
    return OffsetOutOfRangeError(
        f"offset {offset} of {name} was truncated; the first one available is {log_start}",
        firstAvailable=log_start,
    )
