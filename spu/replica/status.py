"""A replica's status for the SC: its role, whether it is fit, and where its log ends.

A new report is sent when `ReplicaStatus.summary` differs; it leaves out offsets that change with
every append. Neighbours: `spu.replica.replica` (which decides when to report), `spu.control` (which
sends reports).
"""

from __future__ import annotations

from schemas.control.messages import ReplicaReport, ReplicaRole
from schemas.errors import RunnelError, StorageFailedError
from schemas.ids import StorageId, Term
from schemas.objects.partition import LiveReplica
from spu.load.verdict import SegmentLoad
from spu.replica.preconditions import Preconditions
from spu.replica.runner import ReplicaRunner
from spu.replication.state import OLD, UNCLEAN_BOOT, Phase
from spu.storage.disk_space import SpaceWatch


class ReplicaStatus:
    """The status of the replica that ``runner`` runs."""

    def __init__(
        self,
        runner: ReplicaRunner,
        preconditions: Preconditions,
        space: SpaceWatch,
        load: SegmentLoad,
    ) -> None:
        self._runner = runner
        self._preconditions = preconditions
        self._space = space
        self._load = load

    @property
    def fit(self) -> bool:
        return self._runner.unfit is None and not isinstance(
            self._runner.halted, StorageFailedError
        )

    @property
    def is_uncleanly_booted(self) -> bool:
        """Whether it is unfit only because of an unclean boot."""
        return self._runner.halted is None and self._runner.unfit == UNCLEAN_BOOT

    @property
    def refuses_because(self) -> str | None:
        """Why it refuses records, although it leads; None if it takes them, or does not lead."""
        return None if self._runner.state.leading is None else self._space.refuses_because

    @property
    def is_old(self) -> bool:
        """Whether it is unfit only because its disk is old."""
        return self._runner.halted is None and (self._runner.unfit or "").startswith(OLD)

    @property
    def role(self) -> ReplicaRole:
        return self._role(self._preconditions.failure)

    def report(self) -> ReplicaReport:
        """Its state for the SC."""
        runner = self._runner
        hard_state, log = runner.state.hard_state, runner.state.log.durable_part
        refusal = self._preconditions.failure
        return ReplicaReport(
            uid=runner.meta.uid,
            storage_id=StorageId(hard_state.storage),
            role=self._role(refusal),
            term=Term(hard_state.term),
            revision=hard_state.revision,
            lrs=tuple(LiveReplica(spu_id=m.spu, storage_id=m.storage) for m in hard_state.lrs),
            log_start=runner.maintenance.visible_start,
            leo=log.leo,
            last_term=Term(log.last_term),
            fit=self.fit,
            unclean_boot=self.is_uncleanly_booted,
            old=self.is_old or None,
            incarnation=hard_state.incarnation,
            assigned=runner.assigned,
            reason=self._reason(refusal),
            sealed=runner.state.sealed_end,
            load=self._load.report,
            unclean_term=Term(hard_state.unclean_term) or None,
        )

    def summary(self) -> tuple[object, ...]:
        """What a report says, without offsets that change with every append. Of the log's start, it
        says only how far a truncation has taken effect."""
        runner, refusal = self._runner, self._preconditions.failure
        state = runner.state
        return (
            self._role(refusal),
            refusal is None and state.is_serving,
            runner.assigned,
            state.hard_state,
            runner.maintenance.truncated,
            self._reason(refusal),
            state.sealed_end,
            self._load.report,
        )

    def _reason(self, refusal: RunnelError | None) -> str | None:
        return refusal.message if refusal else self.refuses_because or self._runner.refuses_cut

    def _role(self, refusal: RunnelError | None) -> ReplicaRole:
        state = self._runner.state
        if refusal is not None:
            return ReplicaRole.STOPPED
        if state.may_append:
            return ReplicaRole.LEADER
        if state.following is not None and state.following.phase is Phase.MATCHED:
            return ReplicaRole.FOLLOWER
        return ReplicaRole.IDLE
