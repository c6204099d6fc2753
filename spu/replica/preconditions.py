"""What a replica refuses, and the words that it has for it.

`Preconditions.failure` is why it takes no part at all; the others are about one request.
"""

from __future__ import annotations

from schemas.errors import (
    NotEnoughReplicasError,
    NotLeaderError,
    NotReadyError,
    RunnelError,
    StorageFailedError,
    TransactionIdTooLowError,
)
from schemas.wire.batch import BatchHeader
from spu.replica.runner import ReplicaRunner
from spu.replication.state import Leading, ReplicaState


class Preconditions:
    """Of the replica that ``runner`` runs on an SPU."""

    __slots__ = ("_runner", "_spu_id")

    def __init__(self, spu_id: int, runner: ReplicaRunner) -> None:
        self._spu_id = spu_id
        self._runner = runner

    @property
    def failure(self) -> RunnelError | None:
        """Why it takes no part at all, if so."""
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
        """Whether it leads, and what it has is known to be committed."""
        return self.failure is None and self._runner.state.is_serving

    def require_readable(self, state: ReplicaState, *, follower_ok: bool) -> None:
        """Raises why it cannot be read from as ``state`` is."""
        if (refusal := self.failure) is not None:
            raise refusal
        if not follower_ok and state.leading is None:
            raise self.not_leading()
        if state.rebuild is not None:
            raise NotReadyError(f"{self._name} is being rebuilt here; ask its leader")

    def require_leading(self) -> Leading:
        """The leadership. Raises why there is none here."""
        if (leading := self._runner.state.leading) is None:
            raise self.failure or self.not_leading()
        return leading

    def require_serving(self) -> None:
        """Raises why it does not answer for what is committed."""
        self.require_leading()
        if not self.is_serving:
            raise NotReadyError(
                f"the leader of {self._name} has not committed its first record yet; try again"
            )

    def require_min_in_sync(self) -> None:
        """Only what can be committed is appended: the producer then knows that it was not."""
        hard_state = self._runner.state.hard_state
        if hard_state.smallest < hard_state.min_in_sync:
            raise NotEnoughReplicasError(
                f"{self._name} has {hard_state.smallest} live replicas of"
                f" {len(hard_state.replicas)}, minInSyncReplicas is {hard_state.min_in_sync}: wait"
                " until more SPUs are back, or lower minInSyncReplicas of the topic"
            )

    def transaction_id_too_low(self, header: BatchHeader) -> TransactionIdTooLowError:
        """A batch's first id is below the log's last one."""
        last = self._runner.log.last_id
        return TransactionIdTooLowError(
            f"the batch begins with transaction id {header.first_transaction_id}, and"
            f" {self._name} is at {last}: ids of a partition never fall; give {last} or more",
            last_transaction_id=last,
        )

    def unassigned(self) -> NotLeaderError:
        """The SC does not want the replica here."""
        return NotLeaderError(
            f"{self._name} is not assigned to SPU {self._spu_id} any more; its data is"
            " kept until the SC has it deleted"
        )

    def not_leading(self) -> NotLeaderError:
        """Another SPU leads, or none."""
        return NotLeaderError(f"SPU {self._spu_id} does not lead {self._name}; ask the SC who does")

    def _cannot_serve(self, reason: str) -> StorageFailedError:
        return StorageFailedError(
            f"the replica of {self._name} on SPU {self._spu_id} cannot serve: {reason}"
        )

    @property
    def _name(self) -> str:
        return self._runner.meta.name
