"""Look-ups in a replica's log: its ends, a time, a transaction id, its segments.

Only a leader that serves can say where the log ends for readers, and which offset belongs to a time
or an id. Any leader knows the first offset, and any replica its segments. No answer is above the
last add confirmed. Neighbours: `spu.replica.replica` (which holds this),
`spu.storage.readable_log` (the look-ups on the disk).
"""

from __future__ import annotations

from schemas.errors import InvalidRequestError
from schemas.wire.log_requests import ListSegmentsResponse, SegmentInfo
from schemas.wire.record_requests import EARLIEST, LATEST, ListOffsetsResponse, PositionBy
from spu.replica.fetch_checks import require_held
from spu.replica.preconditions import Preconditions
from spu.replica.runner import ReplicaRunner
from spu.replication.history import term_at


class ReplicaOffsets:
    """Look-ups in the log that ``runner`` runs."""

    def __init__(self, runner: ReplicaRunner, preconditions: Preconditions) -> None:
        self._runner = runner
        self._preconditions = preconditions

    def require_held(self, offset: int, term: int) -> None:
        """Raise DivergedError if the log no longer holds what was read below ``offset``, of which
        the last batch was of ``term``. Raises NotReadyError, NotLeaderError."""
        state = self._runner.state
        self._preconditions.require_readable(state, follower_ok=False)
        require_held(self._runner.meta.name, state, offset, term)

    def list_offsets(
        self, position: int, by: PositionBy = PositionBy.TIMESTAMP
    ) -> ListOffsetsResponse:
        """The offset of `EARLIEST` or `LATEST`, or a given one. Raises NotReadyError,
        NotLeaderError."""
        if position == EARLIEST:
            self._preconditions.require_readable(self._runner.state, follower_ok=False)
            return self._bounds(self._log_start, by)
        if position >= 0 and by is PositionBy.OFFSET:
            self._preconditions.require_serving()
            return self._bounds(position, by)
        if position != LATEST:
            raise InvalidRequestError(
                f"position {position} means nothing; ask for {EARLIEST} (earliest), {LATEST}"
                " (latest) or a timestamp in microseconds"
            )
        self._preconditions.require_serving()
        return self._bounds(self._end, by)

    def find_offset(self, position: int, by: PositionBy) -> ListOffsetsResponse:
        """The first batch at or after a time, or of a transaction id or a larger one.

        Blocks on the disk: call it from a thread. Raises as `list_offsets`; Damage, OSError.
        """
        self._preconditions.require_serving()
        if by is PositionBy.TRANSACTION_ID:
            found = self._runner.log.offset_for_transaction_id(position, self._lac + 1)
        else:
            found = self._runner.log.offset_for_timestamp(position, self._lac + 1)
        return self._bounds(max(min(found, self._end), self._log_start), by)

    def list_segments(self) -> tuple[ListSegmentsResponse, list[SegmentInfo]]:
        """Every segment of this replica's log, whether or not it leads.

        Raises the error of a replica that takes no part.
        """
        if (refusal := self._preconditions.failure) is not None:
            raise refusal
        log = self._runner.log
        bounds = ListSegmentsResponse(log.version, self._log_start, self._end - 1)
        return bounds, log.segment_infos()

    @property
    def _lac(self) -> int:
        return self._runner.state.lac

    @property
    def _end(self) -> int:
        """The offset after the last committed record. Nothing that readers want follows a seal."""
        sealed = self._runner.state.sealed_end
        return self._lac + 1 if sealed is None else sealed

    @property
    def _log_start(self) -> int:
        return self._runner.maintenance.visible_start

    def _bounds(self, offset: int, by: PositionBy) -> ListOffsetsResponse:
        # Read once: the state may change while a thread is in here.
        state = self._runner.state
        term = term_at(state.log.history, offset - 1) if offset <= state.lac + 1 else 0
        size = self._runner.log.size_bytes
        return ListOffsetsResponse(offset, self._log_start, state.lac, size, by, term)
