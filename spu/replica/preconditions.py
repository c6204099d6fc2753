"""The preconditions of requests to a replica, and the errors that say which one does not hold.

`Preconditions.failure` says why a replica serves no request at all; the others are about one
request.
"""

from __future__ import annotations

from schemas.errors import (
    NotEnoughReplicasError,
    NotLeaderError,
    NotReadyError,
    RunnelError,
    SealedError,
    StorageFailedError,
    TransactionIdTooLowError,
)
from schemas.ids import election_term
from schemas.wire.batch import BatchHeader
from spu.replica.runner import ReplicaRunner
from spu.replication.state import Leading, ReplicaState


class Preconditions:
    """Preconditions of the replica that ``runner`` runs on SPU ``spu_id``."""

    __slots__ = ("_runner", "_spu_id")

    def __init__(self, spu_id: int, runner: ReplicaRunner) -> None:
        self._spu_id = spu_id
        self._runner = runner

    @property
    def failure(self) -> RunnelError | None:
        """Why it serves no request at all; None if it does."""
        runner = self._runner
        if isinstance(runner.halted, StorageFailedError):
            return self._cannot_serve(runner.halted.message)
        if runner.halted is not None:
            return runner.halted
        if runner.unfit is not None:
            return self._cannot_serve(runner.unfit)
        return None if runner.assigned else self.unassigned()

    @property
    def is_serving(self) -> bool:
        """Whether it leads, and has committed the first record of its leadership."""
        return self.failure is None and self._runner.state.is_serving

    @property
    def answers_producers(self) -> bool:
        """Whether it leads, its log is proven, and it need not seal that before: then it appends
        batches or refuses them."""
        return self.failure is None and self._runner.state.answers_producers

    @property
    def is_taking_over(self) -> bool:
        """Whether it is about to append: the SC has named it, and nothing speaks against that."""
        state, assignment = self._runner.state, self._runner.assignment
        told = state.becoming is not None or state.leading is not None
        if not told and assignment is not None and assignment.leader == self._spu_id:
            # The order to lead comes right behind.
            told = election_term(state.newest.term) <= assignment.term
        return told and not self.answers_producers and self.failure is None

    def require_readable(self, state: ReplicaState, *, follower_ok: bool) -> None:
        """Raise an error if it cannot be read from in ``state``."""
        if (refusal := self.failure) is not None:
            raise refusal
        if not follower_ok and state.leading is None:
            raise self.not_leading()
        if state.rebuild is not None:
            raise NotReadyError(f"{self._name} is being rebuilt here; ask its leader")

    def require_leading(self) -> Leading:
        """The leadership. Raises an error if there is none here."""
        if (leading := self._runner.state.leading) is None:
            raise self.failure or self.not_leading()
        return leading

    def require_proven(self) -> Leading:
        """The leadership. Raises an error if there is none, or if it must prove its log first."""
        leading = self.require_leading()
        if leading.proving:
            raise NotReadyError(
                f"the leader of {self._name} still compares its log with those of the other"
                " replicas; try again"
            )
        return leading

    def require_seal(self) -> None:
        """Raise an error if the leader must seal the log before it takes records."""
        if self._runner.state.is_to_seal:
            raise NotReadyError(f"the leader of {self._name} has yet to seal it; try again")

    def require_serving(self) -> None:
        """Raise an error unless `is_serving`."""
        self.require_leading()
        if not self.is_serving:
            raise NotReadyError(
                f"the leader of {self._name} has not committed its first record yet; try again"
            )

    def require_min_in_sync(self) -> None:
        """Raise NotEnoughReplicasError if a record could not be committed: nothing is appended
        then, and the producer knows that."""
        hard_state = self._runner.state.hard_state
        if hard_state.smallest < hard_state.min_in_sync:
            raise NotEnoughReplicasError(
                f"{self._name} has {hard_state.smallest} live replicas of"
                f" {len(hard_state.replicas)}, minInSyncReplicas is {hard_state.min_in_sync}: wait"
                " until more SPUs are back, or lower its minInSyncReplicas"
            )

    @property
    def seal(self) -> int | None:
        """The offset of the record that seals the log, after which no client's record may follow.
        Until it is committed, an election may remove it."""
        return self._runner.state.log.sealed

    def sealed(self, end: int) -> SealedError:
        """The error for a batch that comes after the seal at ``end``."""
        return SealedError(
            f"{self._name} is sealed: it takes no more records, and ends at offset {end}; write to"
            " another topic"
        )

    def being_sealed(self) -> NotEnoughReplicasError:
        """The error for a batch that waited for the seal to be committed, and waited in vain."""
        return NotEnoughReplicasError(
            f"{self._name} is being sealed: it takes no more records, and too few live replicas"
            " have confirmed that so far"
        )

    def not_appended(self) -> NotEnoughReplicasError:
        """The error for a batch against which the log says something that was not committed in
        time."""
        return NotEnoughReplicasError(
            f"{self._name} did not append this batch now; what its log holds against it is not"
            " committed yet, because too few live replicas have confirmed it; try again"
        )

    def transaction_id_too_low(self, header: BatchHeader) -> TransactionIdTooLowError:
        """The error for a batch whose first id is below the log's last one."""
        last = self._runner.log.last_id
        return TransactionIdTooLowError(
            f"the batch begins with transaction id {header.first_transaction_id}, but"
            f" {self._name} is at {last}: ids of a partition never fall; use {last} or more",
            last_transaction_id=last,
        )

    def unassigned(self) -> NotLeaderError:
        """The error of a replica that the SC does not want here."""
        return NotLeaderError(
            f"{self._name} is no longer assigned to SPU {self._spu_id}; its data is kept until the"
            " SC orders its deletion"
        )

    def not_leading(self) -> NotLeaderError:
        """The error of a replica that does not lead: another SPU leads, or none."""
        return NotLeaderError(
            f"SPU {self._spu_id} does not lead {self._name}; ask the SC which SPU does"
        )

    def _cannot_serve(self, reason: str) -> StorageFailedError:
        return StorageFailedError(
            f"the replica of {self._name} on SPU {self._spu_id} cannot serve: {reason}"
        )

    @property
    def _name(self) -> str:
        return self._runner.meta.name
