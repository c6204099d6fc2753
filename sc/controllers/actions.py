"""What controllers ask for. An action is data; updaters carry it out.

KV actions name the revision of the object that they were computed from: if the compare-and-swap of
a write fails, it is computed anew, never repeated. Session actions name the SPU; they are dropped
when its session has ended, because the next session starts from the complete state.
"""

from __future__ import annotations

from dataclasses import dataclass

from sc.store.records import Want
from sc.store.view import Settled
from schemas.control.messages import Assignment, Lead, Tombstone
from schemas.objects.metadata import Object, Status
from schemas.objects.partition import Partition, PartitionSpec
from schemas.objects.spu import Spu, SpuSpec
from schemas.objects.spu_group import SpuGroup
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What to reconcile: an object by kind and name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Replace the status of an object, if it is still at the revision of this copy. The copy may
    lack an annotation that the status answers: one write does both."""

    object: Object
    status: Status


@dataclass(frozen=True, slots=True)
class TellMoves:
    """Say in a stream's status how its replicas move, None once they do not, if it is still at the
    revision of this copy. The SC that leads moves replicas, whoever works for the stream."""

    stream: Stream
    moves: str | None


@dataclass(frozen=True, slots=True)
class WritePartitionSpec:
    """Replace the spec of a partition, if it is still at the revision of this copy."""

    partition: Partition
    spec: PartitionSpec


@dataclass(frozen=True, slots=True)
class BeginMove:
    """Replace the spec of a partition by one that gives it other replicas, if it and the SPUs that
    get one, ``spus``, are at the revisions of these copies, and none of these SPUs is still to
    delete a replica of it. Never carried out while replicas are being placed."""

    partition: Partition
    spec: PartitionSpec
    spus: tuple[Spu, ...]


@dataclass(frozen=True, slots=True)
class EndMove:
    """Replace the spec of a partition by one without those that left, and leave their tombstones,
    if it is at the revision of this copy."""

    partition: Partition
    spec: PartitionSpec
    tombstones: tuple[Tombstone, ...]


@dataclass(frozen=True, slots=True)
class CreateSpu:
    """Create a managed SPU that does not exist yet, if its group is at the revision of this copy.
    The uid is set already."""

    spu: Spu
    group: SpuGroup


@dataclass(frozen=True, slots=True)
class WriteSpuSpec:
    """Replace the spec of a managed SPU, if it is still at the revision of this copy."""

    spu: Spu
    spec: SpuSpec


@dataclass(frozen=True, slots=True)
class RewriteSpu:
    """Write an SPU again as it is, if it is at the revision of this copy.

    It gets another revision: a placement on it that was decided before, and is perhaps still under
    way, fails.
    """

    spu: Spu


@dataclass(frozen=True, slots=True)
class RemoveSpu:
    """Remove an SPU that holds no replica. Never carried out while replicas are being placed, and
    only after a `RewriteSpu` that the mirror shows."""

    spu: Spu


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Create partition objects that do not exist yet, if their owner and the SPUs that they are
    placed on are at the revisions of these copies. The uids are set already.

    ``owner_status`` is the owner's new status in the same transaction; None leaves the owner as it
    is. The first partitions of an owner come with one: a change of the owner that was allowed while
    nothing was placed then fails, because the owner is at another revision.
    """

    owner: Object
    partitions: tuple[Partition, ...]
    spus: tuple[Spu, ...] = ()
    owner_status: Status | None = None


@dataclass(frozen=True, slots=True)
class RestoreTopic:
    """Write a topic anew that somebody removed from the KV while it had partitions, if one of these
    is at the revision of this copy."""

    topic: Topic
    partition: Partition


@dataclass(frozen=True, slots=True)
class MarkDeleting:
    """Begin the deletion of an object."""

    object: Object


@dataclass(frozen=True, slots=True)
class LeaveTombstones:
    """Leave tombstones of a partition that is being deleted, if it is at the revision of this
    copy."""

    partition: Partition
    tombstones: tuple[Tombstone, ...]


