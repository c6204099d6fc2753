"""`Partition`: the one replicated log of the system, and who may write to it."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field, field_validator

from schemas.ids import Term
from schemas.model import CaselessEnum, Model
from schemas.objects.metadata import Object, OwnerReference, Status
from schemas.objects.spu import MAX_SPU_ID
from schemas.objects.topic import LogSettings, SharedLogSettings

#: Annotation of a partition that waits for an unclean election; its value is an `UncleanElection`.
UNCLEAN_ELECTION: Final = "runnel/unclean-election"


def incarnation_of(term: int) -> int:
    """The incarnation of the cluster in which a term began: its upper 16 bits."""
    return term >> 48


class DesiredState(CaselessEnum):
    OPEN = "open"
    SEALED = "sealed"


class PartitionSpec(Model):
    """Written by the owner's controller; the truth about placement."""

    owner: OwnerReference
    """The object that this partition belongs to."""
    index: int | None = Field(default=None, ge=0)
    """Number within its topic."""
    segment_id: int | None = Field(default=None, ge=0)
    """Number within its stream."""
    replicas: tuple[int, ...] = Field(min_length=1)
    """SPUs that are to hold a replica."""
    joining: tuple[int, ...] | None = Field(default=None, min_length=1)
    """While replicas move: those of `replicas` that were added and have not caught up yet."""
    leaving: tuple[int, ...] | None = Field(default=None, min_length=1)
    """While replicas move: SPUs that hold a replica until those of `replicas` can do without."""
    preferred_leader: int
    """The preferred leader."""
    desired: DesiredState = DesiredState.OPEN
    """open, or sealed: it takes no more records."""
    truncate_before: int | None = Field(default=None, ge=0)
    """Records below this offset are to be removed."""
    archived_before: int | None = Field(default=None, ge=0)
    """Of a topic with an archive: records below this offset are in it, and retention keeps those
    from there on."""
    log: SharedLogSettings = LogSettings()
    """Settings of the log."""

    @property
    def holders(self) -> tuple[int, ...]:
        """SPUs that hold a replica now, or are about to."""
        return self.replicas if self.leaving is None else (*self.replicas, *self.leaving)

    @property
    def moves(self) -> bool:
        """Whether replicas are on their way from some SPUs to others."""
        return self.joining is not None or self.leaving is not None


class PartitionResolution(CaselessEnum):
    OFFLINE = "offline"
    ONLINE = "online"
    SEALED = "sealed"
    DELETING = "deleting"


class LiveReplica(Model):
    """A member of the live replica set: an SPU together with the storage it had when it joined."""

    spu_id: int
    storage_id: str


class PartitionStatus(Status):
    """``term`` is an election term: restarts of the leader are left out."""

    resolution: PartitionResolution = PartitionResolution.OFFLINE
    """Whether it serves records."""
    leader: int | None = None
    """The SPU that leads, or led last."""
    term: Term = Term(0)
    """Grows with every change of the leader."""
    unclean_term: Term | None = None
    """The last term whose leader may lack records that were committed before; never forgotten."""
    lrs: tuple[LiveReplica, ...] = ()
    """The live replica set: replicas that hold every committed record."""
    start_offset: int = 0
    """The last truncation that took effect: records below are gone. Retention may have removed
    more, which is not recorded here: ask the partition's leader for its earliest offset."""
    writable: bool | None = None
    """false while the partition has a leader, but commits no records: see reason. Left out while
    nothing is known to be in the way."""
    sealed_offset: int | None = None
    """Of a sealed partition, the offset after its last record."""

    @field_validator("term", "unclean_term")
    @classmethod
    def _no_restarts(cls, term: int | None) -> Term | None:
        if term is not None and term & 0xFFFF:
            raise ValueError("the term of a status does not count restarts")
        return None if term is None else Term(term)

    @property
    def incarnation(self) -> int:
        """The incarnation of the cluster in which the leader was elected."""
        return incarnation_of(self.term)


def is_led(status: PartitionStatus) -> bool:
    """Whether an SPU leads it, so that it can be read; a sealed one takes no records."""
    return status.resolution in (PartitionResolution.ONLINE, PartitionResolution.SEALED)


def taking_over(spu_id: int) -> str:
    """The reason of a partition whose leader was elected and does not lead yet. Pure."""
    return f"SPU {spu_id} is taking over"


def is_taking_over(status: PartitionStatus) -> bool:
    """Whether its leader was elected, and nothing is known that keeps it from leading."""
    return status.leader is not None and status.reason == taking_over(status.leader)


def has_lost_leader(status: PartitionStatus) -> bool:
    """Whether it had a leader, has none, and no other replica may take over now."""
    offline = status.resolution is PartitionResolution.OFFLINE
    return offline and status.leader is not None and not is_taking_over(status)


def is_writable(partition: Partition) -> bool:
    """Whether it has a leader, and nothing is known that keeps it from committing records."""
    status = partition.status
    return status.resolution is PartitionResolution.ONLINE and status.writable is not False


def missed(partition: Partition) -> list[int]:
    """SPUs whose replicas are not live and should be. One that has just been added is not missed.
    Pure."""
    spec, live = partition.spec, {member.spu_id for member in partition.status.lrs}
    return [i for i in spec.replicas if i not in live and i not in (spec.joining or ())]


def is_under_replicated(partition: Partition) -> bool:
    """Whether a replica is not live that should be."""
    return bool(missed(partition))


class UncleanElection(Model):
    """An operator's request: elect one of the replicas that are online, and lose what it lacks.

    It is void when the partition is at another term.
    """

    term: Term = Field(ge=0, lt=1 << 64)
    """The term of the partition's status, as the operator saw it."""
    leader: int | None = Field(default=None, ge=0, le=MAX_SPU_ID)
    """The SPU that is to lead; by default, of those online the one whose log is furthest ahead."""


class Truncation(Model):
    """A request to remove the oldest records of a partition, on every replica, for good."""

    before: int = Field(ge=0, lt=1 << 62, strict=True)
    """Records below this offset are removed; uncommitted ones as soon as they are committed."""
    force: bool | None = None
    """true: also records of a topic with an archive that are not in it yet."""


class ArchivedRange(Model):
    """What an archive says of a partition: records below an offset are in it, and listed.

    It is refused unless the partition's ``archivedBefore`` is as the writer saw it, and no unclean
    election came since: after that, the log may hold other records than the archive.
    """

    before: int = Field(ge=0, lt=1 << 62, strict=True)
    """Records below this offset are archived."""
    was: int = Field(ge=0, lt=1 << 62, strict=True)
    """The partition's ``archivedBefore``, as the writer saw it."""
    unclean_term: int | None = Field(default=None, ge=0, lt=1 << 64)
    """The partition's ``status.uncleanTerm``, as the writer saw it before it compared the log with
    the archive."""


class Partition(Object):
    PLURAL: ClassVar[str] = "partitions"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("p",)
    SYSTEM_WRITTEN: ClassVar[bool] = True

    kind: Literal["Partition"] = "Partition"
    spec: PartitionSpec
    status: PartitionStatus = PartitionStatus()