@dataclass(frozen=True, slots=True)
class RemovePartition:
    """Remove a partition's object and leave its tombstones, or the last ones of very many, in one
    transaction."""

    partition: Partition
    tombstones: tuple[Tombstone, ...]


@dataclass(frozen=True, slots=True)
class RemoveObject:
    """Remove an object on which nothing depends any more."""

    object: Object


@dataclass(frozen=True, slots=True)
class RemoveTombstone:
    """Forget a tombstone whose deletion the SPU has confirmed."""

    tombstone: Tombstone


@dataclass(frozen=True, slots=True)
class ReplaceTombstone:
    """Have a tombstone name another storage: the SPU has rebuilt the replica before it heard that
    it is to be deleted. Only if the partition, which is not on that SPU, is at the revision of this
    copy."""

    partition: Partition
    tombstone: Tombstone


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a workflow of a stream: records and partitions in one transaction, and its bell.

    It fails unless each record in ``compares`` is at the revision given there (0: absent), which
    always names the stream's state, and each partition at that of its copy. ``puts`` are records
    by path, ``deletes`` paths. Of partitions, ``create`` are new, with their uids, on the SPUs
    ``spus``; ``respec`` get other specs; ``mark`` begin to be deleted. ``same_owner``: also the
    stream's object must be as it is in ``owner``; ``remove_owner`` removes it and its bell.
    """

    owner: Stream
    compares: tuple[tuple[str, int], ...]
    puts: tuple[tuple[str, bytes], ...] = ()
    deletes: tuple[str, ...] = ()
    create: tuple[Partition, ...] = ()
    spus: tuple[Spu, ...] = ()
    respec: tuple[tuple[Partition, PartitionSpec], ...] = ()
    mark: tuple[Partition, ...] = ()
    same_owner: bool = False
    remove_owner: bool = False


KvAction = (
    WriteStatus
    | TellMoves
    | WritePartitionSpec
    | BeginMove
    | EndMove
    | CreateSpu
    | WriteSpuSpec
    | RewriteSpu
    | RemoveSpu
    | CreatePartitions
    | RestoreTopic
    | MarkDeleting
    | LeaveTombstones
    | RemovePartition
    | RemoveObject
    | RemoveTombstone
    | ReplaceTombstone
    | Step
)


@dataclass(frozen=True, slots=True)
class RegisterSpu:
    """Let an SPU connect."""

    spu: Spu


@dataclass(frozen=True, slots=True)
class UnregisterSpu:
    """Stop accepting an SPU, and end its session."""

    name: str
    spu_id: int


@dataclass(frozen=True, slots=True)
class SendComplete:
    """Tell an SPU everything it is to hold."""

    spu_id: int
    generation: int
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class SendAssignment:
    """Tell an SPU about one partition."""

    spu_id: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class SendLead:
    """Make an SPU the leader of a partition."""

    spu_id: int
    lead: Lead


@dataclass(frozen=True, slots=True)
class SendDelete:
    """Have an SPU delete replicas."""

    spu_id: int
    tombstones: tuple[Tombstone, ...]


SessionAction = RegisterSpu | UnregisterSpu | SendComplete | SendAssignment | SendLead | SendDelete


@dataclass(frozen=True, slots=True)
class ProvisionSpu:
    """Run a managed SPU by its spec; restart one that runs by another spec. ``session`` is the one
    that it has now, which ends with its process then."""

    spu: Spu
    session: int | None = None


@dataclass(frozen=True, slots=True)
class EndSpu:
    """Stop a managed SPU."""

    name: str


ProvisionAction = ProvisionSpu | EndSpu


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Look at this key again at a time, in the milliseconds of ``now_ms``."""

    key: Key
    at_ms: int


@dataclass(frozen=True, slots=True)
class Read:
    """Read these records, and ask again with them. It is always the only action."""

    wants: tuple[Want, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Note when something is to be done for an owner next, by its uid: its records need not be read
    before that."""

    uid: str
    settled: Settled


Action = KvAction | SessionAction | ProvisionAction | WakeAt | Read | Settle
